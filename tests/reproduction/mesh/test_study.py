"""The theorems and promises of the federation mesh paper, on small runs; overlays; losses."""

import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.errors import UsageError
from geomq.geo import Location, NearestAreas
from geomq.reproduction.mesh.broken_overlay import NOTICE_MS, BrokenOverlay
from geomq.reproduction.mesh.study import MeshRow, MeshRun, federation_at, run_mesh
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.sim.mesh_watch import MeshWatch, groups_of, mesh_of
from geomq.sim.overlay import TOPOLOGIES, grid_links, hops_from, neighbours_in, overlay_links, ring_links

Places = tuple[tuple[float, float], ...]


def scattered(count: int, seed: int = 1) -> Places:
    rng = random.Random(seed)
    return tuple((rng.uniform(-60, 60), rng.uniform(-170, 170)) for _ in range(count))


@pytest.fixture(scope="module")
def rows() -> list[MeshRow]:
    losses = (("none", 0.0), ("links", 0.1), ("brokers", 0.1), ("core", 0.0))
    return [
        run_mesh(MeshRun(topology, scattered(16), redundancy, failure, share))
        for topology in TOPOLOGIES
        for redundancy in (1, 3)
        for failure, share in losses
    ]


def mean_survived(rows: list[MeshRow], redundancy: int) -> float:
    return fmean(row.survived_blind for row in rows if row.redundancy == redundancy and row.failure != "none")


def test_theorem_1_a_renewed_announcement_costs_twice_the_links_less_one_for_each_broker_but_the_core(
    rows: list[MeshRow],
) -> None:
    assert all(row.steady_announcements <= row.bound for row in rows)
    assert all(row.steady_announcements == row.bound - (row.brokers - 1) for row in rows)


def test_theorem_1_the_first_announcement_costs_the_same_whatever_links_take(rows: list[MeshRow]) -> None:
    rows = [*rows, *(run_mesh(MeshRun(each, scattered(20, 2), 2, equal_links=True)) for each in TOPOLOGIES)]
    assert all(row.first_announcements == row.bound - (row.brokers - 1) for row in rows)


def test_theorem_2_every_mesh_converges(rows: list[MeshRow]) -> None:
    assert all(row.has_converged for row in rows)
    assert all(0 < row.calm_convergence_ms < 5_000 for row in rows)
    assert all(0 < row.rush_convergence_ms < 15_000 for row in rows)


def test_every_event_reaches_every_subscriber_once(rows: list[MeshRow]) -> None:
    assert all(row.delivered == 1 and row.repeats == 0 for row in rows)


def test_after_a_loss_everything_still_connected_arrives_again(rows: list[MeshRow]) -> None:
    assert all(row.survived_after == 1 for row in rows)
    assert all(row.repair_ms < 20_000 for row in rows)


def test_redundancy_keeps_more_events_arriving_and_uses_more_links(rows: list[MeshRow]) -> None:
    assert mean_survived(rows, 1) < mean_survived(rows, 3)
    links = [sum(row.mesh_links for row in rows if row.redundancy == redundancy) for redundancy in (1, 3)]
    assert links[0] < links[1]


def test_no_way_is_shorter_than_the_fastest_one_and_a_mesh_is_no_larger_than_the_overlay(rows: list[MeshRow]) -> None:
    assert all(row.stretch_overlay >= 1 for row in rows)
    assert all(row.subscribers <= row.members <= row.brokers and row.mesh_links <= row.links for row in rows)


def test_the_same_run_gives_the_same_row() -> None:
    run = MeshRun("small world", scattered(12), 2, "brokers", 0.1, seed=5)
    assert run_mesh(run) == run_mesh(run)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (MeshRun("star", scattered(9), 2), "no topology 'star'"),
        (MeshRun("ring", scattered(2), 2), "3 to 400 brokers"),
        (MeshRun("ring", scattered(9), 2, "fire"), "no failure 'fire'"),
        (MeshRun("ring", scattered(9), 2, "links", 1.5), "no failure 'links' of 1.5"),
    ],
)
def test_an_impossible_run_is_refused(run: MeshRun, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run_mesh(run)


@settings(max_examples=60)
@given(count=st.integers(2, 30), topology=st.sampled_from(sorted(TOPOLOGIES)), seed=st.integers(0, 99))
def test_every_overlay_is_connected_and_names_a_link_once(count: int, topology: str, seed: int) -> None:
    federation = federation_at(scattered(count, seed), random.Random(seed))
    links = overlay_links(topology, federation, seed=seed)
    assert len({frozenset(link) for link in links}) == len(links)
    assert all(a != b for a, b in links)
    reached = hops_from(federation.ids[0], neighbours_in(federation.ids, links))
    assert set(reached) == set(federation.ids)
    assert links == overlay_links(topology, federation, seed=seed)


def test_rings_and_grids_have_their_shape() -> None:
    federation = federation_at(scattered(36), random.Random(1))
    ring, grid = (neighbours_in(federation.ids, links(federation)) for links in (ring_links, grid_links))
    assert {len(near) for near in ring.values()} == {2}
    assert sorted(len(near) for near in grid.values()) == [2] * 4 + [3] * 16 + [4] * 16


def line_of_three() -> BrokenOverlay:
    places = [Location(0.0, float(lon)) for lon in range(3)]
    ids = [BrokerId(name) for name in "abc"]
    federation = Federation([BrokerSite(i, p) for i, p in zip(ids, places, strict=True)], NearestAreas(places))
    watch = MeshWatch()
    links = [(ids[0], ids[1]), (ids[1], ids[2])]
    simulation = BrokenOverlay(federation, "mesh", links=links, options={"links": links}, observers=[watch])
    watch.simulation = simulation
    simulation.connect_all()
    simulation.advance(12_000)
    return simulation


def test_a_lost_link_is_noticed_at_both_ends_and_carries_nothing_more() -> None:
    simulation = line_of_three()
    a, b, c = simulation.federation.ids
    assert set(groups_of(simulation, "#management")) == {a, b, c}
    simulation.lose(links=[(b, c)])
    assert simulation.left() == {a: [b], b: [a], c: []}
    simulation.advance(12_000 + NOTICE_MS + 1)
    assert mesh_of(simulation, b).station.up == (a,)
    assert mesh_of(simulation, c).station.up == ()


def test_a_lost_broker_says_nothing_more_and_another_becomes_the_core() -> None:
    simulation = line_of_three()
    a, b, c = simulation.federation.ids
    simulation.lose(brokers=[a])
    assert simulation.left() == {b: [c], c: [b]}
    simulation.advance(60_000)
    assert {group.core for broker, group in groups_of(simulation, "#management").items() if broker != a} == {b}
