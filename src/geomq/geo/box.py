"""Boxes: closed ranges of latitude and longitude, the coarse shape that indexes and areas reason with.

A box never crosses the antimeridian; what does is two boxes. A box that reaches latitude 90 or -90 holds the
pole. Longitudes 180 and -180 are the same meridian.
"""

from typing import NamedTuple

import numpy as np

from geomq.geo.sphere import EARTH_RADIUS_M, HALF_CIRCUMFERENCE_M, FloatArray


class Box(NamedTuple):
    """A closed latitude and longitude range in degrees."""

    lat_min: float
    lat_max: float
    lon_min: float
    lon_max: float


def enclosing_circles(boxes: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Centre latitude and longitude of each box, and a radius in metres that holds all of it."""
    south, north, west, east = boxes.T
    widest = np.cos(np.radians(np.where(south * north <= 0.0, 0.0, np.minimum(np.abs(south), np.abs(north)))))
    half_lat, half_lon = np.radians(north - south) / 2.0, np.radians(east - west) / 2.0
    radius = EARTH_RADIUS_M * (half_lat + half_lon * widest)
    return (south + north) / 2.0, (west + east) / 2.0, np.minimum(radius, HALF_CIRCUMFERENCE_M)
