import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.geo.shapes import CIRCLES, LATS, LOCATIONS, LONS, PLANAR

from geomq.errors import GeometryError
from geomq.geo import (
    HALF_CIRCUMFERENCE_M,
    Box,
    Circle,
    GridAreas,
    Location,
    MultiPolygon,
    Polygon,
    degrees_to_m,
    distance_m,
    parse_fence,
)
from geomq.geo.areas import mask_brokers

CITIES = [
    Location(32.05, 118.78),
    Location(40.65, -73.95),
    Location(50.43, 30.52),
    Location(10.96, -74.8),
    Location(-25.3, -57.64),
    Location(-8.84, 13.23),
    Location(49.27, -123.12),
    Location(-41.3, 174.8),
]
SIX = GridAreas(CITIES, 6)
CORNERS = st.builds(
    Location, st.integers(-15, 15).map(lambda n: n * 6.0) | LATS, st.integers(-30, 30).map(lambda n: n * 6.0) | LONS
)


def many_brokers(count: int) -> list[Location]:
    """Places of a golden spiral, about equally far apart."""
    steps = np.arange(count) + 0.5
    lats = np.degrees(np.arcsin(1 - 2 * steps / count))
    lons = (steps * 137.50776405) % 360 - 180
    return [Location(float(lat), float(lon)) for lat, lon in zip(lats, lons, strict=True)]


def padded(box: Box) -> Box:
    """A place within rounding of a border may belong to either side, so squares reach that little further."""
    south, north, west, east = box
    return Box(max(south - 1e-9, -90), min(north + 1e-9, 90), max(west - 1e-9, -180), min(east + 1e-9, 180))


def brute_force(areas: GridAreas, fence: Circle | Polygon | MultiPolygon) -> set[int]:
    squares = range(areas.rows * areas.columns)
    owner = {int(square): broker for broker in range(areas.count) for square in areas.squares_of(broker)}
    return {owner[square] for square in squares if fence.meets_box(padded(areas.square_box(square)))}


def test_every_square_belongs_to_the_broker_nearest_its_centre() -> None:
    assert (SIX.rows, SIX.columns) == (30, 60)
    seen = 0
    for broker in range(SIX.count):
        for square in SIX.squares_of(broker):
            box = SIX.square_box(int(square))
            centre = Location((box.lat_min + box.lat_max) / 2, (box.lon_min + box.lon_max) / 2)
            distances = [distance_m(centre, city) for city in CITIES]
            assert distances[broker] == min(distances)
            assert SIX.owner(centre) == broker
            seen += 1
    assert seen == 1_800


def test_squares_are_numbered_from_the_south_west_corner() -> None:
    assert SIX.square_box(0) == Box(-90, -84, -180, -174)
    assert SIX.square_box(59) == Box(-90, -84, 174, 180)
    assert SIX.square_box(60) == Box(-84, -78, -180, -174)


@given(LOCATIONS)
def test_a_place_belongs_to_a_square_that_holds_it(place: Location) -> None:
    boxes = [SIX.square_box(int(square)) for square in SIX.squares_of(SIX.owner(place))]
    assert any(
        box.lat_min <= place.lat <= box.lat_max
        and (box.lon_min <= place.lon <= box.lon_max or abs(place.lat) == 90 or abs(place.lon) == 180)
        for box in map(padded, boxes)
    )


def test_a_polygon_that_ends_within_rounding_of_a_border_touches_the_owner_across() -> None:
    areas = GridAreas([Location(-45, 0), Location(45, 0)], 90)
    just_south = Location(-1e-200, 1)
    assert areas.owner(just_south) == 1
    assert areas.touched(Polygon([[just_south, (-9, 1), (-9, 9), just_south]])) == (0, 1)
    just_west = Location(9, math.nextafter(180, 0))
    assert SIX.owner(just_west) == SIX.owner(Location(9, 179)) == SIX.owners([9], [just_west.lon])[0]


