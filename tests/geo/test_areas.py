import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.geo.shapes import CIRCLES, FENCES, LOCATIONS

from geomq.errors import GeometryError
from geomq.geo import Areas, Circle, Fence, GridAreas, Location, NearestAreas, PolygonAreas, SoleArea, parse_fence
from geomq.geo.areas import broker_bits, check_some, circle_arrays, mask_brokers, word_count

CITIES = [
    Location(52.5, 13.4),
    Location(40.7, -74.0),
    Location(-33.9, 151.2),
    Location(1.3, 103.8),
    Location(85.0, -170.0),
]
KINDS: dict[str, Areas] = {
    "sole": SoleArea(),
    "grid": GridAreas(CITIES, 6),
    "nearest": NearestAreas(CITIES),
    "polygons": PolygonAreas(
        [
            parse_fence("POLYGON ((0 0, 60 0, 60 60, 0 60, 0 0))"),
            parse_fence("POLYGON ((60 0, 120 0, 120 60, 60 60, 60 0))"),
            parse_fence("MULTIPOLYGON (((170 0, 180 0, 180 9, 170 0)), ((-180 0, -170 0, -180 9, -180 0)))"),
            parse_fence("POLYGON ((-180 70, 0 70, 180 70, 180 90, -180 90, -180 70))"),
            Circle(Location(-60, -60), 2_000_000),
        ]
    ),
}
ANY = st.sampled_from(sorted(KINDS)).map(KINDS.__getitem__)


@given(ANY, LOCATIONS)
def test_owners_are_the_owner_of_each_place(areas: Areas, place: Location) -> None:
    owner = areas.owner(place)
    assert areas.owners([place.lat], [place.lon]).tolist() == [-1 if owner is None else owner]
    assert areas.owners([place.lat], [place.lon]).dtype == np.int32


@given(ANY, st.lists(CIRCLES, min_size=1, max_size=5))
def test_masks_say_what_touched_says(areas: Areas, circles: list[Circle]) -> None:
    masks = areas.touched_masks(
        [circle.center.lat for circle in circles],
        [circle.center.lon for circle in circles],
        np.array([circle.radius_m for circle in circles]),
    )
    assert masks.shape == (len(circles), 1)
    assert masks.dtype == np.uint64
    assert [mask_brokers(mask) for mask in masks] == [areas.touched(circle) for circle in circles]


@given(ANY, FENCES, LOCATIONS)
def test_the_owner_of_a_place_inside_a_fence_is_touched(areas: Areas, fence: Fence, place: Location) -> None:
    touched = areas.touched(fence)
    assert list(touched) == sorted(set(touched))
    owner = areas.owner(place)
    if owner is not None and fence.contains(place):
        assert owner in touched


@pytest.mark.parametrize("areas", KINDS.values(), ids=KINDS)
def test_one_radius_serves_many_circles(areas: Areas) -> None:
    same = areas.touched_masks([1.0, 50.0], [2.0, 9.0], 5_000.0)
    assert (same == areas.touched_masks([1.0, 50.0], [2.0, 9.0], [5_000.0, 5_000.0])).all()
    assert areas.touched_masks([], [], 5_000.0).shape[0] == 0


def test_a_sole_broker_owns_everything() -> None:
    sole = SoleArea()
    assert sole.owner(Location(90, 180)) == 0
    assert sole.owners([1, 2, 3], 7).tolist() == [0, 0, 0]
    assert sole.touched(Circle(Location(0, 0), 0)) == (0,)
    assert sole.touched_masks([1, 2], [3, 4], 5).tolist() == [[1], [1]]


def test_mask_arithmetic() -> None:
    assert [word_count(n) for n in (1, 64, 65, 128, 129)] == [1, 1, 2, 2, 3]
    bits = broker_bits(130)
    assert [mask_brokers(row) for row in bits] == [(n,) for n in range(130)]
    assert mask_brokers(bits[3] | bits[63] | bits[64] | bits[129]) == (3, 63, 64, 129)
    assert mask_brokers(np.zeros(2, dtype=np.uint64)) == ()
    assert [array.shape for array in circle_arrays(1.0, 2.0, 3.0)] == [(1,)] * 3


def test_no_brokers_is_refused() -> None:
    with pytest.raises(GeometryError):
        check_some([])
    for build in (lambda: GridAreas([], 6), lambda: NearestAreas([]), lambda: PolygonAreas([])):
        with pytest.raises(GeometryError, match="at least one"):
            build()
