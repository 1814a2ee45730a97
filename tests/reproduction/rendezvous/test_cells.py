"""Cells: small enough that neighbours hear each other, and numbered without doubt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from geomq.errors import UsageError
from geomq.reproduction.rendezvous.cells import EMPTY, cells_from, cells_of, columns_for
from geomq.reproduction.rendezvous.network import Network, random_network


@pytest.mark.parametrize("nodes", [80, 600])
def test_a_node_hears_all_nodes_of_the_eight_cells_around_its_own(nodes: int) -> None:
    network = random_network(nodes, 45, np.random.default_rng(nodes))
    cells = cells_of(network)
    own = cells.at(network.points)
    row, column = own // cells.columns, own % cells.columns
    adjacent = (abs(row[:, None] - row) <= 1) & (abs(column[:, None] - column) <= 1)
    apart = np.sqrt(((network.points[:, None] - network.points[None]) ** 2).sum(axis=2))
    assert apart[adjacent].max() <= network.radius
    assert cells.populated.sum() == len(set(own.tolist()))


@given(st.floats(0.003, 1.0))
def test_far_corners_of_diagonal_neighbours_are_within_the_radius(radius: float) -> None:
    side = 1 / columns_for(radius)
    assert 2 * np.sqrt(2) * side <= radius * (1 + 1e-12)
    assert columns_for(radius) == 1 or 2 * np.sqrt(2) / (columns_for(radius) - 1) > radius


def test_a_published_network_has_a_sixth_of_its_cells_empty() -> None:
    dice = np.random.default_rng(3)
    filled = [cells_of(random_network(3000, 45, dice)).populated.mean() for _ in range(10)]
    assert 0.80 < np.mean(filled) < 0.87


@given(arrays.arrays(np.bool_, st.integers(1, 8).map(lambda side: (side, side))))
def test_a_component_is_named_after_its_lowest_cell_and_holds_what_that_reaches(grid: NDArray[np.bool_]) -> None:
    cells = cells_from(grid)
    columns = cells.columns
    for start in np.flatnonzero(cells.populated).tolist():
        seen, queue = {start}, [start]
        while queue:
            at = queue.pop()
            for other in np.flatnonzero(cells.populated).tolist():
                close = max(abs(at % columns - other % columns), abs(at // columns - other // columns)) == 1
                if close and other not in seen:
                    seen.add(other)
                    queue.append(other)
        assert cells.component[start] == min(seen)
    assert (cells.component[~cells.populated] == EMPTY).all()


def test_the_largest_component_is_the_one_with_most_cells() -> None:
    grid = np.zeros((5, 5), np.bool_)
    grid[0, :2] = grid[3:, 2:] = True
    assert np.flatnonzero(cells_from(grid).largest_component()).tolist() == [17, 18, 19, 22, 23, 24]
    assert not cells_from(np.zeros((3, 3), np.bool_)).largest_component().any()


def test_points_on_the_border_belong_to_a_cell() -> None:
    cells = cells_of(Network(np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]), 1.0))
    assert cells.columns == 3
    assert cells.at(np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]])).tolist() == [0, 8, 2]


@pytest.mark.parametrize("shape", [(0, 0), (2, 3), (1001, 1001)])
def test_what_is_no_square_of_cells_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="square"):
        cells_from(np.zeros(shape, np.bool_))
