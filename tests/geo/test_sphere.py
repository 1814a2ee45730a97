import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.geo import (
    EARTH_RADIUS_M,
    HALF_CIRCUMFERENCE_M,
    Location,
    chord_limit,
    chord_limits,
    degrees_to_m,
    destination,
    destinations,
    distance_m,
    distances_m,
    m_to_degrees,
    unit_vector,
    unit_vectors,
)

LATS = st.sampled_from([-90.0, -89.999999, 0.0, 89.999999, 90.0]) | st.floats(-90, 90)
LONS = st.sampled_from([-180.0, 0.0, 179.999999, 180.0]) | st.floats(-180, 180)
LOCATIONS = st.builds(Location, LATS, LONS)
RADII = st.floats(0, HALF_CIRCUMFERENCE_M)


def squared_chord(a: Location, b: Location) -> float:
    return sum((p - q) ** 2 for p, q in zip(unit_vector(*a), unit_vector(*b), strict=True))


def test_known_distances() -> None:
    assert distance_m(Location(0, 0), Location(0, 180)) == pytest.approx(HALF_CIRCUMFERENCE_M)
    assert distance_m(Location(90, 7), Location(-90, 99)) == pytest.approx(HALF_CIRCUMFERENCE_M)
    assert distance_m(Location(0, 179.5), Location(0, -179.5)) == pytest.approx(degrees_to_m(1))
    berlin, paris = Location(52.5200, 13.4050), Location(48.8566, 2.3522)
    assert distance_m(berlin, paris) == pytest.approx(877_500, rel=1e-3)


def test_degrees_and_metres_of_arc_are_inverse() -> None:
    assert degrees_to_m(360) == pytest.approx(2 * math.pi * EARTH_RADIUS_M)
    assert m_to_degrees(degrees_to_m(12.5)) == pytest.approx(12.5)


@given(LOCATIONS, LOCATIONS)
def test_vectorised_distances_are_the_scalar_ones(a: Location, b: Location) -> None:
    assert distances_m([a.lat], [a.lon], b.lat, b.lon)[0] == pytest.approx(distance_m(a, b), abs=1e-6)


@given(LOCATIONS)
def test_vectorised_unit_vectors_are_the_scalar_ones(a: Location) -> None:
    assert [float(v[0]) for v in unit_vectors([a.lat], [a.lon])] == pytest.approx(unit_vector(*a), abs=1e-15)


@given(LOCATIONS, st.floats(0, 360), RADII)
def test_a_point_computed_at_the_radius_is_inside(a: Location, bearing: float, radius_m: float) -> None:
    there = destination(a, bearing, radius_m)
    assert squared_chord(a, there) <= chord_limit(radius_m)


@given(LOCATIONS, st.floats(0, 360), st.floats(0, HALF_CIRCUMFERENCE_M - 2_000))
def test_a_point_beyond_the_tolerance_is_outside(a: Location, bearing: float, radius_m: float) -> None:
    there = destination(a, bearing, radius_m + 0.01)
    assert squared_chord(a, there) > chord_limit(radius_m)


@given(LOCATIONS, LOCATIONS)
def test_half_the_circumference_is_everything(a: Location, b: Location) -> None:
    assert squared_chord(a, b) <= chord_limit(HALF_CIRCUMFERENCE_M)
    assert chord_limit(HALF_CIRCUMFERENCE_M) >= 4


@given(RADII)
def test_vectorised_chord_limits_are_the_scalar_ones(radius_m: float) -> None:
    assert chord_limits([radius_m])[0] == pytest.approx(chord_limit(radius_m), rel=1e-12)


@given(LOCATIONS, st.floats(-720, 720), RADII)
def test_destination_lies_at_the_distance_and_in_range(a: Location, bearing: float, metres: float) -> None:
    there = destination(a, bearing, metres)
    assert -90 <= there.lat <= 90
    assert -180 <= there.lon <= 180
    assert math.sqrt(squared_chord(a, there)) == pytest.approx(2 * math.sin(metres / 2 / EARTH_RADIUS_M), abs=1e-9)
    lats, lons = destinations(a.lat, a.lon, np.array([bearing]), metres)
    assert squared_chord(there, Location(float(lats[0]), float(lons[0]))) < 1e-24
    assert -180 <= lons[0] <= 180


def test_bearings_run_clockwise_from_north() -> None:
    assert destination(Location(0, 0), 0, degrees_to_m(10)) == pytest.approx((10, 0))
    assert destination(Location(0, 0), 90, degrees_to_m(10)) == pytest.approx((0, 10))
    assert destination(Location(0, 175), 90, degrees_to_m(10)) == pytest.approx((0, -175))
