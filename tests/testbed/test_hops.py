"""Clients hop between three real brokers with their sessions; the ledger says what that did to their events."""

from pathlib import Path

import pytest

from geomq.testbed import soak
from geomq.testbed.faults import FaultPlan
from geomq.testbed.hops import KILLS_PER_S, HopPlan, HopRun, Missing, passes
from geomq.testbed.ledger import Judgement
from geomq.testbed.soak import hop_plan_for

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("missing", ["refuse", "start"])
async def test_hopping_clients_miss_nothing_and_get_nothing_twice_while_all_brokers_run(
    missing: Missing, tmp_path: Path
) -> None:
    run = HopRun(HopPlan("disgb_events", 1, 4.0, session_missing=missing, faults=()), tmp_path)
    verdict = await run.run()
    assert verdict.clean, verdict
    assert verdict.started_anew == 0
    assert verdict.promised > 500
    assert run.hops > 20
    assert run.done == []


@pytest.mark.parametrize(
    ("missing", "verdict", "passed"),
    [
        ("refuse", Judgement(promised=5, kept=5, repeated=3), True),
        ("refuse", Judgement(lost=1), False),
        ("refuse", Judgement(out_of_order=1), False),
        ("refuse", Judgement(started_anew=1), False),
        ("start", Judgement(started_anew=1), True),
        ("start", Judgement(duplicated=1), False),
    ],
)
def test_only_a_broker_that_starts_sessions_anew_may_repeat_events_of_qos_2(
    missing: Missing, verdict: Judgement, passed: bool
) -> None:
    assert passes(hop_plan_for("dht", 1, 60.0, missing), verdict) == passed


def test_the_soak_runs_every_seed_under_both_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[FaultPlan] = []

    def note(plan: FaultPlan) -> bool:
        ran.append(plan)
        return True

    monkeypatch.setattr(soak, "_one", note)
    assert soak.main(["--hop", "--runs", "2", "--seed", "7", "--seconds", "60"]) == 0
    settings: tuple[Missing, ...] = ("refuse", "start")
    assert ran == [hop_plan_for("disgb_events", seed, 60.0, missing) for missing in settings for seed in (7, 8)]
    assert KILLS_PER_S * 60.0 >= 20
