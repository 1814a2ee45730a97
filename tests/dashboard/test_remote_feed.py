"""A broker seen through its admin API."""

import json
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from tests.broker.federated import until
from tests.dashboard.pages import dashboard, message
from tests.dashboard.test_admin_client import answering, http
from tests.dashboard.test_live import ticks_until

from geomq.broker.config.settings import Admin
from geomq.broker.local_federation import THREE_REGIONS, LocalFederation, local_configs
from geomq.client import Client
from geomq.dashboard.feed import FeedError
from geomq.dashboard.remote_feed import RemoteFeed
from geomq.geo import GridAreas, NearestAreas, PolygonAreas

pytestmark = pytest.mark.anyio

ABOUT = {"name": "a", "counts": {}, "gauges": {}, "listeners": [["tls", "*", 8883], ["tcp", "0.0.0.0", 1883]]}
BROKERS = [
    {"name": "a", "location": [10.0, 20.0], "connected": True},
    {"name": "b", "location": [-10.0, -20.0], "connected": True, "latency_ms": 3.5},
]


def answers(*contents: Any) -> list[bytes]:
    return [http(200, json.dumps(content).encode()) for content in contents]


@pytest.mark.parametrize(
    ("areas", "kind"),
    [
        ({"kind": "nearest"}, NearestAreas),
        ({"kind": "grid", "grid_deg": 6}, GridAreas),
        ({"kind": "given"}, PolygonAreas),
    ],
)
async def test_the_federation_is_what_the_broker_says(areas: dict[str, Any], kind: type) -> None:
    given = ("geo:10,20;u=1000", "geo:-10,-20;u=1000") if kind is PolygonAreas else (None, None)
    brokers = [{**broker, "area": area} for broker, area in zip(BROKERS, given, strict=True)]
    told = {"strategy": "dht", "areas": areas, "brokers": brokers}
    async with answering(*answers(ABOUT, told)) as url:
        feed = await RemoteFeed.connect(url)
        place = await feed.place()
        assert place is await feed.place(), "nothing changed"
        assert (feed.name, place.strategy, place.federation.ids) == ("a", "dht", ("a", "b"))
        assert isinstance(place.federation.areas, kind)
        assert await feed.address() == ("127.0.0.1", 1883)
        await feed.close()


async def test_areas_that_cannot_be_are_an_error_of_the_broker() -> None:
    overlapping = [{**broker, "area": "geo:0,0;u=1000"} for broker in BROKERS]
    told = {"strategy": "dht", "areas": {"kind": "given"}, "brokers": overlapping}
    async with answering(*answers(ABOUT, told)) as url:
        feed = await RemoteFeed.connect(url)
        with pytest.raises(FeedError, match="sent no valid federation"):
            await feed.place()
        await feed.close()


async def test_a_federation_behind_admin_apis_is_shown_like_one_of_this_process() -> None:
    configs = {
        name: msgspec.structs.replace(config, admin=Admin(enabled=True, port=0))
        for name, config in local_configs(THREE_REGIONS, "flood_events").items()
    }
    async with LocalFederation(configs) as running, AsyncExitStack() as stack:
        await until(lambda: running.linked)
        urls = [f"http://127.0.0.1:{broker.admin_port}" for broker in running.brokers.values()]
        page = await stack.enter_async_context(dashboard([await RemoteFeed.connect(url) for url in urls]))
        port = running.brokers["paris"].port
        anna = await stack.enter_async_context(Client("127.0.0.1", port, client_id="anna", at=(48.9, 2.4)))
        await anna.subscribe("news/#", within=(48.9, 2.4, 5_000_000))
        socket = await stack.enter_async_context(page.live())
        world = await message(socket)
        assert [one["address"] for one in world["brokers"] if one["name"] == "paris"] == [f"mqtt://127.0.0.1:{port}"]
        whole = await message(socket)
        assert ["anna", "paris", 48.9, 2.4] in whole["clients"]["put"]
        assert whole["subscriptions"]["put"][0][:2] == ["anna", "news/#"]
        await anna.move(48.0, 2.0)
        await ticks_until(socket, lambda tick: ["anna", "paris", 48.0, 2.0] in tick["clients"]["put"])
        event_id = (await page.post("/api/publish", {"topic": "news/1", "at": [48.1, 2.1], "qos": 1})).body["id"]
        await anext(aiter(anna.messages))
        why = (await page.ask(f"/api/why/{event_id}?client=anna")).body
        assert why["clients"]["anna"]["verdict"] == "delivered"
        assert (await page.post("/api/strategy", {"strategy": "dht"})).status == 204
        while (told := await message(socket))["type"] != "world":
            pass
        assert told["strategy"] == "dht"
        assert (await page.post("/api/strategy", {"strategy": "nonsense"})).status == 400
