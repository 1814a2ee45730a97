import pytest

from geomq.errors import GeometryError
from geomq.geo import Location, MultiPolygon, Polygon
from geomq.geo.wkt import parse_wkt, polygon_wkt

RING = "(0 0, 10 0, 10 5, 0 5, 0 0)"


def test_longitude_comes_first() -> None:
    fence = parse_wkt(f"POLYGON({RING})", vertices_max=9)
    assert isinstance(fence, Polygon)
    assert fence.rings[0][1] == Location(lat=0, lon=10)


@pytest.mark.parametrize(
    "text",
    [
        f"polygon({RING})",
        f"  POLYGON\n\t( {RING} )  ",
        "POLYGON Z ((0 0 9, 10 0 9, 10 5 9, 0 5 9, 0 0 9))",
        "POLYGON((0 0 9, 10 0 8, 10 5 7, 0 5 6, 0 0 9))",
        "POLYGON((0 0, 1e1 0, +10. 5, 0 .5e1, -0 0))",
    ],
)
def test_spellings_of_one_polygon(text: str) -> None:
    assert parse_wkt(text, vertices_max=9) == parse_wkt(f"POLYGON({RING})", vertices_max=9)


def test_multipolygons_and_holes() -> None:
    text = "MULTIPOLYGON (((0 0, 9 0, 9 9, 0 0), (2 1, 3 1, 3 2, 2 1)), ((20 20, 30 20, 30 30, 20 20)))"
    fence = parse_wkt(text, vertices_max=12)
    assert isinstance(fence, MultiPolygon)
    assert [len(polygon.rings) for polygon in fence.polygons] == [2, 1]
    assert parse_wkt(polygon_wkt(fence), vertices_max=12) == fence


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("POINT(1 2)", "geo:lat,lon;u=metres"),
        ("LINESTRING(0 0, 1 1)", "LINESTRING is not a fence"),
        ("GEOMETRYCOLLECTION(POINT(1 1))", "not a fence"),
        ("SRID=4326;POLYGON((0 0))", "neither WKT"),
        ("POLYGON EMPTY", "EMPTY"),
        ("POLYGON M ((0 0 1, 1 0 1, 1 1 1, 0 0 1))", "measures"),
        ("POLYGON ZM ((0 0 1 1))", "measures"),
        ("POLYGON", "the end"),
        ("POLYGON(", "the end"),
        ("POLYGON((", "number"),
        ("POLYGON((0 0, 1 0, 1 1, 0 0)", "the end"),
        ("POLYGON((0 0, 1 0, 1 1, 0 0)))", "after the end"),
        ("POLYGON((0 0, 1 0, 1 1, 0 0)) x", "after the end"),
        ("POLYGON((0 0, 1 0 5, 1 1, 0 0))", "expected ',' or '\\)'"),
        ("POLYGON((0 0 5, 1 0, 1 1 5, 0 0 5))", "number"),
        ("POLYGON((0 0, 1, 1 1, 0 0))", "number"),
        ("POLYGON((0 0,, 1 1, 0 0))", "number"),
        ("POLYGON(0 0, 1 0, 1 1, 0 0)", "expected '\\('"),
        ("POLYGON((0 0, nan 0, 1 1, 0 0))", "not finite"),
        ("POLYGON((0 0, 1e999 0, 1 1, 0 0))", "not finite"),
        ("POLYGON((0 0, 1.2.3 0, 1 1, 0 0))", "unexpected"),
        ("POLYGON((0 0, 1-2 0, 1 1, 0 0))", "unexpected"),
        ("POLYGON((0 0, 200 0, 1 1, 0 0))", "longitude"),
        ("POLYGON((0 0, 0 100, 1 1, 0 0))", "latitude"),
        ("POLYGON((0 0, 1 0, 1 1))", "4 points"),
        ("POLYGON((0 0, 1 0, 1 1, 0 1))", "must end"),
        ("POLYGON((0 0, 1 0, 1 1, 0 0);)", "unexpected"),
    ],
)
def test_what_is_no_fence_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(GeometryError, match=reason):
        parse_wkt(text, vertices_max=100)


def test_vertices_are_counted_over_all_rings() -> None:
    text = "MULTIPOLYGON (((0 0, 9 0, 9 9, 0 0)), ((20 20, 30 20, 30 30, 20 20)))"
    assert parse_wkt(text, vertices_max=8)
    with pytest.raises(GeometryError, match="more than 7 vertices"):
        parse_wkt(text, vertices_max=7)
