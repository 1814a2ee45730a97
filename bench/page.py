"""What the dashboard's page costs in a real Chromium: `python -m bench.page`.

A simulated federation of 256 brokers and 2,000 clients is recorded and played again on the map. Printed are frames a
second, processor time a frame (all of Chromium's processes), first paint and weight, with the projection moving or not.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROKERS, CLIENTS, SECONDS = 256, 2000, 20
MEASURED_MS = 5000
SIZE = {"width": 1280, "height": 800}
COUNT_FRAMES = """([ms, turning]) => new Promise((done) => {
  const surface = document.querySelector('.surface')
  const start = performance.now()
  let frames = 0
  const step = (now) => {
    frames += 1
    if (turning) surface.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft', shiftKey: true }))
    now - start < ms ? requestAnimationFrame(step) : done([frames, now - start])
  }
  requestAnimationFrame(step)
})"""


def main() -> None:
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("GEOMQ_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not there; GEOMQ_CHROMIUM may name one")
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "large"
        size = ["-b", str(BROKERS), "-c", str(CLIENTS), "-t", str(SECONDS), "--topics", "50"]
        _geomq("simulate", "-s", "disgb_events", *size, "--trace", str(trace))
        with _serving(trace) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium)
            result = {"chromium": browser.version, "machine": f"{platform.machine()}, {os.cpu_count()} processors"}
            print(json.dumps(result | _measure(browser, f"{url}#/view/large"), indent=2))
            browser.close()


def _measure(browser: Any, url: str) -> dict[str, Any]:
    page = browser.new_context(viewport=SIZE).new_page()
    page.add_init_script("localStorage.setItem('geomq-hint-seen', '1')")
    weight = [0]
    page.on("requestfinished", lambda request: weight.__setitem__(0, weight[0] + _bytes(request)))
    page.goto(url)
    page.wait_for_selector(".timeline")
    page.wait_for_timeout(4000)
    paint = page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime")
    result: dict[str, Any] = {"brokers": BROKERS, "clients": CLIENTS, "first_paint_ms": round(paint)}
    for projection in ("globe", "natural"):
        page.get_by_label("Projection").select_option(projection)
        page.wait_for_timeout(2000)
        for turning in (False, True):
            _play_again(page)
            result[f"{projection}{' turning' if turning else ''}"] = _frames(page, turning)
    return result | {"page_bytes": weight[0]}


def _play_again(page: Any) -> None:
    """From the middle of the recording, so that it does not end while it is measured."""
    slider = page.get_by_label("Time", exact=True)
    slider.evaluate("(it) => { it.value = it.max / 3; it.dispatchEvent(new Event('input')) }")
    if page.get_by_role("button", name="Play").is_visible():
        page.get_by_role("button", name="Play").click()
    page.wait_for_timeout(1000)


def _frames(page: Any, turning: bool) -> dict[str, float]:
    before = _processor_s()
    frames, ms = page.evaluate(COUNT_FRAMES, [MEASURED_MS, turning])
    spent_s = _processor_s() - before
    return {"frames_per_s": round(frames * 1000 / ms, 1), "processor_ms_per_frame": round(spent_s * 1000 / frames, 1)}


def _bytes(request: Any) -> int:
    return 0 if "/api/" in request.url else int(request.sizes()["responseBodySize"])


def _processor_s() -> float:
    """Processor time of everything this process started and what that started."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text().rpartition(")")
        except OSError:
            continue
        fields, pid = rest.split(), int(name.split()[0])
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = int(fields[11]) + int(fields[12])
    total, todo = 0, list(children.get(os.getpid(), []))
    while todo:
        pid = todo.pop()
        total += ticks.get(pid, 0)
        todo += children.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


def _geomq(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "geomq", *arguments], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _serving(directory: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "geomq", "dashboard", str(directory), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        try:
            if found is None:
                sys.exit("geomq dashboard did not start")
            time.sleep(1)
            yield found[0]
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
