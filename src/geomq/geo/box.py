"""Boxes: closed ranges of latitude and longitude, the coarse shape that indexes and areas reason with.

A box never crosses the antimeridian; what does is two boxes. A box that reaches latitude 90 or -90 holds the
pole. Longitudes 180 and -180 are the same meridian.
"""

from typing import NamedTuple


class Box(NamedTuple):
    """A closed latitude and longitude range in degrees."""

    lat_min: float
    lat_max: float
    lon_min: float
    lon_max: float


WORLD = Box(-90.0, 90.0, -180.0, 180.0)
