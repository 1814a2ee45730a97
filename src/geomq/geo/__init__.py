"""Geometry: locations, fences, broker areas, and the indexes that match one against the other.

Pure computation on numpy and shapely. No sockets, no clock, no randomness.
"""

from geomq.geo.areas import Areas, SoleArea
from geomq.geo.box import Box
from geomq.geo.fence import Circle, Fence, MultiPolygon, Polygon
from geomq.geo.fences import FenceIndex
from geomq.geo.grid import GridAreas
from geomq.geo.location import Location, location_text, make_location, parse_location
from geomq.geo.meet import fences_meet
from geomq.geo.nearest import NearestAreas
from geomq.geo.points import PointIndex
from geomq.geo.polygon_areas import PolygonAreas
from geomq.geo.sphere import (
    EARTH_RADIUS_M,
    HALF_CIRCUMFERENCE_M,
    chord_limit,
    chord_limits,
    degrees_to_m,
    destination,
    destinations,
    distance_m,
    distances_m,
    m_to_degrees,
    unit_vector,
    unit_vectors,
)
from geomq.geo.text import (
    DEFAULT_LIMITS,
    WRITTEN_LIMITS,
    FenceLimits,
    fence_geojson,
    fence_text,
    parse_fence,
)

__all__ = [
    "DEFAULT_LIMITS",
    "EARTH_RADIUS_M",
    "HALF_CIRCUMFERENCE_M",
    "WRITTEN_LIMITS",
    "Areas",
    "Box",
    "Circle",
    "Fence",
    "FenceIndex",
    "FenceLimits",
    "GridAreas",
    "Location",
    "MultiPolygon",
    "NearestAreas",
    "PointIndex",
    "Polygon",
    "PolygonAreas",
    "SoleArea",
    "chord_limit",
    "chord_limits",
    "degrees_to_m",
    "destination",
    "destinations",
    "distance_m",
    "distances_m",
    "fence_geojson",
    "fence_text",
    "fences_meet",
    "location_text",
    "m_to_degrees",
    "make_location",
    "parse_fence",
    "parse_location",
    "unit_vector",
    "unit_vectors",
]
