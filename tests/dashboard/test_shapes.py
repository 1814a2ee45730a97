"""Fences and areas between geometry and the page's JSON."""

import json
from typing import Any

import pytest
import shapely

from geomq.dashboard.shapes import (
    areas_kind,
    brokers_json,
    fence_json,
    fence_text_json,
    read_fence,
    read_location,
)
from geomq.errors import GeometryError
from geomq.geo import Circle, GridAreas, Location, NearestAreas, PolygonAreas, parse_fence
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import BrokerSite, Federation

SQUARE = {"type": "Polygon", "coordinates": [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]}
PLACES = (Location(10.0, 20.0), Location(-10.0, -20.0))


@pytest.mark.parametrize("shape", [None, {"type": "Circle", "center": [1.0, 2.0], "radius_m": 3.0}, SQUARE])
def test_a_fence_comes_back_as_it_was_sent(shape: dict[str, Any] | None) -> None:
    assert fence_json(read_fence(shape)) == shape


def test_a_fence_may_be_text() -> None:
    assert read_fence("geo:1,2;u=3") == Circle(Location(1.0, 2.0), 3.0)
    assert fence_text_json("POLYGON((0 0,1 0,1 1,0 1,0 0))") == SQUARE
    assert fence_text_json("nonsense") is None


@pytest.mark.parametrize(
    "given",
    [
        5,
        [],
        "nonsense",
        {},
        {"type": "Circle"},
        {"type": "Circle", "center": [1, 2], "radius_m": True},
        {"type": "Circle", "center": [1, 2], "radius_m": -1},
        {"type": "Circle", "center": [1, 2], "radius_m": float("nan")},
        {"type": "Circle", "center": [91, 2], "radius_m": 1},
        {"type": "Circle", "center": "1,2", "radius_m": 1},
        {"type": "Polygon", "coordinates": [[[0, 0]] * 2_000]},
        {"type": "Polygon", "coordinates": [[[[[[[0]]]]]]]},
    ],
)
def test_what_is_no_fence_is_refused(given: object) -> None:
    with pytest.raises(GeometryError):
        read_fence(given)


@pytest.mark.parametrize("given", [None, [], [1], [1, 2, 3], ["1", "2"], [True, False], [1e999, 0]])
def test_what_is_no_location_is_refused(given: object) -> None:
    with pytest.raises(GeometryError):
        read_location(given)


def test_areas_are_told_where_the_page_cannot_work_them_out() -> None:
    brokers = [BrokerSite(BrokerId(name), place) for name, place in zip("ab", PLACES, strict=True)]
    nearest = Federation(brokers, NearestAreas(PLACES))
    assert areas_kind(nearest.areas) == "nearest"
    assert brokers_json(nearest, {"a": "mqtt://a:1"}) == [
        {"name": "a", "lat": 10.0, "lon": 20.0, "address": "mqtt://a:1", "area": None},
        {"name": "b", "lat": -10.0, "lon": -20.0, "address": None, "area": None},
    ]
    circle = parse_fence("geo:50,50;u=1000")
    given = Federation(brokers, PolygonAreas([circle, parse_fence("POLYGON((0 0,1 0,1 1,0 1,0 0))")]))
    assert areas_kind(given.areas) == "polygons"
    assert [one["area"] for one in brokers_json(given, {})] == [fence_json(circle), SQUARE]


def test_grid_areas_are_told_as_outlines_that_cover_the_earth() -> None:
    federation = Federation(
        [BrokerSite(BrokerId(name), place) for name, place in zip("ab", PLACES, strict=True)], GridAreas(PLACES, 45)
    )
    assert areas_kind(federation.areas) == "grid"
    shapes = [shapely.from_geojson(json.dumps(one["area"])) for one in brokers_json(federation, {})]
    assert [shape.area for shape in shapes] == [180 * 180, 180 * 180]
    assert shapes[0].contains(shapely.Point(20, 10))
