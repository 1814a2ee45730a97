"""A message always ends: at its goal, or at the one home of an empty goal, wherever it started."""

import itertools
from collections import deque

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from geomq.errors import UsageError
from geomq.reproduction.rendezvous.cells import DIRECTIONS, Cells, cells_from, cells_of
from geomq.reproduction.rendezvous.network import random_network
from geomq.reproduction.rendezvous.routing import fewest_hops, nearer, path, route

Point = tuple[int, int]


def drawn(*rows: str) -> Cells:
    """Cells from a picture, north up."""
    return cells_from(np.array([[mark == "#" for mark in row] for row in reversed(rows)]))


def cell(cells: Cells, column: int, row: int) -> int:
    return row * cells.columns + column


@st.composite
def grids(draw: st.DrawFn) -> NDArray[np.bool_]:
    columns = draw(st.integers(1, 9))
    density = draw(st.sampled_from([0.3, 0.5, 0.6, 0.8, 0.95]))
    seed = draw(st.integers(0, 2**32 - 1))
    grid: NDArray[np.bool_] = np.random.default_rng(seed).random((columns, columns)) < density
    holes = draw(st.lists(st.tuples(*[st.integers(0, 8)] * 4), max_size=2))
    for x, y, width, height in holes:
        grid[y : y + height, x : x + width] = False
    return grid


