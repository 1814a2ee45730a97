import copy
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.errors import GeometryError
from geomq.geo import Box, Location, MultiPolygon, Polygon

SQUARE = [(0, 0), (0, 10), (10, 10), (10, 0), (0, 0)]
HOLE = [(2, 2), (2, 8), (8, 8), (8, 2), (2, 2)]
ACROSS = MultiPolygon(
    [
        Polygon([[(-10, 170), (-10, 180), (10, 180), (10, 170), (-10, 170)]]),
        Polygon([[(-10, -180), (-10, -170), (10, -170), (10, -180), (-10, -180)]]),
    ]
)
ARCTIC = Polygon([[(70, -180), (70, 0), (70, 180), (90, 180), (90, -180), (70, -180)]])
WEDGE = Polygon([[(60, 0), (60, 20), (90, 10), (60, 0)]])

COARSE_LATS = st.integers(-9, 9).map(lambda n: n * 10.0)
COARSE_LONS = st.integers(-9, 9).map(lambda n: n * 10.0)
CORNERS = st.tuples(COARSE_LATS, COARSE_LONS)
PLACES = st.builds(
    Location, COARSE_LATS | st.floats(-90, 90), COARSE_LONS | st.floats(-95, 95) | st.sampled_from([-180.0, 180.0])
)


def side(a: Location, b: Location, place: Location) -> Fraction:
    ax, ay, bx, by = Fraction(a.lon), Fraction(a.lat), Fraction(b.lon), Fraction(b.lat)
    return (bx - ax) * (Fraction(place.lat) - ay) - (by - ay) * (Fraction(place.lon) - ax)


def triangle_holds(corners: list[Location], place: Location) -> bool:
    """Exact, by the side of each edge the place is on."""
    sides = [side(corners[i], corners[(i + 1) % 3], place) for i in range(3)]
    return all(s >= 0 for s in sides) or all(s <= 0 for s in sides)


@given(st.lists(CORNERS, min_size=3, max_size=3, unique=True), PLACES)
def test_a_triangle_holds_what_exact_arithmetic_says(corners: list[tuple[float, float]], place: Location) -> None:
    points = [Location(*corner) for corner in corners]
    if side(points[0], points[1], points[2]) == 0:
        with pytest.raises(GeometryError):
            Polygon([[*points, points[0]]])
        return
    fence = Polygon([[*points, points[0]]])
    held = fence.contains(place)
    assert bool(fence.contains_many([place.lat], [place.lon])[0]) == held
    if abs(place.lat) == 90:
        assert held == any(point.lat == place.lat for point in points)
    else:
        assert held == triangle_holds(points, place)


def test_borders_and_corners_are_inside_and_holes_are_open() -> None:
    fence = Polygon([SQUARE, HOLE])
    assert fence.contains(Location(0, 5))
    assert fence.contains(Location(10, 10))
    assert fence.contains(Location(1, 1))
    assert fence.contains(Location(2, 5)), "the border of a hole belongs to the fence"
    assert not fence.contains(Location(5, 5))
    assert not fence.contains(Location(10.000001, 5))


def test_edges_are_straight_in_longitude_and_latitude() -> None:
    """A great circle between these corners would bulge north of the parallel by degrees."""
    fence = Polygon([[(60, 0), (60, 90), (40, 45), (60, 0)]])
    assert fence.contains(Location(60, 45))
    assert not fence.contains(Location(61, 45))


def test_a_split_fence_holds_both_sides_of_the_antimeridian() -> None:
    for lon in (170.0, 175.0, 180.0, -180.0, -175.0, -170.0):
        assert ACROSS.contains(Location(0, lon))
    for lon in (0.0, 90.0, 169.9, -169.9):
        assert not ACROSS.contains(Location(0, lon))


def test_the_antimeridian_has_two_names_and_one_answer() -> None:
    west_only = Polygon([[(-10, 170), (-10, 180), (10, 180), (10, 170), (-10, 170)]])
    assert west_only.contains(Location(0, -180))
    assert west_only.contains_many([0, 0, 11], [-180, 180, -180]).tolist() == [True, True, False]
    assert west_only.meets_box(Box(-1, 1, -180, -170))
    assert not west_only.meets_box(Box(11, 12, -180, -170))
    assert not west_only.meets_box(Box(-1, 1, -179.9, -170))
    assert west_only.meets_boxes([-1, 11], [1, 12], [-180, -180], [-170, -170]).tolist() == [True, False]


def test_a_fence_that_touches_a_pole_holds_it_at_every_longitude() -> None:
    for fence in (ARCTIC, WEDGE):
        assert all(fence.contains(Location(90, lon)) for lon in (-180, -77, 0, 10, 180))
        assert fence.contains_many([90, 90, -90], [-77, 5, 5]).tolist() == [True, True, False]
        assert fence.meets_box(Box(89, 90, -100, -90))
    assert not WEDGE.meets_box(Box(88, 89, -100, -90))
    assert not WEDGE.contains(Location(-90, 10))


