"""A strategy of a user's own with messages of its own, for tests: it notes what it receives."""

from typing import Any, ClassVar

from geomq.geo import Fence, Location
from geomq.routing.core.keeps import Drop, Put, Rules, Table
from geomq.routing.core.messages import Message, MessageKind, Messages
from geomq.routing.core.model import BrokerId, Event
from geomq.routing.strategies.flooding import FloodEvents

NOTES = Table("Notes")


class Note(Message, frozen=True):
    """A note on a page, which holds until the page is torn out."""

    kind: ClassVar[MessageKind] = "location"
    keeps: ClassVar[Rules] = (Put(NOTES, by=("page", "line")),)
    page: str
    line: int
    text: str = ""


class TearOut(Message, frozen=True):
    keeps: ClassVar[Rules] = (Drop(NOTES, by=("page",)),)
    page: str


class Letter(Message, frozen=True):
    """A message that must arrive."""

    wire_id: ClassVar[str] = "letter"
    durable: ClassVar[bool] = True
    text: str


class Parcel(Message, frozen=True):
    """One of every field that can travel."""

    kind: ClassVar[MessageKind] = "event"
    event: Event | None
    fence: Fence | None
    place: Location | None
    weight: int
    contents: dict[str, tuple[int, ...]]


class Undeclared(Message, frozen=True):
    text: str


class Noting(FloodEvents):
    """Floods events, and notes whatever else arrives."""

    messages: ClassVar[Messages] = (Note, TearOut, Letter, Parcel)

    def __init__(self, **context: Any) -> None:
        super().__init__(**context)
        self.received: list[Message] = []

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        if isinstance(message, self.messages):
            self.received.append(message)
        super().said(peer, message, now=now)


class Clumsy(Noting):
    """Fails at letters."""

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        if isinstance(message, Letter):
            raise ZeroDivisionError("clumsy")
        super().said(peer, message, now=now)
