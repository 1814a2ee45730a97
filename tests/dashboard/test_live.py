"""The live view: what a page is told of a running federation."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.federated import until
from tests.dashboard.pages import dashboard, message
from websockets.asyncio.client import ClientConnection

from geomq.broker.local_federation import THREE_REGIONS, LocalFederation, local_configs
from geomq.client import Client
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
                assert "adaptive" in world["strategies"]
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
