"""What the page says is so: its numbers, its reasons, and what it shows while something is under way."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.dashboard.browser import Tab, launched, middle, serving, violations, wait_until_still


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def federation(browser: Any) -> Iterator[str]:
    with serving("up", "--strategy", "flood_events", "--port", "0", "--page-port", "0", "--json") as url:
        yield url


@pytest.fixture
def tab(browser: Any, federation: str) -> Iterator[Tab]:
    """A page that must not have complained in the end."""
    tab = Tab(browser, federation)
    yield tab
    tab.close()
    assert tab.problems == []


def test_flooding_three_brokers_costs_two_messages_an_event(tab: Tab) -> None:
    page = tab.live()
    parts = page.locator(".trials .bar-row .only-read")
    parts.first.wait_for()
    assert "event 2.00" in parts.first.text_content()


def pick_client(page: Any, kind: str) -> str:
    """A client of this kind, picked from the table and in the middle of the map."""
    page.get_by_text("Clients (", exact=False).click()
    page.get_by_label("Find a client").fill(kind)
    page.locator("#panel-overview .list .link", has_text=kind).first.click()
    page.get_by_role("button", name="Show on the map").click()
    wait_until_still(page)
    name = page.locator("#panel-details h2").inner_text()
    assert kind in name
    return str(name)


def fact(page: Any, name: str) -> Any:
    """A fact of the details, by its name."""
    return page.locator("#panel-details .facts dt", has_text=name).first.locator("xpath=following-sibling::dd[1]")


def drag_from_the_middle(page: Any) -> None:
    x, y = middle(page)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 120, y + 60, steps=5)
    page.mouse.up()


def test_a_dropped_client_is_there_at_once_and_stays(tab: Tab) -> None:
    sockets: list[Any] = []
    tab.page.on("websocket", lambda socket: sockets.append(socket))
    page = tab.live()
    waiting: list[Any] = []
    page.route("**/move", lambda route: waiting.append(route))
    pick_client(page, "tower")
    before = fact(page, "location").inner_text()
    drag_from_the_middle(page)
    page.wait_for_function(
        "(before) => document.querySelector('.facts dd:nth-of-type(2)').textContent !== before", arg=before
    )
    dropped = fact(page, "location").inner_text()
    assert len(waiting) == 1, "it is shown before anybody answered"
    with page.expect_response("**/move") as answer:
        waiting[0].continue_()
    assert answer.value.ok
    for _ in range(20):
        sockets[-1].wait_for_event("framereceived")
    assert fact(page, "location").inner_text() == dropped


def test_a_client_that_may_not_go_there_goes_back(tab: Tab) -> None:
    page = tab.live()
    page.route("**/move", lambda route: route.fulfill(status=403, json={"error": "not this one"}))
    pick_client(page, "tower")
    before = fact(page, "location").inner_text()
    drag_from_the_middle(page)
    page.locator(".toast.failed", has_text="not this one").wait_for()
    assert fact(page, "location").inner_text() == before
    tab.problems.clear()


def test_a_subscription_without_a_location_says_what_it_cannot_hear_and_can_be_ended_after_a_reload(tab: Tab) -> None:
    page = tab.live()
    page.get_by_role("tab", name="Try it").click()
    page.get_by_text("subscriptions with a fence do not hear you").wait_for()
    page.get_by_label("Topic, or filter").fill("page/deaf")
    page.get_by_label("Fence", exact=True).fill("48.9,2.4,100")
    page.get_by_label("Broker", exact=True).select_option("columbus")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    mine = page.locator(".own li", has_text="page/deaf at columbus")
    mine.get_by_text("events with a fence do not reach it").wait_for()
    page.reload()
    page.get_by_role("tab", name="Try it").click()
    mine.get_by_role("button", name="Unsubscribe from page/deaf").click()
    mine.wait_for(state="detached")
    assert page.locator(".own li").count() == 0


def test_live_is_not_green_while_the_server_says_nothing(tab: Tab) -> None:
    stopped: list[bool] = []

    def through(link: Any) -> None:
        server = link.connect_to_server()
        server.on_message(lambda message: None if stopped else link.send(message))

    tab.page.route_web_socket("**/api/live", through)
    page = tab.live()
    stopped.append(True)
    page.wait_for_selector(".light[data-state=silent]")
    page.locator(".banner", has_text="No news").wait_for()
    stopped.clear()
    page.wait_for_selector(".light[data-state=live]")
    assert page.locator(".banner").is_hidden()


def test_a_tooltip_goes_with_what_it_tells_of(tab: Tab) -> None:
    worlds: list[dict[str, Any]] = []
    links: list[Any] = []

    def through(link: Any) -> None:
        links.append(link)
        server = link.connect_to_server()

        def passed(message: str) -> None:
            if '"type":"world"' in message:
                worlds.append(json.loads(message))
            link.send(message)

        server.on_message(passed)

    tab.page.route_web_socket("**/api/live", through)
    page = tab.live()
    page.get_by_role("button", name="columbus", exact=True).click()
    page.get_by_role("button", name="Show on the map").click()
    wait_until_still(page)
    page.mouse.move(*middle(page))
    page.locator(".tip", has_text="columbus: ").wait_for()
    left = [broker for broker in worlds[0]["brokers"] if broker["name"] != "columbus"]
    links[0].send(json.dumps({**worlds[0], "whole": False, "brokers": left}))
    page.locator(".tip").wait_for(state="hidden")
    assert page.get_by_role("button", name="columbus", exact=True).count() == 0


def test_a_strategy_that_cannot_serve_is_not_offered_and_the_box_shows_the_running_one_after_a_refusal(
    tab: Tab,
) -> None:
    page = tab.live()
    choice = page.locator("#strategy-choice")
    assert choice.input_value() == "flood_events"
    assert choice.locator("option[value=single]").count() == 0
    page.route("**/api/strategy", lambda route: route.fulfill(status=400, json={"error": "not now"}))
    choice.select_option("dht")
    page.get_by_role("button", name="Switch").click()
    page.locator(".toast.failed", has_text="not now").wait_for()
    assert choice.input_value() == "flood_events"
    assert "every broker" in page.locator("#strategy-sentence").inner_text()
    tab.problems.clear()


def test_a_click_in_the_running_list_hits_the_event_it_was_aimed_at(tab: Tab) -> None:
    sockets: list[Any] = []
    tab.page.on("websocket", lambda socket: sockets.append(socket))
    page = tab.live()
    page.get_by_role("tab", name="Events").click()
    row = page.locator("#panel-events .event").nth(3)
    row.hover()
    page.get_by_text("Held while you point at it.").wait_for()
    aimed = row.locator("xpath=..").get_attribute("data-id")
    box = row.bounding_box()
    for _ in range(8):
        sockets[-1].wait_for_event("framereceived")
    with page.expect_response("**/api/why/*") as asked:
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert asked.value.url.split("/api/why/")[1].split("?")[0].replace("%3A", ":") == aimed
    page.get_by_role("tab", name="Events").click()
    page.mouse.move(*middle(page))
    page.get_by_text("of the last").wait_for()


@pytest.mark.parametrize(("width", "height"), [(667, 375), (844, 390), (375, 667)])
def test_the_hint_is_seen_whole_on_a_phone_either_way_up(
    browser: Any, federation: str, width: int, height: int
) -> None:
    tab = Tab(browser, federation, viewport={"width": width, "height": height}, has_touch=True, seen=False)
    hint = tab.live().locator(".hint")
    box = hint.bounding_box()
    assert box["x"] >= 0
    assert box["y"] >= 0
    assert box["x"] + box["width"] <= width
    assert box["y"] + box["height"] <= height
    assert hint.evaluate("hint => hint.scrollHeight <= hint.clientHeight"), "nothing of it is cut off"
    hint.get_by_role("button", name="Got it").tap()
    assert hint.is_hidden()
    tab.close()


def test_an_event_says_because_of_what_brokers_were_asked_and_why_nobody_got_it(tab: Tab) -> None:
    page = tab.live()
    page.get_by_role("tab", name="Try it").click()
    page.get_by_label("Topic, or filter").fill("page/unheard")
    page.get_by_label("Fence", exact=True).fill("48.9,2.4,100")
    page.get_by_role("button", name="Publish").click()
    details = page.locator("#panel-details")
    details.get_by_text("Nobody got it: nobody is known to subscribe to its topic.").wait_for()
    assert details.locator(".step", has_text="flooding asks every broker").count()
    assert details.locator(".asked", has_text="its client published the event").count() == 1
    assert "not asked" not in details.inner_text()
    assert violations(page) == []
