"""What the page says is so: its numbers, its reasons, and what it shows while something is under way."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.dashboard.browser import Tab, launched, serving


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
