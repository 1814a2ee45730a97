"""Geometry: locations, fences, broker areas, and the indexes that match one against the other.

Pure computation on numpy and shapely. No sockets, no clock, no randomness.
"""

from geomq.geo.location import Location, location_text, make_location, parse_location
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

__all__ = [
    "EARTH_RADIUS_M",
    "HALF_CIRCUMFERENCE_M",
    "Location",
    "chord_limit",
    "chord_limits",
    "degrees_to_m",
    "destination",
    "destinations",
    "distance_m",
    "distances_m",
    "location_text",
    "m_to_degrees",
    "make_location",
    "parse_location",
    "unit_vector",
    "unit_vectors",
]
