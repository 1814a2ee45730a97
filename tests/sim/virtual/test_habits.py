"""Clients of every habit get by without breaking a promise when all is well."""

import pytest

from geomq.sim.virtual.habits import HABITS
from geomq.sim.virtual.run import run
from geomq.sim.virtual.scenario import HABITS as NAMES
from geomq.sim.virtual.scenario import Options

TRACES = {
    "hop": "h0 is let in by",
    "take over": "t0 is let in by",
    "move": "m0 goes to",
    "churn": "c0 no longer wants",
    "share": "g0 gets",
    "retain": "w0:1 acknowledged",
    "will": "v1 gets will:v0",
    "expire": "e1:1 sent to",
    "roam": "r0 is let in by",
    "read slowly": "l1:1 sent to",
    "change": "changes to",
    "plain": "on plain/",
}


def test_every_habit_has_its_clients() -> None:
    assert set(HABITS) == set(NAMES) == set(TRACES)


@pytest.mark.parametrize("habit", sorted(HABITS))
def test_a_habit_breaks_no_promise_in_calm(habit: str) -> None:
    strategy = "flood_subscriptions" if habit == "change" else "single"
    outcome = run(3, Options(strategy=strategy, mode="calm", habits=frozenset({habit})))
    assert [str(violation) for violation in outcome.violations] == []
    assert any(TRACES[habit] in line for line in outcome.transcript)
