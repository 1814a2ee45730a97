"""Pages that keep up get every change; pages that do not get everything again; nobody waits."""

import asyncio

import pytest

from geomq.dashboard.hub import QUEUE_MAX, Hub

pytestmark = pytest.mark.anyio


def whole() -> list[bytes]:
    return [b"everything"]


async def test_a_page_that_keeps_up_gets_everything_once_and_then_each_change() -> None:
    hub = Hub(2)
    page = hub.join(whole)
    assert page is not None
    assert await page.next() == [b"everything"]
    hub.tell(b"1")
    hub.tell(b"2")
    assert [await page.next(), await page.next()] == [[b"1"], [b"2"]]


async def test_a_page_that_falls_behind_is_told_everything_again() -> None:
    hub = Hub(2)
    slow, quick = hub.join(whole), hub.join(whole)
    assert slow is not None
    assert quick is not None
    await slow.next()
    await quick.next()
    seen = []
    for number in range(3 * QUEUE_MAX):
        hub.tell(str(number).encode())
        seen += await quick.next()
    assert len(seen) == 3 * QUEUE_MAX
    late = [await slow.next() for _ in range(QUEUE_MAX + 1)]
    assert late == [[str(number).encode()] for number in range(QUEUE_MAX)] + [[b"everything"]]


async def test_there_is_room_for_so_many_pages_only() -> None:
    hub = Hub(1)
    first = hub.join(whole)
    assert first is not None
    assert hub.join(whole) is None
    assert hub.somebody.is_set()
    hub.leave(first)
    assert len(hub) == 0
    assert not hub.somebody.is_set()
    assert hub.join(whole) is not None


async def test_a_page_waits_for_the_next_change() -> None:
    hub = Hub(1)
    page = hub.join(whole)
    assert page is not None
    await page.next()
    waiting = asyncio.create_task(page.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    hub.tell(b"news")
    assert await waiting == [b"news"]
