import json

import pytest

from geomq.errors import GeometryError
from geomq.geo import Location, MultiPolygon, Polygon
from geomq.geo.geojson import parse_geojson, polygon_geojson

RING = [[0, 0], [10, 0], [10, 5], [0, 5], [0, 0]]
POLYGON = {"type": "Polygon", "coordinates": [RING]}
FAR = [[20, 20], [30, 20], [30, 30], [20, 20]]


def parse(data: object) -> Polygon | MultiPolygon:
    return parse_geojson(json.dumps(data), vertices_max=20, depth_max=4)


def test_longitude_comes_first() -> None:
    fence = parse(POLYGON)
    assert isinstance(fence, Polygon)
    assert fence.rings[0][1] == Location(lat=0, lon=10)


def test_a_feature_is_unwrapped_and_its_properties_mean_nothing() -> None:
    assert parse({"type": "Feature", "properties": {"a": [{"b": "]["}]}, "geometry": POLYGON}) == parse(POLYGON)


def test_altitudes_are_dropped() -> None:
    assert parse({"type": "Polygon", "coordinates": [[[*position, 7] for position in RING]]}) == parse(POLYGON)


def test_multipolygons_are_read_and_written() -> None:
    fence = parse({"type": "MultiPolygon", "coordinates": [[RING], [FAR]]})
    assert isinstance(fence, MultiPolygon)
    assert parse(json.loads(polygon_geojson(fence))) == fence
    assert parse(json.loads(polygon_geojson(fence.polygons[0]))) == fence.polygons[0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([], "object"),
        ({}, "not a fence"),
        ({"type": "Point", "coordinates": [1, 2]}, "geo:lat,lon;u=metres"),
        ({"type": "LineString", "coordinates": RING}, "not a fence"),
        ({"type": "FeatureCollection", "features": []}, "not a fence"),
        ({"type": ["Polygon"], "coordinates": [RING]}, "not a fence"),
        ({"type": "Feature", "geometry": None}, "no geometry"),
        ({"type": "Feature"}, "no geometry"),
        ({**POLYGON, "crs": {"type": "name"}}, "crs"),
        ({"type": "Feature", "crs": {}, "geometry": POLYGON}, "crs"),
        ({"type": "Polygon"}, "array"),
        ({"type": "Polygon", "coordinates": RING}, "array"),
        ({"type": "Polygon", "coordinates": []}, "outer ring"),
        ({"type": "Polygon", "coordinates": [5]}, "array"),
        ({"type": "Polygon", "coordinates": [[5]]}, "array"),
        ({"type": "Polygon", "coordinates": [[[5]]]}, "position"),
        ({"type": "Polygon", "coordinates": [[[1, 2, 3, 4]]]}, "position"),
        ({"type": "Polygon", "coordinates": [[["1", "2"]]]}, "finite numbers"),
        ({"type": "Polygon", "coordinates": [[[True, False]]]}, "finite numbers"),
        ({"type": "Polygon", "coordinates": [[[None, 2]]]}, "finite numbers"),
        ({"type": "Polygon", "coordinates": [[[[1, 2], 2]]]}, "finite numbers"),
        ({"type": "Polygon", "coordinates": [RING * 5]}, "more than 20 vertices"),
        ({"type": "Polygon", "coordinates": [[[float("nan"), 2]]]}, "not finite"),
        ({"type": "Polygon", "coordinates": [[[200, 2], [1, 1], [2, 2], [200, 2]]]}, "longitude"),
        ({"type": "MultiPolygon", "coordinates": []}, "at least one"),
        ({"type": "Polygon", "coordinates": [[[[[1]]]]]}, "nested more than 4 deep"),
        ({"a": {"b": {"c": {"d": {}}}}}, "nested more than 4 deep"),
    ],
)
def test_what_is_no_fence_is_refused_with_its_reason(data: object, reason: str) -> None:
    with pytest.raises(GeometryError, match=reason):
        parse(data)


@pytest.mark.parametrize("text", ["{", '{"a"', '{"a": 1e999}', '{"type": "Polygon", "coordinates": [[[1e999, 2]]]}'])
def test_broken_json_and_endless_numbers_are_refused(text: str) -> None:
    with pytest.raises(GeometryError):
        parse_geojson(text, vertices_max=20, depth_max=4)


def test_brackets_inside_strings_are_not_depth() -> None:
    text = json.dumps({**POLYGON, "name": '[[[[[[{{{{{{\\"[['})
    assert parse_geojson(text, vertices_max=20, depth_max=4) == parse(POLYGON)