def test_one_place_with_many_names_has_one_owner() -> None:
    for lat in (-89.0, 0.0, 42.0, 89.0):
        assert SIX.owner(Location(lat, 180)) == SIX.owner(Location(lat, -180))
    for pole in (-90.0, 90.0):
        assert len({SIX.owner(Location(pole, lon)) for lon in range(-180, 181, 6)}) == 1
        assert len(set(SIX.owners(pole, np.arange(-180, 181, 6)).tolist())) == 1


@settings(max_examples=60)
@given(st.builds(Circle, CORNERS, st.floats(0, 7.3).map(lambda e: min(10**e, HALF_CIRCUMFERENCE_M))) | CIRCLES)
def test_a_circle_touches_what_brute_force_over_squares_says(circle: Circle) -> None:
    assert set(SIX.touched(circle)) == brute_force(SIX, circle)


@settings(max_examples=40)
@given(PLANAR)
def test_a_polygon_touches_what_brute_force_over_squares_says(fence: Polygon | MultiPolygon) -> None:
    assert set(SIX.touched(fence)) == brute_force(SIX, fence)


@pytest.mark.parametrize(("count", "field_deg"), [(2, 90), (5, 45), (256, 3), (100, 5), (70, 1)])
def test_other_grids_agree_with_brute_force(count: int, field_deg: int) -> None:
    areas = GridAreas(many_brokers(count), field_deg)
    random = np.random.default_rng(count)
    owners = np.empty(areas.rows * areas.columns, dtype=int)
    for broker in range(count):
        owners[areas.squares_of(broker)] = broker
    for _ in range(6 if field_deg > 1 else 2):
        circle = Circle(Location(random.uniform(-90, 90), random.uniform(-180, 180)), 10 ** random.uniform(3, 7))
        met = [circle.meets_box(areas.square_box(square)) for square in range(owners.size)]
        assert areas.touched(circle) == tuple(sorted(set(owners[met].tolist())))


def test_many_circles_at_once_cross_chunk_borders() -> None:
    random = np.random.default_rng(7)
    size = 40_000
    lats, lons = random.uniform(-90, 90, size), random.uniform(-180, 180, size)
    radii = 10 ** random.uniform(0, 7, size)
    masks = SIX.touched_masks(lats, lons, radii)
    for index in range(0, size, 997):
        circle = Circle(Location(lats[index], lons[index]), radii[index])
        assert mask_brokers(masks[index]) == SIX.touched(circle)


def test_borders_count_as_touched() -> None:
    areas = GridAreas([Location(0, -90), Location(0, 90)], 90)
    assert areas.touched(Circle(Location(10, 10), degrees_to_m(5))) == (1,)
    assert areas.touched(Circle(Location(0, 5), degrees_to_m(5))) == (0, 1)
    assert areas.touched(Circle(Location(0, 5), degrees_to_m(5) - 1)) == (1,)
    assert areas.touched(Circle(Location(0, 175), degrees_to_m(5))) == (0, 1)
    assert areas.touched(Circle(Location(0, 175), degrees_to_m(5) - 1)) == (1,)
    assert areas.touched(Circle(Location(89, 90), degrees_to_m(1))) == (0, 1)
    assert areas.touched(parse_fence("POLYGON ((0 0, 9 0, 9 9, 0 0))")) == (0, 1)
    assert areas.touched(parse_fence("POLYGON ((1 0, 9 0, 9 9, 1 0))")) == (1,)
    assert areas.touched(parse_fence("POLYGON ((170 0, 180 0, 170 9, 170 0))")) == (0, 1)


@pytest.mark.parametrize("field_deg", [0, -6, 7, 4, 180, 2.5])
def test_a_field_that_does_not_divide_90_is_refused(field_deg: int) -> None:
    with pytest.raises(GeometryError, match="divides 90"):
        GridAreas(CITIES, field_deg)


def test_a_broker_without_a_square_is_named() -> None:
    with pytest.raises(GeometryError, match=r"broker 1 at 1\.5,1\.5 owns no square"):
        GridAreas([Location(1.5, 1.5), Location(1.5, 1.5)], 45)
