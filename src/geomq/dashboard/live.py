"""The federation as it is now: asks every broker four times a second, while somebody looks, and tells the pages."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

import msgspec

from geomq.dashboard.feed import Feed, Place
from geomq.dashboard.hub import Hub, Listener
from geomq.dashboard.shapes import Json, areas_kind, brokers_json
from geomq.dashboard.state import State
from geomq.errors import GeomqError
from geomq.routing.registry import STRATEGIES

log = logging.getLogger("geomq.dashboard")

TICK_S = 0.25
RESYNC_S = 0.2
STALE_S = 1.0


class Live:
    """Start it with `run` as a task; pages `join` and `leave`."""

    def __init__(self, feeds: Sequence[Feed], *, pages_max: int = 32) -> None:
        self.feeds = {feed.name: feed for feed in feeds}
        self.state = State(self.feeds)
        self.hub = Hub(pages_max)
        self._cursors: dict[str, int] = {}
        self._synced_s: dict[str, float] = {}
        self._placed: tuple[Place, dict[str, str | None]] | None = None
        self._world: Json = {"type": "world", "strategy": "", "strategies": [], "brokers": [], "areas": "nearest"}
        self._ticked_s = float("-inf")
        self._ticking = asyncio.Lock()

    async def run(self) -> None:
        while True:
            await self.hub.somebody.wait()
            try:
                await self._tick()
            except Exception:
                log.exception("the dashboard could not look at the brokers")
            await asyncio.sleep(TICK_S)

    async def join(self) -> Listener | None:
        """A new page, or None if there are too many."""
        if time.monotonic() - self._ticked_s > STALE_S:
            await self._tick()
        return self.hub.join(self._whole)

    def leave(self, listener: Listener) -> None:
        self.hub.leave(listener)

    async def _tick(self) -> None:
        async with self._ticking:
            await self._look_at_world()
            await asyncio.gather(*(self._look(feed) for feed in self.feeds.values()))
            self._ticked_s = time.monotonic()
            self.hub.tell(msgspec.json.encode(self.state.tick(_now_ms())))

    async def _look(self, feed: Feed) -> None:
        name = feed.name
        try:
            look = await feed.look(self._cursors.get(name))
            self.state.looked(name, _now_ms(), look)
            self._cursors[name] = look.cursor
            if look.missed or time.monotonic() - self._synced_s.get(name, float("-inf")) > RESYNC_S:
                self.state.replace(name, await feed.clients())
                self._synced_s[name] = time.monotonic()
        except GeomqError:
            self.state.lost(name)
            self._cursors.pop(name, None)
            self._synced_s.pop(name, None)

    async def _look_at_world(self) -> None:
        """Tell the pages when brokers, areas, addresses or the strategy are not what they were."""
        addresses: dict[str, str | None] = {}
        place = None
        for feed in self.feeds.values():
            with contextlib.suppress(GeomqError):
                address = await feed.address()
                addresses[feed.name] = None if address is None else f"mqtt://{address[0]}:{address[1]}"
                place = place or await feed.place()
        if place is None or (place, addresses) == self._placed:
            return
        self._placed = place, addresses
        self._world = {
            "type": "world",
            "strategy": place.strategy,
            "strategies": list(STRATEGIES),
            "brokers": brokers_json(place.federation, addresses),
            "areas": areas_kind(place.federation.areas),
        }
        self.hub.tell(msgspec.json.encode(self._world))

    def _whole(self) -> list[bytes]:
        return [msgspec.json.encode(each) for each in (self._world, *self.state.whole(_now_ms()))]


def _now_ms() -> float:
    return time.time() * 1000.0
