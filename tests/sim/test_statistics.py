"""Counts and exact percentiles."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.routing.stage import circle, moved, published, row_of_squares, subscribed

from geomq.routing.core.model import BrokerId
from geomq.sim.engine import Simulation
from geomq.sim.network import Latencies
from geomq.sim.script import Step
from geomq.sim.statistics import Statistics, describe_histogram

B1, B2 = BrokerId("b1"), BrokerId("b2")


@given(st.lists(st.integers(0, 500), min_size=1, max_size=300))
def test_a_histogram_is_described_as_numpy_would(values: list[int]) -> None:
    described = describe_histogram(Counter(values))
    assert described["count"] == len(values)
    assert described["mean"] == pytest.approx(np.mean(values), abs=1e-3)
    assert described["std"] == pytest.approx(np.std(values), abs=1e-3)
    for name, share in (("min", 0), ("p50", 50), ("p75", 75), ("p99", 99), ("max", 100)):
        assert described[name] == np.percentile(values, share, method="inverted_cdf"), name


def test_nothing_is_described_as_nothing() -> None:
    assert describe_histogram(Counter()) == {"count": 0}


def played(strategy: str, *steps: Step, tail_from_ms: int | None = None) -> Statistics:
    federation = row_of_squares(2)
    ways = {(B1, B2): 30, (B2, B1): 30}
    statistics = Statistics(tail_from_ms=tail_from_ms)
    simulation = Simulation(
        federation, strategy, latencies=Latencies(federation, given_ms=ways), observers=[statistics]
    )
    simulation.run(steps)
    return statistics


def test_messages_are_counted_by_kind_and_receiver() -> None:
    counted = played(
        "flood_subscriptions",
        Step(0, B1, moved("s", 5, 5)),
        Step(1, B1, subscribed("s", "t")),
        Step(2, B1, moved("s", 5, 6)),
        Step(500, B2, published("p", "t")),
    )
    assert counted.summary()["messages"] == {
        "event": 0,
        "subscription": 1,
        "delivery": 1,
        "location": 1,
        "control": 0,
        "total": 3,
    }
    assert counted.load == {B2: 2, B1: 1}
    assert counted.links == {(B1, B2): 2, (B2, B1): 1}
    assert counted.summary()["load_max"] == 2


def test_latency_is_from_publish_to_receipt() -> None:
    counted = played("flood_events", Step(0, B1, subscribed("s", "t")), Step(500, B2, published("p", "t")))
    assert counted.latency_ms == {5 + 30 + 5: 1}
    assert counted.deliveries == 1


def test_subscription_delay_is_from_home_to_rendezvous() -> None:
    counted = played("flood_subscriptions", Step(0, B1, subscribed("s", "t")))
    assert counted.subscription_delay_ms == {30: 1}


def test_an_event_that_nobody_there_wanted_is_redundant() -> None:
    wanted, unwanted = published("p", "t"), published("p", "t", circle(5, 5, 1))
    counted = played(
        "flood_events",
        Step(0, B1, moved("s", 8, 8)),
        Step(0, B1, subscribed("s", "t")),
        Step(500, B2, wanted),
        Step(600, B2, unwanted),
    )
    assert counted.redundant == 1


def test_the_tail_counts_what_was_published_in_it() -> None:
    steps = [Step(0, B1, subscribed("s", "t")), *(Step(t, B2, published("p", "t")) for t in (90, 100, 110))]
    assert played("flood_events", *steps, tail_from_ms=100).tail_deliveries == 2
    assert played("flood_events", *steps).summary()["quiet_tail_deliveries"] == 0
