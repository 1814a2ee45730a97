"""Fences, areas and federations in the JSON the page draws, and fences as the page sends them.

A circle is `{"type": "Circle", "center": [lat, lon], "radius_m": r}`, everything else a GeoJSON geometry. What the
page sends passes the same bounded reader as a client's fence text.
"""

from typing import Any

import msgspec
import shapely

from geomq.errors import GeometryError
from geomq.geo import (
    Areas,
    Circle,
    Fence,
    GridAreas,
    Location,
    PolygonAreas,
    fence_geojson,
    make_location,
    parse_fence,
)
from geomq.routing.core.topology import Federation

Json = dict[str, Any]


def fence_json(fence: Fence | None) -> Json | None:
    """The fence as the page draws it."""
    if fence is None:
        return None
    if isinstance(fence, Circle):
        return {"type": "Circle", "center": [fence.center.lat, fence.center.lon], "radius_m": fence.radius_m}
    geometry: Json = msgspec.json.decode(fence_geojson(fence))
    return geometry


def fence_text_json(text: str | None) -> Json | None:
    """A fence given as text; what cannot be read is drawn as everywhere."""
    try:
        return None if text is None else fence_json(parse_fence(text))
    except GeometryError:
        return None


def read_fence(given: object) -> Fence | None:
    """The fence a page sent: text, a circle or a GeoJSON geometry; none for None."""
    if given is None:
        return None
    if isinstance(given, str):
        return parse_fence(given)
    if not isinstance(given, dict):
        raise GeometryError("a fence must be text, a circle or a GeoJSON geometry")
    if given.get("type") != "Circle":
        return parse_fence(msgspec.json.encode(given).decode())
    radius_m = given.get("radius_m")
    if isinstance(radius_m, bool) or not isinstance(radius_m, int | float):
        raise GeometryError("radius_m of a circle must be a number of metres")
    return Circle(read_location(given.get("center")), radius_m)


def read_location(given: object) -> Location:
    """The location a page sent: [lat, lon]."""
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise GeometryError("a location must be [lat, lon]")
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in given):
        raise GeometryError("latitude and longitude must be numbers")
    return make_location(*given)


def areas_kind(areas: Areas) -> str:
    """How the page learns the areas: it draws cells of the nearest broker itself."""
    if isinstance(areas, PolygonAreas):
        return "polygons"
    return "grid" if isinstance(areas, GridAreas) else "nearest"


def area_json(areas: Areas, position: int) -> Json | None:
    """The area of one broker, or None where cells of the nearest broker say it."""
    if isinstance(areas, PolygonAreas):
        return fence_json(areas.fences[position])
    if isinstance(areas, GridAreas):
        return _outline(areas, position)
    return None


def brokers_json(federation: Federation, addresses: dict[str, str | None]) -> list[Json]:
    """Every broker with its place, its area and where its clients connect."""
    return [
        {
            "name": broker.id,
            "lat": broker.location.lat,
            "lon": broker.location.lon,
            "address": addresses.get(broker.id),
            "area": area_json(federation.areas, position),
        }
        for position, broker in enumerate(federation.brokers)
    ]


def _outline(areas: GridAreas, position: int) -> Json:
    """The squares of one broker as one outline; it keeps a vertex at every square, so that parallels stay parallels."""
    boxes = [areas.square_box(int(square)) for square in areas.squares_of(position)]
    squares = [shapely.box(box.lon_min, box.lat_min, box.lon_max, box.lat_max) for box in boxes]
    outline = shapely.segmentize(shapely.union_all(squares), areas.field_deg)
    geometry: Json = msgspec.json.decode(shapely.to_geojson(outline))
    return geometry
