"""The messages of brokers about the federation description, and how a message names its edition."""

from enum import IntEnum
from typing import ClassVar

from geomq.routing.core.messages import Message, MessageKind, Messages
from geomq.routing.core.model import Edition, Event


class Phase(IntEnum):
    """How far a broker is on the way to an edition."""

    ADOPTED = 0
    """It has the description, and its new routing takes in what others send."""
    PREPARED = 1
    """It has sent all others what they have to know."""
    READY = 2
    """All others have sent it theirs: whatever it receives can be routed."""
    SWITCHED = 3
    """Its clients' events take the new routing."""
    DRAINED = 4
    """All others have switched, so it sends nothing of its own by the old routing any more."""


class OfferDescription(Message, frozen=True):
    """The sender has this edition."""

    wire_id: ClassVar[int] = 52
    edition: Edition


class WantDescription(Message, frozen=True):
    """The receiver's edition is later than the sender's: send it."""

    wire_id: ClassVar[int] = 53


class PutDescription(Message, frozen=True):
    """A whole description, encoded."""

    wire_id: ClassVar[int] = 54
    description: bytes


class EditionReached(Message, frozen=True):
    """How far the sender is in an edition; `problem` says why it cannot go on, `asks` requests the receiver's."""

    wire_id: ClassVar[int] = 55
    after_disk: ClassVar[bool] = True
    edition: Edition
    phase: int
    problem: str = ""
    asks: bool = False


MESSAGES: Messages = (OfferDescription, WantDescription, PutDescription, EditionReached)


class OfEdition(Message, frozen=True):
    """A message of the routing of one edition, as it travels; no node ever sees it so wrapped."""

    edition: Edition
    message: Message

    kind: ClassVar[MessageKind] = "control"

    @property
    def event(self) -> Event | None:
        """The event inside, which says whether the message was promised to somebody."""
        return getattr(self.message, "event", None)

    @property
    def durable(self) -> bool:  # type: ignore[override]
        return self.message.durable

    def once_sent(self) -> Message:
        kept = self.message.once_sent()
        return self if kept is self.message else kept


def wrapped(message: Message, edition: Edition | None) -> Message:
    """The message as it goes over a link."""
    return message if edition is None else OfEdition(edition, message)


def unwrapped(message: Message) -> tuple[Message, Edition | None]:
    return (message.message, message.edition) if isinstance(message, OfEdition) else (message, None)
