import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.geo.shapes import ACROSS, ARCTIC, CIRCLES, LATS, LOCATIONS, LONS, PLANAR

from geomq.errors import GeometryError
from geomq.geo import (
    Circle,
    Location,
    MultiPolygon,
    NearestAreas,
    Polygon,
    degrees_to_m,
    destinations,
    distance_m,
    distances_m,
    nearest,
    parse_fence,
)
from geomq.geo.box import enclosing_circles
from geomq.geo.nearest import PIECES_MAX
from geomq.geo.sphere import FloatArray

BROKERS = st.lists(st.builds(Location, LATS, LONS), min_size=1, max_size=7).filter(
    lambda places: all(distance_m(a, b) > 1_000 for i, a in enumerate(places) for b in places[:i])
)
STEPS = np.arange(40_000) + 0.5
SAMPLE_LATS = np.degrees(np.arcsin(1 - 2 * STEPS / STEPS.size))
SAMPLE_LONS = (STEPS * 137.50776405) % 360 - 180
SPACING_M = 250_000.0
"""Wider than any hole in the sample of the sphere."""


@given(BROKERS, LOCATIONS)
def test_the_owner_is_the_nearest_broker(brokers: list[Location], place: Location) -> None:
    distances = [distance_m(place, broker) for broker in brokers]
    assert distances[NearestAreas(brokers).owner(place)] <= min(distances) + 0.5


@settings(max_examples=80)
@given(BROKERS, CIRCLES)
def test_a_circle_touches_the_cells_a_sample_of_the_sphere_finds(brokers: list[Location], circle: Circle) -> None:
    areas = NearestAreas(brokers)
    owners = areas.owners(SAMPLE_LATS, SAMPLE_LONS)
    distances = distances_m(SAMPLE_LATS, SAMPLE_LONS, circle.center.lat, circle.center.lon)
    touched = areas.touched(circle)
    for broker in range(areas.count):
        nearest = distances[owners == broker].min(initial=np.inf)
        if nearest <= circle.radius_m:
            assert broker in touched
        if broker in touched and np.isfinite(nearest):
            assert nearest <= circle.radius_m + SPACING_M


@settings(max_examples=60)
@given(BROKERS, CIRCLES)
def test_no_owner_of_a_place_on_the_border_or_inside_is_left_out(brokers: list[Location], circle: Circle) -> None:
    areas = NearestAreas(brokers)
    bearings, shares = np.arange(0, 360, 0.5), np.array([[1.0], [0.99], [0.5], [0.1]])
    lats, lons = destinations(circle.center.lat, circle.center.lon, bearings, shares * circle.radius_m)
    assert set(areas.owners(lats, lons).ravel().tolist()) <= set(areas.touched(circle))


@settings(max_examples=60)
@given(BROKERS, PLANAR)
def test_a_polygon_touches_the_cells_of_all_places_in_it(
    brokers: list[Location], fence: Polygon | MultiPolygon
) -> None:
    areas = NearestAreas(brokers)
    touched = areas.touched(fence)
    boxes = fence.bounds()
    random = np.random.default_rng(len(boxes))
    for box in boxes:
        lats, lons = random.uniform(box.lat_min, box.lat_max, 500), random.uniform(box.lon_min, box.lon_max, 500)
        inside = fence.contains_many(lats, lons)
        assert set(areas.owners(lats[inside], lons[inside]).tolist()) <= set(touched)


def test_two_brokers_share_the_earth_at_the_meridian_between() -> None:
    areas = NearestAreas([Location(0, 0), Location(0, 20)])
    assert areas.touched(Circle(Location(0, 0), degrees_to_m(10))) == (0, 1)
    assert areas.touched(Circle(Location(0, 0), degrees_to_m(10) - 0.1)) == (0,)
    assert areas.touched(Circle(Location(0, 0), degrees_to_m(10) + 0.1)) == (0, 1)
    assert areas.touched(Circle(Location(90, 0), 0)) == (0, 1)
    assert areas.touched(Circle(Location(0, -169), degrees_to_m(1) - 0.1)) == (0,)
    assert areas.touched(Circle(Location(0, -169), degrees_to_m(1))) == (0, 1)


