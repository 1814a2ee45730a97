"""Fence text: what clients send, and what GeoMQ writes back.

Owns the limits on hostile text and the choice among three spellings: WKT, GeoJSON, and a geo URI whose `u=`
is a circle's radius in metres. `parse_fence(fence_text(fence)) == fence` for every fence. Refuses, with one
line, all that is too large, too deep, out of range or invalid; repairs nothing.
"""

from dataclasses import dataclass

from geomq.errors import GeometryError
from geomq.geo.circle import Circle
from geomq.geo.fence import Fence
from geomq.geo.geojson import parse_geojson, polygon_geojson
from geomq.geo.location import decimal_text, is_geo_uri, location_text, parse_geo_uri
from geomq.geo.wkt import parse_wkt, polygon_wkt


@dataclass(frozen=True, slots=True)
class FenceLimits:
    """How much fence text is read before it is refused."""

    bytes_max: int = 65_536
    vertices_max: int = 1_000
    depth_max: int = 4


DEFAULT_LIMITS = FenceLimits()
WRITTEN_LIMITS = FenceLimits(bytes_max=1 << 23, vertices_max=100_000, depth_max=16)
"""For what `fence_text` wrote: whatever limits a fence was first read under, it can be read again."""


def parse_fence(text: str, limits: FenceLimits = DEFAULT_LIMITS) -> Fence:
    """Read WKT, GeoJSON or a geo URI with `u=`, or raise GeometryError."""
    if len(text) > limits.bytes_max or len(text.encode("utf-8", "surrogatepass")) > limits.bytes_max:
        raise GeometryError(f"fence text is longer than {limits.bytes_max} bytes")
    text = text.strip()
    if not text:
        raise GeometryError("fence text is empty")
    if is_geo_uri(text):
        return _circle(text)
    if text[0] == "{":
        return parse_geojson(text, vertices_max=limits.vertices_max, depth_max=limits.depth_max)
    return parse_wkt(text, vertices_max=limits.vertices_max)


def fence_text(fence: Fence) -> str:
    """The canonical text: a geo URI for a circle, WKT for polygons."""
    if isinstance(fence, Circle):
        return f"geo:{location_text(fence.center)};u={decimal_text(fence.radius_m)}"
    return polygon_wkt(fence)


def fence_geojson(fence: Fence) -> str:
    """The GeoJSON geometry of a polygon or multipolygon; GeoJSON has no circles."""
    if isinstance(fence, Circle):
        raise GeometryError("GeoJSON cannot express a circle; use fence_text")
    return polygon_geojson(fence)


def _circle(text: str) -> Circle:
    uri = parse_geo_uri(text)
    if uri.uncertainty_m is None:
        raise GeometryError("a geo URI is a fence only with a radius: add ;u=metres")
    return Circle(uri.location, uri.uncertainty_m)
