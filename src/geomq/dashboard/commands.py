"""What an admin may do from the page: publish, subscribe, move clients, change the strategy."""

import asyncio
import contextlib
import time
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from geomq.dashboard.feed import Feed, FeedError, Place
from geomq.dashboard.live import Live
from geomq.dashboard.page_clients import PageClients
from geomq.dashboard.shapes import read_fence, read_location
from geomq.errors import GeomqError, UsageError
from geomq.geo import Location

Topic = Annotated[str, Meta(min_length=1, max_length=65_535)]
BrokerName = Annotated[str, Meta(max_length=200)]
ID_TRIES, ID_PAUSE_S = 20, 0.05


class Publish(msgspec.Struct, forbid_unknown_fields=True):
    topic: Topic
    payload: Annotated[str, Meta(max_length=65_536)] = ""
    qos: Literal[0, 1] = 0
    broker: BrokerName | None = None
    at: Any = None
    fence: Any = None


class Subscribe(msgspec.Struct, forbid_unknown_fields=True):
    filter: Topic
    broker: BrokerName | None = None
    at: Any = None
    fence: Any = None


class Unsubscribe(msgspec.Struct, forbid_unknown_fields=True):
    filter: Topic
    broker: BrokerName | None = None


class Move(msgspec.Struct, forbid_unknown_fields=True):
    at: Any


class ChangeStrategy(msgspec.Struct, forbid_unknown_fields=True):
    strategy: Annotated[str, Meta(min_length=1, max_length=200)]


class Movers(Protocol):
    """Clients of this process that go where they are told."""

    async def move(self, client_id: str, to: Location) -> bool:
        """Move the client; False if it is not one of these."""
        ...


class ActionRefused(GeomqError):  # noqa: N818
    """The page may not do this."""


class Commands:
    """Carries out what the page asks for."""

    def __init__(self, live: Live, page_clients: PageClients, movers: Movers | None) -> None:
        self._live = live
        self._page_clients = page_clients
        self._movers = movers

    async def publish(self, asked: Publish) -> str | None:
        """Publish; the event's id, if the broker's trace tells it soon."""
        at = None if asked.at is None else read_location(asked.at)
        fence = read_fence(asked.fence)
        feed = await self._broker(asked.broker, at)
        await self._live.refresh_if_stale()
        started_ms = time.time() * 1000.0
        address = await _address(feed)
        await self._page_clients.publish(
            feed.name, address, asked.topic, asked.payload, qos=asked.qos, fence=fence, at=at
        )
        for _ in range(ID_TRIES):
            await self._live.refresh()
            found = self._live.state.latest_event(self._page_clients.name_at(feed.name), since_ms=started_ms)
            if found is not None:
                return found
            await asyncio.sleep(ID_PAUSE_S)
        return None

    async def subscribe(self, asked: Subscribe) -> str:
        """Subscribe; the broker where."""
        at = None if asked.at is None else read_location(asked.at)
        fence = read_fence(asked.fence)
        feed = await self._broker(asked.broker, at)
        await self._page_clients.subscribe(feed.name, await _address(feed), asked.filter, fence, at)
        return feed.name

    async def unsubscribe(self, asked: Unsubscribe) -> None:
        if not await self._page_clients.unsubscribe(asked.filter, asked.broker):
            raise UsageError("the page has no such subscription")

    async def move(self, client_id: str, asked: Move) -> None:
        to = read_location(asked.at)
        if await self._page_clients.move(client_id, to):
            return
        if self._movers is None or not await self._movers.move(client_id, to):
            raise ActionRefused(
                "only demo clients and the page's own can be moved; other clients send their own locations"
            )

    async def change_strategy(self, asked: ChangeStrategy) -> None:
        """Any broker will do: it tells the others."""
        feed, _ = await self._answering()
        await feed.change_strategy(asked.strategy)

    async def _broker(self, name: str | None, at: Location | None) -> Feed:
        """The broker that was named, else the one whose area holds the place, else the first."""
        feeds = self._live.feeds
        if name is None:
            answering, place = await self._answering()
            owner = None if at is None else place.federation.owner(at)
            return feeds.get(owner or "", answering)
        if name not in feeds:
            raise UsageError(f"there is no broker {name!r} here")
        return feeds[name]

    async def _answering(self) -> tuple[Feed, Place]:
        """The first broker that answers."""
        for feed in self._live.feeds.values():
            with contextlib.suppress(FeedError):
                return feed, await feed.place()
        raise UsageError("no broker answers")


async def _address(feed: Feed) -> tuple[str, int]:
    address = await feed.address()
    if address is None:
        raise UsageError(f"{feed.name} has no plain MQTT listener that the page could use")
    return address
