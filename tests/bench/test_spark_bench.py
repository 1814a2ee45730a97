"""The parts of the Spark bench: publishers that count what was acknowledged, and when a micro-batch ended."""

import os
import time
from pathlib import Path

from bench.spark import _ended, cpu_by_role, publishing
from tests.pipeline.streaming.live import geomq_broker, wait_until
from tests.pipeline.streaming.test_receiver import count, receiver


def test_publishers_say_how_many_events_were_acknowledged(tmp_path: Path) -> None:
    with geomq_broker(tmp_path / "broker") as port:
        reading = receiver(port, tmp_path / "spool", topic="bench/s/#")
        with publishing(port, 1_000) as counted:
            assert wait_until(lambda: count(reading.spool) >= 300)
            time.sleep(0.2)
        assert counted[0] >= 300
        assert wait_until(lambda: count(reading.spool) == counted[0])
        reading.stop()


def test_a_micro_batch_ends_when_its_trigger_is_done() -> None:
    progress = {"timestamp": "2026-05-04T12:00:00.500Z", "durationMs": {"triggerExecution": 750}, "numInputRows": 7}
    assert _ended(progress) == (1777896001.25, 7)


def test_cpu_is_told_by_who_used_it() -> None:
    used = cpu_by_role(os.getpid())
    assert used["broker"] > 0
    assert set(used) == {"broker", "publishers", "spark", "spark_python"}
