"""Every shell and Python block of the README and the docs runs, or says why not.

Right before a block may stand a comment:

    <!-- not run: reason -->                     somebody else runs it, or nobody can
    <!-- background -->                          a server: once it said something, the page goes on; it runs to the end
    <!-- background, prints: some words -->      it runs to the end, and has printed these words by then

Blocks of a page run in order, in a fresh directory, each to the end before the next. Pages of FEDERATED find three
brokers at the ports 1883 to 1885, which are other ports here.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from geomq.broker.local_federation import free_ports

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = ("sh", "python")
LANGUAGES = (*RUN, "text", "console", "toml", "ini", "conf", "json", "yaml", "acl")

TESTED_ELSEWHERE = {
    "docs/how-to/alerts.md": "tests/pipeline/streaming/test_how_to_pages.py",
    "docs/how-to/lakehouse.md": "tests/pipeline/streaming/test_how_to_pages.py",
    "docs/how-to/write-a-strategy.md": "tests/routing/test_how_to.py",
    "docs/reference/client.md": "tests/client/test_client_page.py",
    "docs/tutorial.md": "tests/test_readme.py",
}
FEDERATED = ("README.md", "docs/reference/geo-topics.md")
PORTS = ("1883", "1884", "1885", "8883", "9883", "9884", "7883", "7884", "7885", "7077")

BLOCK = re.compile(r"(?:^<!-- (.*?) -->\n+)?^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block, what stands before it, and its code without indentation."""

    page: Path
    directive: str
    language: str
    code: str

    @property
    def runs(self) -> bool:
        return self.language in RUN and not self.directive.startswith("not run: ")

    @property
    def prints(self) -> str:
        return self.directive.partition("prints: ")[2]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    found = BLOCK.findall(page.read_text())
    return [
        Block(page, directive, language, re.sub(rf"^{indent}", "", code, flags=re.MULTILINE))
        for directive, indent, language, code in found
    ]


def runnable() -> list[Path]:
    return [page for page in PAGES if name(page) not in TESTED_ELSEWHERE and any(block.runs for block in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_what_it_is(page: Path) -> None:
    assert len(blocks(page)) == len(re.findall(r"^ *```\w", page.read_text(), re.MULTILINE)), "a fence without language"
    for block in blocks(page):
        assert block.language in LANGUAGES
        if block.language in RUN:
            assert re.fullmatch(r"|not run: .{10,}|background(, prints: .+)?", block.directive), block.directive


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_toml_block_is_toml(page: Path) -> None:
    for block in blocks(page):
        if block.language == "toml":
            assert tomllib.loads(block.code)


def test_pages_tested_elsewhere_are() -> None:
    for page, test in TESTED_ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text()


@pytest.mark.parametrize("page", [*ROOT.glob("*.md")], ids=name)
def test_links_of_the_pages_at_the_top_lead_somewhere(page: Path) -> None:
    """Those of the docs are checked by `make docs`."""
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        assert "://" in target or (ROOT / target).exists(), target


def test_every_decision_has_a_number_of_its_own() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [f"{number:03}" for number in range(1, len(decisions) + 1)]
    assert [each.name[:4] for each in decisions] == [f"{number}-" for number in numbers]
    assert [each.read_text()[:6] for each in decisions] == [f"# {number} " for number in numbers]


class Stage:
    """Where the blocks of one page run."""

    def __init__(self, folder: Path, ports: dict[str, str]) -> None:
        self._folder = folder
        self._ports = ports
        self._logs = 0
        tools = folder / ".tools"
        tools.mkdir()
        wrapper = tools / "geomq"
        wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -m geomq "$@"\n')
        wrapper.chmod(0o755)
        own = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": own, "PYTHONUNBUFFERED": "1"}

    def command(self, block: Block) -> list[str]:
        code = re.sub(r"\b\d{4}\b", lambda found: self._ports.get(found[0], found[0]), block.code)
        return [sys.executable, "-c", code] if block.language == "python" else ["bash", "-euo", "pipefail", "-c", code]

    def run(self, block: Block) -> None:
        done = subprocess.run(
            self.command(block),
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{block.code}\n{done.stdout}\n{done.stderr}"

    @contextmanager
    def background(self, block: Block) -> Iterator[Path]:
        """Run it until the end of the context; what it prints goes to the file."""
        self._logs += 1
        log = self._folder / f".log-{self._logs}"
        with log.open("w") as output:
            running = subprocess.Popen(
                self.command(block),
                cwd=self._folder,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                yield log
            finally:
                os.killpg(running.pid, signal.SIGTERM)
                running.wait(60)


@contextmanager
def federation(folder: Path) -> Iterator[dict[str, str]]:
    """Three brokers; the ports behind those that pages name."""
    command = [sys.executable, "-m", "geomq", "up", "--no-demo", "--port", "0", "--page-port", "0", "--json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    try:
        assert running.stdout is not None
        ports = json.loads(running.stdout.readline())["brokers"].values()
        yield dict(zip(("1883", "1884", "1885"), map(str, ports), strict=True))
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)


def chosen_ports() -> dict[str, str]:
    """Free ports for those the pages name; the first three in a row."""
    for _ in range(50):
        ports = free_ports(len(PORTS))
        if ports[2] == ports[0] + 2:
            return dict(zip(PORTS, map(str, ports), strict=True))
    raise AssertionError("no free ports")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", runnable(), ids=name)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    waiting: list[tuple[Path, str]] = []
    after: list[Block] = []
    with ExitStack() as stack:
        ports = stack.enter_context(federation(tmp_path)) if name(page) in FEDERATED else {}
        stage = Stage(tmp_path, chosen_ports() | ports)
        for block in (block for block in blocks(page) if block.runs):
            if block.directive.startswith("background"):
                log = stack.enter_context(stage.background(block))
                if block.prints:
                    waiting.append((log, block.prints))
                    time.sleep(2)
                else:
                    expect_words(log)
            else:
                stage.run(block)
                after += [block] if waiting else []
        expect_printed(stage, waiting, after)


def expect_words(log: Path) -> None:
    """A server says when it is there."""
    deadline = time.monotonic() + 60
    while not log.read_text():
        assert time.monotonic() < deadline, "it never said that it is there"
        time.sleep(0.1)


def expect_printed(stage: Stage, waiting: list[tuple[Path, str]], after: list[Block]) -> None:
    """What runs in the background may have begun too late to hear the rest: that is then repeated."""
    for attempt in range(10):
        missing = [words for log, words in waiting if words not in log.read_text()]
        if not missing:
            return
        time.sleep(1 + attempt)
        for block in after:
            stage.run(block)
    raise AssertionError(f"never printed: {missing}")
