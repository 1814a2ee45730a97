from hypothesis import given
from hypothesis import strategies as st
from tests.geo.shapes import CIRCLES, FENCES, LATS, LONS

from geomq.geo import Box, Fence, Location
from geomq.geo.cells import PER_DEGREE, ROW_SHIFT, covering, covering_count, finest_fit, spans


def cell_of(location: Location, shift: int) -> int:
    row, column = int((location.lat + 90) * PER_DEGREE), int((location.lon + 180) * PER_DEGREE)
    return (row >> shift << ROW_SHIFT) + (column >> shift)


@given(st.tuples(LATS, LATS).map(sorted), st.tuples(LONS, LONS).map(sorted), st.data())
def test_every_place_of_a_box_is_in_a_listed_cell(lat: list[float], lon: list[float], data: st.DataObject) -> None:
    box = Box(lat[0], lat[1], lon[0], lon[1])
    share = data.draw(st.floats(0, 1))
    place = Location(min(lat[0] + share * (lat[1] - lat[0]), lat[1]), min(lon[0] + share * (lon[1] - lon[0]), lon[1]))
    assert cell_of(place, 9) in covering(spans([box]), 9)
    assert cell_of(Location(box.lat_max, box.lon_max), 9) in covering(spans([box]), 9)


@given(FENCES, st.sampled_from([9, 12]))
def test_no_cell_is_listed_twice(fence: Fence, shift: int) -> None:
    covered = spans(fence.bounds())
    cells = covering(covered, shift)
    assert len(cells) == len(set(cells)) <= covering_count(covered, shift)


@given(CIRCLES, st.sampled_from([9, 12]))
def test_the_count_is_exact_for_one_box(fence: Fence, shift: int) -> None:
    covered = spans(fence.bounds())[:1]
    assert len(covering(covered, shift)) == covering_count(covered, shift)


def test_rows_and_columns_never_mix() -> None:
    """The last column of a row must not run into the next row's first."""
    assert cell_of(Location(0, 180), 0) != cell_of(Location(1 / PER_DEGREE, -180), 0)
    assert int(360 * PER_DEGREE) < 1 << ROW_SHIFT


def test_the_finest_grid_that_fits_is_taken() -> None:
    covered = spans([Box(0, 1, 0, 1)])
    assert finest_fit(covered, (0, 3, 6, 9), 36) == 2
    assert finest_fit(covered, (0, 3, 6, 9), 100_000) == 0
    assert finest_fit(spans([Box(-90, 90, -180, 180)]), (0, 3, 6, 9), 36) is None
