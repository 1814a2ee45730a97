"""Retained messages: the last one per topic, found by filter, bounded in number and size, expiring.

Decides nothing about who may see them.
"""

import heapq
from collections.abc import Iterator

from geomq.mqtt.session.message import ApplicationMessage

PAUSE_NODES = 64
"""Levels of topics a search looks at before it lets its caller do something else."""
EXPIRED_MAX = 256
"""So many are forgotten at once."""
LEVEL_BYTES = 256
"""What a level of a topic occupies, roughly; topics that begin alike share them."""


class _Node:
    __slots__ = ("children", "message")

    def __init__(self) -> None:
        self.children: dict[str, _Node] | None = None
        self.message: ApplicationMessage | None = None


class RetainedStore:
    """A trie of topic names. `count_max` and `bytes_max` bound it; deleting, and replacing by what is no larger, always
    work."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self.bound(count_max, bytes_max)
        self.bytes = 0
        """What all of them roughly occupy."""
        self._root = _Node()
        self._count = 0
        self._expiries: list[tuple[float, str]] = []

    def bound(self, count_max: int, bytes_max: int) -> None:
        """Keep at most so much from now on; what is there stays."""
        self.count_max = count_max
        self.bytes_max = bytes_max

    def __len__(self) -> int:
        return self._count

    def put(self, message: ApplicationMessage, *, beyond: bool = False) -> bool:
        """Keep `message` as its topic's retained one; False if there is no room for it.

        `beyond` makes room for what has to be kept whatever the bounds.
        """
        node, missing = self._find(message.topic)
        before = None if missing else node.message
        growth = message.size + missing * LEVEL_BYTES - (0 if before is None else before.size)
        full = (before is None and self._count >= self.count_max) or (
            growth > 0 and self.bytes + growth > self.bytes_max
        )
        if full and not beyond:
            return False
        if missing:
            node = self._grow(message.topic)
        node.message = message
        self._count += before is None
        self.bytes += growth
        if message.expires_at is not None:
            heapq.heappush(self._expiries, (message.expires_at, message.topic))
            if len(self._expiries) > 2 * self._count + 64:
                self._rebuild_expiries()
        return True

    def get(self, topic: str) -> ApplicationMessage | None:
        node, missing = self._find(topic)
        return None if missing else node.message

    def remove(self, topic: str) -> bool:
        """Forget the topic's message; whether there was one."""
        path: list[tuple[_Node, str]] = []
        node = self._root
        for level in topic.split("/"):
            child = node.children.get(level) if node.children else None
            if child is None:
                return False
            path.append((node, level))
            node = child
        if node.message is None:
            return False
        self.bytes -= node.message.size
        node.message = None
        self._count -= 1
        for parent, level in reversed(path):
            assert parent.children is not None
            child = parent.children[level]
            if child.children or child.message is not None:
                break
            del parent.children[level]
            self.bytes -= LEVEL_BYTES
        return True

    def match(self, topic_filter: str, now: float) -> Iterator[ApplicationMessage]:
        """The unexpired messages whose topics match, in insertion order of the levels."""
        return (message for message in self.search(topic_filter, now) if message is not None)

    def search(self, topic_filter: str, now: float) -> Iterator[ApplicationMessage | None]:
        """As `match`, with a None now and then for the caller to turn to something else; the store may change then."""
        levels = topic_filter.split("/")
        stack: list[tuple[Iterator[_Node], int]] = [(iter((self._root,)), 0)]
        looked = 0
        while stack:
            nodes, depth = stack[-1]
            node = next(nodes, None)
            if node is None:
                stack.pop()
                continue
            looked += 1
            if not looked % PAUSE_NODES:
                yield None
            level = levels[depth] if depth < len(levels) else None
            if level in (None, "#") and node.message is not None and not node.message.expired(now):
                yield node.message
            if level is None or not node.children:
                continue
            if level in ("+", "#"):
                stack.append((iter(self._wild(node)), depth if level == "#" else depth + 1))
            elif level in node.children:
                stack.append((iter((node.children[level],)), depth + 1))

    def _wild(self, node: _Node) -> list[_Node]:
        """What a wildcard finds below."""
        if node.children is None:
            return []
        if node is not self._root:
            return list(node.children.values())
        return [child for name, child in node.children.items() if not name.startswith("$")]

    def expire(self, now: float) -> list[str]:
        """Forget what has expired and name those topics, some of them at a time: nobody gets the others any more."""
        gone: list[str] = []
        while self._expiries and self._expiries[0][0] <= now and len(gone) < EXPIRED_MAX:
            topic = heapq.heappop(self._expiries)[1]
            message = self.get(topic)
            if message is not None and message.expired(now):
                self.remove(topic)
                gone.append(topic)
        return gone

    def __iter__(self) -> Iterator[ApplicationMessage]:
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.message is not None:
                yield node.message
            if node.children:
                stack.extend(reversed(node.children.values()))

    def _find(self, topic: str) -> tuple[_Node, int]:
        """The node of a topic, or the nearest above it, and how many levels are missing."""
        node, levels = self._root, topic.split("/")
        for depth, level in enumerate(levels):
            child = node.children.get(level) if node.children else None
            if child is None:
                return node, len(levels) - depth
            node = child
        return node, 0

    def _grow(self, topic: str) -> _Node:
        node = self._root
        for level in topic.split("/"):
            if node.children is None:
                node.children = {}
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        return node

    def _rebuild_expiries(self) -> None:
        self._expiries = [(message.expires_at, message.topic) for message in self if message.expires_at is not None]
        heapq.heapify(self._expiries)
