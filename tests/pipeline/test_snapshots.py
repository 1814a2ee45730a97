"""Snapshots for archives: a broker that does not answer is complained about and waited for."""

from pathlib import Path

import pytest
from tests.pipeline.streaming.live import wait_until

from geomq.errors import DataError
from geomq.pipeline.recent import Admin
from geomq.pipeline.snapshots import Snapshots, take_snapshot


def test_a_silent_broker_costs_a_snapshot_and_a_complaint(tmp_path: Path) -> None:
    nobody, heard = [Admin("127.0.0.1:1", None)], list[str]()
    with pytest.raises(DataError, match="did not answer"):
        take_snapshot(tmp_path, nobody)
    snapshots = Snapshots(tmp_path, nobody, every_s=0.01, complain=heard.append)
    snapshots.start()
    assert wait_until(lambda: len(heard) > 1)
    snapshots.stop()
    assert not snapshots.is_alive()
    assert heard[0].startswith("no snapshot: http://127.0.0.1:1 did not answer")
    assert not list(tmp_path.iterdir())
