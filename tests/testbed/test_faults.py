"""Five real brokers are killed, paused and cut off while streams run; nothing acknowledged is lost or doubled.

And the other way round: with a bug planted in the brokers, the same runs find it.
"""

import sys
from pathlib import Path

import pytest
from tests.testbed.planted import BUGS

from geomq.routing.strategies.registry import STRATEGIES
from geomq.testbed.faults import FaultPlan, FaultRun
from geomq.testbed.processes import BrokerProcess
from geomq.testbed.soak import plan_for

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent
SECONDS = 4.0
LONGER = {"adaptive": 12.0}


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "single"])
async def test_nothing_acknowledged_is_lost_or_doubled_under_faults(strategy: str, tmp_path: Path) -> None:
    seed = list(STRATEGIES).index(strategy)
    run = FaultRun(plan_for(strategy, seed, LONGER.get(strategy, SECONDS)), tmp_path)
    verdict = await run.run()
    assert run.done
    assert verdict.promised > 50
    assert verdict.clean, (verdict, run.done)


RING = [["berlin", "frankfurt"], ["frankfurt", "paris"], ["berlin", "paris"]]
CAUGHT = {
    "acknowledge_before_writing": ("flood_events", ("cut and kill",), "lost"),
    "take_everything_twice": ("flood_events", ("rough",), "duplicated"),
    "forget_what_waits_for_peers": ("flood_events", ("cut and kill",), "lost"),
    "never_send_again": ("flood_events", ("cut",), "lost"),
    "pass_on_without_end": ("mesh", ("cut",), "circling"),
    "publish_wills_without_asking": ("flood_events", ("cut",), "unexpected"),
}


@pytest.mark.parametrize("bug", BUGS)
async def test_a_planted_bug_is_found(bug: str, tmp_path: Path) -> None:
    """Within three runs: whether a bug shows depends on what happens at the same time."""
    strategy, faults, symptom = CAUGHT[bug]

    class Planted(BrokerProcess):
        def command(self) -> list[str]:
            words = super().command()
            return [sys.executable, "-m", "tests.testbed.planted", bug, *words[3:]]

    options = {"links": RING} if strategy == "mesh" else {}
    verdicts = []
    for seed in (3, 4, 5):
        plan = FaultPlan(
            strategy, seed, 4.0, brokers=3, faults=faults, options=options, broker=Planted, settle_s_max=5.0
        )
        folder = tmp_path / str(seed)
        folder.mkdir()
        verdicts.append(await FaultRun(plan, folder).run())
        if getattr(verdicts[-1], symptom):
            break
    assert getattr(verdicts[-1], symptom) > 0, verdicts
