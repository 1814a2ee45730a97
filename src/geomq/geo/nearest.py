"""Nearest areas: every place belongs to the broker nearest on the sphere (its Voronoi cell).

Owns the cells' borders, found by clipping the sphere with the planes halfway between brokers, and exact
tests of circles against them. A polygon is cut into pieces until each piece's brokers are certain or it is
smaller than a kilometre, so a polygon may touch a broker whose cell is up to a kilometre away; one that follows
borders for thousands of kilometres is cut into a bounded number of pieces. Refuses brokers at one place.
"""

import math
from collections.abc import Sequence

import numpy as np
import shapely
from numpy.typing import ArrayLike, NDArray

from geomq.errors import GeometryError
from geomq.geo.areas import Masks, broker_bits, check_some, circle_arrays, mask_brokers, word_count
from geomq.geo.box import enclosing_circles
from geomq.geo.circle import Circle
from geomq.geo.fence import Fence
from geomq.geo.location import Location, make_location
from geomq.geo.polygon import PlanarFence
from geomq.geo.sphere import EARTH_RADIUS_M, FloatArray, chord_limits, unit_vector, unit_vectors

APART_M_MIN = 1.0
PIECE_M = 500.0
"""Radius of the circle round a piece of polygon below which it is not cut further."""
PIECES_MAX = 1 << 12
"""So many undecided pieces are not cut further: whoever makes up a fence must not decide how long we think."""

_CHUNK = 1 << 12
_ARC_MIN = 1e-12
_PAIRS_MAX = 1 << 14
_OCTANTS = [(x, y, z) for x in (1.0, -1.0) for y in (1.0, -1.0) for z in (1.0, -1.0)]


