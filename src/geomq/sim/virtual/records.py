"""What a run leaves behind: who published, wanted, was and got what, and when. No rules; those are `judge`'s.

Written anew and on purpose without any code of the broker: topics, circles and distances are read a second time here.
"""

import math
from dataclasses import dataclass, field
from typing import Final

EARTH_M: Final = 6_371_008.8
NEAR: Final = 0.01
"""So close to the border of a fence, as a part of its radius, either answer is right."""
INFINITY: Final = math.inf
KEEP_ALIVE_S: Final = 20
"""Of every client."""


@dataclass(frozen=True, slots=True)
class Place:
    lat: float
    lon: float

    @property
    def text(self) -> str:
        return f"{self.lat:.4f},{self.lon:.4f}"


@dataclass(frozen=True, slots=True)
class Circle:
    centre: Place
    radius_m: float

    @property
    def text(self) -> str:
        return f"geo:{self.centre.text};u={self.radius_m:.0f}"

    def contains(self, place: Place) -> bool | None:
        """None where it is too close to call."""
        a, b = math.radians(self.centre.lat), math.radians(place.lat)
        half = math.radians(self.centre.lon - place.lon) / 2
        chord = math.sin((a - b) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(half) ** 2
        distance_m = 2 * EARTH_M * math.asin(math.sqrt(min(1.0, chord)))
        if abs(distance_m - self.radius_m) < NEAR * self.radius_m:
            return None
        return distance_m < self.radius_m


@dataclass(frozen=True, slots=True)
class Wish:
    """A subscription, or with `wanted` False the end of one."""

    topic_filter: str
    qos: int
    fence: Circle | None = None
    wanted: bool = True

    @property
    def share(self) -> str | None:
        """The share group, by its name and filter."""
        return self.topic_filter if self.topic_filter.startswith("$share/") else None

    @property
    def plain(self) -> str:
        """The filter without its group."""
        return self.topic_filter.split("/", 2)[2] if self.share else self.topic_filter


def matches(topic_filter: str, topic: str) -> bool:
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


@dataclass(slots=True)
class Event:
    """One publish through all its attempts."""

    name: str
    publisher: str
    topic: str
    qos: int
    retain: bool
    fence: Circle | None
    expiry_s: int | None
    deletes: bool
    number: int
    sent_s: float = INFINITY
    sends: int = 0
    brokers: set[str] = field(default_factory=set)
    places: set[Place | None] = field(default_factory=set)
    acknowledged_s: float | None = None
    declined: str | None = None
    ambiguous: bool = False
    """The publisher's session was gone, so that it published once more what it does not know the fate of."""


@dataclass(slots=True)
class Held:
    """A wish over time: asked for, granted, taken back, gone."""

    wish: Wish
    asked_s: float
    granted_s: float | None = None
    taken_back_s: float | None = None
    gone_s: float | None = None


@dataclass(slots=True)
class Stay:
    """A place a client said it was at, and when a broker had confirmed that."""

    place: Place
    said_s: float
    confirmed_s: float | None = None


@dataclass(slots=True)
class Connection:
    broker: str
    number: int
    opened_s: float
    closed_s: float | None = None
    said_goodbye: bool = False


@dataclass(slots=True)
class Receipt:
    event: str
    topic: str
    qos: int
    dup: bool
    retain: bool
    connection: int
    at_s: float


@dataclass(slots=True)
class Client:
    """All that is known of one client."""

    name: str
    kept: bool
    expiry_s: int
    moves: bool = False
    """Whether it was at several places, and events for it may have gone several ways."""
    wishes: list[Held] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    tried_s: float = 0.0
    """When it last gave up a connection before it was let in."""
    anew_s: list[float] = field(default_factory=list)
    """When a broker knew nothing of a session that it should have known."""
    ended_s: float | None = None

    def connected_through(self, from_s: float, until_s: float) -> bool:
        """Whether one connection was open all the time."""
        return any(
            each.opened_s < from_s and (each.closed_s is None or each.closed_s > until_s) for each in self.connections
        )

    @property
    def open(self) -> list[Connection]:
        return [each for each in self.connections if each.closed_s is None]
