"""A broker of another process, as the dashboard sees it through its admin API."""

import time
from typing import Any, Self
from urllib.parse import quote

import msgspec

from geomq.dashboard.admin_client import AdminClient
from geomq.dashboard.feed import CLIENTS_MAX, ClientNow, FeedError, Look, Place, Subscribed, is_about
from geomq.errors import GeomqError
from geomq.geo import make_location, parse_fence
from geomq.routing.core.model import EventId
from geomq.routing.core.topology import Federation
from geomq.routing.federation.outline import Outline, OutlinedBroker, federation_of
from geomq.routing.trace.records import Step, TraceRecord

PAGE = 1_000
PAGES_MAX = 20
FEDERATION_S = 1.0
EVERYWHERE = ("*", "0.0.0.0", "::")


class _About(msgspec.Struct):
    name: str
    counts: dict[str, int]
    gauges: dict[str, float]
    listeners: list[tuple[str, str, int]] = []


class _Client(msgspec.Struct):
    client_id: str
    location: tuple[float, float] | None = None


class _Clients(msgspec.Struct):
    items: list[_Client]
    next: str | None = None


class _Subscription(msgspec.Struct):
    client_id: str
    topic_filter: str
    fence: str | None = None


class _Subscriptions(msgspec.Struct):
    items: list[_Subscription]
    next: str | None = None


class _Record(msgspec.Struct):
    t_ms: float
    broker: str
    step: Step
    kind: str
    event_id: str | None = None
    peer: str | None = None
    client: str | None = None
    topic: str | None = None
    reason: str | None = None
    lat: float | None = None
    lon: float | None = None
    fence: str | None = None
    qos: int | None = None
    size: int | None = None

    def trace_record(self) -> TraceRecord:
        event_id = None if self.event_id is None else EventId.parse(self.event_id)
        told = {name: getattr(self, name) for name in self.__struct_fields__}
        return TraceRecord(**{**told, "event_id": event_id})


class _Trace(msgspec.Struct):
    items: list[_Record]
    next: int
    missed: int


class _Areas(msgspec.Struct, frozen=True):
    kind: str
    grid_deg: int | None = None


class _Broker(msgspec.Struct):
    name: str
    location: tuple[float, float] | None = None
    area: str | None = None
    connected: bool = False
    latency_ms: float | None = None


class _Federation(msgspec.Struct):
    strategy: str
    areas: _Areas
    brokers: list[_Broker]


class RemoteFeed:
    """Asks a broker over HTTP. What it tells is checked like anything else that comes over a wire."""

    def __init__(self, admin: AdminClient, name: str, address: tuple[str, int] | None) -> None:
        self.name = name
        self._admin = admin
        self._address = address
        self._federation: _Federation | None = None
        self._asked_s = float("-inf")
        self._place: tuple[object, Place] | None = None

    @classmethod
    async def connect(cls, url: str, token: str | None = None) -> Self:
        """The broker behind an admin API; its name and listeners are asked once."""
        admin = AdminClient(url, token)
        about = await admin.get("/api/v1/broker", _About)
        plain = next(((host, port) for kind, host, port in about.listeners if kind == "tcp"), None)
        if plain is not None and plain[0] in EVERYWHERE:
            plain = admin.host, plain[1]
        return cls(admin, about.name, plain)

    async def place(self) -> Place:
        """The same object as long as nothing changed."""
        told = await self._ask_federation()
        drawn = (told.strategy, told.areas, [(one.name, one.location, one.area) for one in told.brokers])
        if self._place is None or self._place[0] != drawn:
            try:
                self._place = drawn, Place(_federation(told), told.strategy)
            except GeomqError as error:
                raise FeedError(f"{self._admin.url} sent no valid federation: {error}") from None
        return self._place[1]

    async def address(self) -> tuple[str, int] | None:
        return self._address

    async def clients(self) -> list[ClientNow]:
        subscriptions: dict[str, list[Subscribed]] = {}
        for one in await self._pages("/api/v1/subscriptions", _Subscriptions):
            fence = None if one.fence is None else parse_fence(one.fence)
            subscriptions.setdefault(one.client_id, []).append(Subscribed(one.topic_filter, fence))
        return [
            ClientNow(
                client.client_id,
                None if client.location is None else make_location(*client.location),
                tuple(subscriptions.get(client.client_id, ())),
            )
            for client in await self._pages("/api/v1/clients", _Clients)
        ]

    async def look(self, cursor: int | None) -> Look:
        about = await self._admin.get("/api/v1/broker", _About)
        told = await self._ask_federation()
        records, following, missed = await self._trace(cursor or 0)
        return Look(
            counts=about.counts,
            connections=int(about.gauges.get("connections", 0)),
            links={one.name: one.latency_ms for one in told.brokers if one.connected and one.name != self.name},
            records=() if cursor is None else tuple(records),
            cursor=following,
            missed=missed,
        )

    async def about(self, event_id: EventId, clients: frozenset[str]) -> list[TraceRecord]:
        return [record for record in (await self._trace(0))[0] if is_about(record, event_id, clients)]

    async def change_strategy(self, strategy: str) -> None:
        body = {"strategy": strategy, "options": {}}
        await self._admin.ask("POST", "/api/v1/federation/strategy", dict[str, Any], body)
        self._asked_s = float("-inf")

    async def close(self) -> None:
        self._admin.close()

    async def _ask_federation(self) -> _Federation:
        if self._federation is None or time.monotonic() - self._asked_s > FEDERATION_S:
            self._federation = await self._admin.get("/api/v1/federation", _Federation)
            self._asked_s = time.monotonic()
        return self._federation

    async def _trace(self, cursor: int) -> tuple[list[TraceRecord], int, int]:
        records: list[TraceRecord] = []
        missed = 0
        for _ in range(PAGES_MAX):
            page = await self._admin.get(f"/api/v1/trace?since={cursor}&limit={PAGE}", _Trace)
            records += [item.trace_record() for item in page.items]
            cursor, missed = page.next, missed + page.missed
            if len(page.items) < PAGE:
                break
        return records, cursor, missed

    async def _pages(self, path: str, kind: type[Any]) -> list[Any]:
        rows: list[Any] = []
        after = ""
        while len(rows) < CLIENTS_MAX:
            page = await self._admin.get(f"{path}?limit={PAGE}{after}", kind)
            rows += page.items
            if page.next is None:
                break
            after = f"&after={quote(page.next, safe='')}"
        return rows[:CLIENTS_MAX]


def _federation(told: _Federation) -> Federation:
    brokers = tuple(OutlinedBroker(one.name, one.location, one.area) for one in told.brokers)
    return federation_of(Outline(brokers, told.strategy, told.areas.grid_deg))
