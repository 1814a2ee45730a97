"""Distances on the sphere GeoMQ takes the earth to be, and the one test of "inside a circle".

Owns the radius, great-circle distances, unit vectors and `chord_limit`. A point is inside a circle exactly
when `dx*dx + dy*dy + dz*dz <= chord_limit(radius_m)` for the difference of the two unit vectors; every engine
uses that form, so all agree. Refuses nothing: its callers hand it valid locations.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geomq.geo.location import Location

FloatArray = NDArray[np.float64]

EARTH_RADIUS_M = 6_371_008.7714
HALF_CIRCUMFERENCE_M = math.pi * EARTH_RADIUS_M
TOLERANCE_M = 1e-3
"""A point this much beyond a border still counts as on it, which absorbs rounding."""

EVERYWHERE = 8.0
"""A chord limit no two unit vectors exceed, rounding included: squared chords end at 4."""

_M_PER_DEGREE = HALF_CIRCUMFERENCE_M / 180.0
_ROUNDING = 1.0 + 2e-15
_RADIAN = math.pi / 180.0


def distance_m(a: Location, b: Location) -> float:
    """Great-circle distance by the haversine formula."""
    lat_a, lat_b = math.radians(a[0]), math.radians(b[0])
    half_lat = math.sin((lat_b - lat_a) / 2)
    half_lon = math.sin(math.radians(b[1] - a[1]) / 2)
    h = half_lat * half_lat + math.cos(lat_a) * math.cos(lat_b) * half_lon * half_lon
    return 2.0 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, h)))


def distances_m(lats: ArrayLike, lons: ArrayLike, lat: ArrayLike, lon: ArrayLike) -> FloatArray:
    """Great-circle distances, broadcast over arrays."""
    lat_a, lat_b = np.radians(np.asarray(lats, float)), np.radians(np.asarray(lat, float))
    half_lat = np.sin((lat_b - lat_a) / 2)
    half_lon = np.sin(np.radians(np.asarray(lon, float) - np.asarray(lons, float)) / 2)
    h = half_lat * half_lat + np.cos(lat_a) * np.cos(lat_b) * half_lon * half_lon
    result: FloatArray = 2.0 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.minimum(1.0, h)))
    return result


def unit_vector(lat: float, lon: float) -> tuple[float, float, float]:
    """The point of the unit sphere at a latitude and longitude."""
    phi, lam = lat * _RADIAN, lon * _RADIAN
    cos_phi = math.cos(phi)
    return cos_phi * math.cos(lam), cos_phi * math.sin(lam), math.sin(phi)


def unit_vectors(lats: ArrayLike, lons: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The vectorised `unit_vector`."""
    phi, lam = np.asarray(lats, float) * _RADIAN, np.asarray(lons, float) * _RADIAN
    cos_phi = np.cos(phi)
    return cos_phi * np.cos(lam), cos_phi * np.sin(lam), np.sin(phi)


def chord_limit(radius_m: float) -> float:
    """The largest squared chord between unit vectors that counts as within `radius_m`, border included."""
    radius = radius_m + TOLERANCE_M
    if radius >= HALF_CIRCUMFERENCE_M:
        return EVERYWHERE
    half_chord = math.sin(radius / (2.0 * EARTH_RADIUS_M))
    return 4.0 * half_chord * half_chord * _ROUNDING


def chord_limits(radius_m: ArrayLike) -> FloatArray:
    """The vectorised `chord_limit`."""
    radius = np.asarray(radius_m, float) + TOLERANCE_M
    half_chord = np.sin(np.minimum(radius, HALF_CIRCUMFERENCE_M) / (2.0 * EARTH_RADIUS_M))
    limits = 4.0 * half_chord * half_chord * _ROUNDING
    return np.where(radius >= HALF_CIRCUMFERENCE_M, EVERYWHERE, limits)


def degrees_to_m(deg: float) -> float:
    """Metres along a great circle for degrees of arc."""
    return deg * _M_PER_DEGREE


def m_to_degrees(m: float) -> float:
    """Degrees of arc along a great circle for metres."""
    return m / _M_PER_DEGREE


def destination(location: Location, bearing_deg: float, distance_m: float) -> Location:
    """Where a great circle that leaves `location` at `bearing_deg` arrives after `distance_m`."""
    phi, bearing, arc = math.radians(location[0]), math.radians(bearing_deg), distance_m / EARTH_RADIUS_M
    sin_phi, cos_phi, sin_arc, cos_arc = math.sin(phi), math.cos(phi), math.sin(arc), math.cos(arc)
    across = math.sin(bearing) * sin_arc
    ahead = cos_phi * cos_arc - sin_phi * sin_arc * math.cos(bearing)
    up = sin_phi * cos_arc + cos_phi * sin_arc * math.cos(bearing)
    lon = location[1] + math.degrees(math.atan2(across, ahead))
    return Location(math.degrees(math.atan2(up, math.hypot(across, ahead))), _wrapped(lon))


def destinations(
    lats: ArrayLike, lons: ArrayLike, bearings_deg: ArrayLike, distances_m: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """The vectorised `destination`: latitudes and longitudes."""
    phi, bearing = np.radians(np.asarray(lats, float)), np.radians(np.asarray(bearings_deg, float))
    arc = np.asarray(distances_m, float) / EARTH_RADIUS_M
    sin_phi, cos_phi, sin_arc, cos_arc = np.sin(phi), np.cos(phi), np.sin(arc), np.cos(arc)
    across = np.sin(bearing) * sin_arc
    ahead = cos_phi * cos_arc - sin_phi * sin_arc * np.cos(bearing)
    up = sin_phi * cos_arc + cos_phi * sin_arc * np.cos(bearing)
    lon = np.asarray(lons, float) + np.degrees(np.arctan2(across, ahead))
    lon = np.where(lon > 180.0, lon - 360.0, np.where(lon < -180.0, lon + 360.0, lon))
    return np.degrees(np.arctan2(up, np.hypot(across, ahead))), lon


def _wrapped(lon: float) -> float:
    if lon > 180.0:
        return lon - 360.0
    if lon < -180.0:
        return lon + 360.0
    return lon
