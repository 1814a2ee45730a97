import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.errors import GeometryError
from geomq.geo import (
    HALF_CIRCUMFERENCE_M,
    Circle,
    Fence,
    FenceLimits,
    Location,
    MultiPolygon,
    Polygon,
    fence_geojson,
    fence_text,
    parse_fence,
)

LATS = st.floats(-90, 90)
LONS = st.floats(-180, 180)
CIRCLES = st.builds(Circle, st.builds(Location, LATS, LONS), st.floats(0, HALF_CIRCUMFERENCE_M))
DEPTH = 100_000
NO_LIMITS = FenceLimits(bytes_max=10_000_000, vertices_max=1_000_000)


@st.composite
def boxes(draw: st.DrawFn) -> Polygon:
    south, north = sorted(draw(st.lists(LATS, min_size=2, max_size=2, unique=True)))
    west = draw(st.floats(-180, 179))
    east = draw(st.floats(west, min(180.0, west + 180.0), exclude_min=True))
    ring = [(south, west), (south, east), (north, east), (north, west), (south, west)]
    try:
        return Polygon([ring])
    except GeometryError:
        return Polygon([[(0, 0), (0, 1), (1, 1), (0, 0)]])


@given(CIRCLES)
def test_circle_text_reads_back_the_same(fence: Circle) -> None:
    assert parse_fence(fence_text(fence)) == fence


@given(boxes())
def test_polygon_text_reads_back_the_same(fence: Polygon) -> None:
    for write in (fence_text, fence_geojson):
        assert parse_fence(write(fence)) == fence


def test_the_text_of_a_fence_that_was_let_in_is_let_in_again_however_small_its_numbers() -> None:
    inner = ", ".join(f"{-1 - number / 7}e-300 {(998 - number) / 998!r}" for number in range(1, 996))
    text = f"POLYGON ((1 0, 1 1, 0 1, {inner}, 0 0, 1 0))"
    fence = parse_fence(text)
    assert len(fence_text(fence)) < 65_536
    assert parse_fence(fence_text(fence)) == fence


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("geo:52.5,13.4;u=5000", "geo:52.5,13.4;u=5000.0"),
        ("geo:52.5,13.4,99;crs=wgs84;u=5e3", "geo:52.5,13.4;u=5000.0"),
        ("POLYGON((0 0,1 0,1 1,0 0))", "POLYGON ((0.0 0.0, 1.0 0.0, 1.0 1.0, 0.0 0.0))"),
        (
            '{"type":"MultiPolygon","coordinates":[[[[0,0],[1,0],[1,1],[0,0]]],[[[5,5],[6,5],[6,6],[5,5]]]]}',
            "MULTIPOLYGON (((0.0 0.0, 1.0 0.0, 1.0 1.0, 0.0 0.0)), ((5.0 5.0, 6.0 5.0, 6.0 6.0, 5.0 5.0)))",
        ),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert fence_text(parse_fence(text)) == canonical


def test_a_circle_has_no_geojson() -> None:
    with pytest.raises(GeometryError, match="use fence_text"):
        fence_geojson(Circle(Location(1, 2), 3))


def nested_wkt(depth: int) -> str:
    return "POLYGON " + "(" * depth + "0 0" + ")" * depth


HOSTILE = {
    "empty": "",
    "blank": " \n ",
    "unknown": "CIRCLE(1 2 3)",
    "nul": "POLYGON((0 0,\x00))",
    "surrogate": "\ud800",
    "uri without radius": "geo:1,2",
    "uri with too large a radius": "geo:1,2;u=30000000",
    "uri with a negative radius": "geo:1,2;u=-5",
    "deep wkt": nested_wkt(DEPTH),
    "deep collection": "GEOMETRYCOLLECTION(" * DEPTH,
    "deep multipolygon": "MULTIPOLYGON " + "(" * DEPTH,
    "deep arrays": '{"type":"Polygon","coordinates":' + "[" * DEPTH,
    "deep closed arrays": '{"coordinates":' + "[" * DEPTH + "]" * DEPTH + "}",
    "deep objects": '{"a":' * DEPTH + "1" + "}" * DEPTH,
    "bare arrays": "[" * DEPTH,
    "endless string": '{"' + "\\" * DEPTH,
    "long integer": '{"type":"Polygon","coordinates":[[[' + "1" * DEPTH + ",2]]]}",
    "long number": "POLYGON((" + "1" * DEPTH + " 2))",
    "long bad number": "POLYGON((" + "1" * DEPTH + "x 2))",
    "long word": "P" * DEPTH,
    "spaces": "POLYGON" + " " * DEPTH + "x",
}


@pytest.mark.parametrize("limits", [FenceLimits(), NO_LIMITS], ids=["default", "wide"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_quickly_in_one_line(name: str, limits: FenceLimits) -> None:
    started = time.process_time()
    with pytest.raises(GeometryError) as refused:
        parse_fence(HOSTILE[name], limits)
    assert time.process_time() - started < 2.0
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


def test_each_limit_is_obeyed() -> None:
    ring = ", ".join(["0 0"] * 1_001)
    with pytest.raises(GeometryError, match="more than 1000 vertices"):
        parse_fence(f"POLYGON (({ring}))")
    with pytest.raises(GeometryError, match="longer than 65536 bytes"):
        parse_fence("é" * 40_000)
    with pytest.raises(GeometryError, match="nested more than 2 deep"):
        parse_fence('{"type":"Polygon","coordinates":[[[0,0]]]}', FenceLimits(depth_max=2))


MUTATED = [
    "POLYGON ((0.5 0, 10 0, 10 10, 0 10, 0.5 0), (2 2, 3 2, 3 3, 2 2))",
    '{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}',
    "geo:52.5,13.4;crs=wgs84;u=500",
    "MULTIPOLYGON Z (((0 0 1, 9 0 1, 9 9 1, 0 0 1)), ((20 20 1, 30 20 1, 30 30 1, 20 20 1)))",
]


@given(st.sampled_from(MUTATED), st.data())
def test_damaged_text_gives_a_fence_or_a_geometry_error(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        put = data.draw(st.text(alphabet='(),[]{}":;=0123456789.-+eE naifzZmM\\\x00ü', max_size=3))
        text = text[:at] + put + text[at + cut :]
    try:
        fence: Fence = parse_fence(text)
    except GeometryError:
        return
    assert parse_fence(fence_text(fence)) == fence


def test_a_multipolygon_reads_back_the_same() -> None:
    parts = [
        Polygon([[(0, 180), (0, 179), (1, 180), (0, 180)]]),
        Polygon([[(0, -180), (0, -179), (1, -180), (0, -180)]]),
    ]
    fence = MultiPolygon(parts)
    for write in (fence_text, fence_geojson):
        assert parse_fence(write(fence)) == fence
