"""The parts around the replay of `georendezvous`: its rendezvous, its refreshes, and where it is evaluated."""

import numpy as np
import pytest
from tests.workload.evaluation.test_kernel import CHOICES, world_of

from geomq.routing.strategies.georendezvous import GeoRendezvous
from geomq.sim.engine import Simulation
from geomq.workload.evaluation.evaluate import empty_tally
from geomq.workload.evaluation.georendezvous_kernel import FIRST_PATTERN, SELF, matching, way_of
from geomq.workload.evaluation.kernel_messages import PATTERNS
from geomq.workload.evaluation.rendezvous_places import NEAREST, NOBODY, OPTIONS, RendezvousMap
from geomq.workload.evaluation.rendezvous_traffic import count_refreshes, no_firsts
from geomq.workload.evaluation.sent import CONTROL, GEORENDEZVOUS, evaluated


@pytest.mark.parametrize("brokers", sorted(CHOICES))
def test_rendezvous_are_those_of_the_strategy(brokers: int) -> None:
    world = world_of(brokers)
    federation = world.federation
    simulation = Simulation(federation, "georendezvous")
    for topic in ("a", "b", "topic-7", "topic-8"):
        places = RendezvousMap(world).of_topic(topic)
        for number, broker in enumerate(federation.ids):
            strategy = simulation.make_node(broker).strategy
            assert isinstance(strategy, GeoRendezvous)
            known = [federation.position[each] for each in strategy.rendezvous(topic)]
            assert [each for each in places.known[number].tolist() if each != NOBODY] == known
            held = [each for each in known[:NEAREST] if each != number]
            assert [each for each in places.near[number].tolist() if each != NOBODY] == held
            assert all(way_of(places, number, each) != NOBODY for each in [number, *held])
            assert way_of(places, number, number) == SELF


def test_a_client_is_served_by_the_first_way_only() -> None:
    found = np.zeros((1, FIRST_PATTERN + PATTERNS), np.int32)
    found[0, FIRST_PATTERN:] = [0, 1, 2, 4, 8, 16, 32, 64]
    assert matching(found, 0, 0, 0) == 1 + 4 + 16 + 64
    assert matching(found, 0, 1, 0b001) == 2 + 32
    assert matching(found, 0, SELF, 0b011) == 8


def test_refreshes_go_to_the_holders_known_by_then_until_the_end() -> None:
    every = int(OPTIONS.refresh_ms)
    firsts = no_firsts(3)
    firsts[0, 3], firsts[0, 1], firsts[0, 2] = 10, 10, 10 + every
    tally = empty_tally(3, 10, 1)
    count_refreshes(firsts, 10 + 2 * every + 1, tally)
    # In the tick of the first refresh broker 2 is not a holder yet.
    assert tally.sent[GEORENDEZVOUS, CONTROL].tolist() == [[0, 2, 1], [0, 0, 0], [0, 0, 0]]


def test_topics_are_evaluated_apart_only_if_each_is_its_own_group() -> None:
    assert set(evaluated(["a", "b/c"], 25)) == {"adaptive", "digests", "georendezvous"}
    assert not evaluated(["a/b", "a/c"], 25)
    assert evaluated([f"t{number}" for number in range(3000)], 25) == ("adaptive", "digests")
