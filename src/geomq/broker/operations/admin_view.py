"""What the admin API and the metrics need to know of a broker, and nothing more. The server implements it."""

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from geomq.broker.config.settings import Config
from geomq.broker.peers.membership import Membership
from geomq.broker.state.drops import Drop
from geomq.broker.state.tracer import RingPage


class ClientView(msgspec.Struct, frozen=True, kw_only=True):
    """A session as an operator sees it. Times are Unix seconds."""

    client_id: str
    connected: bool
    user: str | None = None
    address: str | None = None
    listener: str | None = None
    version: int = 5
    connected_at: float | None = None
    expires_at: float | None = None
    keep_alive_s: int = 0
    location: tuple[float, float] | None = None
    fences: dict[str, str] = {}
    subscriptions: int = 0
    pending: int = 0
    dropped: int = 0


class SubscriptionView(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription with its fence as text."""

    client_id: str
    topic_filter: str
    qos: int = 0
    fence: str | None = None
    identifier: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class BrokerView(Protocol):
    """The broker behind the admin API. Every call is quick and made on the broker's own event loop."""

    @property
    def membership(self) -> Membership:
        """The federation; None before the broker has started."""

    @property
    def config(self) -> Config: ...

    @property
    def started_at(self) -> float: ...

    @property
    def listeners(self) -> list[tuple[str, str, int]]:
        """Kind, host and port of each listener that is open."""
        ...

    def unwell(self) -> str | None:
        """Why the broker cannot serve as it should, or None."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Totals since the start; they only grow."""
        ...

    def drops(self) -> Iterable[tuple[Drop, int]]:
        """How many events were dropped since the start, by reason and receiver."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """Numbers that go up and down: connections, sessions, subscriptions, retained ..."""
        ...

    def client_ids(self) -> Iterable[str]:
        """Every session, connected or not."""
        ...

    def client(self, client_id: str) -> ClientView | None: ...

    def subscriptions(self, client_id: str) -> Iterable[SubscriptionView]: ...

    def kick(self, client_id: str, *, discard: bool) -> bool:
        """Disconnect the client, and forget its session if `discard`; False if there is no such session."""
        ...

    def trace(self, since: int, limit: int) -> RingPage:
        """The latest records of the trace from this number on; asking is what keeps it recorded."""
        ...
