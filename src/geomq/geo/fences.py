"""Fence index: many fences, and which of them hold a place.

Owns the current fence of each key. A fence is listed in the few cells it covers of the nested grid that
suits its size; one too large for all of them is kept apart and tested every time. The order of results
depends on nothing but the calls made. Memory is at most `_CELLS_MAX` listings per key.
"""

import math
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from geomq.geo.cells import PER_DEGREE, ROW_SHIFT, covering, finest_fit, spans
from geomq.geo.circle import Circle
from geomq.geo.fence import Fence
from geomq.geo.location import Location
from geomq.geo.polygon import PlanarFence
from geomq.geo.sphere import EVERYWHERE

K = TypeVar("K", bound=Hashable)

_SHIFTS = (0, 2, 4, 6, 8, 10, 12)
"""Cells of about 430 m up to 1,800 km, each grid four times as wide as the one before."""

_CELLS_MAX = 16
_RADIAN = math.pi / 180.0

Entry = tuple[float, float, float, float, PlanarFence | None]
"""A circle's centre and chord limit; a planar fence comes with a limit that lets every place pass on to it."""


class _Listing(NamedTuple):
    fence: Fence
    shift: int | None
    cells: list[int]


class FenceIndex(Generic[K]):
    """Maps keys to fences and finds the keys whose fence holds a location."""

    def __init__(self) -> None:
        self._listings: dict[K, _Listing] = {}
        self._grids: dict[int, dict[int, dict[K, Entry]]] = {shift: {} for shift in _SHIFTS}
        self._wide: dict[K, Entry] = {}

    def __len__(self) -> int:
        return len(self._listings)

    def __contains__(self, key: object) -> bool:
        return key in self._listings

    def fence(self, key: K) -> Fence | None:
        """The key's fence, or None if it is not in the index."""
        listing = self._listings.get(key)
        return None if listing is None else listing.fence

    def put(self, key: K, fence: Fence) -> None:
        """Give the key this fence, in place of any it had."""
        self.remove(key)
        covered = spans(fence.bounds())
        entry = _entry(fence)
        fit = finest_fit(covered, _SHIFTS, _CELLS_MAX)
        if fit is None:
            self._wide[key] = entry
            self._listings[key] = _Listing(fence, None, [])
            return
        shift = _SHIFTS[fit]
        grid, numbers = self._grids[shift], covering(covered, shift)
        for number in numbers:
            cell = grid.get(number)
            if cell is None:
                grid[number] = {key: entry}
            else:
                cell[key] = entry
        self._listings[key] = _Listing(fence, shift, numbers)

    def remove(self, key: K) -> None:
        """Forget the key; nothing happens if it is unknown."""
        listing = self._listings.pop(key, None)
        if listing is None:
            return
        if listing.shift is None:
            del self._wide[key]
            return
        grid = self._grids[listing.shift]
        for number in listing.cells:
            cell = grid[number]
            del cell[key]
            if not cell:
                del grid[number]

    def holding(self, location: Location) -> list[K]:
        """The keys whose fence has the location inside or on its border."""
        lat, lon = location
        row, column = int((lat + 90.0) * PER_DEGREE), int((lon + 180.0) * PER_DEGREE)
        cells = [self._wide] if self._wide else []
        for shift, grid in self._grids.items():
            if grid and (cell := grid.get((row >> shift << ROW_SHIFT) + (column >> shift))):
                cells.append(cell)
        return _holding(cells, location) if cells else []


def _holding(cells: list[dict[K, Entry]], location: Location) -> list[K]:
    phi, lam = location[0] * _RADIAN, location[1] * _RADIAN
    cos_phi = math.cos(phi)
    x, y, z = cos_phi * math.cos(lam), cos_phi * math.sin(lam), math.sin(phi)
    found: list[K] = []
    for cell in cells:
        for key, (cx, cy, cz, limit, planar) in cell.items():
            dz = z - cz
            if dz * dz <= limit:
                dx, dy = x - cx, y - cy
                if dx * dx + dy * dy + dz * dz <= limit and (planar is None or planar.contains(location)):
                    found.append(key)
    return found


def _entry(fence: Fence) -> Entry:
    if isinstance(fence, Circle):
        return fence.x, fence.y, fence.z, fence.limit, None
    return 0.0, 0.0, 0.0, EVERYWHERE, fence
