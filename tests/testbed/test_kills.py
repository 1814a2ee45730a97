"""A broker is killed under full load: what was acknowledged is there afterwards; a broker that forgets is caught."""

from pathlib import Path

import pytest

from geomq.testbed import kills
from geomq.testbed.kills import KillPlan, KillRun, KillVerdict
from geomq.testbed.processes import mosquitto_path

pytestmark = pytest.mark.anyio


async def test_nothing_acknowledged_is_lost_doubled_or_disordered_by_kills(tmp_path: Path) -> None:
    verdict = await KillRun(KillPlan("geomq", kills=2, messages=6_000), tmp_path).run()
    assert verdict.clean, verdict
    assert verdict.kills == 2
    assert verdict.acknowledged >= 6_000


async def test_nothing_acknowledged_is_lost_doubled_or_disordered_by_kills_of_workers(tmp_path: Path) -> None:
    verdict = await KillRun(KillPlan("geomq", kills=4, messages=12_000, workers=2), tmp_path).run()
    assert verdict.clean, verdict
    assert verdict.kills == 4
    assert verdict.acknowledged >= 12_000


@pytest.mark.skipif(mosquitto_path() is None, reason="mosquitto is not installed")
async def test_a_broker_that_forgets_its_sessions_is_caught(tmp_path: Path) -> None:
    run = KillRun(KillPlan("mosquitto", kills=1, messages=4_000), tmp_path, settle_s_max=1.0)
    verdict = await run.run()
    assert verdict.sessions_lost
    assert not verdict.clean


def test_only_what_geomq_does_wrong_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {"geomq": 0}
    monkeypatch.setattr(kills, "_one", lambda plan: KillVerdict(plan.kind, 1, lost=bad.get(plan.kind, 5)))
    assert kills.main(["--broker", "all"]) == 0
    bad["geomq"] = 1
    assert kills.main([]) == 1
