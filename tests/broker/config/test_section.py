from typing import Annotated

import msgspec
import pytest

from geomq.broker.config.section import Port, Section, about


class Door(Section, frozen=True):
    """A section with one key."""

    port: Annotated[Port, about("Where it is.")] = 80


def test_a_section_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Door().port = 81  # type: ignore[misc]


def test_a_section_refuses_keys_it_does_not_know_and_values_out_of_bounds() -> None:
    assert msgspec.convert({"port": 8080}, Door).port == 8080
    with pytest.raises(msgspec.ValidationError, match="unknown field `host`"):
        msgspec.convert({"host": "here"}, Door)
    with pytest.raises(msgspec.ValidationError, match="<= 65535"):
        msgspec.convert({"port": 65_536}, Door)
