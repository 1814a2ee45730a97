"""Polygon areas: each broker is given a fence as its area; what lies in none belongs to nobody.

Refuses areas that overlap. Shared borders are fine, and a point on one belongs to the lowest broker. A
sliver of about a square metre, as rounding leaves between neighbours that share a slanted border, is no
overlap.
"""

from collections.abc import Sequence

import numpy as np
import shapely
from numpy.typing import ArrayLike, NDArray

from geomq.errors import GeometryError
from geomq.geo.areas import Masks, broker_bits, check_some, circle_arrays, mask_brokers, word_count
from geomq.geo.circle import Circle
from geomq.geo.fence import Fence
from geomq.geo.location import Location
from geomq.geo.meet import GAP_M, circles_meet, fences_meet

_SLIVER_DEG2 = 1e-10


class PolygonAreas:
    """One given fence, circle or polygon, per broker."""

    def __init__(self, fences: Sequence[Fence]) -> None:
        check_some(fences)
        self.fences = tuple(fences)
        self.count = len(self.fences)
        for index, fence in enumerate(self.fences):
            for other in range(index):
                if _overlap(self.fences[other], fence):
                    raise GeometryError(f"the areas of brokers {other} and {index} overlap")

    def owner(self, location: Location) -> int | None:
        """The first broker whose area holds the location."""
        for index, fence in enumerate(self.fences):
            if fence.contains(location):
                return index
        return None

    def owners(self, lats: ArrayLike, lons: ArrayLike) -> NDArray[np.int32]:
        """The vectorised `owner`."""
        lat, lon = np.broadcast_arrays(np.asarray(lats, float), np.asarray(lons, float))
        owners = np.full(lat.shape, -1, dtype=np.int32)
        for index in reversed(range(self.count)):
            owners[self.fences[index].contains_many(lat, lon)] = index
        return owners

    def touched(self, fence: Fence) -> tuple[int, ...]:
        """The brokers whose area meets the fence; a gap of a metre to a circle may count as a touch."""
        if isinstance(fence, Circle):
            return mask_brokers(self.touched_masks(fence.center.lat, fence.center.lon, fence.radius_m)[0])
        return tuple(index for index, area in enumerate(self.fences) if fences_meet(area, fence))

    def touched_masks(self, lats: ArrayLike, lons: ArrayLike, radius_m: ArrayLike) -> Masks:
        """One row of broker bits per circle."""
        lat, lon, radius = circle_arrays(lats, lons, radius_m)
        masks = np.zeros((lat.size, word_count(self.count)), dtype=np.uint64)
        for fence, bits in zip(self.fences, broker_bits(self.count), strict=True):
            masks[circles_meet(fence, lat, lon, radius)] |= bits
        return masks


def _overlap(a: Fence, b: Fence) -> bool:
    """True if the interiors share more than a sliver."""
    if isinstance(a, Circle):
        return _circle_overlap(a, b)
    if isinstance(b, Circle):
        return _circle_overlap(b, a)
    if not shapely.intersects(a.shape, b.shape):
        return False
    return bool(shapely.area(shapely.intersection(a.shape, b.shape)) > _SLIVER_DEG2)


def _circle_overlap(circle: Circle, other: Fence) -> bool:
    """A circle shrunk by twice the gap that `meet` may overlook still meets the other fence."""
    shrunk = Circle(circle.center, max(0.0, circle.radius_m - 2.0 * GAP_M))
    return fences_meet(shrunk, other)
