"""The how-to for strategies of one's own: its code runs, prints what it says, and keeps the contract."""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from geomq.pipeline.simulation import Scenario, is_wrong, simulate_one
from geomq.routing.core.message_registry import known
from geomq.routing.strategies.registry import strategy_class
from geomq.routing.wire.frames import decode_frame, encode_frame
from geomq.routing.wire.link import Data
from geomq.sim import soak

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-strategy.md"
PYTHON = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
TEXT = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
SHELL = [
    command
    for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for command in block.replace("\\\n", " ").splitlines()
]
HUBS = {"hubs": {"a": [45.0, 10.0], "b": [50.0, 0.0]}}


@pytest.fixture
def hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for number, name in ((0, "hubs"), (2, "interested")):
        assert f"`{name}:" in PYTHON[number].splitlines()[0]
        (tmp_path / f"{name}.py").write_text(PYTHON[number])
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("hubs", "interested"):
        sys.modules.pop(name, None)


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
@pytest.mark.parametrize("options", [{}, HUBS], ids=["no hubs", "two hubs"])
def test_the_strategies_of_the_page_survive_faults(hubs: Path, strategy: str, options: dict[str, Any]) -> None:
    assert [line for seed in range(10) for line in soak.run_all(seed, {strategy: options})] == []


SCENARIO = Scenario(brokers=4, clients=60, seconds=200, topics=50, preset="steady", seed=1)


def test_a_hub_draws_events_to_it_and_a_message_of_ones_own_spares_some(hubs: Path) -> None:
    one_hub = {"hubs": {"topic-1": [52.0, 10.0]}}
    plain, one, spared = (
        simulate_one(SCENARIO, "hubs:Hubs"),
        simulate_one(SCENARIO, "hubs:Hubs", one_hub),
        simulate_one(SCENARIO, "interested:InterestedHubs", one_hub),
    )
    for result in (plain, one, spared):
        assert result["verdict"]["expected"] >= 60
        assert not is_wrong(result["verdict"])
    assert plain["messages"]["delivery"] == 0 < one["messages"]["delivery"]
    assert one["messages"]["subscription"] < spared["messages"]["subscription"]
    assert spared["messages"]["total"] < 0.8 * one["messages"]["total"]


def test_the_soak_sees_a_message_of_ones_own_that_is_never_sent(hubs: Path) -> None:
    page = PYTHON[2].replace("news = [Want(level) for level in self.mine if level not in before]", "news = []")
    assert page != PYTHON[2]
    (hubs / "forgetful_hubs.py").write_text(page)
    assert any(
        " did not reach " in line
        for seed in range(10)
        for line in soak.run_all(seed, {"forgetful_hubs:InterestedHubs": {}})
    )


@pytest.mark.parametrize("line", SHELL, ids=[str(number) for number in range(len(SHELL))])
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
