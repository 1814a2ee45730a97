"""What brokers say to each other. A message's `kind` is the column it is counted in.

Strategies with a protocol of their own (groups, mesh, rendezvous, adaptive) define their messages in their own file.
"""

from typing import Annotated, ClassVar, Literal

import msgspec

from geomq.geo import Fence, Location
from geomq.routing.model import ClientId, Event, Match

Kind = Literal["event", "subscription", "delivery", "location", "control"]
KINDS: tuple[Kind, ...] = ("event", "subscription", "delivery", "location", "control")


class Message(msgspec.Struct, frozen=True):
    """Anything one broker says to another."""

    kind: ClassVar[Kind] = "control"
    durable: ClassVar[bool] = False
    """Whether it has to survive until the peer has it, as events of QoS 1 and 2 do."""

    def once_sent(self) -> "Message":
        """What to keep of it until the peer says that it came, and to send again if need be."""
        return self


class ForwardEvent(Message, frozen=True):
    """An event for the receiver to match (and, in strategies with several hops, to pass on)."""

    kind: ClassVar[Kind] = "event"
    event: Event
    hops: int = 1


class DeliverEvent(Message, frozen=True):
    """An event that matched subscriptions of the receiver's clients."""

    kind: ClassVar[Kind] = "delivery"
    event: Event
    matches: tuple[Match, ...]


OF_EVENTS = (ForwardEvent, DeliverEvent)
"""What brokers say most: nobody but the strategy has to hear it."""


class PutSubscription(Message, frozen=True):
    """A subscription of one of the sender's clients, new or changed, with the client's location."""

    kind: ClassVar[Kind] = "subscription"
    client: ClientId
    topic_filter: str
    fence: Fence | None
    location: Location | None


class DropSubscription(Message, frozen=True):
    """The receiver is no longer a rendezvous of this subscription."""

    kind: ClassVar[Kind] = "subscription"
    client: ClientId
    topic_filter: str


class DropClient(Message, frozen=True):
    """The client is gone: forget all its subscriptions and its location."""

    kind: ClassVar[Kind] = "subscription"
    client: ClientId


class PutLocation(Message, frozen=True):
    kind: ClassVar[Kind] = "location"
    client: ClientId
    location: Location | None


class SyncBegin(Message, frozen=True):
    """The sender will now repeat everything the receiver should know of its clients."""


class SyncEnd(Message, frozen=True):
    """The repetition is complete: what it did not mention is gone."""


class CoverageChanged(Message, frozen=True):
    """The cells outside its area in which the sender serves roaming clients; None means everywhere."""

    version: int
    cells: tuple[Annotated[int, msgspec.Meta(ge=0, lt=180 * 360)], ...] | None


class CoverageConfirmed(Message, frozen=True):
    version: int
