"""Areas: which broker is responsible for a place, and which brokers a fence touches.

Owns the contract every kind of area fulfils, and the simplest kind. Brokers are indexes 0..count-1. Areas
do not overlap; on a shared border one broker owns the point and a closed fence that reaches the border
touches both. `touched` never leaves out a broker whose area the fence meets.
"""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geomq.errors import GeometryError
from geomq.geo.fence import Fence
from geomq.geo.location import Location

Masks = NDArray[np.uint64]


class Areas(Protocol):
    """The areas of all brokers of a federation."""

    @property
    def count(self) -> int:
        """How many brokers there are."""

    def owner(self, location: Location) -> int | None:
        """The broker whose area holds the location, or None."""

    def owners(self, lats: ArrayLike, lons: ArrayLike) -> NDArray[np.int32]:
        """The vectorised `owner`; -1 stands for None."""

    def touched(self, fence: Fence) -> tuple[int, ...]:
        """The brokers, in order, whose area meets the closed fence."""

    def touched_masks(self, lats: ArrayLike, lons: ArrayLike, radius_m: ArrayLike) -> Masks:
        """The vectorised `touched` of circles: row k has bit b%64 of word b//64 set if circle k touches b."""


class SoleArea:
    """One broker that is responsible for everything."""

    count = 1

    def owner(self, location: Location) -> int:
        return 0

    def owners(self, lats: ArrayLike, lons: ArrayLike) -> NDArray[np.int32]:
        return np.zeros(np.broadcast(np.asarray(lats), np.asarray(lons)).shape, dtype=np.int32)

    def touched(self, fence: Fence) -> tuple[int, ...]:
        return (0,)

    def touched_masks(self, lats: ArrayLike, lons: ArrayLike, radius_m: ArrayLike) -> Masks:
        lats, lons, _ = circle_arrays(lats, lons, radius_m)
        return np.ones((lats.size, 1), dtype=np.uint64)


def circle_arrays(
    lats: ArrayLike, lons: ArrayLike, radius_m: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Centres and radii as flat float arrays of one length."""
    lat, lon, radius = np.broadcast_arrays(
        np.atleast_1d(np.asarray(lats, float)),
        np.atleast_1d(np.asarray(lons, float)),
        np.asarray(radius_m, float),
    )
    return lat, lon, radius


def word_count(brokers: int) -> int:
    """How many 64-bit words a mask of this many brokers takes."""
    return (brokers + 63) // 64


def broker_bits(brokers: int) -> Masks:
    """Row b is the mask of broker b alone."""
    index = np.arange(brokers)
    bits = np.zeros((brokers, word_count(brokers)), dtype=np.uint64)
    bits[index, index // 64] = np.uint64(1) << (index % 64).astype(np.uint64)
    return bits


def mask_brokers(mask: Masks) -> tuple[int, ...]:
    """The brokers in one row of masks, in order."""
    found: list[int] = []
    for word, bits in enumerate(mask.tolist()):
        while bits:
            low = bits & -bits
            found.append(word * 64 + low.bit_length() - 1)
            bits ^= low
    return tuple(found)


def check_some(brokers: Iterable[object]) -> None:
    """Refuse an empty federation."""
    if not any(True for _ in brokers):
        raise GeometryError("areas need at least one broker")
