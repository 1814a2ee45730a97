"""A real Chromium and real servers for the tests of the page.

Playwright's loop blocks other loops of its thread, so browsers live as long as a module of tests, never longer.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import pytest

TIMEOUT_MS = 30_000
STOP_S = 90
NEWCOMER = "localStorage.setItem('geomq-hint-seen', '1')"


def chromium() -> str:
    """Chromium's path; without one the test is skipped, and says so."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("GEOMQ_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("Chromium is not there: make test installs it where it may; GEOMQ_CHROMIUM names another")
    return found


@contextmanager
def launched() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page in a context of its own that remembers what went wrong in it."""

    def __init__(self, browser: Any, url: str, *, seen: bool = True, **context: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **context})
        self.context.set_default_timeout(TIMEOUT_MS)
        if seen:
            self.context.add_init_script(NEWCOMER)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.bytes = 0
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("requestfinished", self._finished)
        self.url = url

    def open(self, path: str = "") -> Any:
        self.page.goto(self.url + path)
        return self.page

    def live(self) -> Any:
        """The live view, once data flows."""
        page = self.open("#/live")
        page.wait_for_selector(".light[data-state=live]")
        page.wait_for_selector("table.list tbody tr")
        return page

    def close(self) -> None:
        self.context.close()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _finished(self, request: Any) -> None:
        self.bytes += request.sizes()["responseBodySize"]


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """`geomq ...` as a process of its own; gives the address of its page."""
    command = [sys.executable, "-m", "geomq", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = json.loads(line)["page"] if line.startswith("{") else re.search(r"http://\S+", line)
            assert found, f"geomq {' '.join(arguments)} said {line!r}"
            yield found if isinstance(found, str) else found[0]
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def middle(page: Any) -> tuple[float, float]:
    """The middle of the map."""
    box = page.locator(".surface").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def wait_until_still(page: Any) -> None:
    """Until the map has flown to where it goes and is drawn in full."""
    page.wait_for_function(
        """() => new Promise((done) => {
          const canvas = document.querySelector('.still')
          const look = () => canvas.toDataURL().length
          let [last, same] = [look(), 0]
          const check = () => {
            const now = look()
            same = now === last ? same + 1 : 0
            last = now
            same > 3 ? done(true) : setTimeout(check, 80)
          }
          check()
        })"""
    )


def violations(page: Any) -> list[str]:
    """What axe-core finds wrong with the page as it is now."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    found = page.evaluate("async () => (await axe.run()).violations")
    return [f"{item['id']}: {node['html'][:160]}" for item in found for node in item["nodes"]]
