"""The messages of brokers about sessions that move."""

from typing import ClassVar

from geomq.routing.core.messages import Message, MessageKind, Messages
from geomq.routing.core.model import BrokerId, ClientId, Event, Match, Number


class ClientAddress(Message, frozen=True):
    """Where the sender's clients connect."""

    wire_id: ClassVar[int] = 45
    address: str


class SessionWanted(Message, frozen=True):
    """A client connects at the sender: whoever has its session is to hand it over, or to end it (`clean`).

    `live` as the client comes; asked later, or by two brokers at the same time, `since_ms` decides where it came last.
    """

    wire_id: ClassVar[int] = 46
    client: ClientId
    token: int
    user: str | None
    clean: bool
    live: bool
    since_ms: int


class NoSession(Message, frozen=True):
    """The sender has no session of that client. Or it has, but the client is not the user it belongs to (`refused`), or
    came to the sender later than to the receiver (`later`)."""

    wire_id: ClassVar[int] = 47
    client: ClientId
    token: int
    refused: bool = False
    later: bool = False


class HandOver(Message, frozen=True):
    """A part of a session, which is the receiver's as soon as it has all of them on disk."""

    wire_id: ClassVar[int] = 48
    durable: ClassVar[bool] = True
    client: ClientId
    token: int
    part: int
    parts: int
    data: bytes


class DeliverMoved(Message, frozen=True):
    """An event that matched at the broker these clients left. `tokens` are, for each match, its session's; `inside`
    says that the clients were still there then, so that where they are now does not matter."""

    wire_id: ClassVar[int] = 49
    kind: ClassVar[MessageKind] = "delivery"
    event: Event
    matches: tuple[Match, ...]
    tokens: tuple[Number, ...]
    hops: int
    inside: bool = False


class AskSettled(Message, frozen=True):
    """Does everybody know that these clients, once the sender's, are the receiver's now?"""

    wire_id: ClassVar[int] = 50
    clients: tuple[ClientId, ...]


class Settled(Message, frozen=True):
    """Everybody knows: the receiver can forget these clients."""

    wire_id: ClassVar[int] = 51
    durable: ClassVar[bool] = True
    clients: tuple[ClientId, ...]


class AskReached(Message, frozen=True):
    """The receiver answers as soon as it has dealt with all that the sender sent before."""

    wire_id: ClassVar[int] = 60
    number: Number


class Reached(Message, frozen=True):
    """All that the receiver sent before it asked with this number was dealt with."""

    wire_id: ClassVar[int] = 61
    number: Number


class AskFlushed(Message, frozen=True):
    """The receiver answers as soon as all that it sent so far, to whomever, has arrived."""

    wire_id: ClassVar[int] = 62
    number: Number


class Flushed(Message, frozen=True):
    """All that the sender had sent when it was asked with this number has arrived."""

    wire_id: ClassVar[int] = 63
    number: Number


class SentAll(Message, frozen=True):
    """The sender will send nothing more after the client's session that it gave away with this token."""

    wire_id: ClassVar[int] = 59
    durable: ClassVar[bool] = True
    client: ClientId
    token: int


class SessionFollows(Message, frozen=True):
    """`asker` wants a session that the sender gave to the receiver: this comes after it on the same link."""

    wire_id: ClassVar[int] = 57
    client: ClientId
    token: int
    asker: BrokerId


class AskAgain(Message, frozen=True):
    """The session that `asked` had has reached the sender: it may be there, or have gone on from there."""

    wire_id: ClassVar[int] = 58
    client: ClientId
    token: int
    asked: BrokerId


MESSAGES: Messages = (
    ClientAddress,
    SessionWanted,
    NoSession,
    HandOver,
    DeliverMoved,
    AskSettled,
    Settled,
    AskReached,
    Reached,
    AskFlushed,
    Flushed,
    SentAll,
    SessionFollows,
    AskAgain,
)