class NearestAreas:
    """Spherical nearest-broker cells."""

    def __init__(self, brokers: Sequence[Location]) -> None:
        check_some(brokers)
        self.brokers = tuple(make_location(*broker) for broker in brokers)
        self.count = len(self.brokers)
        lats, lons = np.array(self.brokers).T
        self._sites = np.stack(unit_vectors(lats, lons), axis=1)
        self._apart = np.linalg.norm(self._sites[:, None] - self._sites, axis=2)
        self._slop_m = self._check_apart()
        self._arcs = _Arcs([_cell_borders(self._sites, index) for index in range(self.count)])
        self._bits = broker_bits(self.count)

    def owner(self, location: Location) -> int:
        """The nearest broker; of equally near ones the lowest."""
        x, y, z = unit_vector(location[0], location[1])
        sites = self._sites
        return int(np.argmax(sites[:, 0] * x + sites[:, 1] * y + sites[:, 2] * z))

    def owners(self, lats: ArrayLike, lons: ArrayLike) -> NDArray[np.int32]:
        """The vectorised `owner`."""
        lat, lon = np.broadcast_arrays(np.asarray(lats, float), np.asarray(lons, float))
        owners = np.empty(lat.shape, dtype=np.int32)
        flat, flat_lat, flat_lon = owners.reshape(-1), lat.reshape(-1), lon.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            flat[part] = self._nearest(np.stack(unit_vectors(flat_lat[part], flat_lon[part]), axis=1))
        return owners

    def touched(self, fence: Fence) -> tuple[int, ...]:
        """The brokers whose cell meets the fence, or comes within a kilometre of a polygon."""
        if isinstance(fence, Circle):
            centre = np.array([[fence.x, fence.y, fence.z]])
            return mask_brokers(self._touch(centre, np.array([fence.radius_m + self._slop_m]))[0])
        return self._touched_by_planar(fence)

    def touched_masks(self, lats: ArrayLike, lons: ArrayLike, radius_m: ArrayLike) -> Masks:
        """One row of broker bits per circle."""
        lat, lon, radius = circle_arrays(lats, lons, radius_m)
        masks = np.empty((lat.size, word_count(self.count)), dtype=np.uint64)
        for start in range(0, lat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            centres = np.stack(unit_vectors(lat[part], lon[part]), axis=1)
            masks[part] = self._touch(centres, radius[part] + self._slop_m)
        return masks

    def _touch(self, centres: FloatArray, radius: FloatArray) -> Masks:
        """The owner of the centre, and every cell with a border within the radius."""
        owner = self._nearest(centres)
        masks: Masks = self._bits[owner].copy()
        circle, broker = self._maybe_reached(centres, owner, radius)
        for start in range(0, circle.size, _PAIRS_MAX):
            some, near = circle[start : start + _PAIRS_MAX], broker[start : start + _PAIRS_MAX]
            hit = self._arcs.reached(centres, some, near, radius)
            np.bitwise_or.at(masks, some[hit], self._bits[near[hit]])
        return masks

    def _maybe_reached(
        self, centres: FloatArray, owner: NDArray[np.int64], radius: FloatArray
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs of circle and broker such that the circle crosses the plane halfway to its owner's site."""
        ahead = _dots(centres, self._sites)
        own = ahead[np.arange(owner.size), owner]
        sine = np.where(radius < EARTH_RADIUS_M * math.pi / 2, np.sin(radius / EARTH_RADIUS_M), 2.0) + 1e-9
        maybe = own[:, None] - ahead <= self._apart[owner] * sine[:, None]
        maybe[np.arange(owner.size), owner] = False
        circle, broker = np.nonzero(maybe)
        return circle, broker

    def _nearest(self, points: FloatArray) -> NDArray[np.int64]:
        nearest: NDArray[np.int64] = np.argmax(_dots(points, self._sites), axis=1)
        return nearest

    def _check_apart(self) -> float:
        """Refuse brokers at one place; return how far rounding can shift a border, in metres."""
        apart = self._apart + 4.0 * np.eye(self.count)
        nearest = float(apart.min())
        if nearest * EARTH_RADIUS_M < APART_M_MIN:
            one, other = divmod(int(apart.argmin()), self.count)
            raise GeometryError(f"brokers {one} and {other} are at the same place")
        return EARTH_RADIUS_M * 4e-15 / nearest

    def _touched_by_planar(self, fence: PlanarFence) -> tuple[int, ...]:
        lons, lats = shapely.get_coordinates(fence.shape).T
        found = np.zeros(self.count, dtype=np.bool_)
        found[self.owners(lats, lons)] = True
        boxes = np.array(fence.part_boxes())
        while len(boxes):
            lat, lon, radius = enclosing_circles(boxes)
            found[self.owners(lat, lon)[fence.contains_many(lat, lon)]] = True
            near = _brokers_of(self.touched_masks(lat, lon, radius), self.count)
            open_boxes: NDArray[np.bool_] = np.asarray((near & ~found).any(axis=1))
            open_boxes[open_boxes] = fence.meets_boxes(*boxes[open_boxes].T)
            small = (radius <= PIECE_M) | (open_boxes.sum() > PIECES_MAX)
            found |= near[open_boxes & small].any(axis=0)
            boxes = _pieces(boxes[open_boxes & ~small])
        return tuple(np.flatnonzero(found).tolist())


class _Arcs:
    """Border arcs of all cells, stored cell after cell."""

    def __init__(self, cells: list[FloatArray]) -> None:
        self._count = np.array([len(cell) for cell in cells])
        self._first = np.concatenate(([0], np.cumsum(self._count)[:-1]))
        arcs = np.concatenate(cells) if cells else np.zeros((0, 2, 3))
        self._start, self._end = arcs[:, 0], arcs[:, 1]
        normal = np.cross(self._start, self._end)
        self._normal = normal / np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-300)
        self._after, self._before = np.cross(self._normal, self._start), np.cross(self._end, self._normal)

    def reached(
        self, centres: FloatArray, circle: NDArray[np.int64], cell: NDArray[np.int64], radius: FloatArray
    ) -> NDArray[np.bool_]:
        """For each pair of circle and cell, True if an arc of the cell is within the circle's radius."""
        count = self._count[cell]
        start = np.cumsum(count) - count
        arc = np.repeat(self._first[cell] - start, count) + np.arange(count.sum())
        point = np.repeat(centres[circle], count, axis=0)
        limit = np.repeat(chord_limits(radius[circle]), count)
        height = np.where(limit < 2.0, limit * (1.0 - limit / 4.0), 4.0)
        above = _dot(point, self._normal[arc])
        hit = (above * above <= height) & (_dot(point, self._after[arc]) >= 0.0)
        hit &= _dot(point, self._before[arc]) >= 0.0
        hit |= _chord(point, self._start[arc]) <= limit
        hit |= _chord(point, self._end[arc]) <= limit
        reached: NDArray[np.bool_] = np.logical_or.reduceat(hit, start)
        return reached


def _dots(a: FloatArray, b: FloatArray) -> FloatArray:
    """All dot products, by the same operations in the same order however many there are."""
    dots: FloatArray = b[:, 0] * a[:, :1] + b[:, 1] * a[:, 1:2] + b[:, 2] * a[:, 2:]
    return dots


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    dot: FloatArray = np.einsum("ij,ij->i", a, b)
    return dot


def _chord(a: FloatArray, b: FloatArray) -> FloatArray:
    apart = a - b
    return _dot(apart, apart)


def _cell_borders(sites: FloatArray, index: int) -> FloatArray:
    """The border arcs of one cell, each a pair of unit vectors.

    The sphere is taken as eight octants, since a spherical polygon must be smaller than a hemisphere to be
    clipped edge by edge. Arcs along octant borders lie inside the cell, where they do no harm.
    """
    site = sites[index]
    others = np.delete(sites, index, axis=0)
    chords = np.linalg.norm(others - site, axis=1)
    order = np.argsort(chords, kind="stable")
    pieces = [np.diag(octant) for octant in _OCTANTS]
    farthest = 2.0
    for other, chord in zip(others[order], chords[order], strict=True):
        if chord > 2.0 * farthest:
            break
        normal = (site - other) / np.linalg.norm(site - other)
        pieces = [piece for piece in (_clipped(piece, normal) for piece in pieces) if len(piece) >= 3]
        farthest = max(float(np.linalg.norm(piece - site, axis=1).max()) for piece in pieces)
    arcs = np.concatenate([np.stack((piece, np.roll(piece, -1, axis=0)), axis=1) for piece in pieces])
    kept: FloatArray = arcs[np.linalg.norm(arcs[:, 0] - arcs[:, 1], axis=1) > _ARC_MIN]
    return kept


def _clipped(piece: FloatArray, normal: FloatArray) -> FloatArray:
    """The part of a convex spherical polygon on the positive side of a plane through the centre."""
    height = piece @ normal
    if (height >= 0.0).all():
        return piece
    kept = []
    for here, there, low, high in zip(piece, np.roll(piece, -1, axis=0), height, np.roll(height, -1), strict=True):
        if low >= 0.0:
            kept.append(here)
        if (low >= 0.0) != (high >= 0.0):
            crossing = here + (there - here) * (low / (low - high))
            kept.append(crossing / np.linalg.norm(crossing))
    return np.array(kept).reshape(-1, 3)


def _brokers_of(masks: Masks, count: int) -> NDArray[np.bool_]:
    """Masks as one truth value per circle and broker."""
    bits = np.unpackbits(masks.astype("<u8").view(np.uint8), axis=1, bitorder="little")
    brokers: NDArray[np.bool_] = bits[:, :count] == 1
    return brokers


def _pieces(boxes: FloatArray) -> FloatArray:
    """The boxes in quarters, or long ones in halves: quarters of a long box would be four times as many each time."""
    south, north, west, east = boxes.T
    lat, lon = (south + north) / 2.0, (west + east) / 2.0
    height, width = north - south, (east - west) * np.cos(np.radians(lat))
    cut_lat, cut_lon = width <= 2.0 * height, height <= 2.0 * width
    both = cut_lat & cut_lon
    middle_lat, middle_lon = np.where(cut_lat, lat, north), np.where(cut_lon, lon, east)
    first = np.stack((south, middle_lat, west, middle_lon), axis=1)
    last = np.stack((np.where(cut_lat, lat, south), north, np.where(cut_lon, lon, west), east), axis=1)
    others = ((south, lat, lon, east), (lat, north, west, lon))
    return np.concatenate([first, last, *(np.stack(corner, axis=1)[both] for corner in others)])
