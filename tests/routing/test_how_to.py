"""The how-to for strategies of one's own: its code runs, prints what it says, and keeps the contract."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from geomq.routing.link import Data
from geomq.routing.message_registry import known
from geomq.routing.registry import strategy_class
from geomq.routing.wire import decode_frame, encode_frame
from geomq.sim import soak

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-strategy.md"
PYTHON = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
TEXT = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
SHELL = [line for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL) for line in block.splitlines()]


@pytest.fixture
def hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hubs.py").write_text(PYTHON[0])
    (tmp_path / "interested.py").write_text(PYTHON[2])
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_example_prints_what_the_page_says(hubs: Path) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(PYTHON[1], "example", "exec"), {})
    assert printed.getvalue() == TEXT[0]


def test_the_messages_of_the_page_can_travel(hubs: Path) -> None:
    strategy_class("interested:InterestedHubs")
    want = known("interested:Want")
    assert want is not None
    assert want.kind == "subscription"
    frame = Data(1, 2, want("weather"))
    assert decode_frame(encode_frame(frame)) == frame


@pytest.mark.parametrize("strategy", ["hubs:Hubs", "interested:InterestedHubs"])
def test_the_strategies_of_the_page_survive_faults(hubs: Path, strategy: str) -> None:
    options = {"hubs": {"a": (52.0, 10.0)}}
    assert [line for seed in range(5) for line in soak.run_all(seed, {strategy: options})] == []


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
