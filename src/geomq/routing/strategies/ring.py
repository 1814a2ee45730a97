"""The consistent-hash ring that gives each topic to a broker.

Owns the published ring: ten virtual nodes per broker with the key `<broker>-<i>`, placed by the first four bytes of
the MD5 digest read as a big-endian number. A key belongs to the next node clockwise.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Sequence

VIRTUAL_NODES = 10


class HashRing:
    """Brokers on a circle of 32-bit numbers."""

    def __init__(self, brokers: Sequence[str]) -> None:
        nodes: dict[int, int] = {}
        for position, broker in enumerate(brokers):
            for i in range(VIRTUAL_NODES):
                nodes.setdefault(_spot(f"{broker}-{i}"), position)
        self._spots = sorted(nodes)
        self._owners = [nodes[spot] for spot in self._spots]

    def owner(self, topic: str) -> int:
        """The position of the broker that the topic belongs to."""
        at = bisect_left(self._spots, _spot(topic))
        return self._owners[at % len(self._spots)]


def _spot(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")
