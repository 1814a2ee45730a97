"""A broker that starts again has every kept session with what waits for it; one that lost some is caught."""

from pathlib import Path

import pytest

from geomq.testbed import restart
from geomq.testbed.restart import RestartVerdict, measure

pytestmark = pytest.mark.anyio


async def test_all_sessions_and_messages_are_there_after_a_restart(tmp_path: Path) -> None:
    verdict = await measure(50, 3, tmp_path)
    assert verdict.clean, verdict
    assert (verdict.sessions_found, verdict.asked) == (50, 49)
    assert verdict.messages_found == 49 * 3
    assert verdict.back_s > 0


async def test_messages_that_are_missing_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "MISSING_S", 0.2)
    publish_all = restart._publish_all

    async def publish_fewer(port: int, sessions: int, queued: int) -> None:
        await publish_all(port, sessions - 1, queued)

    monkeypatch.setattr(restart, "_publish_all", publish_fewer)
    verdict = await measure(3, 2, tmp_path)
    assert verdict.lost == 2
    assert not verdict.clean


def test_a_session_that_is_missing_is_no_success() -> None:
    assert RestartVerdict(10, 1, sessions_found=10).clean
    assert not RestartVerdict(10, 1, sessions_found=9).clean
