"""Cells: the unit square cut into equal squares, each one virtual node at its centre.

Owns which cell a point is in, which cells hold nodes, and which of those can reach each other. A cell is so small that
any two nodes in adjacent cells (eight around each) hear each other. Cells are numbered row by row from the
origin; all geometry among them is in whole numbers.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geomq.errors import UsageError
from geomq.reproduction.rendezvous.network import Network

COLUMNS_MAX = 1000
EMPTY = -1
# Counter-clockwise from east; an odd number is a diagonal.
DIRECTIONS = ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))
_SIDES = 0b01010101


@dataclass(frozen=True, slots=True)
class Cells:
    """A square of `columns` x `columns` cells.

    `near` has a bit per direction where the adjacent cell is populated; `planar` keeps of those the edges of a graph
    in which no two cross: all sides, and a diagonal only if both cells beside it are empty. A dropped diagonal has a
    detour of two sides, so whoever can be reached by `near` can be reached by `planar`.
    """

    columns: int
    populated: NDArray[np.bool_]
    near: NDArray[np.uint8]
    planar: NDArray[np.uint8]
    component: NDArray[np.int64]
    """By cell: the lowest cell it can reach; EMPTY for a cell without nodes."""

    def at(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """The cells that hold these points of the unit square."""
        steps = np.clip((points * self.columns).astype(np.int64), 0, self.columns - 1)
        cells: NDArray[np.int64] = steps[..., 1] * self.columns + steps[..., 0]
        return cells

    def largest_component(self) -> NDArray[np.bool_]:
        """The cells of the component with most cells; of several, the one with the lowest cell."""
        if not self.populated.any():
            return self.populated
        names, sizes = np.unique(self.component[self.populated], return_counts=True)
        largest: NDArray[np.bool_] = self.component == names[np.argmax(sizes)]
        return largest


def columns_for(radius: float) -> int:
    """The fewest columns at which the far corners of diagonal neighbours are within the radius."""
    return max(1, math.ceil(2 * math.sqrt(2) / radius))


def cells_of(network: Network) -> Cells:
    """The cells of a network."""
    columns = columns_for(network.radius)
    populated = np.zeros(columns * columns, np.bool_)
    empty = Cells(columns, populated, *(np.empty(0, np.uint8),) * 2, np.empty(0, np.int64))
    populated[empty.at(network.points)] = True
    return cells_from(populated.reshape(columns, columns))


def cells_from(grid: NDArray[np.bool_]) -> Cells:
    """Cells from a square of booleans, the row of the origin first."""
    rows, columns = grid.shape
    if rows != columns or not 1 <= columns <= COLUMNS_MAX:
        raise UsageError(f"cells form a square of at most {COLUMNS_MAX} columns")
    padded = np.pad(grid, 1)
    near = np.zeros(grid.shape, np.uint8)
    for bit, (east, north) in enumerate(DIRECTIONS):
        beside = padded[1 + north : 1 + north + rows, 1 + east : 1 + east + columns]
        near |= (beside & grid).astype(np.uint8) << bit
    beside_diagonal = _turned(near, 1) | _turned(near, -1)
    planar = near & (np.uint8(_SIDES) | ~beside_diagonal)
    return Cells(columns, grid.ravel().copy(), near.ravel(), planar.ravel(), _components(grid))


def _turned(bits: NDArray[np.uint8], by: int) -> NDArray[np.uint8]:
    """The bits of eight directions turned by one."""
    turned = (bits << 1) | (bits >> 7) if by > 0 else (bits >> 1) | (bits << 7)
    return turned.astype(np.uint8)


def _components(grid: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Spread the lowest number among adjacent populated cells until nothing changes."""
    rows, columns = grid.shape
    nobody = rows * columns
    label = np.where(grid, np.arange(nobody).reshape(rows, columns), nobody)
    while True:
        padded = np.pad(label, 1, constant_values=nobody)
        lowest = label
        for east, north in DIRECTIONS:
            lowest = np.minimum(lowest, padded[1 + north : 1 + north + rows, 1 + east : 1 + east + columns])
        # A label is itself a cell: following it to that cell's label halves the remaining way.
        lowest = np.where(grid, lowest, nobody)
        followed = np.append(lowest.ravel(), nobody)[lowest]
        lowest = np.minimum(lowest, followed)
        if np.array_equal(lowest, label):
            return np.where(grid, label, EMPTY).ravel()
        label = lowest
