"""The scenarios of the live experiments: how much happens, and what it would cost."""

import numpy as np
import pytest

from geomq.workload.evaluate import evaluate
from geomq.workload.model import DEGREE, Kind, generate
from geomq.workload.scenarios import SCENARIOS, scenario_world
from geomq.workload.summary import summarise
from geomq.workload.views import view_table

# Location updates, subscription updates and events of the published runs.
TABLE_II = {
    "open": (7200, 75_168, 216_029),
    "hiking": (193_709, 128_008, 111_811),
    "context": (69_236, 5544, 62_675),
}


@pytest.mark.parametrize("name", sorted(TABLE_II))
def test_a_scenario_has_as_many_actions_as_published(name: str) -> None:
    workload = generate(scenario_world(), SCENARIOS[name], seed=1)
    assert np.bincount(workload.actions.kind, minlength=3) == pytest.approx(TABLE_II[name], rel=0.1)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_clients_stay_in_their_circle(name: str) -> None:
    world = scenario_world()
    workload = generate(world, SCENARIOS[name], seed=3)
    places = workload.actions.take(np.flatnonzero(workload.actions.kind == Kind.LOCATION))
    owners = world.areas.owners(places.lat_e7 / DEGREE, places.lon_e7 / DEGREE)
    assert np.array_equal(owners, workload.clients.home[places.client])


def test_the_check_run_publishes_fifteen_times_each() -> None:
    workload = generate(scenario_world(), SCENARIOS["validation"], seed=1)
    assert len(workload.clients) == 600
    assert int((workload.actions.kind == Kind.EVENT).sum()) == 600 * 15
    assert workload.topic_names == ["data"]


def test_hikers_cost_what_was_published() -> None:
    """Published: 623 messages with rendezvous at subscribers, 2,323 at publishers."""
    world = scenario_world()
    results = summarise(evaluate(world, SCENARIOS["hiking"], 1, paper=False), view_table(world, paper=False))
    assert results["disgb_events"].messages["event"] == pytest.approx(623, rel=0.25)
    assert sum(results["disgb_subscriptions"].messages.values()) == pytest.approx(2323, rel=0.25)
    assert "grid_quorum" not in results


def test_mixed_traffic_has_the_topics_of_all_three() -> None:
    workload = generate(scenario_world(), SCENARIOS["mixed"], seed=1)
    used = np.unique(workload.actions.topic[workload.actions.topic >= 0])
    assert len(used) == len(workload.topic_names) == 7
