"""Nodes in a square: how far they reach, whom they hear, how many hops apart they are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.errors import UsageError
from geomq.reproduction.rendezvous.network import UNREACHED, Network, heard_share, links_of, radius_for, random_network


@pytest.mark.parametrize("nodes", [80, 600, 3000])
def test_a_random_network_has_the_degree_it_was_asked_for(nodes: int) -> None:
    dice = np.random.default_rng(7)
    degrees = [np.diff(links_of(random_network(nodes, 45, dice)).start).mean() for _ in range(20)]
    assert np.mean(degrees) == pytest.approx(45, rel=0.02)


def test_the_share_that_is_heard_is_what_random_points_hear() -> None:
    points = np.random.default_rng(1).random((2, 200_000, 2))
    apart = np.hypot(*(points[0] - points[1]).T)
    for radius in (0.1, 0.5, 0.9):
        assert heard_share(radius) == pytest.approx(np.mean(apart <= radius), abs=0.004)


@settings(max_examples=40)
@given(st.integers(1, 60), st.floats(0.01, 1.0), st.integers(0, 2**32 - 1))
def test_links_and_hops_are_those_of_the_definition(nodes: int, radius: float, seed: int) -> None:
    points = np.random.default_rng(seed).random((nodes, 2))
    links = links_of(Network(points, radius))
    apart = ((points[:, None] - points[None]) ** 2).sum(axis=2) <= radius * radius
    np.fill_diagonal(apart, False)
    for node in range(nodes):
        heard = links.neighbour[links.start[node] : links.start[node + 1]]
        assert sorted(heard.tolist()) == np.flatnonzero(apart[node]).tolist()
    reached, hops, step = np.arange(nodes) == 0, np.where(np.arange(nodes) == 0, 0, UNREACHED), 0
    while (frontier := apart[reached].any(axis=0) & ~reached).any():
        step += 1
        hops[frontier] = step
        reached |= frontier
    assert links.hops_from(0).tolist() == hops.tolist()


@pytest.mark.parametrize(("nodes", "degree"), [(1, 0.5), (0, 1), (10**9, 45), (40, 45), (80, 0), (80, -3)])
def test_impossible_networks_are_refused(nodes: int, degree: float) -> None:
    with pytest.raises(UsageError, match="nodes"):
        radius_for(nodes, degree)
