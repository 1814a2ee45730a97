import numpy as np
import pytest
from hypothesis import given, settings
from tests.geo.shapes import CIRCLES, FENCES

from geomq.errors import GeometryError
from geomq.geo import Circle, Fence, Location, PolygonAreas, degrees_to_m, destinations, parse_fence

WEST = parse_fence("POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))")
EAST = parse_fence("POLYGON ((10 0, 20 0, 20 10, 10 10, 10 0))")
NORTH = parse_fence("POLYGON ((-180 60, 0 60, 180 60, 180 90, -180 90, -180 60))")
ACROSS = parse_fence("MULTIPOLYGON (((170 0, 180 0, 180 9, 170 0)), ((-180 0, -170 0, -180 9, -180 0)))")
ROUND = Circle(Location(-40, -100), 2_000_000)
AREAS = PolygonAreas([EAST, WEST, NORTH, ACROSS, ROUND])


def test_a_border_point_belongs_to_the_lowest_broker() -> None:
    assert AREAS.owner(Location(5, 10)) == 0
    assert AREAS.owner(Location(5, 9.99)) == 1
    assert AREAS.owners([5, 5, 5], [10, 9.99, 30]).tolist() == [0, 1, -1]


def test_a_place_outside_all_areas_has_no_owner() -> None:
    assert AREAS.owner(Location(-5, 5)) is None
    assert AREAS.touched(Circle(Location(-50, 50), 1_000)) == ()


def test_areas_touched_at_their_border() -> None:
    assert AREAS.touched(Circle(Location(5, 10), 0)) == (0, 1)
    assert AREAS.touched(Circle(Location(-2, 5), degrees_to_m(2))) == (1,)
    assert AREAS.touched(Circle(Location(-2, 5), degrees_to_m(1.99))) == ()
    assert AREAS.touched(Circle(Location(-40, -80), 0)) == (4,)
    assert AREAS.touched(parse_fence("POLYGON ((20 10, 30 10, 30 50, 20 10))")) == (0,)
    assert AREAS.touched(parse_fence("POLYGON ((-101 -41, -99 -41, -99 -39, -101 -41))")) == (4,)


@settings(max_examples=80)
@given(CIRCLES)
def test_no_owner_of_a_place_in_a_circle_is_left_out(circle: Circle) -> None:
    bearings, shares = np.arange(0, 360, 0.5), np.array([[1.0], [0.9], [0.5], [0.1]])
    lats, lons = destinations(circle.center.lat, circle.center.lon, bearings, shares * circle.radius_m)
    owners = set(AREAS.owners(lats, lons).ravel().tolist()) - {-1}
    assert owners <= set(AREAS.touched(circle))


@given(FENCES)
def test_a_fence_touches_the_areas_that_touch_it(fence: Fence) -> None:
    for index, area in enumerate(AREAS.fences):
        assert (index in AREAS.touched(fence)) == (0 in PolygonAreas([fence]).touched(area))


@pytest.mark.parametrize(
    "other",
    [
        "POLYGON ((9 0, 20 0, 20 10, 9 10, 9 0))",
        "POLYGON ((2 2, 3 2, 3 3, 2 2))",
        "POLYGON ((-5 -5, 15 -5, 15 15, -5 15, -5 -5))",
        "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))",
        "geo:5,5;u=10",
        "geo:5,15;u=600000",
        "geo:5,5;u=9000000",
    ],
)
def test_overlaps_are_refused(other: str) -> None:
    with pytest.raises(GeometryError, match="brokers 0 and 1 overlap"):
        PolygonAreas([WEST, parse_fence(other)])
    with pytest.raises(GeometryError, match="brokers 0 and 1 overlap"):
        PolygonAreas([parse_fence(other), WEST])


def test_overlapping_circles_are_refused_and_touching_ones_are_not() -> None:
    first = Circle(Location(0, 0), degrees_to_m(5))
    assert PolygonAreas([first, Circle(Location(0, 10), degrees_to_m(5))]).owner(Location(0, 5)) == 0
    with pytest.raises(GeometryError, match="overlap"):
        PolygonAreas([first, Circle(Location(0, 10), degrees_to_m(5.01))])


def test_neighbours_along_a_slanted_border_with_different_vertices_are_no_overlap() -> None:
    lower = parse_fence("POLYGON ((0 0, 7 0, 7 3, 0 0))")
    upper = parse_fence("POLYGON ((0 0, 2.1 0.9, 4.9 2.1, 7 3, 0 3, 0 0))")
    assert PolygonAreas([lower, upper]).touched(Circle(Location(0.9, 2.1), 10)) == (0, 1)


def test_the_three_live_regions_of_the_disgb_experiments_are_disjoint() -> None:
    columbus = Circle(Location(39.961332, -82.999083), degrees_to_m(5.0))
    frankfurt = Circle(Location(50.106732, 8.663124), degrees_to_m(2.1))
    paris = Circle(Location(48.877366, 2.359708), degrees_to_m(2.1))
    areas = PolygonAreas([columbus, frankfurt, paris])
    assert areas.owner(Location(48.8, 2.3)) == 2
    assert areas.touched(Circle(Location(49.5, 5.5), 50_000)) == (1, 2)
