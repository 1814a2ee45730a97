"""Traces as workloads: the same numbers as the workload they came from, and what had to be changed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.workload.traffic.recorded import scenario_trace, write_trace

from geomq.errors import DataError, UsageError
from geomq.routing.federation.outline import Outline, OutlinedBroker
from geomq.workload.evaluation.evaluate import evaluate
from geomq.workload.generation.scenarios import ScenarioSpec, scenario_world
from geomq.workload.model import NO_FENCE, Kind
from geomq.workload.traffic.recorded_traffic import Traffic, read_traffic, traffic_of

TWO = Outline((OutlinedBroker("a", (50.0, 8.0)), OutlinedBroker("b", (48.0, 2.0))), "disgb_events")


def row(t_ms: float, step: str, client: str = "c", broker: str = "a", **more: Any) -> dict[str, Any]:
    return {"t_ms": t_ms, "broker": broker, "step": step, "kind": "event", "client": client, **more}


def traffic(*rows: dict[str, Any], last_s: float | None = None) -> Traffic:
    published = row(10_000, "published", "publisher", topic="s/1", lat=50.0, lon=8.0, size=10)
    return traffic_of(TWO, [*rows, published], last_s=last_s)


def subscriptions(found: Traffic) -> list[tuple[int, str, int]]:
    """Client, topic and radius, in order."""
    actions = found.actions
    return [
        (int(actions.client[i]), found.topics[actions.topic[i]], int(actions.radius_cm[i]))
        for i in np.flatnonzero(actions.kind == Kind.SUBSCRIPTION)
    ]


def test_the_trace_of_a_scenario_evaluates_to_the_numbers_of_the_scenario(tmp_path: Path) -> None:
    found = read_traffic([scenario_trace(tmp_path, "hiking", clients=150, seconds=100)])
    expected = evaluate(scenario_world(), ScenarioSpec("hiking", clients=150, seconds=100), 1, paper=False)
    assert found.notes == ()
    got = evaluate(found.world, found.spec, 0, paper=False)
    assert np.array_equal(got.published, expected.published)
    assert np.array_equal(got.event_pairs, expected.event_pairs)
    assert np.array_equal(got.subscription_pairs, expected.subscription_pairs)
    assert np.array_equal(got.delays, expected.delays)


def test_times_begin_at_zero_and_clients_are_numbered_broker_by_broker() -> None:
    found = traffic(
        row(4000, "moved", "x", "b", lat=48.0, lon=2.0),
        row(5000, "connected", "y", lat=50.0, lon=8.0),
        row(6000, "moved", "z"),
    )
    assert found.homes.tolist() == [0, 0, 0, 1]
    assert found.actions.t_ms.tolist() == [0, 1000, 6000]
    assert found.payload_mean == 10.0


def test_wildcards_become_topics_and_who_leaves_matches_nothing() -> None:
    found = traffic(
        row(1000, "subscribed", topic="s/#"),
        row(1100, "subscribed", topic="other/#"),
        row(1200, "subscribed", topic="$share/g/s/1", fence="geo:50,8;u=1000"),
        row(1300, "unsubscribed", topic="s/#"),
        row(1400, "disconnected", reason="session ended"),
    )
    assert subscriptions(found) == [(0, "s/1", NO_FENCE), (0, "s/1", 100_000), (0, "s/1", 0), (0, "s/1", 0)]
    assert found.notes == (
        "1 filters with wildcards, replaced by the topics they match",
        "1 filters with wildcards skipped: no event they match was published",
    )
    kept = traffic(row(1000, "subscribed", topic="s/1"), row(1400, "disconnected", reason="session kept"))
    assert len(subscriptions(kept)) == 1


def test_subscriptions_count_where_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        row(1000, "subscribed", topic="quiet"),
        row(1100, "subscribed", topic="#"),
        row(1200, "subscribed", topic="x"),
    ]
    assert subscriptions(traffic(*rows)) == [(0, "quiet", NO_FENCE), (0, "s/1", NO_FENCE), (0, "x", NO_FENCE)]
    monkeypatch.setattr("geomq.workload.traffic.recorded_traffic.TOPICS_MAX", 2)
    few = traffic(*rows)
    assert subscriptions(few) == [(0, "quiet", NO_FENCE), (0, "s/1", NO_FENCE)]
    assert "1 filters skipped: at most 2 topics can be evaluated" in few.notes


def test_fences_become_circles_and_that_is_said() -> None:
    square = "POLYGON ((7 49, 9 49, 9 51, 7 51, 7 49))"
    far = row(9000, "published", "publisher", topic="s/1", lat=50.0, lon=8.0, fence="geo:51,8;u=1000")
    found = traffic(row(1000, "subscribed", topic="s/1", fence=square), far)
    ((_, _, radius),) = subscriptions(found)
    assert 10_000_000 < radius < 20_000_000
    event = found.actions.radius_cm[found.actions.kind == Kind.EVENT][0]
    assert 11_000_000 < event < 11_500_000
    assert len(found.notes) == 2


def test_only_the_last_seconds_count_but_who_was_there_stays() -> None:
    early = row(1000, "published", "publisher", topic="s/1")
    found = traffic(row(500, "subscribed", topic="s/1"), early, last_s=5)
    assert int(np.sum(found.actions.kind == Kind.EVENT)) == 1
    assert len(subscriptions(found)) == 1


def test_clients_can_be_taken_away() -> None:
    found = traffic(row(1000, "moved", "x", lat=1.0, lon=1.0), row(1000, "moved", "y", "b", lat=2.0, lon=2.0))
    half = found.part(np.array([True, False, True]))
    assert half.homes.tolist() == [0, 1]
    assert set(half.actions.client.tolist()) == {0, 1}


def test_a_trace_that_cannot_be_judged_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing was published"):
        traffic_of(TWO, [row(1, "moved", lat=1.0, lon=1.0)])
    with pytest.raises(DataError, match="an invalid fence"):
        traffic(row(1, "subscribed", topic="s/1", fence="POINT (1 2)"))
    with pytest.raises(DataError, match="contains no trace files"):
        read_traffic([tmp_path])
    write_trace(tmp_path / "1.parquet", TWO, [])
    with pytest.raises((DataError, UsageError)):
        read_traffic([tmp_path])
