"""`digests`: evaluation equals simulation, what is told and refused, links and delays included."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workload.evaluation.learning import assert_equal, busy_script, crowd_script, learned, simulated
from tests.workload.evaluation.test_kernel import CHOICES, world_of

from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.digests.strategy import PutDigest, RefuseDigest
from geomq.sim.engine import Observer, Origin
from geomq.workload.generation.disgb import preset
from geomq.workload.model import Kind, Workload, generate
from geomq.workload.traffic.script import RecordedSpec
from geomq.workload.world import World


class Sent(Observer):
    """Counts what brokers tell each other."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        if isinstance(message, PutDigest):
            self.kinds["whole" if message.whole else "grown"] += 1
            self.kinds["with slack"] += message.slack_m > 0
        elif isinstance(message, RefuseDigest):
            self.kinds["refused"] += 1


def check(world: World, spec: RecordedSpec) -> Counter[str]:
    """What a client does on several topics in the same tick is evaluated in their order, so it has to happen in it."""
    actions = spec.workload.actions
    order = np.lexsort(
        (np.where(actions.kind == Kind.LOCATION, 0, actions.topic), actions.kind, actions.client, actions.t_ms)
    )
    spec = RecordedSpec(Workload(spec.workload.topic_names, spec.workload.clients, actions.take(order)))
    observed = Sent()
    statistics = simulated(world, spec, "digests", observed)
    assert_equal(world, learned(world, spec, "digests"), statistics)
    return observed.kinds


@settings(max_examples=80)
@given(st.sampled_from(sorted(CHOICES)), st.integers(0, 2**32), st.sampled_from([1, 4, 40, 300]))
def test_evaluation_equals_simulation_on_any_busy_script(brokers: int, seed: int, gap_ms: int) -> None:
    check(*busy_script(brokers, seed, actions=250, gap_ms=gap_ms))


def test_digests_are_told_grown_widened_and_refused_alike() -> None:
    seen: Counter[str] = Counter()
    for brokers in sorted(CHOICES):
        for seed in range(6):
            seen += check(*busy_script(brokers, seed, actions=900, gap_ms=100))
    assert {"whole", "grown", "refused"} <= +seen


@settings(max_examples=25)
@given(st.sampled_from(sorted(CHOICES)), st.integers(0, 2**32), st.integers(0, 12))
def test_crowds_that_subscribe_before_anybody_publishes_are_evaluated_alike(brokers: int, seed: int, far: int) -> None:
    check(*crowd_script(brokers, seed, far=far))


@pytest.mark.parametrize(("brokers", "clients"), [(5, 50), (9, 50), (9, 400)])
def test_evaluation_equals_simulation_on_the_published_workload(brokers: int, clients: int) -> None:
    world = world_of(brokers)
    spec = preset("steady", clients=clients, topics=6, seconds=300, event_fence_deg=15.0, subscription_fence_deg=20.0)
    seen = check(world, RecordedSpec(generate(world, spec, seed=brokers)))
    assert seen["whole"] > 0
