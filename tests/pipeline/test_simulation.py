"""A workload as a script for the simulator."""

from dataclasses import replace
from itertools import pairwise

import pytest

from geomq.errors import UsageError
from geomq.geo import Circle
from geomq.pipeline.simulation import Scenario, options_of, quiet_tail, simulate_one, steps_of
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed
from geomq.routing.node import Node
from geomq.sim.engine import Simulation

SMALL = Scenario(brokers=4, clients=12, seconds=120, topics=5, preset="steady", seed=1)


def test_twenty_five_brokers_are_the_published_ones() -> None:
    names = replace(SMALL, brokers=25).federation().ids
    assert names[:3] == ("Nanjing", "Brooklyn", "Kiev")
    assert len(names) == 25


def test_brokers_stand_in_their_own_area() -> None:
    federation = SMALL.federation()
    assert SMALL.world().federation.ids == federation.ids
    for broker in federation.brokers:
        assert federation.owner(broker.location) == broker.id


def test_a_workload_becomes_steps_in_time_order() -> None:
    federation = SMALL.federation()
    steps = list(steps_of(SMALL.workload(), federation))
    assert [step.t_ms for step in steps] == sorted(step.t_ms for step in steps)
    assert {type(step.event) for step in steps} == {ClientMoved, ClientSubscribed, ClientPublished}
    assert all(step.home in federation.position for step in steps)
    later = list(steps_of(SMALL.workload(), federation, start_ms=1_000))
    assert [step.t_ms - 1_000 for step in later] == [step.t_ms for step in steps]


def test_clients_stay_in_the_area_of_their_home() -> None:
    federation = SMALL.federation()
    for step in steps_of(SMALL.workload(), federation):
        if isinstance(step.event, ClientMoved) and step.event.location is not None:
            assert federation.owner(step.event.location) == step.home


def test_in_the_tail_everybody_publishes_once_where_they_stand() -> None:
    federation, workload = SMALL.federation(), SMALL.workload()
    tail = list(quiet_tail(workload, federation, start_ms=5_000, radius_m=100.0))
    assert [step.event.client for step in tail] == [f"c{n}" for n in range(len(workload.clients))]  # type: ignore[attr-defined]
    assert all(isinstance(step.event, ClientPublished) and isinstance(step.event.fence, Circle) for step in tail)
    assert all(a.t_ms < b.t_ms for a, b in pairwise(tail))


@pytest.mark.parametrize("strategy", SMALL.strategies())
def test_the_settings_of_a_comparison_are_valid(strategy: str) -> None:
    simulation = Simulation(SMALL.federation(), strategy, options=options_of(strategy, SMALL))
    assert sum(isinstance(node, Node) for node in simulation.nodes.values()) == 4


def test_strategies_that_cannot_serve_are_left_out_of_all() -> None:
    assert "single" not in SMALL.strategies()
    assert "single" in replace(SMALL, brokers=1, clients=3).strategies()


def test_one_broker_sends_nothing() -> None:
    result = simulate_one(replace(SMALL, brokers=1), "single")
    assert result["messages"]["total"] == 0
    assert result["quiet_tail_deliveries"] >= 12


@pytest.mark.parametrize(
    "change", [{"brokers": 0}, {"brokers": 1001}, {"clients": 0}, {"clients": 200_001}, {"seed": -1}, {"seed": 2**63}]
)
def test_numbers_out_of_range_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="must be between"):
        replace(SMALL, **change)  # type: ignore[arg-type]
