"""Do two fences share a point? Exact for circles with circles and polygons with polygons.

For a circle and a polygon, whose edges bend on the sphere, edges are halved until a bound on their bend
decides; the answer may be yes for a gap of up to a metre and is never a wrong no.
"""

import math

import numpy as np
import shapely
from numpy.typing import ArrayLike, NDArray

from geomq.geo.areas import circle_arrays
from geomq.geo.box import enclosing_circles
from geomq.geo.circle import Circle
from geomq.geo.fence import Fence
from geomq.geo.polygon import PlanarFence
from geomq.geo.sphere import TOLERANCE_M, FloatArray, chord_limits, unit_vectors

GAP_M = 1.0
"""How wide a gap between a circle and a polygon may be taken for a touch."""

_PAIRS_MAX = 1 << 18
_RADIAN = math.pi / 180.0
_BEND_MIN = 1e-15


def fences_meet(a: Fence, b: Fence) -> bool:
    """True if the two closed fences share a point."""
    if isinstance(a, Circle):
        return bool(circles_meet(b, a.center.lat, a.center.lon, a.radius_m)[0])
    if isinstance(b, Circle):
        return bool(circles_meet(a, b.center.lat, b.center.lon, b.radius_m)[0])
    return a.meets_shape(b)


def circles_meet(fence: Fence, lats: ArrayLike, lons: ArrayLike, radius_m: ArrayLike) -> NDArray[np.bool_]:
    """For each circle, True if it shares a point with the fence."""
    lat, lon, radius = circle_arrays(lats, lons, radius_m)
    if isinstance(fence, Circle):
        x, y, z = unit_vectors(lat, lon)
        chord = (x - fence.x) ** 2 + (y - fence.y) ** 2 + (z - fence.z) ** 2
        met: NDArray[np.bool_] = chord <= chord_limits(radius + fence.radius_m + TOLERANCE_M)
        return met
    met = fence.contains_many(lat, lon)
    edges = fence_edges(fence)
    outside = np.flatnonzero(~met & _near_extent(fence, lat, lon, radius))
    step = max(1, _PAIRS_MAX // len(edges))
    for start in range(0, outside.size, step):
        part = outside[start : start + step]
        met[part] = _reach_edges(edges, lat[part], lon[part], radius[part])
    return met


def fence_edges(fence: PlanarFence) -> FloatArray:
    """All edges as rows of lat, lon, lat, lon in degrees."""
    rings = shapely.get_rings(shapely.get_parts(fence.shape))
    points, ring = shapely.get_coordinates(rings, return_index=True)
    points = points[:, ::-1]
    edges: FloatArray = np.hstack((points[:-1], points[1:]))[ring[:-1] == ring[1:]]
    return edges


def _near_extent(fence: PlanarFence, lat: FloatArray, lon: FloatArray, radius: FloatArray) -> NDArray[np.bool_]:
    """False for circles that end before the circle round the fence begins."""
    centre_lat, centre_lon, around = enclosing_circles(np.array([fence.extent]))
    chords = _chords(np.stack(unit_vectors(centre_lat, centre_lon)), np.zeros(1, int), np.stack((lat, lon), 1))
    near: NDArray[np.bool_] = chords <= chord_limits(radius + around + GAP_M)
    return near


def _reach_edges(edges: FloatArray, lat: FloatArray, lon: FloatArray, radius: FloatArray) -> NDArray[np.bool_]:
    """For each circle, True if some edge comes within its radius."""
    centres = np.stack(unit_vectors(lat, lon))
    limit = chord_limits(radius)
    slack = chord_limits(radius + GAP_M) - limit
    hit = np.zeros(lat.size, dtype=np.bool_)
    circle = np.repeat(np.arange(lat.size), len(edges))
    edge = np.tile(edges, (lat.size, 1))
    while circle.size:
        near = np.minimum(_chords(centres, circle, edge[:, :2]), _chords(centres, circle, edge[:, 2:]))
        bend = _bend(edge)
        hit[circle[near <= limit[circle]]] = True
        close = near - bend <= limit[circle]
        hit[circle[close & (bend <= np.maximum(slack[circle], _BEND_MIN))]] = True
        open_pairs = close & ~hit[circle]
        circle, edge = circle[open_pairs], edge[open_pairs]
        middle = (edge[:, :2] + edge[:, 2:]) / 2
        edge = np.concatenate((np.hstack((edge[:, :2], middle)), np.hstack((middle, edge[:, 2:]))))
        circle = np.concatenate((circle, circle))
    return hit


def _chords(centres: FloatArray, circle: NDArray[np.int64], points: FloatArray) -> FloatArray:
    x, y, z = unit_vectors(points[:, 0], points[:, 1])
    a, b, c = centres[:, circle]
    chords: FloatArray = (x - a) ** 2 + (y - b) ** 2 + (z - c) ** 2
    return chords


def _bend(edge: FloatArray) -> FloatArray:
    """How far below its ends the squared chord to any point can dip along an edge.

    A function whose second derivative stays within m dips at most m/8 below its lower end over a unit
    interval; the squared chord's is at most twice that of the curve, so a quarter of that bounds the dip.
    """
    lat_a, lon_a, lat_b, lon_b = edge.T * _RADIAN
    north, east = np.abs(lat_b - lat_a), np.abs(lon_b - lon_a)
    lowest = np.where(lat_a * lat_b <= 0.0, 0.0, np.minimum(np.abs(lat_a), np.abs(lat_b)))
    dip: FloatArray = (north * north + 2.0 * north * east + east * east * np.cos(lowest)) / 4.0
    return dip
