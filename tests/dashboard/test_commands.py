"""What an admin does from the page, with real brokers and real clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.broker.federated import until
from tests.dashboard.pages import Page, dashboard, message
from tests.dashboard.test_live import ticks_until

from geomq.broker.local_federation import THREE_REGIONS, LocalFederation, local_configs
from geomq.client import Client
from geomq.dashboard.commands import Movers
from geomq.dashboard.feed import FeedError, Place
from geomq.dashboard.local_feed import LocalFeed
from geomq.dashboard.page_clients import SUBSCRIPTIONS_MAX
from geomq.geo import Location

pytestmark = pytest.mark.anyio

PARIS = [48.88, 2.36]
CIRCLE = {"type": "Circle", "center": PARIS, "radius_m": 5_000}


@asynccontextmanager
async def running(movers: Movers | None = None) -> AsyncIterator[tuple[Page, dict[str, int]]]:
    async with LocalFederation(local_configs(THREE_REGIONS, "flood_events")) as federation:
        await until(lambda: federation.linked)
        feeds = [LocalFeed(broker) for broker in federation.brokers.values()]
        async with dashboard(feeds, movers=movers) as page:
            yield page, {name: broker.port for name, broker in federation.brokers.items()}


async def test_the_page_publishes_to_a_fence_and_learns_the_events_id() -> None:
    async with running() as (page, ports), Client("127.0.0.1", ports["paris"], at=(48.88, 2.36)) as anna:
        await anna.subscribe("news/#")
        asked = {"broker": "columbus", "topic": "news/here", "payload": "hello", "qos": 1, "fence": CIRCLE}
        answer = await page.post("/api/publish", asked)
        assert answer.status == 200
        assert answer.body["id"].startswith("columbus:")
        assert (await anext(aiter(anna.messages))).text == "hello"


async def test_the_page_hears_what_it_subscribed_to_until_it_unsubscribes() -> None:
    async with running() as (page, ports), page.live() as socket, Client("127.0.0.1", ports["columbus"]) as bob:
        wish = {"filter": "news/#", "at": PARIS, "fence": {"type": "Circle", "center": [40, -83], "radius_m": 100_000}}
        assert (await page.post("/api/subscribe", wish)).body == {"broker": "paris"}
        await bob.move(40.0, -83.0)
        await bob.publish("news/there", "hi", qos=1)
        tick = await ticks_until(socket, lambda tick: bool(tick.get("received")))
        (heard,) = tick["received"]
        assert (heard["topic"], heard["payload"], heard["id"].split(":")[0]) == ("news/there", "hi", "columbus")
        assert (await page.post("/api/unsubscribe", {"filter": "news/#"})).status == 204
        answer = await page.post("/api/unsubscribe", {"filter": "news/#"})
        assert (answer.status, answer.body["error"]) == (400, "the page has no such subscription")


async def test_every_page_is_told_what_the_page_is_subscribed_to_and_can_end_it() -> None:
    async with running() as (page, _):
        for broker, at in (("paris", PARIS), ("frankfurt", None)):
            await page.post("/api/subscribe", {"filter": "news/#", "broker": broker, "at": at})
        held = [
            {"broker": "paris", "filter": "news/#", "fence": None, "at": PARIS},
            {"broker": "frankfurt", "filter": "news/#", "fence": None, "at": None},
        ]
        async with page.live() as socket:
            assert (await ticks_until(socket, lambda tick: "own" in tick))["own"] == held
            ended = {"filter": "news/#", "broker": "paris"}
            assert (await page.post("/api/unsubscribe", ended)).status == 204
            assert (await ticks_until(socket, lambda tick: "own" in tick))["own"] == held[1:]
            assert (await page.post("/api/unsubscribe", ended)).status == 400


async def test_the_page_moves_its_own_client_and_demo_clients_but_no_others() -> None:
    class OneMover:
        def __init__(self) -> None:
            self.at: Location | None = None

        async def move(self, client_id: str, to: Location) -> bool:
            self.at = to if client_id == "walker" else self.at
            return client_id == "walker"

    mover = OneMover()
    async with running(mover) as (page, ports), Client("127.0.0.1", ports["paris"], client_id="anna"):
        assert (await page.post("/api/clients/walker/move", {"at": [1, 2]})).status == 204
        assert mover.at == Location(1, 2)
        answer = await page.post("/api/clients/anna/move", {"at": [1, 2]})
        assert (answer.status, answer.body["error"][:17]) == (403, "only demo clients")
        await page.post("/api/subscribe", {"filter": "a", "at": PARIS})
        async with page.live() as socket:
            tick = await ticks_until(socket, lambda tick: bool(tick["clients"]["put"]))
            mine = next(one[0] for one in tick["clients"]["put"] if one[0].startswith("page-"))
            assert (await page.post(f"/api/clients/{mine}/move", {"at": [10, 20]})).status == 204
            tick = await ticks_until(socket, lambda tick: [mine, "paris", 10.0, 20.0] in tick["clients"]["put"])
        told = (await page.ask(f"/api/clients/{mine}")).body
        assert (told["home"], told["at"], told["subscriptions"]) == (
            "paris",
            [10, 20],
            [{"filter": "a", "fence": None}],
        )
        assert (await page.ask("/api/clients/nobody")).status == 404


BAD: list[tuple[str, dict[str, Any]]] = [
    ("/api/publish", {}),
    ("/api/publish", {"topic": ""}),
    ("/api/publish", {"topic": "a/#"}),
    ("/api/publish", {"topic": "a", "qos": 2}),
    ("/api/publish", {"topic": "a", "unknown": 1}),
    ("/api/publish", {"topic": "a", "broker": "nowhere"}),
    ("/api/publish", {"topic": "a", "at": [91, 0]}),
    ("/api/publish", {"topic": "a", "fence": {"type": "Point", "coordinates": [0, 0]}}),
    ("/api/publish", {"topic": "a", "payload": "x" * 65_537}),
    ("/api/subscribe", {"filter": "a/#/b"}),
    ("/api/subscribe", {"filter": "a", "fence": "nonsense"}),
    ("/api/clients/x/move", {"at": "here"}),
]


async def test_what_cannot_be_is_refused_in_one_line() -> None:
    async with running() as (page, _):
        for path, body in BAD:
            answer = await page.post(path, body)
            assert answer.status == 400, (path, body, answer)
            assert "\n" not in answer.body["error"]


async def test_the_page_has_so_many_subscriptions_only() -> None:
    async with running() as (page, _):
        for number in range(SUBSCRIPTIONS_MAX):
            assert (await page.post("/api/subscribe", {"filter": f"t/{number}"})).status == 200
        assert (await page.post("/api/subscribe", {"filter": "more"})).status == 400


async def test_without_a_federation_there_is_nothing_to_command() -> None:
    async with dashboard() as page:
        answer = await page.post("/api/publish", {"topic": "a"})
        assert (answer.status, answer.body["error"]) == (400, "this dashboard shows no federation")
        assert (await page.ask("/api/clients/x")).status == 400


async def test_the_strategy_changes_at_run_time_and_the_page_is_told() -> None:
    async with running() as (page, ports), page.live() as socket:
        assert (await message(socket))["strategy"] == "flood_events"
        assert (await page.post("/api/strategy", {"strategy": "disgb_events"})).status == 204
        while (told := await message(socket))["type"] != "world":
            pass
        assert told["strategy"] == "disgb_events"
        async with Client("127.0.0.1", ports["paris"], at=(48.88, 2.36)) as anna:
            await anna.subscribe("news")
            await page.post("/api/publish", {"broker": "columbus", "topic": "news", "payload": "x", "qos": 1})
            assert (await anext(aiter(anna.messages))).text == "x"
        answer = await page.post("/api/strategy", {"strategy": "disgb_event"})
        assert (answer.status, answer.body["error"][:31]) == (400, "unknown strategy 'disgb_event';")
        answer = await page.post("/api/strategy", {"strategy": "single"})
        assert (answer.status, "serves one broker" in answer.body["error"]) == (400, True)


async def test_links_have_a_latency_once_it_was_measured() -> None:
    async with running() as (page, _), page.live() as socket:
        tick = await ticks_until(socket, lambda tick: any(link[2] is not None for link in tick.get("links", ())))
        assert all(0 <= link[2] < 60_000 for link in tick.get("links", ()) if link[2] is not None)


async def test_a_broker_that_does_not_answer_is_passed_over() -> None:
    class Silent(LocalFeed):
        async def place(self) -> Place:
            raise FeedError("no answer")

    async with LocalFederation(local_configs(THREE_REGIONS, "flood_events")) as federation:
        await until(lambda: federation.linked)
        paris, frankfurt, _ = federation.brokers.values()
        async with dashboard([Silent(paris), LocalFeed(frankfurt)]) as page:
            assert (await page.post("/api/subscribe", {"filter": "a"})).body == {"broker": "frankfurt"}
            assert (await page.post("/api/strategy", {"strategy": "dht"})).status == 204
        async with dashboard([Silent(paris)]) as page:
            answer = await page.post("/api/subscribe", {"filter": "a"})
            assert (answer.status, answer.body["error"]) == (400, "no broker answers")
