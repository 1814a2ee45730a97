"""Retained messages: the last one per topic, found by filter, bounded in number, expiring.

Decides nothing about who may see them.
"""

import heapq
from collections.abc import Iterator

from geomq.mqtt.message import Message

PAUSE_NODES = 64
"""Levels of topics a search looks at before it lets its caller do something else."""


class _Node:
    __slots__ = ("children", "message")

    def __init__(self) -> None:
        self.children: dict[str, _Node] | None = None
        self.message: Message | None = None


class RetainedStore:
    """A trie of topic names. `count_max` bounds it; replacing and deleting always work."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self._root = _Node()
        self._count = 0
        self._expiries: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return self._count

    def put(self, message: Message, *, beyond: bool = False) -> bool:
        """Keep `message` as its topic's retained one; False if there is no room for another topic.

        `beyond` makes room for what has to be kept whatever the bound.
        """
        node = self._find(message.topic)
        if node is None or node.message is None:
            if self._count >= self.count_max and not beyond:
                return False
            node = self._grow(message.topic)
            self._count += 1
        node.message = message
        if message.expires_at is not None:
            heapq.heappush(self._expiries, (message.expires_at, message.topic))
            if len(self._expiries) > 2 * self._count + 64:
                self._rebuild_expiries()
        return True

    def get(self, topic: str) -> Message | None:
        node = self._find(topic)
        return None if node is None else node.message

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
        node.message = None
        self._count -= 1
        for parent, level in reversed(path):
            assert parent.children is not None
            child = parent.children[level]
            if child.children or child.message is not None:
                break
            del parent.children[level]
        return True

    def match(self, topic_filter: str, now: float) -> Iterator[Message]:
        """The unexpired messages whose topics match, in insertion order of the levels."""
        return (message for message in self.search(topic_filter, now) if message is not None)

    def search(self, topic_filter: str, now: float) -> Iterator[Message | None]:
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
        """Forget what has expired and name those topics."""
        gone: list[str] = []
        while self._expiries and self._expiries[0][0] <= now:
            topic = heapq.heappop(self._expiries)[1]
            message = self.get(topic)
            if message is not None and message.expired(now):
                self.remove(topic)
                gone.append(topic)
        return gone

    def next_expiry(self) -> float | None:
        """When `expire` may next have something to do."""
        return self._expiries[0][0] if self._expiries else None

    def __iter__(self) -> Iterator[Message]:
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.message is not None:
                yield node.message
            if node.children:
                stack.extend(reversed(node.children.values()))

    def _find(self, topic: str) -> _Node | None:
        node = self._root
        for level in topic.split("/"):
            child = node.children.get(level) if node.children else None
            if child is None:
                return None
            node = child
        return node

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