def test_an_edge_may_run_along_a_pole_however_long() -> None:
    world = Polygon([[(-90, -180), (-90, 180), (90, 180), (90, -180), (-90, -180)]])
    assert world.contains(Location(0, 0))
    assert ARCTIC.contains(Location(80, -100))


@pytest.mark.parametrize(
    ("rings", "reason"),
    [
        ([], "outer ring"),
        ([[(0, 0), (1, 1), (0, 0)]], "4 points"),
        ([[(0, 0), (1, 0), (1, 1), (0, 1)]], "must end"),
        ([[(0, 0), (1, 1), (1, 0), (0, 1), (0, 0)]], "Self-intersection"),
        ([[(0, 0), (1, 1), (2, 2), (0, 0)]], "not a valid fence"),
        ([[(0, 0), (0, 0), (0, 0), (0, 0)]], "not a valid fence"),
        ([SQUARE, [(20, 20), (20, 21), (21, 21), (20, 20)]], "Hole lies outside"),
        ([SQUARE, HOLE, [(3, 3), (3, 4), (4, 4), (3, 3)]], "not a valid fence"),
        ([[(0, 170), (0, -170), (10, -170), (10, 170), (0, 170)]], "antimeridian"),
        ([[(0, 0), (0, 190), (10, 190), (0, 0)]], "longitude"),
        ([[(0, 0), (0, 10), (91, 10), (0, 0)]], "latitude"),
        ([[(0, 0), (0, float("nan")), (9, 10), (0, 0)]], "longitude"),
    ],
)
def test_bad_rings_are_refused(rings: list[list[tuple[float, float]]], reason: str) -> None:
    with pytest.raises(GeometryError, match=reason):
        Polygon(rings)


def test_overlapping_parts_are_refused() -> None:
    with pytest.raises(GeometryError):
        MultiPolygon([Polygon([SQUARE]), Polygon([HOLE])])
    with pytest.raises(GeometryError):
        MultiPolygon([])


def test_polygons_are_values() -> None:
    fence, same = Polygon([SQUARE, HOLE]), Polygon([SQUARE, HOLE])
    assert fence == same
    assert hash(fence) == hash(same)
    assert fence != Polygon([SQUARE])
    assert len({fence, same, ACROSS}) == 2
    for value in (fence, ACROSS):
        assert pickle.loads(pickle.dumps(value)) == value
        assert copy.deepcopy(value) == value
    with pytest.raises(AttributeError):
        fence.rings = ()  # type: ignore[misc]


@pytest.mark.parametrize("fence", [Polygon([SQUARE, HOLE]), ACROSS, ARCTIC, WEDGE])
def test_bounds_hold_every_place_inside(fence: Polygon | MultiPolygon) -> None:
    for lat in range(-90, 91, 5):
        for lon in range(-180, 181, 5):
            if fence.contains(Location(lat, lon)):
                assert any(
                    box.lat_min <= lat <= box.lat_max and box.lon_min <= lon <= box.lon_max for box in fence.bounds()
                )


def test_bounds_of_a_split_fence_are_narrow() -> None:
    assert all(box.lon_max - box.lon_min <= 10 for box in ACROSS.bounds())


def test_meets_box_is_closed_and_takes_flat_boxes() -> None:
    fence = Polygon([SQUARE, HOLE])
    assert fence.meets_box(Box(10, 20, 10, 20))
    assert not fence.meets_box(Box(10.001, 20, 10, 20))
    assert not fence.meets_box(Box(4, 6, 4, 6)), "inside the hole"
    assert fence.meets_box(Box(1, 1, 1, 1))
    assert fence.meets_box(Box(5, 5, -5, 15))
    assert fence.meets_box(Box(-5, 5, 1, 1))
    assert not fence.meets_box(Box(-5, -5, -5, 15))


def test_shapes_meet_across_the_antimeridian_and_at_the_pole() -> None:
    west = Polygon([[(-10, 170), (-10, 180), (10, 180), (10, 170), (-10, 170)]])
    east = Polygon([[(-10, -180), (-10, -170), (10, -170), (10, -180), (-10, -180)]])
    north_of_east = Polygon([[(11, -180), (11, -170), (12, -170), (11, -180)]])
    assert west.meets_shape(east)
    assert east.meets_shape(west)
    assert not west.meets_shape(north_of_east)
    assert WEDGE.meets_shape(Polygon([[(70, -100), (70, -90), (90, -95), (70, -100)]]))
    assert not WEDGE.meets_shape(Polygon([[(70, -100), (70, -90), (89, -95), (70, -100)]]))
