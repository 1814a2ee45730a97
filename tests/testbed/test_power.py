"""A disk without power keeps what was synced, loses what was not, and says so to whoever still writes."""

import contextlib
import errno
import os
from pathlib import Path

import pytest

from geomq.errors import UsageError
from geomq.testbed import power
from geomq.testbed.kills import KillPlan, KillRun
from geomq.testbed.power import FailingDisk, why_not

needs_a_disk = pytest.mark.skipif(why_not() is not None, reason=f"a disk whose power can fail {why_not()}")


@needs_a_disk
def test_what_was_synced_is_there_and_nothing_else(tmp_path: Path) -> None:
    with FailingDisk(tmp_path) as disk:
        folder = os.open(disk.path, os.O_RDONLY)
        synced, written = (os.open(disk.path / name, os.O_WRONLY | os.O_CREAT) for name in ("synced", "written"))
        os.write(synced, b"safe")
        os.fsync(synced)
        os.fsync(folder)
        os.write(written, b"cached")
        disk.fail()
        with pytest.raises(OSError, match="Input/output error") as refused:
            os.write(synced, b" late")
        assert refused.value.errno == errno.EIO
        for each in (folder, synced, written):
            with contextlib.suppress(OSError):
                os.close(each)
        disk.restore()
        assert (disk.path / "synced").read_bytes() == b"safe"
        assert (disk.path / "written").read_bytes() == b""
    assert list(tmp_path.iterdir()) == [tmp_path / "disk"]


def test_where_it_cannot_be_one_line_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "why_not", lambda: "needs Linux")
    with pytest.raises(UsageError, match="whose power can fail needs Linux"), FailingDisk(tmp_path):
        pass


@needs_a_disk
@pytest.mark.anyio
async def test_nothing_acknowledged_is_lost_when_the_power_fails(tmp_path: Path) -> None:
    verdict = await KillRun(KillPlan("geomq", kills=2, messages=4_000, power=True), tmp_path).run()
    assert verdict.clean, verdict
    assert verdict.kills == 2


@needs_a_disk
@pytest.mark.anyio
async def test_a_broker_that_does_not_sync_is_caught(tmp_path: Path) -> None:
    plan = KillPlan("geomq-unsynced", kills=1, messages=4_000, power=True)
    verdict = await KillRun(plan, tmp_path, settle_s_max=2.0).run()
    assert verdict.lost or verdict.sessions_lost
