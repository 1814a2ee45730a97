import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.geo.shapes import ACROSS, ARCTIC, CIRCLES, FENCES, LOCATIONS, PLANAR, SQUARE

from geomq.geo import (
    HALF_CIRCUMFERENCE_M,
    Circle,
    Fence,
    Location,
    MultiPolygon,
    Polygon,
    degrees_to_m,
    distances_m,
    fences_meet,
    parse_fence,
)
from geomq.geo.meet import circles_meet, fence_edges


def border_distance_m(place: Location, fence: Polygon | MultiPolygon, samples: int) -> float:
    """Distance to a dense sample of the border."""
    edges = fence_edges(fence)
    share = np.linspace(0, 1, samples)[:, None]
    lats = edges[:, 0] + (edges[:, 2] - edges[:, 0]) * share
    lons = edges[:, 1] + (edges[:, 3] - edges[:, 1]) * share
    return float(distances_m(lats, lons, place.lat, place.lon).min())


def test_edges_are_those_of_every_ring_of_every_part() -> None:
    holed = parse_fence("POLYGON ((0 0, 9 0, 9 9, 0 0), (2 1, 3 1, 3 2, 2 1))")
    assert isinstance(holed, Polygon)
    assert fence_edges(holed).tolist() == [
        [0, 0, 0, 9], [0, 9, 9, 9], [9, 9, 0, 0], [1, 2, 1, 3], [1, 3, 2, 3], [2, 3, 1, 2],
    ]  # fmt: skip
    assert len(fence_edges(ACROSS)) == 8


@settings(max_examples=150)
@given(CIRCLES, PLANAR)
def test_a_circle_meets_a_polygon_if_its_border_comes_near(circle: Circle, fence: Polygon | MultiPolygon) -> None:
    sampled = border_distance_m(circle.center, fence, 2_000)
    inside = fence.contains(circle.center)
    met = fences_meet(circle, fence)
    assert met == fences_meet(fence, circle)
    if inside or sampled <= circle.radius_m:
        assert met
    if met and not inside:
        longest = degrees_to_m(float(np.abs(fence_edges(fence)[:, :2] - fence_edges(fence)[:, 2:]).sum(axis=1).max()))
        assert sampled <= circle.radius_m + longest / 2_000 + 2.0


@given(FENCES, FENCES, LOCATIONS)
def test_fences_that_share_a_place_meet(a: Fence, b: Fence, place: Location) -> None:
    if a.contains(place) and b.contains(place):
        assert fences_meet(a, b)


@given(FENCES, FENCES)
def test_meeting_is_mutual(a: Fence, b: Fence) -> None:
    assert fences_meet(a, b) == fences_meet(b, a)


@given(FENCES)
def test_a_fence_meets_itself_and_the_whole_earth(fence: Fence) -> None:
    assert fences_meet(fence, fence)
    assert fences_meet(fence, Circle(Location(12, 34), HALF_CIRCUMFERENCE_M))


def test_circles_meet_where_their_borders_touch() -> None:
    a, b = Location(0, 0), Location(0, 10)
    assert fences_meet(Circle(a, degrees_to_m(4)), Circle(b, degrees_to_m(6)))
    assert not fences_meet(Circle(a, degrees_to_m(4)), Circle(b, degrees_to_m(6) - 0.1))


def test_an_edge_along_a_parallel_is_not_a_great_circle() -> None:
    """From the pole, every place of the parallel 60 is 30 degrees away, the middle of the edge included."""
    fence = parse_fence("POLYGON ((0 60, 120 60, 60 50, 0 60))")
    lat, lon = np.array([90.0, 90.0]), np.array([0.0, 0.0])
    assert circles_meet(fence, lat, lon, degrees_to_m(30) + np.array([0.0, -5.0])).tolist() == [True, False]


def test_a_circle_in_a_hole_meets_only_if_it_reaches_the_rim() -> None:
    fence = parse_fence("POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0), (2 2, 8 2, 8 8, 2 8, 2 2))")
    assert not fences_meet(fence, Circle(Location(5, 5), degrees_to_m(2.9)))
    assert fences_meet(fence, Circle(Location(5, 5), degrees_to_m(3.01)))


def test_meeting_over_the_antimeridian_and_the_pole() -> None:
    assert fences_meet(ACROSS, Circle(Location(0, 160), degrees_to_m(10)))
    assert fences_meet(parse_fence("POLYGON ((-180 0, -170 0, -180 9, -180 0))"), Circle(Location(1, 179), 120_000))
    assert fences_meet(ARCTIC, Circle(Location(50, 77), degrees_to_m(10)))
    assert not fences_meet(ARCTIC, Circle(Location(50, 77), degrees_to_m(9.9)))
    assert not fences_meet(SQUARE, ARCTIC)


@pytest.mark.parametrize("off_m", [-1_000.0, -3.0, -0.5, 0.0, 0.5])
def test_a_border_everywhere_at_the_radius_is_decided_with_bounded_work(off_m: float) -> None:
    """The hardest case: no part of the edge can be told from the rest by its distance."""
    met = circles_meet(ARCTIC, np.full(50, -90.0), 0.0, degrees_to_m(150) + off_m)
    if off_m <= -3.0 or off_m >= 0.0:
        assert (met == (off_m >= 0.0)).all()


@given(PLANAR, st.lists(CIRCLES, min_size=1, max_size=4))
def test_many_circles_are_decided_like_one(fence: Polygon | MultiPolygon, circles: list[Circle]) -> None:
    together = circles_meet(
        fence,
        [circle.center.lat for circle in circles],
        [circle.center.lon for circle in circles],
        [circle.radius_m for circle in circles],
    )
    assert together.tolist() == [fences_meet(fence, circle) for circle in circles]
