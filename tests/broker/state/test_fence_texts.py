"""Fences are known by their texts."""

import pytest

from geomq.broker.state.fence_texts import FenceTexts
from geomq.errors import GeometryError
from geomq.geo import DEFAULT_LIMITS, Circle, Location


def test_fences_are_parsed_once_and_the_memory_is_bounded() -> None:
    texts = FenceTexts(DEFAULT_LIMITS)
    first = texts["geo:1,2;u=30"]
    assert first == Circle(Location(1.0, 2.0), 30.0)
    assert texts["geo:1,2;u=30"] is first
    for number in range(FenceTexts.COUNT_MAX + 10):
        texts[f"geo:1,2;u={number}"]
    assert len(texts) <= FenceTexts.COUNT_MAX
    with pytest.raises(GeometryError):
        texts["nonsense"]
