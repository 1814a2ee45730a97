"""What a broker holds of one client: its session, its connection while there is one, its rights and its places.

Routing knows its plain subscriptions under the id of the client, those with a share group or a named fence under a
key of their own: the id, a NUL and their prefix, so that equal filters stay apart.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from geomq.broker.config.queues import QueueFull
from geomq.broker.config.settings import Listener
from geomq.broker.security.acl import Rights
from geomq.broker.security.limits import TokenBucket
from geomq.geo import Fence, Location
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.session.session import Session
from geomq.mqtt.session.wills import DueWill
from geomq.routing.core.model import ClientId

Pattern = tuple[str, str]
"""The prefix of a filter and where it has wildcards: of all filters that share both, one event matches at most one."""
NO_FENCES: dict[str, Fence] = {}


class ClientConnection(Protocol):
    """What a client's network connection is to those who send on it; `connections` has the real ones.

    `out` is what gathered in this tick, `write` writes at once, `last_route` is what the fast path remembers.
    """

    client: "Client | None"
    listener: Listener
    address: str
    version: int
    keep_alive_s: int
    size_max: int
    plain_size_max: int
    opened_at: float
    paused: bool
    out: list[bytes]
    write: Callable[[bytes | memoryview], object]
    last_route: Any

    @property
    def closed(self) -> bool: ...

    @property
    def answered(self) -> bool: ...

    def send(self, data: bytes) -> None: ...

    def stop_reading(self) -> None: ...

    def go_on(self) -> None: ...

    def wait_longer(self, wait_s: float) -> None: ...

    def write_part(self, data: bytes | memoryview) -> None: ...

    def write_out(self) -> None: ...

    def dismiss(self, reason: ReasonCode, text: str | None = None, *, go_to: str | None = None) -> None: ...


class Client:
    """One session and everything around it.

    `asks` is whether it wants the details of events; `prefixes` counts the subscriptions under each prefix,
    `levels` those of all its filters. `patterns` counts the subscriptions under each arrangement of wildcards, as soon
    as there are so many that it matters. `listener` is the one it came by last, if it is known, and `queue_full` what
    that one says of a full queue. `told_new` says that it was told at its last CONNACK that it had no session.
    """

    __slots__ = (
        "asks",
        "bridges",
        "connection",
        "due_will",
        "fences",
        "id",
        "inside",
        "levels",
        "listener",
        "location",
        "location_bucket",
        "patterns",
        "prefixes",
        "proved",
        "publish_bucket",
        "queue_full",
        "rights",
        "roams",
        "session",
        "since_ms",
        "told_new",
        "user",
    )

    def __init__(self, session: Session, user: str | None, rights: Rights, *, asks: bool = False) -> None:
        self.id = ClientId(session.client_id)
        self.session = session
        self.user = user
        self.rights = rights
        self.asks = asks
        self.bridges = False
        self.connection: ClientConnection | None = None
        self.listener: Listener | None = None
        self.proved = False
        """Whether the user was more than a name when the client came in last."""
        self.queue_full: QueueFull | None = None
        self.due_will: DueWill | None = None
        self.location: Location | None = None
        self.fences: dict[str, Fence] = NO_FENCES
        self.inside: frozenset[str] = frozenset()
        self.levels = 0
        self.patterns: dict[Pattern, int] | None = None
        self.prefixes: dict[str, int] | None = None
        self.roams: bool | None = None
        self.since_ms = 0
        self.told_new = False
        self.publish_bucket: TokenBucket | None = None
        self.location_bucket: TokenBucket | None = None

    @property
    def place(self) -> str | None:
        """How the listener it came in by last is written down."""
        return None if self.listener is None else self.listener.place

    # Its connections.

    def attach(self, connection: ClientConnection, user: str | None, *, proved: bool, now_ms: int) -> None:
        """The session goes on with this connection; a will that was due stays unpublished."""
        self.connection = connection
        self.listener = connection.listener
        self.queue_full = connection.listener.queue_full
        self.user, self.proved = user, proved
        self.due_will = None
        self.since_ms = now_ms

    def agree(self, *, roams: bool | None, asks: bool, told_new: bool, bridges: bool) -> None:
        """What the client wants while it is connected, whether it was told that its session is new, and whether it is a
        broker."""
        self.bridges = bridges
        self.roams = roams
        self.asks = asks
        self.told_new = told_new

    def authorize(self, rights: Rights) -> None:
        self.rights = rights

    def came_by(self, listener: Listener | None, queue_full: QueueFull | None, *, proved: bool) -> None:
        """Where and how the client came in last and what goes for a full queue, as it was written down."""
        self.proved = proved
        self.listener = listener
        self.queue_full = queue_full

    def limit(self, publishes: TokenBucket | None, locations: TokenBucket | None) -> None:
        """How often it may publish and move."""
        self.publish_bucket = publishes
        self.location_bucket = locations

    def date(self, since_ms: int) -> None:
        """The client was let in at this time, as other brokers know it."""
        self.since_ms = since_ms

    def detach(self, due_will: DueWill | None) -> None:
        """The connection is gone."""
        self.connection = None
        self.due_will = due_will

    def keep_will(self, due_will: DueWill) -> None:
        self.due_will = due_will

    def take_will(self) -> DueWill | None:
        """The will that is due, which then waits no more."""
        due_will, self.due_will = self.due_will, None
        return due_will

    # Its subscriptions.

    def subscription_key(self, prefix: str) -> ClientId:
        """The id under which subscriptions with this prefix are known to routing."""
        return ClientId(f"{self.id}\0{prefix}") if prefix else self.id

    def subscription_keys(self) -> list[ClientId]:
        """Every key that has a subscription or may have a location."""
        if not self.prefixes:
            return [self.id]
        return [self.id, *(self.subscription_key(prefix) for prefix in self.prefixes)]

    def add_subscription(self, prefix: str) -> bool:
        """Count one more subscription under the prefix; whether it is the first."""
        if not prefix:
            return False
        if self.prefixes is None:
            self.prefixes = {}
        self.prefixes[prefix] = self.prefixes.get(prefix, 0) + 1
        return self.prefixes[prefix] == 1

    def remove_subscription(self, prefix: str) -> bool:
        """Count one less; whether it was the last."""
        if not prefix or self.prefixes is None:
            return False
        left = self.prefixes[prefix] - 1
        if left:
            self.prefixes[prefix] = left
            return False
        del self.prefixes[prefix]
        return True

    def known_patterns(self, found: Iterable[Pattern]) -> dict[Pattern, int]:
        """The patterns of all subscriptions, counted from now on; the first time, `found` are those there are."""
        if self.patterns is None:
            self.patterns = dict(Counter(found))
        return self.patterns

    def count_filter(self, levels: int, pattern: Pattern, difference: int) -> None:
        """Count one subscription more or less whose filter has so many levels and this pattern."""
        self.levels += difference * levels
        if self.patterns is not None:
            self.patterns[pattern] = self.patterns.get(pattern, 0) + difference
            if not self.patterns[pattern]:
                del self.patterns[pattern]

    # Its places.

    def move(self, location: Location | None) -> None:
        self.location = location

    def define_fence(self, name: str, fence: Fence | None) -> None:
        if self.fences is NO_FENCES:
            self.fences = {}
        if fence is None:
            self.fences.pop(name, None)
            self.inside -= {name}
        else:
            self.fences[name] = fence

    def cross(self) -> tuple[list[str], list[str]]:
        """Look which fences the client is inside now: the names of those it left, and of those it entered."""
        place, before = self.location, self.inside
        self.inside = frozenset(name for name, fence in self.fences.items() if place and fence.contains(place))
        return sorted(before - self.inside), sorted(self.inside - before)


def split_subscription_key(client_id: str) -> tuple[str, str]:
    """The client and the prefix behind a key."""
    client, _, prefix = client_id.partition("\0")
    return client, prefix
