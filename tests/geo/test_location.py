import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.errors import GeometryError
from geomq.geo import Location, location_text, make_location, parse_location
from geomq.geo.location import decimal_text, parse_geo_uri

LATS = st.floats(-90, 90)
LONS = st.floats(-180, 180)


def test_make_location_takes_the_whole_range() -> None:
    assert make_location(90, -180) == Location(90.0, -180.0)
    assert make_location(-90, 180) == Location(-90.0, 180.0)


@pytest.mark.parametrize(
    ("lat", "lon"),
    [(90.001, 0), (-91, 0), (0, 180.5), (0, -181), (math.nan, 0), (0, math.nan), (math.inf, 0), (0, -math.inf)],
)
def test_make_location_refuses_what_is_out_of_range_or_not_finite(lat: float, lon: float) -> None:
    with pytest.raises(GeometryError):
        make_location(lat, lon)


@pytest.mark.parametrize(
    "text",
    [
        "52.5,13.4",
        " 52.5 , 13.4 ",
        "+52.5,13.40",
        "525e-1,1.34E1",
        "geo:52.5,13.4",
        "GEO:52.5,13.4",
        "geo:52.5,13.4,34.2",
        "geo:52.5,13.4;crs=wgs84",
        "geo:52.5,13.4;CRS=WGS84;u=20",
        "geo:52.5,13.4;u=20;name=home",
    ],
)
def test_parse_location_reads_both_spellings(text: str) -> None:
    assert parse_location(text) == Location(52.5, 13.4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "52.5",
        "52.5 13.4",
        "52.5,13.4,1",
        "91,0",
        "0,181",
        "nan,0",
        "inf,0",
        "1e999,0",
        "1_0,0",
        "٣,0",
        "geo:",
        "geo:1",
        "geo:1,2,3,4",
        "geo:1, 2",
        "geo:1,2,1e999",
        "geo:1,2;crs=moon",
        "geo:1,2;crs",
        "geo:1,2;u=x",
        "geo:1,2;u=-1",
        "geo:1,2;u=1e999",
        "geo:1,2;u=1;u=2",
        "geo:1,2;;",
        "geo:1,2;a b=c",
        "geo:91,0",
        "1,2" + " " * 3_000,
        "9" * 100_000,
        "\ud800,1",
    ],
)
def test_parse_location_refuses_everything_else_in_one_line(text: str) -> None:
    with pytest.raises(GeometryError) as refused:
        parse_location(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


def test_a_geo_uri_tells_its_uncertainty() -> None:
    assert parse_geo_uri("geo:1,2;u=35").uncertainty_m == 35.0
    assert parse_geo_uri("geo:1,2").uncertainty_m is None


@given(LATS, LONS)
def test_location_text_reads_back_exactly(lat: float, lon: float) -> None:
    location = Location(lat, lon)
    text = location_text(location)
    assert parse_location(text) == location
    assert parse_location(f"geo:{text}") == location


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimal_text_has_no_exponent_and_loses_nothing(number: float) -> None:
    text = decimal_text(number)
    assert "e" not in text
    assert float(text) == number


@given(st.text(alphabet="geo:0123456789.,;=-+uEcrsw84 \x00é", max_size=40))
def test_parse_location_raises_nothing_but_geometry_errors(text: str) -> None:
    with contextlib.suppress(GeometryError):
        assert isinstance(parse_location(text), Location)
