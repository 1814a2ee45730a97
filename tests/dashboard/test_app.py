"""The page and the API over real HTTP."""

from pathlib import Path

import pytest
from tests.dashboard.pages import dashboard

from geomq.dashboard.access import Access
from geomq.dashboard.app import Shown, make_app

pytestmark = pytest.mark.anyio


async def test_what_is_not_there_is_a_line() -> None:
    async with dashboard() as page:
        for path in ("/api/nothing", "/nothing.html"):
            assert (await page.ask(path)).body == {"error": "not found"}
        assert (await page.post("/api/session")).body == {"error": "method not allowed"}


async def test_without_a_federation_there_is_no_live_view() -> None:
    async with dashboard() as page:
        assert (await page.ask("/api/views")).body == []


def test_an_application_can_be_made_without_a_server(tmp_path: Path) -> None:
    assert make_app(Shown(), Access(token=None, admin=False), page=tmp_path).routes
