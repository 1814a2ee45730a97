"""Routing among cells by position: greedy where that helps, around a face where it does not.

Owns the way of a message from cell to cell. A message goes to the adjacent cell nearest to its goal; where none is
nearer, it walks by the right-hand rule around the face of the planar graph that lies towards the goal, until a cell is
nearer than the one it started from. If the walk comes back to its first step, the goal is an empty cell inside that
face and the cell it started from is the goal's *home*.

Nearer means a smaller squared distance between centres, then a lower cell number: a total order in whole numbers, so
that an empty cell has the same home from everywhere. Why a message always ends: each greedy step and each walk that
finds something make the order smaller. Why it ends right: suppose the line from c to the goal leaves the face across
the edge u-v. The circle over u-v holds no populated cell, so the angle u-c-v is acute and u or v is nearer to the goal
than c; a walk in vain therefore proves that the goal lies inside the face, and c is the nearest cell on it.

A message never leaves the component of its first cell; to it the cells of other components are empty.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.errors import UsageError
from geomq.reproduction.rendezvous.cells import DIRECTIONS, Cells
from geomq.workload.compiled import compiled

_EAST = np.array([east for east, _ in DIRECTIONS], np.int64)
_NORTH = np.array([north for _, north in DIRECTIONS], np.int64)
_NO_PATH = np.empty(0, np.int64)


class Route(NamedTuple):
    """Where a message ended, the hops until it first came there, and those of the walk that proved it the home."""

    end: int
    hops: int
    tour: int
    walks: int
    """How often greedy steps were not enough on the way."""


def route(cells: Cells, start: int, goal: int) -> Route:
    """Send a message from a populated cell to any cell."""
    _check(cells, start, goal)
    return Route(*route_cells(cells.near, cells.planar, cells.columns, start, goal, _NO_PATH)[:4])


def path(cells: Cells, start: int, goal: int) -> list[int]:
    """The cells a message passes, the first included; the walk around an empty goal's face comes last."""
    _check(cells, start, goal)
    steps = np.empty(1024, np.int64)
    while True:
        *_, length = route_cells(cells.near, cells.planar, cells.columns, start, goal, steps)
        if length <= len(steps):
            return [start, *steps[:length].tolist()]
        steps = np.empty(length, np.int64)


def fewest_hops(cells: Cells, start: int) -> NDArray[np.int64]:
    """The fewest hops from a populated cell to every cell, -1 without a path: the lower bound of every routing."""
    _check(cells, start, start)
    hops: NDArray[np.int64] = _fewest_hops(cells.near, cells.columns, start)
    return hops


def _check(cells: Cells, start: int, goal: int) -> None:
    for cell in (start, goal):
        if not 0 <= cell < len(cells.populated):
            raise UsageError(f"there is no cell {cell}; cells are 0 to {len(cells.populated) - 1}")
    if not cells.populated[start]:
        raise UsageError(f"cell {start} is empty; a message starts at a populated cell")


@compiled
def route_cells(
    near: NDArray[np.uint8], planar: NDArray[np.uint8], columns: int, start: int, goal: int, steps: NDArray[np.int64]
) -> tuple[int, int, int, int, int]:
    """End, hops, tour, walks and length; the first cells passed go into `steps`, as many as there is room for."""
    at, length, walks = start, 0, 0
    while True:
        best = nearest_step(near[at], columns, at, goal)
        if best != at:
            at = best
            if length < len(steps):
                steps[length] = at
            length += 1
            continue
        first = next_edge(planar[at], towards(columns, at, goal)) if at != goal else -1
        if first < 0:
            return at, length, 0, walks, length
        hops, cell, turn = length, at, first
        while True:
            cell = cell + _NORTH[turn] * columns + _EAST[turn]
            if length < len(steps):
                steps[length] = cell
            length += 1
            if nearer(columns, cell, at, goal):
                break
            turn = next_edge(planar[cell], turn + 5)
            if cell == at and turn == first:
                return at, hops, length - hops, walks, length
        at = cell
        walks += 1


@compiled
def nearer(columns: int, a: int, b: int, goal: int) -> bool:
    """Whether cell a comes before cell b in the order of the goal."""
    to_a = (a // columns - goal // columns) ** 2 + (a % columns - goal % columns) ** 2
    to_b = (b // columns - goal // columns) ** 2 + (b % columns - goal % columns) ** 2
    return bool(to_a < to_b or (to_a == to_b and a < b))


@compiled
def nearest_step(near: int, columns: int, at: int, goal: int) -> int:
    """The populated cell adjacent to `at` that is nearest to the goal, or `at` itself."""
    best = at
    for turn in range(8):
        if near >> turn & 1:
            cell = at + _NORTH[turn] * columns + _EAST[turn]
            if nearer(columns, cell, best, goal):
                best = cell
    return best


@compiled
def towards(columns: int, at: int, goal: int) -> int:
    """The direction that the line to the goal points in, or the first one counter-clockwise from it."""
    east, north = goal % columns - at % columns, goal // columns - at // columns
    for turn in range(8):
        before = (turn + 7) % 8
        after_before = _EAST[before] * north - _NORTH[before] * east > 0
        until_turn = east * _NORTH[turn] - north * _EAST[turn] >= 0
        if after_before and until_turn:
            return turn
    return 0


@compiled
def next_edge(planar: int, turn: int) -> int:
    """The first edge at or counter-clockwise from a direction, -1 if there is none."""
    for step in range(8):
        if planar >> ((turn + step) % 8) & 1:
            return (turn + step) % 8
    return -1


@compiled
def _fewest_hops(near: NDArray[np.uint8], columns: int, start: int) -> NDArray[np.int64]:
    hops, queue = np.full(len(near), -1, np.int64), np.empty(len(near), np.int64)
    hops[start], queue[0] = 0, start
    read, write = 0, 1
    while read < write:
        at = queue[read]
        read += 1
        for turn in range(8):
            cell = at + _NORTH[turn] * columns + _EAST[turn]
            if near[at] >> turn & 1 and hops[cell] < 0:
                hops[cell] = hops[at] + 1
                queue[write] = cell
                write += 1
    return hops
