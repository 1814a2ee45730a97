"""The nouns that routing speaks of: brokers, clients, events and matches. Plain data, no behaviour."""

from typing import Annotated, NamedTuple, NewType

import msgspec
from msgspec import Meta

from geomq.errors import UsageError
from geomq.geo import Fence, Location

BrokerId = NewType("BrokerId", str)
ClientId = NewType("ClientId", str)
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A number that names or counts something: it fits into eight bytes wherever it is written."""
Count = Annotated[int, Meta(ge=0, le=2**53)]
"""One that is calculated with: large enough for every time in milliseconds, and never near the end of `Number`."""


class EventId(NamedTuple):
    """Unique forever: the home that accepted the event, that broker's epoch (a random number that it draws at every
    start), and a running number."""

    origin: BrokerId
    epoch: Number
    sequence: Number

    def __str__(self) -> str:
        return f"{self.origin}:{self.epoch}:{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> "EventId":
        """The id that is written so."""
        origin, *numbers = text.rsplit(":", 2)
        if not origin or len(numbers) != 2 or not all(n.isascii() and n.isdigit() and len(n) < 20 for n in numbers):
            raise UsageError(f"{text[:80]!r} is not an event id, which is written origin:epoch:sequence")
        return cls(BrokerId(origin), int(numbers[0]), int(numbers[1]))


class Event(msgspec.Struct, frozen=True):
    """What a client published. `properties` and `payload` are opaque to routing.

    `at_ms` is when its home accepted it, in milliseconds since 1970; 0 where nobody said. `due_ms` is when it expires,
    by a clock of the broker that holds it; a frame carries the time that is left.
    """

    id: EventId
    topic: str
    publisher: ClientId
    location: Location | None
    fence: Fence | None
    payload: bytes = b""
    qos: Annotated[int, Meta(ge=0, le=2)] = 0
    retain: bool = False
    properties: bytes = b""
    at_ms: Count = 0
    due_ms: Count | None = None


class Edition(NamedTuple):
    """Which federation description; editions compare by number, then by the broker that made them."""

    number: Count
    origin: str

    def __str__(self) -> str:
        return f"{self.number}:{self.origin}" if self.number else "as configured"


CONFIGURED = Edition(0, "")
"""What the brokers' own config files say, before anything was changed at run time."""


class Subscriber(NamedTuple):
    """A client at its home; the same client at two brokers is two subscribers."""

    home: BrokerId
    client: ClientId


class Match(NamedTuple):
    """One subscription that an event satisfied."""

    client: ClientId
    topic_filter: str


TIME_MAX = 2**53
"""No version of a retained event is of a later time, wherever it was made."""


class Version(NamedTuple):
    """Which change of a retained topic is the latest: versions compare by time, then by broker."""

    time_ms: int
    origin: BrokerId
