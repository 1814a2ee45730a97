"""The how-to for strategies of one's own: its code runs, prints what it says, and keeps the contract."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from geomq.sim import soak

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-strategy.md"
PYTHON = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
TEXT = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
SHELL = [line for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL) for line in block.splitlines()]


@pytest.fixture
def hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hubs.py").write_text(PYTHON[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_example_prints_what_the_page_says(hubs: Path) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(PYTHON[1], "example", "exec"), {})
    assert printed.getvalue() == TEXT[0]


def test_a_message_of_ones_own_is_counted_by_its_kind() -> None:
    space: dict[str, object] = {}
    exec(compile(PYTHON[2], "message", "exec"), space)
    assert space["Invite"].kind == "control"  # type: ignore[attr-defined]


def test_the_strategy_of_the_page_survives_faults(hubs: Path) -> None:
    assert [line for seed in range(5) for line in soak.run_all(seed, {"hubs:Hubs": {}})] == []


@pytest.mark.parametrize("line", SHELL, ids=[line.split()[-1] for line in SHELL])
def test_the_commands_of_the_page_work(hubs: Path, line: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    finished = subprocess.run(
        ["sh", "-c", line],
        cwd=hubs,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout
