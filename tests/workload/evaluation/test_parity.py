"""`evaluate` equals `simulate`: the kernel against the real routing core in virtual time, strategy by strategy."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workload.evaluation.test_kernel import CHOICES, Row, actions_from, tables_of, world_of

from geomq.geo import Location, distance_m
from geomq.pipeline.simulation import steps_of
from geomq.sim.engine import Simulation
from geomq.sim.statistics import Statistics
from geomq.workload.evaluation.evaluate import evaluate
from geomq.workload.evaluation.summary import NAMES, StrategyResult, summarise
from geomq.workload.evaluation.views import VIEWS, view_table
from geomq.workload.generation.disgb import preset
from geomq.workload.model import DEGREE, NO_FENCE, Kind, generate
from geomq.workload.traffic.script import RecordedSpec, recorded
from geomq.workload.world import GROUP_MS, World


def options_of(strategy: str, world: World) -> dict[str, Any]:
    """Groups as the evaluation forms them; the other strategies as they are by default."""
    if strategy != "broadcast_groups":
        return {}
    weights = {place.name: float(place.population) for place in world.places}
    return {"formation": "fixed", "join_ms": float(GROUP_MS), "lcm": weights}


def simulated(world: World, spec: RecordedSpec, strategy: str) -> Statistics:
    federation, statistics = world.federation, Statistics()
    simulation = Simulation(
        federation,
        strategy,
        options=options_of(strategy, world),
        order="published",
        observers=[statistics],
    )
    simulation.connect_all()
    simulation.run(steps_of(spec.workload, federation))
    simulation.advance(spec.end_ms + 10_000)
    return statistics


def assert_same(world: World, result: StrategyResult, statistics: Statistics) -> None:
    counted = {kind: count for kind, count in statistics.messages.items() if kind != "control" and count}
    assert {kind: count for kind, count in result.messages.items() if count} == counted
    assert histogram(result.latency) == dict(statistics.latency_ms)
    assert histogram(result.delay) == dict(statistics.subscription_delay_ms)


def histogram(counts: np.ndarray) -> dict[int, int]:
    return {int(ms): int(counts[ms]) for ms in np.flatnonzero(counts)}


def check_parity(world: World, spec: RecordedSpec) -> int:
    results = summarise(evaluate(world, spec, 0, paper=False), view_table(world, paper=False))
    for name in NAMES:
        if name in results:
            assert_same(world, results[name], simulated(world, spec, name))
    return int(results["flood_events"].latency.sum())


@cache
def spots_of(brokers: int) -> list[list[tuple[int, int]]]:
    """Per broker some places inside its area: evaluation is about clients that do not roam."""
    areas = world_of(brokers).squares
    spots = []
    for broker in range(brokers):
        squares = areas.squares_of(broker)
        boxes = [areas.square_box(int(square)) for square in squares[:: max(1, len(squares) // 2)][:3]]
        spots.append([(round((box.lat_min + 1) * DEGREE), round((box.lon_min + 2) * DEGREE)) for box in boxes])
    return spots


@st.composite
def scripts(draw: st.DrawFn) -> tuple[World, RecordedSpec]:
    """Clients inside their areas whose updates and events cross on the way."""
    brokers = draw(st.sampled_from(sorted(CHOICES)))
    homes = np.sort(np.array(draw(st.lists(st.integers(0, brokers - 1), min_size=2, max_size=5)), np.int32))
    inside = [spots_of(brokers)[home] for home in homes]
    anywhere = st.sampled_from([spot for spots in inside for spot in spots])
    a, b = draw(anywhere), draw(anywhere)
    border = round(distance_m(Location(a[0] / DEGREE, a[1] / DEGREE), Location(b[0] / DEGREE, b[1] / DEGREE)) * 100)
    radii = st.sampled_from([NO_FENCE, border, max(border - 1, 0), 2 * 10**9])
    clients = st.integers(0, len(homes) - 1)
    rows: list[Row] = []
    for client in range(len(homes)):
        rows.append((1, client, Kind.LOCATION, 0, draw(st.sampled_from(inside[client])), NO_FENCE))
        if draw(st.booleans()):
            rows.append((2, client, Kind.SUBSCRIPTION, 0, draw(anywhere), draw(radii)))
    events = [
        (
            draw(st.sampled_from([5000, 5001])),
            draw(clients),
            Kind.EVENT,
            draw(st.integers(0, 1)),
            draw(anywhere),
            radius,
        )
        for radius in draw(st.lists(radii, min_size=1, max_size=3))
    ]
    for _ in range(draw(st.integers(1, 8))):
        t, publisher, _, topic, _, _ = draw(st.sampled_from(events))
        client, view, table = draw(clients), draw(st.integers(0, VIEWS - 1)), tables_of(brokers)[topic]
        offset = int(table.sub_offset[view, homes[publisher], homes[client]]) + draw(st.sampled_from([0, 1, -1]))
        if draw(st.booleans()):
            place = draw(st.sampled_from(inside[client]))
            rows.append((t + offset, client, Kind.LOCATION, topic, place, NO_FENCE))
        else:
            rows.append((t + offset, client, Kind.SUBSCRIPTION, topic, draw(anywhere), draw(radii)))
    return world_of(brokers), recorded(["a", "b"], homes, actions_from(rows + events))


@settings(max_examples=250)
@given(scripts())
def test_evaluation_equals_simulation_on_any_small_script(script: tuple[World, RecordedSpec]) -> None:
    check_parity(*script)


@pytest.mark.parametrize("brokers", sorted(CHOICES))
def test_evaluation_equals_simulation_on_the_published_workload(brokers: int) -> None:
    world = world_of(brokers)
    spec = preset("steady", clients=50, topics=6, seconds=150, event_fence_deg=25.0, subscription_fence_deg=40.0)
    assert check_parity(world, RecordedSpec(generate(world, spec, seed=brokers))) > 50


def test_a_group_is_woken_if_its_interest_reaches_the_cloud_in_the_tick_of_the_event() -> None:
    world = world_of(5)
    table = tables_of(5)[0]
    publisher, subscriber = 0, 1
    spots = spots_of(5)
    sent = []
    for late in (0, 1):
        t = 5000 + int(table.to_cloud[publisher] - table.to_cloud[subscriber]) + late
        rows: list[Row] = [
            (1, 0, Kind.LOCATION, 0, spots[publisher][0], NO_FENCE),
            (1, 1, Kind.LOCATION, 0, spots[subscriber][0], NO_FENCE),
            (5000, 0, Kind.EVENT, 0, spots[publisher][0], NO_FENCE),
            (t, 1, Kind.SUBSCRIPTION, 0, spots[subscriber][0], NO_FENCE),
        ]
        spec = recorded(["a", "b"], np.array([publisher, subscriber], np.int32), actions_from(rows))
        check_parity(world, spec)
        results = summarise(evaluate(world, spec, 0, paper=False), view_table(world, paper=False))
        sent.append(results["broadcast_groups"].messages["event"])
    assert table.group[publisher] != table.group[subscriber]
    assert sent[0] > sent[1]
