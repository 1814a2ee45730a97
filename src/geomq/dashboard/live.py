"""The federation as it is now: asks every broker four times a second, while somebody looks, and tells the pages."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from geomq.dashboard.feed import Feed, Place
from geomq.dashboard.hub import Hub, Page
from geomq.dashboard.page_clients import PageClients
from geomq.dashboard.shapes import Json, areas_kind, brokers_json
from geomq.dashboard.state import State
from geomq.dashboard.why import SUBSCRIBERS_MAX, Routed, case_json
from geomq.errors import GeomqError
from geomq.routing.core.model import EventId
from geomq.routing.strategies.registry import strategies_for
from geomq.routing.trace.records import TraceRecord
from geomq.workload.traffic.verdict import Case

log = logging.getLogger("geomq.dashboard")

TICK_S = 0.25
STALE_S = 1.0
PAGES_MAX = 32
ROUTED_MAX = 64


class Live:
    """Start it with `run` as a task; pages `join` and `leave`."""

    def __init__(self, feeds: Sequence[Feed], page_clients: PageClients, *, pages_max: int = PAGES_MAX) -> None:
        self._page_clients = page_clients
        self._own: list[Json] = []
        self.feeds = {feed.name: feed for feed in feeds}
        self.state = State(self.feeds)
        self.hub = Hub(pages_max)
        self._cursors: dict[str, int] = {}
        self._placed: tuple[Place, dict[str, str | None]] | None = None
        self._routed: deque[tuple[float, Routed]] = deque(maxlen=ROUTED_MAX)
        self._world: Json = {"type": "world", "strategy": "", "strategies": [], "brokers": [], "areas": "nearest"}
        self._ticked_s = float("-inf")
        self._ticking = asyncio.Lock()

    async def run(self) -> None:
        while True:
            await self.hub.somebody.wait()
            try:
                await self.refresh()
            except Exception:
                log.exception("the dashboard failed to read the state of the brokers")
            await asyncio.sleep(TICK_S)

    async def join(self) -> Page | None:
        """A new page, or None if there are too many."""
        await self.refresh_if_stale()
        return self.hub.join(self._whole)

    async def refresh_if_stale(self) -> None:
        """Look at every broker if nobody did for a while."""
        if time.monotonic() - self._ticked_s > STALE_S:
            await self.refresh()

    async def refresh(self) -> None:
        """Look at every broker now."""
        async with self._ticking:
            await self._tick()

    def leave(self, listener: Page) -> None:
        self.hub.leave(listener)

    async def why(self, event_id: EventId, clients: Sequence[str]) -> Json | None:
        """The way of an event through the brokers, and what became of it for some clients."""
        await self.refresh_if_stale()
        subscribers = self.state.subscribers_of(event_id)[:SUBSCRIBERS_MAX]
        wanted = list(dict.fromkeys([*clients, *subscribers]))
        records: list[TraceRecord] = []
        brokers = []
        for feed in self.feeds.values():
            with contextlib.suppress(GeomqError):
                records += await feed.about(event_id, frozenset(wanted))
                brokers.append(feed.name)
        records += _had_before(self.state.held_by(wanted, event_id), records)
        case = Case(event_id, sorted(records, key=lambda record: record.t_ms), brokers)
        if not case.steps or not self._routed:
            return None
        return case_json(case, clients, subscribers, self._routed_at(case.steps[0].t_ms))

    def _routed_at(self, t_ms: float) -> Routed:
        """How events were routed then, or when somebody first looked."""
        before = [routed for since_ms, routed in self._routed if since_ms <= t_ms]
        return before[-1] if before else self._routed[0][1]

    async def _tick(self) -> None:
        if time.monotonic() - self._ticked_s > STALE_S:
            self._cursors.clear()  # nobody looked for a while: what happened meanwhile was not recorded
        await self._look_at_world()
        await asyncio.gather(*(self._look(feed) for feed in self.feeds.values()))
        self._ticked_s = time.monotonic()
        tick = self.state.tick(_now_ms())
        tick["received"] = self._page_clients.take_received()
        own = self._page_clients.subscriptions()
        if own != self._own:
            tick["own"] = self._own = own
        self.hub.tell(msgspec.json.encode(tick))

    async def _look(self, feed: Feed) -> None:
        """Take in a broker's answer; all its clients anew if something was missed."""
        name = feed.name
        cursor = self._cursors.get(name)
        try:
            look = await feed.look(cursor)
            self.state.looked(name, _now_ms(), look)
            if cursor is None or look.missed:
                self.state.replace(name, await feed.clients(), _now_ms())
            self._cursors[name] = look.cursor
        except GeomqError:
            self.state.lost(name)
            self._cursors.pop(name, None)

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
        self._routed.append((_now_ms(), Routed(place.federation, place.strategy)))
        self._world = {
            "type": "world",
            "strategy": place.strategy,
            "strategies": strategies_for(place.federation),
            "brokers": brokers_json(place.federation, addresses),
            "areas": areas_kind(place.federation.areas),
        }
        self.hub.tell(msgspec.json.encode(self._world))

    def _whole(self) -> list[bytes]:
        """Everything anew; `whole` tells a page that fell behind to forget who was there before."""
        anew = {**self._world, "whole": True}
        first, *rest = self.state.whole(_now_ms())
        return [msgspec.json.encode(each) for each in (anew, {**first, "own": self._own}, *rest)]


def _had_before(held: Iterable[TraceRecord], records: Iterable[TraceRecord]) -> list[TraceRecord]:
    """What clients have now and did not come by in the records: they had it before these begin."""
    later = {(record.client, record.topic) for record in records if record.step == "subscribed"}
    return [record for record in held if record.step != "subscribed" or (record.client, record.topic) not in later]


def _now_ms() -> float:
    return time.time() * 1000.0
