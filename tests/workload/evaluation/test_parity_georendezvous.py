"""`georendezvous`: evaluation equals simulation, control messages, links and refreshes included."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workload.evaluation.learning import assert_equal, busy_script, learned, simulated
from tests.workload.evaluation.test_kernel import CHOICES, Row, actions_from, world_of
from tests.workload.evaluation.test_parity import spots_of

from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.georendezvous import GraftRendezvous, PrunePath, PruneRendezvous, Refresh
from geomq.sim.engine import Observer, Origin
from geomq.workload.evaluation.evaluate import evaluate
from geomq.workload.evaluation.summary import summarise
from geomq.workload.evaluation.views import view_table
from geomq.workload.generation.disgb import preset
from geomq.workload.model import NO_FENCE, Kind, generate
from geomq.workload.traffic.script import RecordedSpec, recorded
from geomq.workload.world import World


class Controls(Observer):
    """Counts control messages by type, and the refreshes sent after the end of the workload."""

    def __init__(self, end_ms: int) -> None:
        self.types: Counter[type[Message]] = Counter()
        self.late: Counter[tuple[BrokerId, BrokerId]] = Counter()
        self._end_ms = end_ms

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        if isinstance(message, Refresh) and t_ms >= self._end_ms:
            self.late[source, target] += 1
        else:
            self.types[type(message)] += 1


def check(world: World, spec: RecordedSpec) -> Counter[type[Message]]:
    controls = Controls(spec.end_ms)
    statistics = simulated(world, spec, "georendezvous", controls)
    statistics.messages["control"] -= controls.late.total()
    statistics.links -= controls.late
    assert_equal(world, learned(world, spec, "georendezvous"), statistics)
    return controls.types


@settings(max_examples=60)
@given(st.sampled_from(sorted(CHOICES)), st.integers(0, 2**32), st.sampled_from([4, 40, 300]))
def test_evaluation_equals_simulation_on_any_busy_script(brokers: int, seed: int, gap_ms: int) -> None:
    check(*busy_script(brokers, seed, actions=250, gap_ms=gap_ms))


@pytest.mark.parametrize("brokers", sorted(CHOICES))
def test_paths_are_cut_and_rendezvous_pruned_and_grafted_and_refreshed_alike(brokers: int) -> None:
    seen: Counter[type[Message]] = Counter()
    for seed in range(6):
        seen += check(*busy_script(brokers, seed, actions=300, gap_ms=1500))
    assert all(seen[message] > 0 for message in (PrunePath, PruneRendezvous, GraftRendezvous, Refresh))


@pytest.mark.parametrize("brokers", [5, 9])
def test_evaluation_equals_simulation_on_the_published_workload(brokers: int) -> None:
    world = world_of(brokers)
    spec = preset("steady", clients=50, topics=6, seconds=150, event_fence_deg=25.0, subscription_fence_deg=40.0)
    assert check(world, RecordedSpec(generate(world, spec, seed=brokers)))[Refresh] > 0


def test_an_update_that_crosses_an_event_is_seen_alike_in_every_tick() -> None:
    """A subscriber moves in or out of the event's fence, tick by tick around the event's way."""
    world, spots = world_of(5), spots_of(5)
    homes = np.array([0, 1, 2, 3, 4], np.int32)
    start: list[Row] = [(1, c, Kind.LOCATION, 0, spots[c][0], NO_FENCE) for c in range(5)]
    start += [(2, c, Kind.SUBSCRIPTION, 0, spots[c][0], NO_FENCE) for c in range(1, 5)]
    longest = int(world.latency_ms[:5, :5].max())
    for subscriber in (1, 2, 4):
        here, there = spots[subscriber][0], spots[subscriber][1]
        rows = list(start)
        for step, offset in enumerate(range(-longest - 1, longest + 2, 3)):
            t = 5000 * (step + 1)
            place = there if step % 2 == 0 else here
            rows.append((t, 0, Kind.EVENT, 0, there, 10**6))
            rows.append((t + offset, subscriber, Kind.LOCATION, 0, place, NO_FENCE))
        check(world, recorded(["a", "b"], homes, actions_from(rows)))


def test_topics_of_one_group_are_left_out_because_they_share_their_rendezvous() -> None:
    world, spec = busy_script(3, 1, actions=30)
    shared = RecordedSpec(type(spec.workload)(["a/1", "a/2"], spec.workload.clients, spec.workload.actions))
    tally = evaluate(world, shared, 0, paper=False)
    assert not tally.sent.any()
    assert "georendezvous" not in summarise(tally, view_table(world, paper=False))
