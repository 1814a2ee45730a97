"""The page on recorded things, on a login, and on a large federation."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.dashboard.browser import Tab, launched, serving, violations

from geomq.cli.evaluate import run_requests
from geomq.pipeline.simulation import Scenario, simulate_one
from geomq.workload.evaluation.results import write_results
from geomq.workload.generation.presets import Request

FRAME_CPU_MS_MAX = 33.0
SPIN = """(frames) => new Promise((done) => {
  const surface = document.querySelector('.surface')
  const start = performance.now()
  let left = frames
  const step = () => {
    surface.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft', shiftKey: true }))
    left -= 1
    left > 0 ? requestAnimationFrame(step) : done((frames * 1000) / (performance.now() - start))
  }
  requestAnimationFrame(step)
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def recordings(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Set-ups, a replay and results, all real."""
    folder = tmp_path_factory.mktemp("recorded")
    simulate_one(
        Scenario(brokers=9, clients=60, seconds=30, topics=5, preset="steady", seed=1), "dht", trace=folder / "played"
    )
    request = Request(preset="steady", brokers=9, clients=200, seconds=60, topics=5)
    outcomes = run_requests([request], data=None, engine="local", master=None)
    write_results(folder / "results", outcomes, {"wall_s": 1.0}, overwrite=False)
    shown = [str(folder / "played"), str(folder / "results"), "--setup", "25,200", "--setup", "256,2000"]
    with serving("dashboard", *shown, "--port", "0") as url:
        yield url


@pytest.fixture
def tab(browser: Any, recordings: str) -> Iterator[Tab]:
    tab = Tab(browser, recordings)
    yield tab
    tab.close()
    assert tab.problems == []


def test_a_set_up_shows_its_layers(tab: Tab) -> None:
    page = tab.open("#/view/setup-25-200")
    page.get_by_label("Groups and leaders").check()
    panel = page.locator("#panel-layers")
    panel.get_by_text("follows Athens").first.wait_for()
    page.get_by_label("Rows and columns").check()
    panel.locator(".line-kind", has_text="column").wait_for()
    panel.get_by_role("button", name="Kiev").click()
    assert "50.43° N" in page.locator("#panel-details").inner_text()
    assert violations(page) == []


def test_the_tables_say_what_the_map_shows(tab: Tab) -> None:
    page = tab.open("#/view/setup-25-200")
    page.get_by_role("tab", name="Overview").click()
    assert page.get_by_role("region", name="Brokers").locator("tbody tr").count() == 25
    assert "down" not in page.get_by_role("region", name="Brokers").inner_text()
    page.get_by_text("Clients (", exact=False).click()
    page.get_by_label("Find a client").fill("Kiev")
    assert page.get_by_role("region", name="Clients").locator("td", has_text="Kiev").count() > 0


def test_results_are_charts_beside_the_map(tab: Tab) -> None:
    page = tab.open("#/view/results")
    panel = page.locator("#panel-results")
    panel.get_by_role("button", name="flood events").click()
    assert panel.get_by_role("button", name="flood events").get_attribute("aria-pressed") == "true"
    assert panel.locator(".bars").count() >= 2
    assert "Every strategy made the same" in panel.inner_text()
    assert violations(page) == []


def test_a_replay_plays_pauses_and_jumps(tab: Tab) -> None:
    page = tab.open("#/view/played")
    page.get_by_label("Speed").select_option("16")
    page.wait_for_function("() => document.querySelector('.timeline input').value > 2000")
    page.get_by_role("button", name="Pause").click()
    slider = page.get_by_label("Time", exact=True)
    slider.focus()
    page.keyboard.press("End")
    page.wait_for_function("() => /[2-9]\\d\\.\\d s/.test(document.querySelector('.timeline output').textContent)")
    late = page.locator(".traffic .kind-event").first.locator("xpath=ancestor::tr").locator("td").last.inner_text()
    assert int(late.replace(",", "")) > 0
    page.keyboard.press("Home")
    assert slider.input_value() == "0"
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").wait_for()
    assert violations(page) == []


def test_a_replay_says_why_an_event_went_where_it_went(tab: Tab) -> None:
    page = tab.open("#/view/played")
    page.get_by_label("Time", exact=True).focus()
    page.keyboard.press("End")
    page.get_by_role("tab", name="Events").click()
    page.locator("#panel-events .event").first.click()
    details = page.locator("#panel-details")
    details.locator(".step", has_text="published").wait_for()
    details.get_by_label("Did it reach a client, and why?").fill("nobody")
    details.get_by_role("button", name="Ask").click()
    details.get_by_text("cannot tell: the trace holds no subscription").wait_for()
    assert details.locator(".asked", has_text="its client published the event").count() == 1


def test_skipping_the_map_stays_in_the_view(tab: Tab) -> None:
    page = tab.open("#/view/setup-25-200")
    page.locator("#panel-layers .line-kind").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip the map"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "tab-layers"
    assert page.url.endswith("#/view/setup-25-200")
    assert page.locator("#panel-layers .line-kind").count()


def test_who_may_only_look_is_told_so(tab: Tab) -> None:
    page = tab.open("#/view/setup-25-200")
    page.locator(".badge", has_text="read-only").wait_for()
    draw = page.get_by_role("button", name="Draw a circular fence", disabled=True)
    draw.wait_for()
    assert draw.get_attribute("title") == "This is a recording."


def test_reduced_motion_is_respected(browser: Any, recordings: str) -> None:
    tab = Tab(browser, recordings, reduced_motion="reduce")
    page = tab.open("#/view/played")
    page.get_by_role("button", name="Play").wait_for()
    assert page.locator(".timeline output").inner_text().endswith("0.0 s")
    tab.close()


def test_the_map_is_worked_by_keyboard_alone(tab: Tab) -> None:
    page = tab.open("#/view/setup-25-200")
    page.locator("#panel-layers .line-kind").first.wait_for()
    page.get_by_label("Projection").select_option("natural")
    page.locator(".surface").focus()
    page.keyboard.press("n")
    assert page.locator("#panel-details .overline").inner_text().lower() == "broker"
    first = page.locator("#panel-details h2").inner_text()
    page.keyboard.press("n")
    page.wait_for_function("(first) => document.querySelector('#panel-details h2').textContent !== first", arg=first)
    page.keyboard.press("Escape")
    assert "Nothing picked" in page.locator("#panel-details").inner_text()


def test_a_login_is_asked_for_and_wrong_tokens_are_refused(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token-of-some-length-0123456789")
    os.chmod(tmp_path / "token", 0o600)
    with serving("dashboard", "--setup", "3,10", "--port", "0", "--token-file", str(tmp_path / "token")) as url:
        tab = Tab(browser, url)
        page = tab.open()
        page.get_by_label("Token").fill("guess")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("That token is not right.").wait_for()
        assert violations(page) == []
        page.get_by_label("Token").fill("a-token-of-some-length-0123456789")
        page.keyboard.press("Enter")
        page.locator(".surface").wait_for()
        assert "token" not in page.url
        tab.close()


def test_256_brokers_and_2000_clients_turn_smoothly(tab: Tab, capsys: pytest.CaptureFixture[str]) -> None:
    """Measured in processor time, which a busy machine does not stretch."""
    page = tab.open("#/view/setup-256-2000")
    page.locator("#panel-layers .group").first.wait_for()
    page.get_by_label("Areas only").check()
    page.evaluate(SPIN, 20)
    metrics = tab.context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy_s() -> float:
        found = metrics.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in found if metric["name"] == "TaskDuration"))

    before = busy_s()
    rate = page.evaluate(SPIN, 60)
    cost_ms = (busy_s() - before) * 1000 / 60
    with capsys.disabled():
        print(
            f"\n256 brokers, 2,000 clients, turning: {cost_ms:.1f} ms of the main thread a frame, {rate:.0f} frames/s"
        )
    assert cost_ms < FRAME_CPU_MS_MAX
