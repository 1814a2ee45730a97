"""The published live experiments as plans."""

from pathlib import Path

from geomq.reproduction.live.experiments import LINKS_MS, STRATEGIES, WAYS, iov_experiments, scenario_experiments
from geomq.testbed.plan import CLOUD


def test_every_scenario_meets_every_strategy(tmp_path: Path) -> None:
    found = scenario_experiments({"open": tmp_path, "hiking": tmp_path}, speed=10, strategies=STRATEGIES)
    assert len(found) == 10
    assert {each.plan.testbed.strategy for each in found} == set(STRATEGIES)
    assert all(each.plan.testbed.ms_per_km > 0 for each in found)


def test_the_links_of_the_cars_add_up_to_the_published_sums(tmp_path: Path) -> None:
    hops = {broker.name: broker.latency_ms for broker in iov_experiments(tmp_path, speed=1)[0].plan.brokers}
    assert hops["edge-2"] + hops["edge-3"] == 4
    assert hops["edge-2"] + LINKS_MS["edge-2", "edge-3"] + hops["edge-3"] == 7
    assert hops["edge-2"] + LINKS_MS["edge-2", CLOUD] + LINKS_MS["edge-3", CLOUD] + hops["edge-3"] == 55
    assert hops["edge-1"] + LINKS_MS["edge-1", CLOUD] + hops["cloud-broker"] == 44


def test_thresholds_make_groups_flood_relay_or_group(tmp_path: Path) -> None:
    found = {each.name: each.plan.testbed.options["join_ms"] for each in iov_experiments(tmp_path, speed=1)}
    assert found == WAYS
    near, far = LINKS_MS["edge-2", "edge-3"], LINKS_MS["edge-1", "edge-2"]
    assert near < found["broadcast groups"] < far
    assert found["cloud relay"] < near < far < found["global flooding"]


def test_the_edge_of_the_monitor_leads_if_all_form_one_group(tmp_path: Path) -> None:
    for each in iov_experiments(tmp_path, speed=1):
        assert each.plan.testbed.options["lcm"] == {"edge-1": 1.0}