def test_a_polygon_is_decided_to_a_kilometre() -> None:
    areas = NearestAreas([Location(0, 0), Location(0, 20)])
    assert areas.touched(parse_fence("POLYGON ((5 0, 9.99 0, 9.99 9, 5 0))")) == (0,)
    assert areas.touched(parse_fence("POLYGON ((5 0, 10.0001 0, 9.99 9, 5 0))")) == (0, 1)
    assert areas.touched(parse_fence("POLYGON ((5 0, 10 0, 9.99 9, 5 0))")) == (0, 1)
    assert areas.touched(ARCTIC) == (0, 1)
    assert areas.touched(ACROSS) == (0, 1)


def test_a_cell_inside_a_polygon_is_found_though_no_vertex_is_in_it() -> None:
    areas = NearestAreas([Location(50, 8), Location(50, 8.2), Location(50, 7.8), Location(50.2, 8), Location(49.8, 8)])
    assert areas.touched(parse_fence("POLYGON ((-30 20, 40 20, 40 70, -30 70, -30 20))")) == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    "brokers",
    [
        [Location(0, lon) for lon in (-180, -90, 0, 90)],
        [Location(90, 0), Location(-90, 0)],
        [Location(0, 0), Location(0, 180)],
        [Location(lat, lon) for lat in (-35, 35) for lon in (-135, -45, 45, 135)],
        [Location(lat, 7) for lat in range(-80, 81, 20)],
    ],
)
def test_degenerate_layouts(brokers: list[Location]) -> None:
    """Brokers on one great circle, opposite ones, and corners where four cells meet."""
    areas = NearestAreas(brokers)
    assert areas.touched(Circle(Location(3, 4), 1.9e7)) == tuple(range(len(brokers)))
    for index, broker in enumerate(brokers):
        assert areas.touched(Circle(broker, 1_000)) == (index,)
    lats, lons = np.array(brokers).T
    assert areas.owners(lats, lons).tolist() == list(range(len(brokers)))


def test_four_cells_meet_in_a_corner() -> None:
    areas = NearestAreas([Location(lat, lon) for lat in (-10, 10) for lon in (-10, 10)])
    assert areas.touched(Circle(Location(0, 0), 0)) == (0, 1, 2, 3)


def test_brokers_at_one_place_are_refused() -> None:
    with pytest.raises(GeometryError, match="brokers 0 and 2 are at the same place"):
        NearestAreas([Location(0, 180), Location(5, 5), Location(0, -180)])
    close = NearestAreas([Location(0, 0), Location(0, 0.00002)])
    assert close.touched(Circle(Location(0, 0), 5)) == (0, 1)


def test_a_fence_along_a_border_is_cut_into_no_more_pieces_than_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    areas = NearestAreas([Location(10, 0), Location(-10, 0)])
    counts: list[int] = []

    def counted(boxes: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        counts.append(len(boxes))
        return enclosing_circles(boxes)

    monkeypatch.setattr(nearest, "enclosing_circles", counted)
    # A strip of 40 m, half a kilometre north of the border and 2,200 km long.
    strip = parse_fence("POLYGON ((-10 0.0046, 10 0.0046, 10 0.005, -10 0.005, -10 0.0046))")
    assert areas.touched(strip) == (0,)
    assert sum(counts) < 4 * 2_200
    counts.clear()
    around = parse_fence("POLYGON ((-179 0.0046, 0 0.0046, 179 0.0046, 179 0.005, 0 0.005, -179 0.005, -179 0.0046))")
    assert areas.touched(around) in ((0,), (0, 1))
    assert max(counts) <= 4 * PIECES_MAX
    assert areas.touched(parse_fence("POLYGON ((0.0046 -10, 0.005 -10, 0.005 10, 0.0046 10, 0.0046 -10))")) == (0, 1)
