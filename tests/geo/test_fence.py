from typing import get_args

import pytest

from geomq.geo import Box, Circle, Fence, Location, MultiPolygon, Polygon

RING = [(0, 0), (0, 10), (10, 10), (10, 0), (0, 0)]
FENCES: list[Fence] = [Circle(Location(5, 5), 500_000), Polygon([RING]), MultiPolygon([Polygon([RING])])]


def test_a_fence_is_a_circle_a_polygon_or_a_multipolygon() -> None:
    assert get_args(Fence) == (Circle, Polygon, MultiPolygon)


@pytest.mark.parametrize("fence", FENCES)
def test_every_fence_answers_the_same_questions(fence: Fence) -> None:
    assert fence.contains(Location(5, 5))
    assert not fence.contains(Location(50, 5))
    assert fence.contains_many([5, 50], [5, 5]).tolist() == [True, False]
    assert fence.meets_box(Box(5, 6, 5, 6))
    assert not fence.meets_box(Box(50, 60, 5, 6))
    assert isinstance(fence.bounds()[0], Box)
    assert fence in {fence}
