"""Point index: moving points, and which of them are inside a fence.

Owns the current location of each key. Points are hashed into nested grids; a query takes the grid that
suits the fence's size and how crowded it is, or scans all points at once when the fence is huge. The order
of results depends on nothing but the calls made. Memory is bounded by the number of keys, which is the
caller's to limit.
"""

import math
from array import array
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import numpy as np

from geomq.geo.cells import PER_DEGREE, ROW_SHIFT, Span, covering, covering_count, spans
from geomq.geo.circle import Circle
from geomq.geo.fence import Fence
from geomq.geo.location import Location

K = TypeVar("K", bound=Hashable)

_SHIFT = 3
_LEVELS = 4
"""Cells of about 430 m, 3.5 km, 28 km and 220 km."""

_CELLS_MAX = 36
_CROWD = 48
"""With more candidates than this a finer grid is considered."""
_SCAN_GAIN = 12
"""About how many points numpy tests in the time the interpreter takes for one."""

_RADIAN = math.pi / 180.0
_X, _Y, _Z, _LOCATION, _ROW, _COLUMN, _SLOT = range(7)

Entry = list[Any]


class PointIndex(Generic[K]):
    """Maps keys to locations and finds the keys inside a fence."""

    def __init__(self) -> None:
        self._entries: dict[K, Entry] = {}
        self._levels: tuple[dict[int, dict[K, Entry]], ...] = tuple({} for _ in range(_LEVELS))
        self._keys: list[K] = []
        self._x, self._y, self._z = array("d"), array("d"), array("d")

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def location(self, key: K) -> Location | None:
        """Where the key is, or None if it is not in the index."""
        entry = self._entries.get(key)
        return None if entry is None else entry[_LOCATION]

    def move(self, key: K, location: Location) -> None:
        """Put the key at a location, wherever it was before."""
        lat, lon = location
        phi, lam = lat * _RADIAN, lon * _RADIAN
        cos_phi = math.cos(phi)
        x, y, z = cos_phi * math.cos(lam), cos_phi * math.sin(lam), math.sin(phi)
        row, column = int((lat + 90.0) * PER_DEGREE), int((lon + 180.0) * PER_DEGREE)
        entry = self._entries.get(key)
        if entry is None:
            self._add(key, [x, y, z, location, row, column, len(self._keys)])
            return
        slot = entry[_SLOT]
        entry[_X] = self._x[slot] = x
        entry[_Y] = self._y[slot] = y
        entry[_Z] = self._z[slot] = z
        entry[_LOCATION] = location
        if row != entry[_ROW] or column != entry[_COLUMN]:
            self._change_cells(key, entry, row, column)

    def remove(self, key: K) -> None:
        """Forget the key; nothing happens if it is unknown."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        row, column, slot = entry[_ROW], entry[_COLUMN], entry[_SLOT]
        for level, cells in enumerate(self._levels):
            shift = _SHIFT * level
            number = (row >> shift << ROW_SHIFT) + (column >> shift)
            cell = cells[number]
            del cell[key]
            if not cell:
                del cells[number]
        last_key = self._keys.pop()
        x, y, z = self._x.pop(), self._y.pop(), self._z.pop()
        if slot < len(self._keys):
            self._keys[slot], self._entries[last_key][_SLOT] = last_key, slot
            self._x[slot], self._y[slot], self._z[slot] = x, y, z

    def inside(self, fence: Fence) -> list[K]:
        """The keys whose location is inside the fence or on its border."""
        cells = self._candidates(fence)
        if isinstance(fence, Circle):
            return self._scan(fence) if cells is None else _inside_circle(fence, cells)
        if cells is None:
            return _inside_planar(fence, [self._entries])
        return _inside_planar(fence, cells)

    def count_bound(self, fence: Fence) -> int:
        """A cheap upper bound on how many keys `inside` would return."""
        cells = self._candidates(fence)
        return len(self._entries) if cells is None else sum(map(len, cells))

    def _candidates(self, fence: Fence) -> list[dict[K, Entry]] | None:
        """The occupied cells the fence may reach, or None if a look at every point is cheaper."""
        covered = spans(fence.bounds())
        points = len(self._entries)
        level = 0
        while (count := covering_count(covered, _SHIFT * level)) > _CELLS_MAX and level < _LEVELS - 1:
            level += 1
        if count > _CELLS_MAX and count > points // _SCAN_GAIN:
            return None
        cells = self._occupied(level, covered)
        crowd = sum(map(len, cells))
        if crowd > _CROWD and level > 0 and covering_count(covered, _SHIFT * (level - 1)) < crowd:
            cells = self._occupied(level - 1, covered)
            crowd = sum(map(len, cells))
        return None if crowd > _CROWD and crowd * _SCAN_GAIN > points + 1000 else cells

    def _occupied(self, level: int, covered: list[Span]) -> list[dict[K, Entry]]:
        wanted = covering(covered, _SHIFT * level)
        return [cell for cell in map(self._levels[level].get, wanted) if cell]

    def _scan(self, circle: Circle) -> list[K]:
        """Test every point at once."""
        dx = np.frombuffer(self._x) - circle.x
        dy = np.frombuffer(self._y) - circle.y
        dz = np.frombuffer(self._z) - circle.z
        found = np.flatnonzero(dx * dx + dy * dy + dz * dz <= circle.limit)
        keys = self._keys
        return [keys[slot] for slot in found.tolist()]

    def _add(self, key: K, entry: Entry) -> None:
        self._entries[key] = entry
        self._keys.append(key)
        self._x.append(entry[_X])
        self._y.append(entry[_Y])
        self._z.append(entry[_Z])
        row, column = entry[_ROW], entry[_COLUMN]
        for cells in self._levels:
            cells.setdefault((row << ROW_SHIFT) + column, {})[key] = entry
            row, column = row >> _SHIFT, column >> _SHIFT

    def _change_cells(self, key: K, entry: Entry, row: int, column: int) -> None:
        """Move between cells, from the finest level up to the first whose cell stays the same."""
        old_row, old_column = entry[_ROW], entry[_COLUMN]
        entry[_ROW], entry[_COLUMN] = row, column
        for cells in self._levels:
            if row == old_row and column == old_column:
                return
            number = (old_row << ROW_SHIFT) + old_column
            cell = cells[number]
            del cell[key]
            if not cell:
                del cells[number]
            number = (row << ROW_SHIFT) + column
            if number in cells:
                cells[number][key] = entry
            else:
                cells[number] = {key: entry}
            row, column = row >> _SHIFT, column >> _SHIFT
            old_row, old_column = old_row >> _SHIFT, old_column >> _SHIFT


def _inside_circle(circle: Circle, cells: list[dict[K, Entry]]) -> list[K]:
    cx, cy, cz, limit = circle.x, circle.y, circle.z, circle.limit
    found = []
    for cell in cells:
        for key, entry in cell.items():
            dz = entry[2] - cz
            if dz * dz <= limit:
                dx, dy = entry[0] - cx, entry[1] - cy
                if dx * dx + dy * dy + dz * dz <= limit:
                    found.append(key)
    return found


def _inside_planar(fence: Fence, cells: list[dict[K, Entry]]) -> list[K]:
    keys = [key for cell in cells for key in cell]
    if not keys:
        return []
    places = np.array([entry[_LOCATION] for cell in cells for entry in cell.values()])
    inside = fence.contains_many(places[:, 0], places[:, 1])
    return [key for key, held in zip(keys, inside.tolist(), strict=True) if held]
