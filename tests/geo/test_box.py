import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from geomq.geo.box import Box, enclosing_circles
from geomq.geo.sphere import HALF_CIRCUMFERENCE_M, distances_m

LATS = st.floats(-90, 90)
LONS = st.floats(-180, 180)


@given(st.tuples(LATS, LATS).map(sorted), st.tuples(LONS, LONS).map(sorted))
def test_the_enclosing_circle_holds_the_whole_box(lat: list[float], lon: list[float]) -> None:
    centre_lat, centre_lon, radius = enclosing_circles(np.array([[*lat, *lon]]))
    lats, lons = np.linspace(lat[0], lat[1], 20)[:, None], np.linspace(lon[0], lon[1], 20)[None, :]
    assert distances_m(lats, lons, centre_lat[0], centre_lon[0]).max() <= radius[0] + 0.1


def test_the_world_is_held_by_half_the_circumference() -> None:
    assert enclosing_circles(np.array([Box(-90.0, 90.0, -180.0, 180.0)]))[2][0] == HALF_CIRCUMFERENCE_M
