"""GeoJSON (RFC 7946) of polygons: a bounded reader and a writer.

Reads a Polygon, a MultiPolygon, or a Feature that wraps one; a third coordinate (altitude) is dropped.
Nesting is measured before the JSON parser sees the text. Refuses every other geometry and any `crs` member.
"""

import json
import math
import re
from typing import Any, NoReturn

from geomq.errors import GeometryError
from geomq.geo.polygon import MultiPolygon, Polygon, Ring

_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)
_STEPS = {"[": (1, 0), "]": (-1, 0), "{": (0, 1), "}": (0, -1)}


def parse_geojson(text: str, *, vertices_max: int, depth_max: int) -> Polygon | MultiPolygon:
    """Read one Polygon, MultiPolygon or Feature of one with at most `vertices_max` vertices."""
    _check_depth(text, depth_max)
    try:
        data = json.loads(text, parse_int=float, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise GeometryError(f"invalid JSON: {str(error)[:80]}") from None
    geometry = _geometry(data)
    kind, coordinates = geometry.get("type"), geometry.get("coordinates")
    counter = _Counter(vertices_max)
    if kind == "Polygon":
        return Polygon(_rings(coordinates, counter))
    if kind == "MultiPolygon":
        parts = [_rings(part, counter) for part in _list(coordinates, "MultiPolygon coordinates")]
        return MultiPolygon([Polygon(rings) for rings in parts])
    if kind in ("Point", "MultiPoint"):
        raise GeometryError("a Point has no area; for a circle write geo:lat,lon;u=metres")
    raise GeometryError(f"GeoJSON type {str(kind)[:40]!r} is not a fence; use Polygon or MultiPolygon")


def polygon_geojson(fence: Polygon | MultiPolygon) -> str:
    """Write the bare geometry so that `parse_geojson` gives the fence back exactly."""
    if isinstance(fence, Polygon):
        geometry = {"type": "Polygon", "coordinates": _coordinates(fence.rings)}
    else:
        parts = [_coordinates(polygon.rings) for polygon in fence.polygons]
        geometry = {"type": "MultiPolygon", "coordinates": parts}
    return json.dumps(geometry, separators=(",", ":"))


def _coordinates(rings: tuple[Ring, ...]) -> list[list[list[float]]]:
    return [[[lon, lat] for lat, lon in ring] for ring in rings]


class _Counter:
    """Counts vertices over all rings of one fence."""

    def __init__(self, maximum: int) -> None:
        self._count = 0
        self._maximum = maximum

    def add(self, vertices: int) -> None:
        self._count += vertices
        if self._count > self._maximum:
            raise GeometryError(f"the fence has more than {self._maximum} vertices")


def _check_depth(text: str, depth_max: int) -> None:
    arrays = objects = 0
    for match in _STRUCTURE.finditer(text):
        step = _STEPS.get(match[0])
        if step is not None:
            arrays, objects = arrays + step[0], objects + step[1]
            if arrays > depth_max or objects > depth_max:
                raise GeometryError(f"GeoJSON is nested more than {depth_max} deep")


def _refuse_constant(name: str) -> NoReturn:
    raise GeometryError(f"GeoJSON number {name} is not finite")


def _geometry(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise GeometryError("GeoJSON must be an object")
    if data.get("type") == "Feature":
        _refuse_crs(data)
        data = data.get("geometry")
        if not isinstance(data, dict):
            raise GeometryError("the GeoJSON Feature has no geometry")
    _refuse_crs(data)
    return data


def _refuse_crs(data: dict[str, Any]) -> None:
    if data.get("crs") is not None:
        raise GeometryError("GeoJSON with a crs member is not supported; coordinates are WGS84 (RFC 7946)")


def _rings(coordinates: Any, counter: _Counter) -> list[list[tuple[float, float]]]:
    rings = []
    for ring in _list(coordinates, "Polygon coordinates"):
        positions = _list(ring, "a ring")
        counter.add(len(positions))
        rings.append([_position(position) for position in positions])
    return rings


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise GeometryError(f"GeoJSON: {what} must be an array")
    return value


def _position(value: Any) -> tuple[float, float]:
    numbers = _list(value, "a position")
    if not 2 <= len(numbers) <= 3:
        raise GeometryError("GeoJSON: a position is [longitude, latitude] with an optional altitude")
    if not all(type(number) is float and math.isfinite(number) for number in numbers):
        raise GeometryError("GeoJSON: a position must hold finite numbers")
    return numbers[1], numbers[0]
