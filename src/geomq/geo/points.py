"""Point index: moving points, and which of them are inside a fence.

Owns the current location of each key. Points are hashed into nested grids; a query takes the grid that suits the
fence's size and how crowded it is, or scans all points at once when the fence is huge. The order of results
depends on nothing but the calls made. Memory is bounded by the number of keys, which is the caller's to limit.
"""

import math
from array import array
from collections.abc import Hashable
from itertools import chain
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from geomq.geo.cells import PER_DEGREE, ROW_SHIFT, Span, covering, covering_count, finest_fit, spans
from geomq.geo.circle import Circle
from geomq.geo.fence import Fence
from geomq.geo.location import Location
from geomq.geo.polygon import PlanarFence

K = TypeVar("K", bound=Hashable)

_SHIFTS = (0, 3, 6, 9)
"""Cells of about 430 m, 3.5 km, 28 km and 220 km."""

_CELLS_MAX = 36
_CROWD = 48
"""With more candidates than this, numpy and perhaps a finer grid pay."""
_SCAN_GAIN = 8
"""About how many points a scan tests in the time it takes to fetch one from a cell."""

_RADIAN = math.pi / 180.0
_COLUMN_MASK = (1 << ROW_SHIFT) - 1


class PointIndex(Generic[K]):
    """Maps keys to locations and finds the keys inside a fence."""

    def __init__(self) -> None:
        self._slots: dict[K, int] = {}
        self._keys: list[K] = []
        self._locations: list[Location] = []
        self._x, self._y, self._z = array("d"), array("d"), array("d")
        self._finest = array("q")
        self._levels: tuple[dict[int, dict[K, int]], ...] = tuple({} for _ in _SHIFTS)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: object) -> bool:
        return key in self._slots

    def location(self, key: K) -> Location | None:
        """Where the key is, or None if it is not in the index."""
        slot = self._slots.get(key)
        return None if slot is None else self._locations[slot]

    def move(self, key: K, location: Location) -> None:
        """Put the key at a location, wherever it was before."""
        lat, lon = location
        phi, lam = lat * _RADIAN, lon * _RADIAN
        cos_phi = math.cos(phi)
        x, y, z = cos_phi * math.cos(lam), cos_phi * math.sin(lam), math.sin(phi)
        finest = (int((lat + 90.0) * PER_DEGREE) << ROW_SHIFT) + int((lon + 180.0) * PER_DEGREE)
        slot = self._slots.get(key)
        if slot is None:
            self._add(key, location, x, y, z, finest)
            return
        self._x[slot], self._y[slot], self._z[slot] = x, y, z
        self._locations[slot] = location
        old = self._finest[slot]
        if finest != old:
            self._finest[slot] = finest
            self._change_cells(key, slot, old, finest)

    def remove(self, key: K) -> None:
        """Forget the key; nothing happens if it is unknown. The last slot's key takes over the free slot."""
        slot = self._slots.pop(key, None)
        if slot is None:
            return
        for number, cells in zip(_numbers(self._finest[slot]), self._levels, strict=True):
            cell = cells[number]
            del cell[key]
            if not cell:
                del cells[number]
        last = self._keys.pop()
        location, finest = self._locations.pop(), self._finest.pop()
        x, y, z = self._x.pop(), self._y.pop(), self._z.pop()
        if slot < len(self._keys):
            self._slots[last], self._keys[slot] = slot, last
            self._locations[slot], self._finest[slot] = location, finest
            self._x[slot], self._y[slot], self._z[slot] = x, y, z
            for number, cells in zip(_numbers(finest), self._levels, strict=True):
                cells[number][last] = slot

    def inside(self, fence: Fence) -> list[K]:
        """The keys whose location is inside the fence or on its border."""
        cells = self._candidates(fence)
        if isinstance(fence, Circle):
            if cells is None:
                return self._inside_circle(fence, None)
            crowd = sum(map(len, cells))
            return self._loop(fence, cells) if crowd <= _CROWD else self._inside_circle(fence, _slots_of(cells, crowd))
        if cells is None:
            return self._inside_planar(fence, list(range(len(self._keys))))
        return self._inside_planar(fence, [slot for cell in cells for slot in cell.values()])

    def count_bound(self, fence: Fence) -> int:
        """A cheap upper bound on how many keys `inside` would return."""
        cells = self._candidates(fence)
        return len(self._slots) if cells is None else sum(map(len, cells))

    def _candidates(self, fence: Fence) -> list[dict[K, int]] | None:
        """The occupied cells the fence may reach, or None if a look at every point is cheaper."""
        covered = spans(fence.bounds())
        points = len(self._slots)
        level = finest_fit(covered, _SHIFTS, _CELLS_MAX)
        if level is None:
            level = len(_SHIFTS) - 1
            if covering_count(covered, _SHIFTS[level]) > points // _SCAN_GAIN:
                return None
        cells = self._occupied(level, covered)
        crowd = sum(map(len, cells))
        if crowd > _CROWD:
            if level > 0 and covering_count(covered, _SHIFTS[level - 1]) < crowd // 2:
                cells = self._occupied(level - 1, covered)
                crowd = sum(map(len, cells))
            if crowd > _CROWD and crowd * _SCAN_GAIN > points:
                return None
        return cells

    def _occupied(self, level: int, covered: list[Span]) -> list[dict[K, int]]:
        wanted = covering(covered, _SHIFTS[level])
        return [cell for cell in map(self._levels[level].get, wanted) if cell]

    def _loop(self, circle: Circle, cells: list[dict[K, int]]) -> list[K]:
        """Test few points one by one."""
        cx, cy, cz, limit = circle.x, circle.y, circle.z, circle.limit
        xs, ys, zs = self._x, self._y, self._z
        found = []
        for cell in cells:
            for key, slot in cell.items():
                dz = zs[slot] - cz
                if dz * dz <= limit:
                    dx, dy = xs[slot] - cx, ys[slot] - cy
                    if dx * dx + dy * dy + dz * dz <= limit:
                        found.append(key)
        return found

    def _inside_circle(self, circle: Circle, slots: NDArray[np.int64] | None) -> list[K]:
        """Test many points at once: those in `slots`, or all."""
        x, y, z = np.frombuffer(self._x), np.frombuffer(self._y), np.frombuffer(self._z)
        if slots is not None:
            x, y, z = x[slots], y[slots], z[slots]
        dx, dy, dz = x - circle.x, y - circle.y, z - circle.z
        held = np.flatnonzero(dx * dx + dy * dy + dz * dz <= circle.limit)
        keys = self._keys
        return [keys[slot] for slot in (held if slots is None else slots[held]).tolist()]

    def _inside_planar(self, fence: PlanarFence, slots: list[int]) -> list[K]:
        if not slots:
            return []
        places = np.array([self._locations[slot] for slot in slots])
        held = fence.contains_many(places[:, 0], places[:, 1]).tolist()
        return [self._keys[slot] for slot, is_held in zip(slots, held, strict=True) if is_held]

    def _add(self, key: K, location: Location, x: float, y: float, z: float, finest: int) -> None:
        slot = self._slots[key] = len(self._keys)
        self._keys.append(key)
        self._locations.append(location)
        self._x.append(x)
        self._y.append(y)
        self._z.append(z)
        self._finest.append(finest)
        for number, cells in zip(_numbers(finest), self._levels, strict=True):
            cells.setdefault(number, {})[key] = slot

    def _change_cells(self, key: K, slot: int, old: int, new: int) -> None:
        """Move between cells, from the finest level up to the first whose cell stays the same."""
        old_row, old_column = old >> ROW_SHIFT, old & _COLUMN_MASK
        new_row, new_column = new >> ROW_SHIFT, new & _COLUMN_MASK
        for shift, cells in zip(_SHIFTS, self._levels, strict=True):
            left = (old_row >> shift << ROW_SHIFT) + (old_column >> shift)
            entered = (new_row >> shift << ROW_SHIFT) + (new_column >> shift)
            if left == entered:
                return
            cell = cells[left]
            if len(cell) == 1:
                del cells[left]
            else:
                del cell[key]
            if entered in cells:
                cells[entered][key] = slot
            else:
                cells[entered] = {key: slot}


def _numbers(finest: int) -> list[int]:
    """The cell on each level of a place in this cell of the finest grid."""
    row, column = finest >> ROW_SHIFT, finest & _COLUMN_MASK
    return [(row >> shift << ROW_SHIFT) + (column >> shift) for shift in _SHIFTS]


def _slots_of(cells: list[dict[K, int]], count: int) -> NDArray[np.int64]:
    return np.fromiter(chain.from_iterable(map(dict.values, cells)), np.int64, count)
