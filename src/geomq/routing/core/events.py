"""What can happen to a broker, in the past tense. These are the only inputs of the routing core.

The driver guarantees the order: messages of one peer arrive in the order they were sent, and `PeerUp` comes before
the first of them. Actions are requests; when one fails, the failure comes back as one of these.
"""

import msgspec

from geomq.geo import Fence, Location
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Edition, Event, EventId
from geomq.routing.core.topology import Federation


class RoutingEvent(msgspec.Struct, frozen=True):
    """Any input of the routing core."""


class ClientMoved(RoutingEvent, frozen=True):
    """A client said where it is; None withdraws its location."""

    client: ClientId
    location: Location | None


class ClientSubscribed(RoutingEvent, frozen=True):
    """A client created a subscription or replaced the fence of one it had; with `share` in a share group."""

    client: ClientId
    topic_filter: str
    fence: Fence | None = None
    share: str | None = None


class ClientUnsubscribed(RoutingEvent, frozen=True):
    client: ClientId
    topic_filter: str
    share: str | None = None


class RetainedChanged(RoutingEvent, frozen=True):
    """What is retained of a topic was set or deleted by the event that an own client has just published.

    `wall_ms` is the wall clock's time, which the version of the change begins with.
    """

    topic: str
    wall_ms: int
    deleted: bool = False
    published: EventId | None = None


class RetainedStored(RoutingEvent, frozen=True):
    """What `StoreRetained` brought is kept, or deleted, now."""

    event: Event
    published: EventId | None


class RetainedExpired(RoutingEvent, frozen=True):
    """Retained events of these topics were let go of."""

    topics: tuple[str, ...]


class ClientReady(RoutingEvent, frozen=True):
    """A client of which the session lives on left its connection, or has one again."""

    client: ClientId
    ready: bool


class ClientGone(RoutingEvent, frozen=True):
    """A client's session ended: its location and subscriptions are to be forgotten everywhere."""

    client: ClientId


class ClientPublished(RoutingEvent, frozen=True):
    """A client published; `location` is a newer place than the client's last one, if it gave one.

    `at_ms` is the wall clock's time, which only those who receive the event are told; `due_ms` is when it expires.
    """

    client: ClientId
    topic: str
    fence: Fence | None = None
    location: Location | None = None
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: bytes = b""
    at_ms: int = 0
    due_ms: int | None = None


class SharedReturned(RoutingEvent, frozen=True):
    """A member's session ended before the member had this event of its share group: another is to have it."""

    share: str
    topic_filter: str
    event: Event
    """Without an id of its own yet."""


class ClientDeparted(RoutingEvent, frozen=True):
    """A client's session was given to another broker."""

    client: ClientId
    to: BrokerId


class ClientArrived(RoutingEvent, frozen=True):
    """A client's session came from another broker, where it had these events; its subscriptions follow."""

    client: ClientId
    had: tuple[EventId, ...] = ()


class SessionSought(RoutingEvent, frozen=True):
    """A client connects, and another broker may have its session. `attempt` names this connection in the answer.

    `wall_ms` is the wall clock's time; `refuses` says that a client whose session may be at a broker which does not
    answer for `wait_ms` is turned away, `unchecked` that a clean start needs nobody's leave.
    """

    client: ClientId
    attempt: int
    user: str | None
    clean: bool
    wall_ms: int
    wait_ms: float
    refuses: bool = False
    unchecked: bool = False


class SessionPacked(RoutingEvent, frozen=True):
    """What `GiveSession` asked for: the session, which is no longer here; without parts there is none to be given.

    `keys` are the ids under which routing knows the client, `record` is what the driver needs of it after a restart.
    `not_had` are events that go with the session because the client has not acknowledged them.
    """

    client: ClientId
    to: BrokerId
    token: int
    parts: tuple[bytes, ...] = ()
    keys: tuple[ClientId, ...] = ()
    record: bytes = b""
    not_had: tuple[EventId, ...] = ()


class SessionTaken(RoutingEvent, frozen=True):
    """What `TakeSession` brought lives here now."""

    client: ClientId


class AddressAnnounced(RoutingEvent, frozen=True):
    """Clients reach this broker here."""

    address: str


class PeerSaid(RoutingEvent, frozen=True):
    """A message came over a link; `edition` is the one that the sender gave it."""

    peer: BrokerId
    message: Message
    edition: Edition | None = None


class PeerUp(RoutingEvent, frozen=True):
    """The link to a peer works; whatever the peer knew of us before may be lost."""

    peer: BrokerId


class PeerDown(RoutingEvent, frozen=True):
    """The link to a peer broke. What is sent to it meanwhile waits in the driver's bounded outbox."""

    peer: BrokerId


class LatencyMeasured(RoutingEvent, frozen=True):
    """A probe of the link to a peer came back: one way, in milliseconds."""

    peer: BrokerId
    latency_ms: float


class FederationChanged(RoutingEvent, frozen=True):
    """Brokers were added or removed, or areas were redrawn."""

    federation: Federation
