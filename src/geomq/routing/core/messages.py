"""The messages that brokers send each other. A message's `kind` is the column it is counted in.

A message declares all that others have to know of it: how it is named on a link, whether it must not be lost, what its
receiver keeps of it. Strategies with a protocol of their own (groups, mesh, rendezvous, adaptive) define their messages
in their own file. What a strategy sends it names in `Strategy.messages`; `message_registry.py` knows them all.
"""

from typing import Annotated, ClassVar, Literal

import msgspec

from geomq.geo import Fence, Location
from geomq.routing.core.keeps import BeginRepetition, Drop, EndRepetition, Put, Renew, Rules, Table
from geomq.routing.core.model import ClientId, Event, Match

MessageKind = Literal["event", "subscription", "delivery", "location", "control"]
KINDS: tuple[MessageKind, ...] = ("event", "subscription", "delivery", "location", "control")


class Message(msgspec.Struct, frozen=True):
    """A message from one broker to another."""

    kind: ClassVar[MessageKind] = "control"
    wire_id: ClassVar[int | str] = ""
    """How the class itself, not one derived from it, is named on a link: one of GeoMQ by a number that no other message
    ever had, one of a user by a text. Without one it goes by `module:Class`."""
    durable: ClassVar[bool] = False
    """Whether it has to survive on the sender's disk until the peer has it, as events of QoS 1 and 2 do."""
    after_disk: ClassVar[bool] = False
    """Whether it may be sent only when all that was done before is on disk."""
    keeps: ClassVar[Rules] = ()
    """What the receiver keeps on disk of it, and what it drops."""
    versioned: ClassVar[bool] = False
    """Whether the id of its event is a version of what is retained."""

    def once_sent(self) -> "Message":
        """What to keep of it until the peer acknowledges it, and to send again if need be."""
        return self


Messages = tuple[type[Message], ...]


COVERAGE, SUBSCRIPTIONS, PLACES = Table("c"), Table("s"), Table("t")
"""Places come last: a client is where its latest place puts it once all its subscriptions came."""


class ForwardEvent(Message, frozen=True):
    """An event for the receiver to match (and, in strategies with several hops, to pass on)."""

    wire_id: ClassVar[int] = 0
    kind: ClassVar[MessageKind] = "event"
    event: Event
    hops: int = 1


class DeliverEvent(Message, frozen=True):
    """An event that matched subscriptions of the receiver's clients."""

    wire_id: ClassVar[int] = 1
    kind: ClassVar[MessageKind] = "delivery"
    event: Event
    matches: tuple[Match, ...]


OF_EVENTS = (ForwardEvent, DeliverEvent)
"""The most frequent messages: only the strategy receives them."""


class PutLocation(Message, frozen=True):
    """The sender's client is at another place."""

    wire_id: ClassVar[int] = 5
    kind: ClassVar[MessageKind] = "location"
    keeps: ClassVar[Rules] = (Put(PLACES, by=("client",)),)
    client: ClientId
    location: Location | None


class PutSubscription(Message, frozen=True):
    """A subscription of one of the sender's clients, new or changed, with the client's location."""

    wire_id: ClassVar[int] = 2
    kind: ClassVar[MessageKind] = "subscription"
    keeps: ClassVar[Rules] = (Put(SUBSCRIPTIONS, by=("client", "topic_filter")), Renew(PutLocation))
    client: ClientId
    topic_filter: str
    fence: Fence | None
    location: Location | None


class DropSubscription(Message, frozen=True):
    """The receiver is no longer a rendezvous of this subscription."""

    wire_id: ClassVar[int] = 3
    kind: ClassVar[MessageKind] = "subscription"
    keeps: ClassVar[Rules] = (Drop(SUBSCRIPTIONS, by=("client", "topic_filter")),)
    client: ClientId
    topic_filter: str


class DropClient(Message, frozen=True):
    """The client is gone: forget all its subscriptions and its location."""

    wire_id: ClassVar[int] = 4
    kind: ClassVar[MessageKind] = "subscription"
    keeps: ClassVar[Rules] = (Drop(SUBSCRIPTIONS, by=("client",)), Drop(PLACES, by=("client",)))
    client: ClientId


class SyncBegin(Message, frozen=True):
    """The sender will now repeat everything the receiver should know of its clients."""

    wire_id: ClassVar[int] = 6
    keeps: ClassVar[Rules] = (BeginRepetition(),)


class SyncEnd(Message, frozen=True):
    """The repetition is complete: what it did not mention is gone."""

    wire_id: ClassVar[int] = 7
    keeps: ClassVar[Rules] = (EndRepetition(),)


class CoverageChanged(Message, frozen=True):
    """The cells outside its area in which the sender serves roaming clients; None means everywhere."""

    wire_id: ClassVar[int] = 8
    keeps: ClassVar[Rules] = (Put(COVERAGE),)
    version: int
    cells: tuple[Annotated[int, msgspec.Meta(ge=0, lt=180 * 360)], ...] | None


class CoverageConfirmed(Message, frozen=True):
    """The sender reckons with the receiver's coverage of that version."""

    wire_id: ClassVar[int] = 9
    version: int


def is_promised(message: Message) -> bool:
    """Whether no crash may lose the message: it carries a session, or an event acknowledged to its publisher."""
    event = getattr(message, "event", None)
    return message.durable or (isinstance(event, Event) and event.qos > 0)
