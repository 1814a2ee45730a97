"""Places as programs have them become the text that is sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.client.places import fence_text_of, location_of, location_text_of
from geomq.errors import GeometryError
from geomq.geo import Circle, Location, Polygon, parse_fence, parse_location

lats, lons = st.floats(-90, 90), st.floats(-180, 180)


@given(lats, lons)
def test_a_location_survives_being_sent(lat: float, lon: float) -> None:
    assert parse_location(location_text_of((lat, lon))) == Location(lat, lon)
    assert location_of(Location(lat, lon)) == location_of(location_text_of((lat, lon)))


@given(lats, lons, st.floats(0, 1e7))
def test_a_circle_survives_being_sent(lat: float, lon: float, radius_m: float) -> None:
    circle = Circle(Location(lat, lon), radius_m)
    assert parse_fence(fence_text_of((lat, lon, radius_m))) == circle
    assert parse_fence(fence_text_of(circle)) == circle


def test_a_polygon_survives_and_text_is_sent_as_it_is() -> None:
    polygon = Polygon([[(0, 0), (0, 1), (1, 1), (0, 0)]])
    assert parse_fence(fence_text_of(polygon)) == polygon
    assert fence_text_of("GEO:1,2;u=3") == "GEO:1,2;u=3"


@pytest.mark.parametrize(
    "bad", ["", "x", "geo:1,2", (1, 2), (91, 0, 5), (0, 0, -1), (0, 0, float("nan")), (1, 2, 3, 4)]
)
def test_what_is_no_fence_is_refused(bad: tuple[float, float, float]) -> None:
    with pytest.raises(GeometryError):
        fence_text_of(bad)


@pytest.mark.parametrize("bad", ["", "x", "1", (91, 0), (0, float("inf")), (1, 2, 3)])
def test_what_is_no_location_is_refused(bad: tuple[float, float]) -> None:
    with pytest.raises(GeometryError):
        location_of(bad)
