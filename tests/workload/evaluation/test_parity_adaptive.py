"""`adaptive`: evaluation equals simulation, modes, requests, links and moves included."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workload.evaluation.learning import assert_equal, busy_script, crowd_script, learned, simulated
from tests.workload.evaluation.test_kernel import CHOICES, world_of

from geomq.routing.core.messages import Message, PutLocation
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.adaptive import PreferMatchedHere, UseMode
from geomq.sim.engine import Observer, Origin
from geomq.workload.generation.disgb import preset
from geomq.workload.model import generate
from geomq.workload.traffic.script import RecordedSpec
from geomq.workload.world import World


class Sent(Observer):
    """Counts messages by type."""

    def __init__(self) -> None:
        self.types: Counter[type[Message]] = Counter()

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        self.types[type(message)] += 1


def check(world: World, spec: RecordedSpec) -> Counter[type[Message]]:
    observed = Sent()
    statistics = simulated(world, spec, "adaptive", observed)
    assert_equal(world, learned(world, spec, "adaptive"), statistics)
    return observed.types


@settings(max_examples=80)
@given(st.sampled_from(sorted(CHOICES)), st.integers(0, 2**32), st.sampled_from([1, 4, 40, 300]))
def test_evaluation_equals_simulation_on_any_busy_script(brokers: int, seed: int, gap_ms: int) -> None:
    check(*busy_script(brokers, seed, actions=250, gap_ms=gap_ms))


@pytest.mark.parametrize("brokers", sorted(CHOICES))
def test_modes_are_announced_and_taken_back_alike(brokers: int) -> None:
    seen: Counter[type[Message]] = Counter()
    for seed in range(6):
        seen += check(*busy_script(brokers, seed, actions=600, gap_ms=100))
    assert all(seen[message] > 0 for message in (UseMode, PreferMatchedHere, PutLocation))


@settings(max_examples=25)
@given(st.sampled_from(sorted(CHOICES)), st.integers(0, 2**32), st.integers(0, 12))
def test_crowds_that_subscribe_before_anybody_publishes_are_evaluated_alike(brokers: int, seed: int, far: int) -> None:
    check(*crowd_script(brokers, seed, far=far))


def test_crowds_make_brokers_assume_and_regret() -> None:
    seen: Counter[type[Message]] = Counter()
    for seed in range(6):
        seen += check(*crowd_script(5, seed, far=12))
    assert all(seen[message] > 0 for message in (UseMode, PreferMatchedHere, PutLocation))


@pytest.mark.parametrize("brokers", [5, 9])
def test_evaluation_equals_simulation_on_the_published_workload(brokers: int) -> None:
    world = world_of(brokers)
    spec = preset("steady", clients=50, topics=6, seconds=150, event_fence_deg=25.0, subscription_fence_deg=40.0)
    assert check(world, RecordedSpec(generate(world, spec, seed=brokers)))[UseMode] > 0