def face_of(cells: Cells, component: int, goal: int) -> set[int]:
    """The cells of a component on the face that holds an empty cell, by flooding a lattice twice as fine.

    Cells are the even points; an edge blocks the point in its middle. Moving east, north, west or south from free
    point to free point never crosses an edge and never misses a gap.
    """
    columns = cells.columns
    members = {each for each in range(columns * columns) if cells.component[each] == component}
    blocked: set[Point] = set()
    for each in members:
        x, y = each % columns, each // columns
        blocked.add((2 * x, 2 * y))
        for bit, (east, north) in enumerate(DIRECTIONS):
            if cells.planar[each] >> bit & 1:
                blocked.add((2 * x + east, 2 * y + north))
    begin = (2 * (goal % columns), 2 * (goal // columns))
    seen, queue = {begin}, deque([begin])
    while queue:
        x, y = queue.popleft()
        for east, north in DIRECTIONS[::2]:
            point = (x + east, y + north)
            inside = all(-2 <= value <= 2 * columns for value in point)
            if inside and point not in blocked and point not in seen:
                seen.add(point)
                queue.append(point)
    return {
        each
        for each in members
        if any((2 * (each % columns) + x, 2 * (each // columns) + y) in seen for x, y in DIRECTIONS)
    }


def home_of(cells: Cells, component: int, goal: int) -> int:
    """The nearest cell on the goal's face, by definition."""
    columns = cells.columns

    def order(each: int) -> tuple[int, int]:
        return (each % columns - goal % columns) ** 2 + (each // columns - goal // columns) ** 2, each

    return min(face_of(cells, component, goal), key=order)


@settings(max_examples=150)
@given(grids())
@example(np.ones((1, 1), np.bool_))
@example(np.eye(7, dtype=np.bool_))
def test_every_message_ends_at_its_goal_or_at_the_goals_one_home(grid: NDArray[np.bool_]) -> None:
    cells = cells_from(grid)
    starts = np.flatnonzero(cells.populated).tolist()
    for goal in range(0, cells.columns**2, 1 + cells.columns**2 // 20):
        homes: dict[int, int] = {}
        for start in starts:
            component = int(cells.component[start])
            if component not in homes:
                same = cells.component[goal] == component
                homes[component] = goal if same else home_of(cells, component, goal)
            assert route(cells, start, goal).end == homes[component]


@settings(max_examples=150)
@given(grids(), st.data())
def test_a_path_steps_to_adjacent_populated_cells_and_counts_its_hops(
    grid: NDArray[np.bool_], data: st.DataObject
) -> None:
    cells = cells_from(grid)
    if not cells.populated.any():
        return
    start = data.draw(st.sampled_from(np.flatnonzero(cells.populated).tolist()))
    goal = data.draw(st.integers(0, cells.columns**2 - 1))
    found, cells_passed = route(cells, start, goal), path(cells, start, goal)
    assert len(cells_passed) == 1 + found.hops + found.tour
    assert cells_passed[found.hops] == cells_passed[-1] == found.end
    assert cells_passed.index(found.end) == found.hops
    for a, b in itertools.pairwise(cells_passed):
        assert cells.populated[b]
        assert max(abs(a % cells.columns - b % cells.columns), abs(a // cells.columns - b // cells.columns)) == 1


@settings(max_examples=100)
@given(grids())
def test_the_planar_graph_has_no_crossing_edges_and_loses_no_reach(grid: NDArray[np.bool_]) -> None:
    cells = cells_from(grid)
    columns = cells.columns
    for lower_left in range(columns * columns):
        x, y = lower_left % columns, lower_left // columns
        if x + 1 < columns and y + 1 < columns:
            rising = cells.planar[lower_left] >> 1 & 1
            falling = cells.planar[lower_left + 1] >> 3 & 1
            assert not (rising and falling)
    for start in np.flatnonzero(cells.populated).tolist():
        seen, queue = {start}, [start]
        while queue:
            at = queue.pop()
            for bit, (east, north) in enumerate(DIRECTIONS):
                there = at + north * columns + east
                if cells.planar[at] >> bit & 1 and there not in seen:
                    seen.add(there)
                    queue.append(there)
        assert seen == set(np.flatnonzero(cells.component == cells.component[start]).tolist())


@settings(max_examples=15)
@given(st.integers(80, 1500), st.integers(8, 45), st.integers(0, 2**32 - 1))
def test_every_message_ends_right_in_random_networks_dense_and_sparse(nodes: int, degree: int, seed: int) -> None:
    dice = np.random.default_rng(seed)
    cells = cells_of(random_network(nodes, degree, dice))
    component = int(cells.component[np.flatnonzero(cells.largest_component())[0]])
    starts = dice.choice(np.flatnonzero(cells.largest_component()), 10).tolist()
    for goal in dice.integers(0, cells.columns**2, 10).tolist():
        right = goal if cells.component[goal] == component else home_of(cells, component, goal)
        assert {route(cells, start, goal).end for start in starts} == {right}


def test_a_hole_on_the_way_is_walked_around() -> None:
    cells = drawn(
        "#######",
        "#.....#",
        "###...#",
        "#.....#",
        "#######",
        "#######",
        "#######",
    )
    start, goal = cell(cells, 0, 4), cell(cells, 6, 4)
    found = route(cells, start, goal)
    assert found.end == goal
    assert found.walks == 1
    assert found.tour == 0
    assert cell(cells, 2, 4) in path(cells, start, goal)


def test_an_empty_cell_among_eight_has_its_lowest_side_as_home_after_a_walk_of_eight() -> None:
    cells = drawn("###", "#.#", "###")
    for start in np.flatnonzero(cells.populated).tolist():
        found = route(cells, start, 4)
        assert found.end == 1
        assert found.tour == 8


def test_a_walk_passes_its_first_cell_again_before_it_is_over() -> None:
    cells = drawn(
        "#....",
        ".#...",
        "..#..",
        ".#...",
        "#....",
    )
    passed = path(cells, cell(cells, 2, 2), cell(cells, 4, 2))
    assert passed.count(cell(cells, 2, 2)) == 3
    assert set(passed) == set(np.flatnonzero(cells.populated).tolist())


def test_a_cell_alone_is_home_of_everything() -> None:
    cells = drawn("...", ".#.", "...")
    assert {route(cells, 4, goal)[:3] for goal in range(9) if goal != 4} == {(4, 0, 0)}


def test_cells_of_another_component_are_empty_to_a_message() -> None:
    cells = drawn("##..#", "##..#", ".....", ".....", ".....")
    goal = cell(cells, 4, 4)
    found = route(cells, cell(cells, 0, 4), goal)
    assert found.end == cell(cells, 1, 4)
    assert found.tour > 0


def test_nearer_is_a_total_order() -> None:
    assert nearer(3, 1, 3, 4)
    assert not nearer(3, 3, 1, 4)
    assert not nearer(3, 4, 4, 4)


@pytest.mark.parametrize(("start", "goal"), [(4, 0), (9, 0), (-1, 0), (0, 9), (0, -1)])
def test_a_message_from_an_empty_cell_or_outside_is_refused(start: int, goal: int) -> None:
    with pytest.raises(UsageError, match="cell"):
        route(drawn("###", "#.#", "###"), start, goal)


@settings(max_examples=60)
@given(grids())
def test_no_route_is_shorter_than_the_fewest_hops(grid: NDArray[np.bool_]) -> None:
    cells = cells_from(grid)
    for start in np.flatnonzero(cells.populated).tolist()[:5]:
        fewest = fewest_hops(cells, start)
        assert np.array_equal(fewest >= 0, cells.component == cells.component[start])
        for goal in np.flatnonzero(fewest >= 0).tolist():
            assert route(cells, start, goal).hops >= fewest[goal]
            around = [goal + north * cells.columns + east for east, north in neighbours(cells, goal)]
            assert goal == start or fewest[goal] == 1 + min(fewest[each] for each in around)


def neighbours(cells: Cells, cell: int) -> list[Point]:
    return [step for bit, step in enumerate(DIRECTIONS) if cells.near[cell] >> bit & 1]
