"""What the dashboard needs to know of one broker. Brokers of this process and remote ones fulfil the same contract."""

from typing import Protocol

import msgspec

from geomq.errors import GeomqError
from geomq.geo import Fence, Location
from geomq.routing.core.model import EventId
from geomq.routing.core.topology import Federation
from geomq.routing.trace.records import TraceRecord

CLIENTS_MAX = 20_000
"""Clients of one broker that the page shows; the rest are only counted."""


class FeedError(GeomqError):
    """A broker does not answer as it should."""


class Place(msgspec.Struct, frozen=True):
    """Which federation a broker believes it is part of, and how events are routed there."""

    federation: Federation
    strategy: str


class Subscribed(msgspec.Struct, frozen=True):
    """A subscription and its fence."""

    topic_filter: str
    fence: Fence | None


class ClientNow(msgspec.Struct, frozen=True):
    """A connected client as it is now."""

    id: str
    location: Location | None
    subscriptions: tuple[Subscribed, ...]


class Look(msgspec.Struct, frozen=True):
    """What happened since the last look: totals, links with their latency, and trace records.

    `cursor` goes into the next look; `missed` records were overwritten before they could be read.
    """

    counts: dict[str, int]
    connections: int
    links: dict[str, float | None]
    records: tuple[TraceRecord, ...]
    cursor: int
    missed: int = 0


def is_about(record: TraceRecord, event_id: EventId, clients: frozenset[str]) -> bool:
    """Whether a record tells of the event, or of what one of the clients did besides events."""
    return record.event_id == event_id if record.event_id is not None else record.client in clients


class Feed(Protocol):
    """One broker. Every call may raise `FeedError` when it does not answer."""

    @property
    def name(self) -> str: ...

    async def place(self) -> Place: ...

    async def address(self) -> tuple[str, int] | None:
        """Host and port of its plain MQTT listener, if there is one."""
        ...

    async def clients(self) -> list[ClientNow]:
        """Its connected clients, at most CLIENTS_MAX."""
        ...

    async def look(self, cursor: int | None) -> Look:
        """What happened since; without a cursor nothing of the past is told."""
        ...

    async def about(self, event_id: EventId, clients: frozenset[str]) -> list[TraceRecord]:
        """What this broker still remembers of an event and of what some clients did."""
        ...

    async def change_strategy(self, strategy: str) -> None: ...

    async def close(self) -> None: ...
