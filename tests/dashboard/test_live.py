"""The live view: what a page is told of a running federation."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.broker.federated import until
from tests.dashboard.pages import dashboard, message
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus

from geomq.broker.local_federation import THREE_REGIONS, LocalFederation, local_configs
from geomq.client import Client, ClientError
from geomq.dashboard.feed import Look
from geomq.dashboard.live import PAGES_MAX
from geomq.dashboard.local_feed import LocalFeed

pytestmark = pytest.mark.anyio


async def ticks_until(socket: ClientConnection, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Read ticks until one has what is looked for."""
    for _ in range(100):
        tick = await message(socket)
        if tick["type"] == "tick" and found(tick):
            return tick
    raise AssertionError("it never came")


async def test_a_page_is_told_the_world_then_everything_then_changes() -> None:
    async with LocalFederation(local_configs(THREE_REGIONS, "flood_events")) as running:
        await until(lambda: running.linked)
        port = running.brokers["paris"].port
        feeds = [LocalFeed(broker) for broker in running.brokers.values()]
        async with dashboard(feeds) as page, Client("127.0.0.1", port, client_id="anna", at=(48.9, 2.4)) as anna:
            await anna.subscribe("news/#", within=(48.9, 2.4, 5_000))
            async with page.live() as socket:
                world = await message(socket)
                assert (world["type"], world["strategy"], world["areas"]) == ("world", "flood_events", "nearest")
                assert world["whole"] is True
                assert "adaptive" in world["strategies"]
                assert "single" not in world["strategies"], "it serves one broker"
                paris = next(one for one in world["brokers"] if one["name"] == "paris")
                assert (paris["address"], paris["area"]) == (f"mqtt://127.0.0.1:{port}", None)
                whole = await message(socket)
                assert whole["brokers"]["paris"]["up"]
                assert whole["brokers"]["paris"]["clients"] == 1
                assert ["anna", "paris", 48.9, 2.4] in whole["clients"]["put"]
                fence = {"type": "Circle", "center": [48.9, 2.4], "radius_m": 5_000.0}
                assert ["anna", "news/#", fence] in whole["subscriptions"]["put"]
                assert {(one, other) for one, other, _ in whole["links"]} >= {("paris", "columbus")}
                await anna.move(48.0, 2.0)
                tick = await ticks_until(socket, lambda tick: bool(tick["clients"]["put"]))
                assert tick["clients"]["put"] == [["anna", "paris", 48.0, 2.0]]
                await anna.unsubscribe("news/#")
                tick = await ticks_until(socket, lambda tick: bool(tick["subscriptions"]["drop"]))
                assert tick["subscriptions"]["drop"] == [["anna", "news/#"]]


async def test_so_many_pages_may_look_on_and_one_that_does_not_read_hinders_nobody() -> None:
    async with LocalFederation(local_configs(THREE_REGIONS[:1], "single")) as running, AsyncExitStack() as stack:
        feeds = [LocalFeed(broker) for broker in running.brokers.values()]
        page = await stack.enter_async_context(dashboard(feeds))
        sockets = [await stack.enter_async_context(page.live()) for _ in range(PAGES_MAX)]
        with pytest.raises(InvalidStatus):
            await stack.enter_async_context(page.live())
        for _ in range(10):
            assert (await message(sockets[-1]))["type"] in ("world", "tick")
        await sockets[0].close()
        await stack.enter_async_context(page.live())


async def test_a_broker_that_went_away_is_shown_as_such_and_comes_back() -> None:
    class Flaky(LocalFeed):
        gone = False

        async def look(self, cursor: int | None) -> Look:
            if self.gone:
                raise ClientError("no answer")
            return await super().look(cursor)

    async with LocalFederation(local_configs(THREE_REGIONS[:1], "single")) as running:
        feed = Flaky(running.brokers["paris"])
        port = running.brokers["paris"].port
        async with dashboard([feed]) as page, Client("127.0.0.1", port, client_id="anna"), page.live() as socket:
            await ticks_until(socket, lambda tick: tick["brokers"]["paris"]["up"])
            feed.gone = True
            tick = await ticks_until(socket, lambda tick: not tick["brokers"]["paris"]["up"])
            assert tick["clients"]["drop"] == ["anna"]
            feed.gone = False
            tick = await ticks_until(socket, lambda tick: tick["brokers"]["paris"]["up"])
            assert [row[0] for row in tick["clients"]["put"]] == ["anna"]


async def test_events_flows_and_latency_of_a_delivery_between_brokers_are_told() -> None:
    async with LocalFederation(local_configs(THREE_REGIONS, "flood_events")) as running:
        await until(lambda: running.linked)
        ports = {name: broker.port for name, broker in running.brokers.items()}
        feeds = [LocalFeed(broker) for broker in running.brokers.values()]
        async with (
            dashboard(feeds) as page,
            page.live() as socket,
            Client("127.0.0.1", ports["columbus"], client_id="bob", at=(40.0, -83.0)) as bob,
            Client("127.0.0.1", ports["paris"], client_id="anna") as anna,
        ):
            await anna.subscribe("news")
            await bob.publish("news", "x", qos=1)
            flows: set[tuple[str, str, str]] = set()
            seen: list[dict[str, Any]] = []

            def complete(tick: dict[str, Any]) -> bool:
                flows.update((one, other, kind) for one, other, kind, _ in tick["flows"])
                seen.extend(tick["events"])
                return tick["brokers"]["paris"]["latency_ms"] is not None

            await ticks_until(socket, complete)
            assert flows >= {("columbus", "paris", "event"), ("columbus", "frankfurt", "event")}
            event = seen[-1]
            assert (event["topic"], event["client"], event["home"]) == ("news", "bob", "columbus")
            assert (event["at"], event["delivered"]) == ([40.0, -83.0], 1)
