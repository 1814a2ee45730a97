"""`mesh`: evaluation equals simulation, every message and every delivery, while meshes form and when they have."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workload.evaluation.learning import assert_equal, busy_script
from tests.workload.evaluation.test_kernel import CHOICES, world_of

from geomq.pipeline.mesh_timeline import mesh_options, mesh_timeline
from geomq.pipeline.simulation import steps_of
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.sim.engine import Origin, Simulation
from geomq.sim.overlay import TOPOLOGIES, overlay_links
from geomq.sim.statistics import Statistics
from geomq.workload.evaluation.evaluate import evaluate
from geomq.workload.evaluation.summary import StrategyResult, summarise
from geomq.workload.evaluation.views import view_table
from geomq.workload.generation.disgb import preset
from geomq.workload.model import generate
from geomq.workload.traffic.script import RecordedSpec
from geomq.workload.world import World


class UntilTheEnd(Statistics):
    """Control messages count until the workload ends."""

    def __init__(self, end_ms: int) -> None:
        super().__init__()
        self._end_ms = end_ms

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        if message.kind != "control" or t_ms < self._end_ms:
            super().sent(t_ms, source, target, message, origin, arrives_ms)


def check(world: World, spec: RecordedSpec, **settings: Any) -> StrategyResult:
    federation, statistics = world.federation, UntilTheEnd(spec.end_ms)
    options = {**mesh_options(federation, spec.topic_names()), **settings}
    simulation = Simulation(federation, "mesh", options=options, order="published", observers=[statistics])
    simulation.connect_all()
    simulation.run(steps_of(spec.workload, federation), until_ms=spec.end_ms + 20_000)
    timeline = mesh_timeline(world, spec, 0, options=options)
    tally = evaluate(world, spec, 0, paper=False, mesh=timeline)
    result = summarise(tally, view_table(world, paper=False), learned=["mesh"])["mesh"]
    assert_equal(world, result, statistics)
    return result


@settings(max_examples=50)
@given(
    brokers=st.sampled_from(sorted(CHOICES)),
    seed=st.integers(0, 2**32),
    gap_ms=st.sampled_from([4, 40, 300]),
    topology=st.sampled_from(sorted(TOPOLOGIES)),
    redundancy=st.integers(1, 3),
    announce_ms=st.sampled_from([300, 1_000, 5_000]),
)
def test_evaluation_equals_simulation_on_any_busy_script(
    brokers: int, seed: int, gap_ms: int, topology: str, redundancy: int, announce_ms: int
) -> None:
    world, spec = busy_script(brokers, seed, actions=250, gap_ms=gap_ms)
    links = overlay_links(topology, world.federation, seed=seed)
    check(world, spec, links=links, redundancy=redundancy, announce_ms=announce_ms)


@pytest.mark.parametrize("brokers", sorted(CHOICES))
def test_evaluation_equals_simulation_on_the_published_workload(brokers: int) -> None:
    world = world_of(brokers)
    spec = preset("steady", clients=50, topics=6, seconds=150, event_fence_deg=25.0, subscription_fence_deg=40.0)
    result = check(world, RecordedSpec(generate(world, spec, seed=brokers)))
    assert result.latency.sum() > 50
    assert 0 < result.useful < result.messages["event"]
    assert np.array_equal(result.delivery_links, np.zeros_like(result.delivery_links))
