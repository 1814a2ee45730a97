"""Advice: the published winner on each scenario, better than both on mixed traffic, and how that is chosen."""

from pathlib import Path

import numpy as np
import pytest
from tests.workload.traffic.recorded import scenario_trace

from geomq.workload.evaluation.evaluate import evaluate_locally
from geomq.workload.evaluation.results import Outcome
from geomq.workload.traffic.advice import (
    Cost,
    Job,
    advise,
    choose,
    config_lines,
    mean_km,
    message_sizes,
    outside_share,
    place_brokers,
)
from geomq.workload.traffic.recorded_traffic import read_traffic


def evaluate(jobs: "list[Job] | tuple[Job, ...]") -> list[Outcome]:
    return [evaluate_locally(*job) for job in jobs]


@pytest.mark.parametrize(
    ("name", "winner", "loser"),
    [
        ("open", "disgb_subscriptions", "disgb_events"),
        ("hiking", "disgb_events", "disgb_subscriptions"),
        ("context", "disgb_events", "disgb_subscriptions"),
        ("mixed", "adaptive", "disgb_subscriptions"),
    ],
)
def test_the_published_winner_is_advised_and_better_than_both_on_mixed_traffic(
    name: str, winner: str, loser: str, tmp_path: Path
) -> None:
    traffic = read_traffic([scenario_trace(tmp_path, name, strategy=loser)])
    advice = advise(traffic, lambda jobs: evaluate(list(jobs)), samples=2)
    assert advice.strategy == winner
    assert advice.present == loser
    assert advice.saved is not None
    assert advice.saved.messages > 0
    assert advice.costs[winner].messages < advice.costs[loser].messages
    if name == "mixed":
        assert advice.costs[winner].messages < advice.costs["disgb_events"].messages
    assert advice.oracle is not None
    assert 0.0 <= advice.confidence <= 1.0
    assert config_lines(advice)[:2] == ["[routing]", f'strategy = "{winner}"']
    assert advice.facts["clients"] == 360


def test_brokers_are_placed_where_the_clients_are(tmp_path: Path) -> None:
    traffic = read_traffic([scenario_trace(tmp_path, "open", clients=90, seconds=60)])
    placed = place_brokers(traffic, 3)
    assert mean_km(placed) <= mean_km(traffic) * 1.05
    assert sorted(placed.homes.tolist()) == placed.homes.tolist()
    more = place_brokers(traffic, 6)
    assert mean_km(more) < mean_km(placed)
    advice = advise(traffic, lambda jobs: evaluate(list(jobs)), place=2, samples=0)
    assert advice.places is not None
    assert len(advice.places.outline.brokers) == 2
    assert 'name = "broker-2"' in config_lines(advice)
    assert outside_share(traffic) == 0.0


def cost(messages: int, *, latency_ms: float = 10.0, deliveries: int = 100_000, size: int = 1) -> Cost:
    return Cost(messages, messages * size, latency_ms, latency_ms, deliveries)


def test_the_simplest_of_nearly_equal_strategies_is_chosen() -> None:
    assert choose({"adaptive": cost(100), "disgb_events": cost(109)}, "messages") == "disgb_events"
    assert choose({"adaptive": cost(100), "disgb_events": cost(111)}, "messages") == "adaptive"


def test_a_strategy_that_is_slow_or_leaves_somebody_out_is_not_chosen() -> None:
    costs = {
        "dht": cost(1, latency_ms=300),
        "georendezvous": cost(0, deliveries=99_900),
        "disgb_events": cost(50, deliveries=99_999),
        "flood_events": cost(90),
    }
    assert choose(costs, "messages") == "disgb_events"


def test_bytes_or_latency_can_matter_instead() -> None:
    costs = {"disgb_events": cost(10, size=100, latency_ms=10), "disgb_subscriptions": cost(50, latency_ms=11)}
    assert choose(costs, "messages") == "disgb_events"
    assert choose(costs, "bytes") == "disgb_subscriptions"
    assert choose(costs | {"flood_events": cost(900, latency_ms=5)}, "latency") == "flood_events"


def test_messages_have_the_sizes_brokers_write() -> None:
    small, large = message_sizes(0), message_sizes(1000)
    assert large["event"] - small["event"] == 1000
    assert np.all([20 < size < 300 for size in small.values()])
