"""Brokers with workers in virtual time: workers die, and nothing acknowledged is lost."""

import pytest

from geomq.sim.virtual.run import run
from geomq.sim.virtual.scenario import HABITS, WORKERS_DIE, Options, Scenario

ALL_HABITS = frozenset({"take over", "will", "retain", "share", "plain", "read slowly", "churn"})


@pytest.mark.parametrize(
    "strategy", ["single", "disgb_events", "adaptive", "georendezvous", "broadcast_groups", "mesh"]
)
def test_clients_of_workers_that_die_miss_nothing(strategy: str) -> None:
    options = Options(strategy=strategy, mode="heals", troubles=frozenset({WORKERS_DIE}), workers=2)
    outcome = run(5, options)
    assert outcome.violations == []
    assert any("is about to die" in line for line in outcome.transcript)
    assert outcome.deliveries > 100


def test_the_same_seed_gives_the_same_run() -> None:
    options = Options(strategy="single", mode="heals", habits=ALL_HABITS, workers=2)
    assert frozenset(HABITS) > ALL_HABITS
    assert run(3, options).digest == run(3, options).digest


def test_workers_die_where_there_are_any() -> None:
    assert WORKERS_DIE in Scenario(1, Options(mode="heals", workers=2)).troubles
    assert WORKERS_DIE not in Scenario(1, Options(mode="heals")).troubles
