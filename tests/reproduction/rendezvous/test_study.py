"""What is measured in one network, against the definitions written out."""

import itertools
from dataclasses import fields

import numpy as np
import pytest
from numpy.typing import NDArray

from geomq.reproduction.rendezvous import study
from geomq.reproduction.rendezvous.cells import Cells, cells_of
from geomq.reproduction.rendezvous.network import Network, random_network
from geomq.reproduction.rendezvous.rendezvous import by_distance, places_of
from geomq.reproduction.rendezvous.routing import path, route
from geomq.reproduction.rendezvous.study import (
    FIXED,
    RENDEZVOUS,
    SUBSCRIBERS,
    TRIED,
    Sample,
    StudyPlan,
    measure,
    unpack,
)

PLAN = StudyPlan(sizes=(300,), networks=2, pairs=8, seed=9)


class Drawn:
    """The network, pairs and topics of the plan's network 1, drawn as the study draws them."""

    def __init__(self) -> None:
        dice = np.random.default_rng([PLAN.seed, 300, 1])
        self.network: Network = random_network(300, 45, dice)
        self.cells: Cells = cells_of(self.network)
        self.at: list[int] = self.cells.at(self.network.points).tolist()
        members = np.flatnonzero(self.cells.largest_component()[self.at])
        self.pairs = [dice.choice(members, 2, replace=False).tolist() for _ in range(PLAN.pairs)]
        self.topics = [f"9/300/1/{pair}" for pair in range(PLAN.pairs)]
        self.audience: list[list[int]] = dice.choice(members, (PLAN.pairs, SUBSCRIBERS)).tolist()

    def through(self, publisher: int, subscriber: int, place: NDArray[np.float64]) -> int:
        there = route(self.cells, self.at[publisher], int(self.cells.at(place)))
        return max(1, there.hops + route(self.cells, there.end, self.at[subscriber]).hops)


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return Drawn()


@pytest.fixture(scope="module")
def sample() -> Sample:
    return measure(300, 1, PLAN)


def test_a_network_is_a_function_of_its_number_alone(sample: Sample) -> None:
    measure(300, 0, PLAN)
    assert measure(300, 1, PLAN).pack() == sample.pack()
    assert measure(300, 0, PLAN).pack() != sample.pack()


def test_a_sample_survives_its_bytes(sample: Sample) -> None:
    again = unpack(sample.pack())
    assert all(np.array_equal(getattr(again, part.name), getattr(sample, part.name)) for part in fields(Sample))


def test_paths_are_the_best_through_the_first_n_and_the_m_closest(sample: Sample, drawn: Drawn) -> None:
    direct, through, close = 0, np.zeros(RENDEZVOUS), np.zeros(FIXED)
    for (publisher, subscriber), topic in zip(drawn.pairs, drawn.topics, strict=True):
        places = places_of(topic, RENDEZVOUS)
        hops = [drawn.through(publisher, subscriber, place) for place in places]
        direct += max(1, route(drawn.cells, drawn.at[publisher], drawn.at[subscriber]).hops)
        through += [min(hops[:n]) for n in range(1, RENDEZVOUS + 1)]
        ranked = by_distance(places[:FIXED], drawn.network.points[subscriber]).tolist()
        close += [min(hops[each] for each in ranked[:m]) for m in range(1, FIXED + 1)]
    assert sample.direct.tolist() == [direct]
    assert sample.through.tolist() == through.tolist()
    assert sample.close.tolist() == close.tolist()
    assert sample.fewest[0] <= direct


def tree_lengths(drawn: Drawn, row: int, *, single: bool) -> NDArray[np.float64]:
    """Copies, replicated and shared lengths after each subscriber, with sets of links."""
    cells, publisher = drawn.cells, drawn.pairs[row][0]
    places = places_of(drawn.topics[row], FIXED)
    trunks: dict[int, list[tuple[int, int]]] = {}
    branches: dict[int, set[tuple[int, int]]] = {}
    lengths, copies = np.zeros((3, SUBSCRIBERS)), 0
    for number, subscriber in enumerate(drawn.audience[row]):
        tried = [0] if single else by_distance(places, drawn.network.points[subscriber])[:TRIED].tolist()
        best = min(tried, key=lambda each: drawn.through(publisher, subscriber, places[each]))
        there = route(cells, drawn.at[publisher], int(cells.at(places[best])))
        back = route(cells, there.end, drawn.at[subscriber]).hops
        trunk = path(cells, drawn.at[publisher], int(cells.at(places[best])))[: there.hops + 1]
        trunks.setdefault(there.end, list(itertools.pairwise(trunk)))
        branch = path(cells, there.end, drawn.at[subscriber])[: back + 1]
        branches.setdefault(there.end, set()).update(itertools.pairwise(branch))
        copies += back
        sent = sum(map(len, trunks.values()))
        shared = sum(map(len, branches.values()))
        lengths[:, number] = sent + copies, sent + shared, len(set().union(*trunks.values())) + shared
    return lengths


def test_trees_are_as_long_as_their_links(sample: Sample, drawn: Drawn) -> None:
    single = sum(tree_lengths(drawn, row, single=True) for row in range(PLAN.pairs))
    multiple = sum(tree_lengths(drawn, row, single=False) for row in range(PLAN.pairs))
    assert np.array_equal(np.stack([sample.single, sample.single_shared]), np.asarray(single)[[0, 2]])
    parts = (sample.multiple, sample.multiple_replicated, sample.multiple_shared)
    assert np.array_equal(np.stack(parts), multiple)


def test_signals_are_three_for_each_distinct_cell_that_is_not_kept(sample: Sample) -> None:
    assert sample.wasted.tolist() == (3 * (sample.distinct - 1)).tolist()
    assert sample.woken.tolist() == sample.wasted.tolist()
    assert sample.distinct[0] == 1


def test_more_detour_keeps_more_rendezvous(sample: Sample) -> None:
    assert (np.diff(sample.kept) >= 0).all()
    assert 0 < sample.kept[-1] <= PLAN.pairs
    assert sample.longest[0] >= sample.shortest[0] / PLAN.pairs
    assert sample.growth[0] >= 1


def test_nodes_cut_off_take_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "DEGREE", 10)
    sparse = [measure(200, number, StudyPlan(sizes=(200,), networks=5, pairs=4)) for number in range(5)]
    assert sum(each.outside[0] for each in sparse) > 0
    assert all((each.through >= each.pairs).all() for each in sparse)
    assert all(np.isfinite(each.relative).all() for each in sparse)


def test_tasks_are_every_network_once_large_ones_first() -> None:
    tasks = StudyPlan(sizes=(80, 600, 150), networks=3).tasks()
    assert sorted(tasks) == sorted(itertools.product((80, 150, 600), range(3)))
    assert [nodes for nodes, _ in tasks] == sorted((nodes for nodes, _ in tasks), reverse=True)
