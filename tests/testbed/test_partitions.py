"""Five brokers are split in two and joined again while streams run; a broker that forgets what waits is caught."""

import sys
from pathlib import Path

import pytest

from geomq.testbed.partitions import PartitionPlan, PartitionRun
from geomq.testbed.processes import BrokerProcess
from geomq.testbed.soak import CONVERGED_S_MAX

pytestmark = pytest.mark.anyio


async def test_nothing_is_lost_or_doubled_by_partitions_and_all_is_there_soon_after(tmp_path: Path) -> None:
    run = PartitionRun(PartitionPlan("disgb_events", seed=1, cycles=3), tmp_path)
    verdict = await run.run()
    assert len(run.done) == 3
    assert verdict.promised > 50
    assert verdict.clean, (verdict, run.done)
    assert verdict.recovered, "nothing waited for a link"
    assert verdict.converged_s <= CONVERGED_S_MAX
    assert 0 < run.linked_s_max <= CONVERGED_S_MAX


class NeverSendsAgain(BrokerProcess):
    def command(self) -> list[str]:
        words = super().command()
        return [sys.executable, "-m", "tests.testbed.planted", "never_send_again", *words[3:]]


async def test_a_broker_that_does_not_send_again_is_caught(tmp_path: Path) -> None:
    plan = PartitionPlan("flood_events", seed=3, brokers=3, cycles=2, broker=NeverSendsAgain, settle_s_max=5.0)
    verdict = await PartitionRun(plan, tmp_path).run()
    assert verdict.lost
