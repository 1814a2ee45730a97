"""Which retained event of a topic is the latest, agreed by all brokers without asking each other.

Every change gets a version: a time and the broker that made it. The larger version wins everywhere, deletions
included, so brokers that have seen the same changes agree whatever order they saw them in. A digest of all versions
tells two brokers whether they have. There is room for a bounded number of topics; a driver lets those deleted longest
ago go first.
"""

import hashlib
from collections.abc import Iterator
from typing import ClassVar

from geomq.routing.core.messages import Message, MessageKind, Messages
from geomq.routing.core.model import TIME_MAX, BrokerId, Event, EventId, Version

TOPICS_MAX = 1_000_000


class PutRetained(Message, frozen=True):
    """The latest retained event of a topic (an empty payload deletes it); its id is its version.

    One that is news says under which id it was `published`.
    """

    wire_id: ClassVar[int] = 35
    versioned: ClassVar[bool] = True
    kind: ClassVar[MessageKind] = "control"
    event: Event
    user: str | None = None
    published: EventId | None = None


class RetainedDigest(Message, frozen=True):
    """What all versions the sender knows add up to."""

    wire_id: ClassVar[int] = 36
    kind: ClassVar[MessageKind] = "control"
    digest: int


class RetainedWanted(Message, frozen=True):
    """The digests differ: send everything."""

    wire_id: ClassVar[int] = 37
    kind: ClassVar[MessageKind] = "control"


MESSAGES: Messages = (PutRetained, RetainedDigest, RetainedWanted)


class RetainedVersions:
    """The latest known version of every topic, deleted ones included."""

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self._versions: dict[str, Version] = {}
        self._topics_max = topics_max
        self.digest = 0

    def __len__(self) -> int:
        return len(self._versions)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._versions))

    def get(self, topic: str) -> Version | None:
        return self._versions.get(topic)

    def next(self, topic: str, me: BrokerId, now_ms: int) -> Version:
        """The version of a change made here: later than any before it, whatever the clocks say."""
        before = self._versions.get(topic)
        return Version(now_ms if before is None else min(max(now_ms, before.time_ms + 1), TIME_MAX), me)

    def take(self, topic: str, version: Version) -> bool:
        """Record a version; False if it is known, invalid, or there is no room for another topic."""
        before = self._versions.get(topic)
        if version.time_ms > TIME_MAX or (before is None and len(self._versions) >= self._topics_max):
            return False
        if before is not None and version <= before:
            return False
        if before is not None:
            self.digest ^= _hash(topic, before)
        self.digest ^= _hash(topic, version)
        self._versions[topic] = version
        return True

    @property
    def full(self) -> bool:
        return len(self._versions) >= self._topics_max

    def forget(self, topic: str) -> None:
        """Make room for another topic."""
        self.digest ^= _hash(topic, self._versions.pop(topic))


def _hash(topic: str, version: Version) -> int:
    text = f"{version.time_ms} {version.origin} {topic}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
