"""A broker seen through its admin API."""

import json
from typing import Any

import pytest
from tests.dashboard.test_admin_client import answering, http

from geomq.dashboard.admin_client import FeedError
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
        with pytest.raises(FeedError, match="describes no federation"):
            await feed.place()
        await feed.close()
