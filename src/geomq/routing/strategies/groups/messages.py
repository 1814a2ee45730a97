"""The messages of broadcast groups, to each other and to the cloud.

Everything sent to or by the cloud is plain MQTT in other words, so that any vanilla broker can be the cloud:
`CloudSubscribe` is SUBSCRIBE, `CloudUnsubscribe` is UNSUBSCRIBE, `CloudPublish`, `CloudAnnounce` and their past
tenses are PUBLISH, `CloudPing` and `CloudPong` are PINGREQ and PINGRESP. An event carries its `EventId` across the
cloud; that, never the payload, tells an echo from an event that looks the same.

A `term` numbers the seats a broker takes, so that words about an old seat cannot disturb a new one.
"""

from typing import ClassVar

from geomq.routing.core.keeps import Drop, Put, Rules, Table
from geomq.routing.core.messages import Message, MessageKind, Messages
from geomq.routing.core.model import BrokerId, Event

SEATS = Table("j")
"""What a member said since it joined, its leaving at the end: a broker that led when it crashed has to send on what
comes from the cloud for those that sat, or had just sat, in its group."""


class CloudSubscribe(Message, frozen=True):
    kind: ClassVar[MessageKind] = "subscription"
    topic_filter: str


class CloudUnsubscribe(Message, frozen=True):
    kind: ClassVar[MessageKind] = "subscription"
    topic_filter: str


class CloudPublish(Message, frozen=True):
    """A leader hands an event of its group to the cloud, to be published on the event's topic."""

    kind: ClassVar[MessageKind] = "event"
    event: Event


class CloudPublished(Message, frozen=True):
    """The cloud hands an event to a leader that subscribed to it."""

    kind: ClassVar[MessageKind] = "event"
    event: Event


class CloudAnnounce(Message, frozen=True):
    """The sender leads a group: published on the topic all leaders listen to."""

    topic: str
    leader: BrokerId
    lcm: float


class CloudAnnounced(Message, frozen=True):
    topic: str
    leader: BrokerId
    lcm: float


class CloudPing(Message, frozen=True):
    """Asks for a `CloudPong` once everything sent before has taken effect."""

    token: int


class CloudPong(Message, frozen=True):
    token: int


class RelayEvent(Message, frozen=True):
    """An event of the sender's client for its leader: to match, to pass to the cloud, and to pass to members that
    joined after the `version` of the view the sender flooded to."""

    wire_id: ClassVar[int] = 23
    kind: ClassVar[MessageKind] = "event"
    event: Event
    term: int
    version: int


class Join(Message, frozen=True):
    """The sender wants a seat in the receiver's group and brings the filters its clients use."""

    wire_id: ClassVar[int] = 29
    keeps: ClassVar[Rules] = (Drop(SEATS), Put(SEATS))
    term: int
    filters: tuple[str, ...]


class PutInterest(Message, frozen=True):
    """A first client of the sender subscribed with this filter."""

    wire_id: ClassVar[int] = 24
    kind: ClassVar[MessageKind] = "subscription"
    keeps: ClassVar[Rules] = (Put(SEATS, by=("topic_filter",), rank="i", while_kept=Join),)
    term: int
    topic_filter: str


class DropInterest(Message, frozen=True):
    """The last client of the sender dropped this filter."""

    wire_id: ClassVar[int] = 25
    kind: ClassVar[MessageKind] = "subscription"
    keeps: ClassVar[Rules] = (Put(SEATS, by=("topic_filter",), rank="i", while_kept=Join),)
    term: int
    topic_filter: str


class MergeRequest(Message, frozen=True):
    """One leader asks another to make one group of their two."""

    wire_id: ClassVar[int] = 26
    round: int
    lcm: float
    size: int


class MergeReply(Message, frozen=True):
    """Who is to lead; None if the asked one cannot merge now."""

    wire_id: ClassVar[int] = 27
    round: int
    leader: BrokerId | None


class MergeNotice(Message, frozen=True):
    """A leader notifies a member that it joins another leader itself."""

    wire_id: ClassVar[int] = 28
    term: int
    leader: BrokerId


class GroupView(Message, frozen=True):
    """The members of the sender's group without the sender. The first one confirms a `Join`."""

    wire_id: ClassVar[int] = 30
    term: int
    version: int
    members: tuple[BrokerId, ...]


class Leave(Message, frozen=True):
    """The sender gives up its seat in the receiver's group."""

    wire_id: ClassVar[int] = 31
    keeps: ClassVar[Rules] = (Put(SEATS, rank="l", while_kept=Join),)
    term: int


class Dismissed(Message, frozen=True):
    """The receiver has no seat in the sender's group."""

    wire_id: ClassVar[int] = 32
    term: int


class LeaderBeat(Message, frozen=True):
    """A leader lives and still leads."""

    wire_id: ClassVar[int] = 33
    term: int


class MemberBeat(Message, frozen=True):
    """A member lives and still follows."""

    wire_id: ClassVar[int] = 34
    term: int


TO_MEMBERS: Messages = (
    RelayEvent,
    PutInterest,
    DropInterest,
    MergeRequest,
    MergeReply,
    MergeNotice,
    Join,
    GroupView,
    Leave,
    Dismissed,
    LeaderBeat,
    MemberBeat,
)
"""What goes over links; the rest is for the cloud."""
