"""The page on a running federation, used by mouse in a real browser."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.dashboard.browser import Tab, launched, middle, serving, violations, wait_until_still

BYTES_MAX = 400_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def federation(browser: Any) -> Iterator[str]:
    with serving("up", "--port", "0", "--page-port", "0", "--json") as url:
        yield url


@pytest.fixture
def tab(browser: Any, federation: str) -> Iterator[Tab]:
    """A page that must not have complained in the end."""
    tab = Tab(browser, federation)
    yield tab
    tab.close()
    assert tab.problems == []


def open_tab(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def details(page: Any) -> Any:
    return page.locator("#panel-details")


def test_the_page_paints_within_a_second_and_is_light(tab: Tab) -> None:
    page = tab.live()
    page.wait_for_load_state("networkidle")
    assert tab.bytes < BYTES_MAX
    paints: list[float] = []
    while len(paints) < 5 and min(paints, default=1000) >= 1000:
        page.reload()
        page.wait_for_selector(".light[data-state=live]")
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    assert min(paints) < 1000, f"first paints, on loopback: {paints}"


def test_a_newcomer_reads_three_sentences_once(browser: Any, federation: str) -> None:
    tab = Tab(browser, federation, seen=False)
    page = tab.live()
    hint = page.locator(".hint")
    assert "fence" in hint.inner_text()
    page.get_by_role("button", name="Got it").click()
    assert hint.is_hidden()
    page.reload()
    page.wait_for_selector(".light[data-state=live]")
    assert hint.is_hidden()
    page.get_by_role("button", name="What am I looking at?").click()
    assert hint.is_visible()
    tab.close()


def test_a_broker_is_picked_from_the_table_and_on_the_map(tab: Tab) -> None:
    page = tab.live()
    page.get_by_role("button", name="columbus", exact=True).click()
    assert "39.96° N" in details(page).inner_text()
    page.get_by_role("button", name="Close details").click()
    page.locator(".surface").focus()
    page.keyboard.press("n")
    page.wait_for_selector("#panel-details .overline")
    wait_until_still(page)
    page.keyboard.press("Escape")
    assert "Nothing picked" in details(page).inner_text()
    page.mouse.click(*middle(page))
    assert details(page).locator(".overline").inner_text().lower() == "broker"


def test_an_event_says_why_it_went_where_it_went(tab: Tab) -> None:
    page = tab.live()
    open_tab(page, "Events")
    first = page.locator("#panel-events .event").first
    first.wait_for()
    topic = first.locator(".topic").inner_text()
    page.get_by_role("searchbox", name="Only topics").fill("no/such/topic")
    page.get_by_text("None of the last").wait_for()
    page.get_by_role("searchbox", name="Only topics").fill(topic)
    page.locator("#panel-events .event").first.click()
    assert details(page).locator("h2").inner_text() == topic
    details(page).locator(".step").first.wait_for()
    assert details(page).locator(".step .what").first.inner_text()
    details(page).get_by_role("button", name=topic).click()
    assert details(page).locator(".overline").inner_text().lower() == "topic"


def test_a_fence_is_drawn_and_what_is_published_in_it_arrives(tab: Tab) -> None:
    page = tab.live()
    wait_until_still(page)
    page.get_by_role("button", name="Draw a circular fence").click()
    x, y = middle(page)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 50, y + 40, steps=4)
    page.mouse.up()
    fence = page.get_by_label("Fence", exact=True)
    lat, lon, radius = map(float, fence.input_value().split(","))
    assert radius > 100
    page.get_by_label("Topic, or filter").fill("page/test")
    page.get_by_label("Your location").fill(f"{lat},{lon}")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    page.locator(".toast", has_text="Subscribed to page/test").wait_for()
    page.get_by_label("Payload").fill("hello there")
    page.get_by_role("button", name="Publish").click()
    page.locator(".toast", has_text="Published on page/test").wait_for()
    open_tab(page, "Try it")
    page.locator("#panel-try .payload", has_text="hello there").wait_for()
    page.get_by_role("button", name="Unsubscribe from page/test").click()
    page.locator(".own li").wait_for(state="detached")


def test_a_polygon_is_drawn_by_its_corners(tab: Tab) -> None:
    page = tab.live()
    wait_until_still(page)
    page.get_by_role("button", name="Draw a polygon fence").click()
    x, y = middle(page)
    for dx, dy in ((0, -60), (60, 40), (-60, 40), (0, -60)):
        page.mouse.click(x + dx, y + dy)
    assert len(page.get_by_label("Fence", exact=True).input_value().split()) == 3


def test_a_fence_is_drawn_with_the_keyboard_alone(tab: Tab) -> None:
    page = tab.live()
    wait_until_still(page)
    surface = page.locator(".surface")
    surface.focus()
    page.keyboard.press("c")
    page.locator(".tool-hint", has_text="Enter at the centre").wait_for()
    for key in ("Enter", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert float(page.get_by_label("Fence", exact=True).input_value().split(",")[2]) > 100
    surface.focus()
    for key in ("g", "Enter", "ArrowRight", "Enter", "ArrowDown", "Enter", "f"):
        page.keyboard.press(key)
    assert len(page.get_by_label("Fence", exact=True).input_value().split()) == 3


def test_wrong_fences_are_refused_in_a_sentence(tab: Tab) -> None:
    page = tab.live()
    open_tab(page, "Try it")
    page.get_by_label("Fence", exact=True).fill("91,0,5")
    page.get_by_role("button", name="Publish").click()
    assert "Latitudes are within ±90" in page.locator("#panel-try [role=alert]").inner_text()


def test_a_client_is_dragged_to_another_place(tab: Tab) -> None:
    page = tab.live()
    page.get_by_text("Clients (", exact=False).click()
    page.get_by_label("Find a client").fill("sensor")
    page.locator("#panel-overview .list .link", has_text="sensor").first.click()
    name = details(page).locator("h2").inner_text()
    page.get_by_role("button", name="Show on the map").click()
    wait_until_still(page)
    x, y = middle(page)
    with page.expect_response(lambda answer: answer.url.endswith("/move")) as moved:
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 90, y + 40, steps=5)
        page.mouse.up()
    assert moved.value.ok
    lat, lon = json.loads(moved.value.request.post_data)["at"]
    page.wait_for_function(
        """async ([name, lat, lon]) => {
          const client = await (await fetch(`api/clients/${encodeURIComponent(name)}`)).json()
          return client.at && Math.hypot(client.at[0] - lat, client.at[1] - lon) < 2
        }""",
        arg=[name, lat, lon],
    )
    assert name in details(page).inner_text()


def test_the_strategy_is_switched_and_both_are_compared(tab: Tab) -> None:
    page = tab.live()
    page.locator(".trials .bar-row").first.wait_for()
    before = page.locator("#strategy-choice").input_value()
    other = "flood_events" if before != "flood_events" else "disgb_events"
    page.locator("#strategy-choice").select_option(other)
    page.get_by_role("button", name="Switch").click()
    page.locator(".toast", has_text="Switched to").wait_for()
    page.wait_for_function("() => document.querySelectorAll('.trials .bar-row').length === 2")
    assert page.locator(".trials .bar-row.chosen .bar-name").inner_text() == other.replace("_", " ")


def test_the_map_is_downloaded_as_png_and_svg(tab: Tab) -> None:
    page = tab.live()
    for item, start in (("PNG image", b"\x89PNG"), ("SVG drawing", b"<svg ")):
        page.get_by_label("Download the map").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=item).click()
        data = download.value.path().read_bytes()
        assert data.startswith(start)
        assert len(data) > 20_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_wrong(browser: Any, federation: str, scheme: str) -> None:
    tab = Tab(browser, federation, color_scheme=scheme)
    page = tab.live()
    page.get_by_role("button", name="paris", exact=True).click()
    for name in ("Overview", "Events", "Try it", "Details"):
        open_tab(page, name)
        assert violations(page) == [], name
    tab.close()


def test_the_theme_follows_the_system_until_the_person_says_otherwise(browser: Any, federation: str) -> None:
    tab = Tab(browser, federation, color_scheme="dark")
    page = tab.live()
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    page.get_by_role("button", name="Dark or light").click()
    light = page.evaluate(paper)
    assert dark != light
    page.reload()
    page.wait_for_selector(".light[data-state=live]")
    assert page.evaluate(paper) == light
    tab.close()


def test_everything_fits_a_phone(browser: Any, federation: str) -> None:
    tab = Tab(browser, federation, viewport={"width": 375, "height": 780}, has_touch=True, seen=False)
    page = tab.live()
    page.get_by_role("button", name="Got it").tap()
    for name in ("Overview", "Events", "Try it", "Details"):
        open_tab(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        assert page.evaluate("document.querySelector('.tab-body').scrollWidth") <= 375
    assert violations(page) == []
    tab.close()


def test_a_lost_connection_is_said_and_comes_back(browser: Any, federation: str) -> None:
    tab = Tab(browser, federation)
    links: list[Any] = []

    def through(link: Any) -> None:
        links.append(link)
        link.connect_to_server()

    tab.page.route_web_socket("**/api/live", through)
    page = tab.live()
    links[0].close()
    page.locator(".banner", has_text="reconnecting").wait_for()
    page.wait_for_selector(".light[data-state=live]")
    assert page.locator(".banner").is_hidden()
    assert len(links) == 2
    tab.close()
