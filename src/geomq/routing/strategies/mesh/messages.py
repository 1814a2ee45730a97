"""The messages of a federation mesh, and the outbox that gathers it.

News of many groups for the same neighbour that arise from one input travel in one message; the entries are what the
paper counts. Numbers out of range never get past `is_sound`.
"""

from typing import ClassVar, NamedTuple

import msgspec

from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, Number

SEQUENCE_MAX = 2**53
NAME_MAX = 1024
PARENTS_MAX = 8


class Stamp(NamedTuple):
    """Which edition of the topic-to-group map someone has."""

    version: Number
    origin: BrokerId

    def supersedes(self, other: "Stamp | None") -> bool:
        """Later versions win; of equal versions the one of the smallest origin."""
        return other is None or (-self.version, self.origin) < (-other.version, other.origin)


class Announcement(msgspec.Struct, frozen=True):
    """A core's announcement as the sender passes it on: `distance` is the sender's own distance to the core."""

    group: str
    core: BrokerId
    sequence: int
    distance: int
    member: bool
    parents: tuple[BrokerId, ...] = ()
    age_ms: float = 0.0

    def __str__(self) -> str:
        words = [f"{self.group} core={self.core} sequence={self.sequence} distance={self.distance}"]
        if self.member:
            words.append("member")
        if self.parents:
            words.append(f"parents={','.join(self.parents)}")
        if self.age_ms:
            words.append(f"age={self.age_ms:g}ms")
        return " ".join(words)

    def is_sound(self, *, brokers: int, lifetime_ms: float) -> bool:
        return (
            len(self.group) <= NAME_MAX
            and 0 < self.sequence <= SEQUENCE_MAX
            and 0 <= self.distance < brokers
            and len(self.parents) <= PARENTS_MAX
            and 0 <= self.age_ms < lifetime_ms
        )


class Membership(msgspec.Struct, frozen=True):
    """The sender has the receiver as a parent and is a mesh member, or (not `member`) no longer is."""

    group: str
    core: BrokerId
    sequence: int
    member: bool = True
    stamp: Stamp | None = None

    def __str__(self) -> str:
        word = "joins" if self.member else "leaves"
        return f"{word} {self.group} core={self.core} sequence={self.sequence}"

    def is_sound(self) -> bool:
        return len(self.group) <= NAME_MAX and 0 < self.sequence <= SEQUENCE_MAX


class LostRoute(msgspec.Struct, frozen=True):
    """The sender, or a broker behind it, has no path to the core left and asks for a newer announcement."""

    group: str
    core: BrokerId
    sequence: int

    def __str__(self) -> str:
        return f"{self.group} core={self.core} sequence={self.sequence}"

    def is_sound(self) -> bool:
        return len(self.group) <= NAME_MAX and 0 <= self.sequence <= SEQUENCE_MAX


class CoreAnnouncements(Message, frozen=True):
    """Cores' announcements, as the sender passes them on."""

    wire_id: ClassVar[int] = 18
    items: tuple[Announcement, ...]


class MembershipAnnouncements(Message, frozen=True):
    """In which groups the receiver is the sender's parent, or no longer is."""

    wire_id: ClassVar[int] = 19
    items: tuple[Membership, ...]


class RoutesLost(Message, frozen=True):
    """To which cores the sender has no route left."""

    wire_id: ClassVar[int] = 20
    items: tuple[LostRoute, ...]


class TopicMap(Message, frozen=True):
    """First topic level -> group, as its origin advertised it; spreads along the management mesh."""

    wire_id: ClassVar[int] = 21
    version: int
    origin: BrokerId
    groups: tuple[tuple[str, str], ...]


class TopicMapWanted(Message, frozen=True):
    """The receiver has a later map than the sender, which asks for it."""

    wire_id: ClassVar[int] = 22


class Outbox:
    """What one input gave rise to, by neighbour. Which announcement is due is noted, not its text: the text is
    written when the input is done with, so a group that changed twice is announced once."""

    def __init__(self) -> None:
        self.announce: dict[BrokerId, dict[str, None]] = {}
        self.memberships: dict[BrokerId, list[Membership]] = {}
        self.lost: dict[BrokerId, dict[str, LostRoute]] = {}

    def __bool__(self) -> bool:
        return bool(self.announce or self.memberships or self.lost)

    def add_announcement(self, neighbour: BrokerId, group: str) -> None:
        self.announce.setdefault(neighbour, {})[group] = None

    def add_membership(self, neighbour: BrokerId, membership: Membership) -> None:
        self.memberships.setdefault(neighbour, []).append(membership)

    def add_lost(self, neighbour: BrokerId, lost: LostRoute) -> None:
        self.lost.setdefault(neighbour, {})[lost.group] = lost
