import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.errors import GeometryError
from geomq.geo import (
    HALF_CIRCUMFERENCE_M,
    Box,
    Circle,
    Location,
    degrees_to_m,
    destination,
    distance_m,
    distances_m,
)

LATS = st.sampled_from([-90.0, -89.9999, 0.0, 60.0, 89.9999, 90.0]) | st.floats(-90, 90)
LONS = st.sampled_from([-180.0, -179.9999, 0.0, 179.9999, 180.0]) | st.floats(-180, 180)
LOCATIONS = st.builds(Location, LATS, LONS)
RADII = st.sampled_from([0.0, 1.0, HALF_CIRCUMFERENCE_M / 2, HALF_CIRCUMFERENCE_M]) | st.floats(0, 7.3).map(
    lambda e: min(10**e, HALF_CIRCUMFERENCE_M)
)
CIRCLES = st.builds(Circle, LOCATIONS, RADII)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    south, north = sorted((draw(LATS), draw(LATS)))
    west, east = sorted((draw(LONS), draw(LONS)))
    return Box(south, north, west, east)


def in_box(location: Location, box: Box) -> bool:
    return box.lat_min <= location.lat <= box.lat_max and box.lon_min <= location.lon <= box.lon_max


def box_distance_m(place: Location, box: Box) -> float:
    """Distance to the densest sample of a box, which is a little more than the true one."""
    lats = np.linspace(box.lat_min, box.lat_max, 181)
    lons = np.linspace(box.lon_min, box.lon_max, 361)
    return float(distances_m(lats[:, None], lons[None, :], place.lat, place.lon).min())


def test_the_border_is_inside() -> None:
    circle = Circle(Location(52.5, 13.4), 5_000)
    for bearing in range(0, 360, 7):
        assert circle.contains(destination(circle.center, bearing, 5_000))
        assert not circle.contains(destination(circle.center, bearing, 5_000.01))


@pytest.mark.parametrize("radius_m", [-1, HALF_CIRCUMFERENCE_M + 1, float("nan"), float("inf")])
def test_a_radius_out_of_range_is_refused(radius_m: float) -> None:
    with pytest.raises(GeometryError):
        Circle(Location(0, 0), radius_m)


def test_a_centre_out_of_range_is_refused() -> None:
    with pytest.raises(GeometryError):
        Circle(Location(91, 0), 5)


def test_circles_are_values() -> None:
    circle = Circle(Location(1, 2), 3)
    assert circle == Circle(Location(1.0, 2.0), 3.0)
    assert hash(circle) == hash(Circle(Location(1.0, 2.0), 3.0))
    assert circle != Circle(Location(1, 2), 4)
    assert pickle.loads(pickle.dumps(circle)) == circle
    assert copy.deepcopy(circle).contains(Location(1, 2))
    with pytest.raises(AttributeError):
        circle.radius_m = 9  # type: ignore[misc]


@given(CIRCLES, LOCATIONS)
def test_contains_agrees_with_the_haversine_distance(circle: Circle, place: Location) -> None:
    distance = distance_m(circle.center, place)
    if abs(distance - circle.radius_m) > 1.0:
        assert circle.contains(place) == (distance < circle.radius_m)
    assert bool(circle.contains_many([place.lat], [place.lon])[0]) == circle.contains(place)


def test_a_circle_holds_its_pole_at_every_longitude() -> None:
    circle = Circle(Location(89, 0), degrees_to_m(1))
    assert all(circle.contains(Location(90, lon)) for lon in range(-180, 181, 30))


@given(CIRCLES, st.floats(0, 360), st.floats(0, 1))
def test_bounds_hold_every_place_inside(circle: Circle, bearing: float, share: float) -> None:
    for place in (
        destination(circle.center, bearing, share * circle.radius_m),
        destination(circle.center, bearing, circle.radius_m),
        circle.center,
    ):
        if circle.contains(place):
            assert any(in_box(place, box) for box in circle.bounds())


@given(CIRCLES)
def test_bounds_are_one_or_two_boxes_within_the_world(circle: Circle) -> None:
    assert 1 <= len(circle.bounds()) <= 2
    for box in circle.bounds():
        assert -90.0 <= box.lat_min <= box.lat_max <= 90.0
        assert -180.0 <= box.lon_min <= box.lon_max <= 180.0


def test_bounds_split_at_the_antimeridian_and_widen_at_the_pole() -> None:
    assert len(Circle(Location(0, 179.99), 5_000).bounds()) == 2
    assert len(Circle(Location(0, -180), 0).bounds()) == 2
    (box,) = Circle(Location(89, 10), degrees_to_m(2)).bounds()
    assert (box.lat_max, box.lon_min, box.lon_max) == (90, -180, 180)


@settings(max_examples=150)
@given(CIRCLES, boxes())
def test_meets_box_agrees_with_a_dense_sample(circle: Circle, box: Box) -> None:
    sampled = box_distance_m(circle.center, box)
    if circle.meets_box(box):
        spacing = degrees_to_m((box.lat_max - box.lat_min) / 180 + (box.lon_max - box.lon_min) / 360)
        assert sampled <= circle.radius_m + spacing + 0.1
    else:
        assert sampled > circle.radius_m


def test_meets_box_counts_the_border() -> None:
    circle = Circle(Location(0, 0), degrees_to_m(10))
    assert circle.meets_box(Box(10, 20, -5, 5))
    assert circle.meets_box(Box(-5, 5, 10, 20))
    assert not circle.meets_box(Box(10.000001, 20, -5, 5))
    assert not circle.meets_box(Box(-5, 5, 10.000001, 20))


def test_meets_box_reaches_over_the_pole_and_the_antimeridian() -> None:
    over_pole = Circle(Location(85, 0), degrees_to_m(10))
    assert over_pole.meets_box(Box(86, 87, 170, 180))
    assert not over_pole.meets_box(Box(80, 84.9, 170, 180))
    assert Circle(Location(0, 179), degrees_to_m(2)).meets_box(Box(-1, 1, -180, -179.5))
    assert not Circle(Location(0, 179), degrees_to_m(2)).meets_box(Box(-1, 1, -178.9, -170))


def test_meets_box_sees_a_bulge_between_the_box_corners() -> None:
    """Near the pole the circle is widest poleward of its centre, where neither edge of the box is."""
    circle = Circle(Location(70, 0), degrees_to_m(15))
    widest = 49.17731
    assert circle.meets_box(Box(70, 82, widest - 0.01, 60))
    assert not circle.meets_box(Box(70, 82, widest + 0.01, 60))


def test_a_radius_that_is_no_number_is_refused_in_one_line() -> None:
    for radius in (10**400, None, "far"):
        with pytest.raises(GeometryError, match=r"^a radius must be a number of metres$"):
            Circle(Location(0, 0), radius)  # type: ignore[arg-type]
