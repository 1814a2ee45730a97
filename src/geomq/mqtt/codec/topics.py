"""Topic names and filters: validation, matching, and the trie that finds every filter matching a topic.

Handles MQTT's `+`, `#`, `$`-topic and `$share` rules. Knows nothing of clients, fences or sessions: the trie
maps a filter to one value that belongs to the caller.
"""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from geomq.errors import TopicError

LEVELS_MAX = 200
BYTES_MAX = 65_535
REMEMBERED_CHARS_MAX = 256
"""Nothing is cached about longer topics: a cache bounded in entries is only then bounded in bytes."""

V = TypeVar("V")


def check_topic(topic: str) -> str:
    """Return `topic` if a client may publish to it, else raise TopicError."""
    _check_text(topic, "topic")
    if "+" in topic or "#" in topic:
        raise TopicError(f"topic {topic[:80]!r} contains a wildcard; only topic filters may")
    return topic


def check_filter(topic_filter: str) -> str:
    """Return `topic_filter` (without any `$share` prefix) if it is well formed, else raise TopicError."""
    _check_text(topic_filter, "topic filter")
    if "+" in topic_filter or "#" in topic_filter:
        levels = topic_filter.split("/")
        for position, level in enumerate(levels):
            if "#" in level and (level != "#" or position != len(levels) - 1):
                raise TopicError(f"filter {topic_filter[:80]!r}: '#' must be the whole last level")
            if "+" in level and level != "+":
                raise TopicError(f"filter {topic_filter[:80]!r}: '+' must be a whole level")
    return topic_filter


def _check_text(text: str, what: str) -> None:
    if not text:
        raise TopicError(f"{what} is empty")
    if "\0" in text:
        raise TopicError(f"{what} contains a NUL character")
    if len(text) > BYTES_MAX or len(text.encode("utf-8", "surrogatepass")) > BYTES_MAX:
        raise TopicError(f"{what} is longer than {BYTES_MAX} bytes")
    if text.count("/") >= LEVELS_MAX:
        raise TopicError(f"{what} has more than {LEVELS_MAX} levels")


class Shared(NamedTuple):
    """A subscription's share name (None for an ordinary one) and its plain filter."""

    group: str | None
    topic_filter: str


def split_shared(topic_filter: str) -> Shared:
    """Split `$share/<group>/<filter>`; any other filter comes back whole with no group."""
    if not topic_filter.startswith("$share/"):
        return Shared(None, topic_filter)
    group, slash, rest = topic_filter[len("$share/") :].partition("/")
    if not group or "+" in group or "#" in group:
        raise TopicError(f"shared filter {topic_filter[:80]!r} needs a share name without wildcards")
    if not slash or not rest:
        raise TopicError(f"shared filter {topic_filter[:80]!r} names no topic filter after the share name")
    return Shared(group, rest)


def topic_matches(topic_filter: str, topic: str) -> bool:
    """Whether `topic` matches `topic_filter` (both valid, the filter without `$share`)."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for position, want in enumerate(wanted):
        if want == "#":
            return True
        if position == len(levels) or want not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


def first_level(topic_filter: str) -> str | None:
    """The literal first level of a topic or filter, or None if it starts with a wildcard."""
    head = topic_filter.split("/", 1)[0]
    return None if head in ("+", "#") else head


def wildcard_pattern(topic_filter: str) -> str:
    """Where the filter has its wildcards, as in `.+.#`; levels without any at its end are left out.

    Of all filters with one pattern at most one matches a topic: the topic's levels decide what the others are. So a set
    of filters has no more matches for a topic than it has patterns.
    """
    if "+" not in topic_filter and "#" not in topic_filter:
        return ""
    levels = topic_filter.split("/")
    return "".join([level if level in ("+", "#") else "." for level in levels]).rstrip(".")


class _Node(Generic[V]):
    __slots__ = ("children", "topic_filter", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.topic_filter: str | None = None
        self.value: V | None = None


class TopicTrie(Generic[V]):
    """Maps filters to values and finds the values of all filters that match a topic, in a fixed order."""

    def __init__(self) -> None:
        self._root: _Node[V] = _Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, topic_filter: str) -> V | None:
        node = self._root
        for level in topic_filter.split("/"):
            found = node.children.get(level)
            if found is None:
                return None
            node = found
        return node.value

    def put(self, topic_filter: str, value: V) -> None:
        node = self._root
        for level in topic_filter.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        if node.topic_filter is None:
            self._size += 1
        node.topic_filter, node.value = topic_filter, value

    def remove(self, topic_filter: str) -> None:
        """Forget the filter and prune what only it needed; an unknown filter is ignored."""
        path: list[tuple[_Node[V], str]] = []
        node = self._root
        for level in topic_filter.split("/"):
            found = node.children.get(level)
            if found is None:
                return
            path.append((node, level))
            node = found
        if node.topic_filter is None:
            return
        node.topic_filter = node.value = None
        self._size -= 1
        for parent, level in reversed(path):
            child = parent.children[level]
            if child.children or child.topic_filter is not None:
                break
            del parent.children[level]

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match the topic."""
        return [value for _, value in self.match_items(topic)]

    def match_items(self, topic: str) -> list[tuple[str, V]]:
        """The filters that match the topic, with their values."""
        found: list[_Node[V]] = []
        frontier = [self._root]
        wild = not topic.startswith("$")
        for level in topic.split("/"):
            following: list[_Node[V]] = []
            for node in frontier:
                children = node.children
                if wild:
                    many = children.get("#")
                    if many is not None:
                        found.append(many)
                    one = children.get("+")
                    if one is not None:
                        following.append(one)
                exact = children.get(level)
                if exact is not None:
                    following.append(exact)
            wild = True
            frontier = following
        for node in frontier:
            found.append(node)
            many = node.children.get("#")
            if many is not None:
                found.append(many)
        return [(n.topic_filter, n.value) for n in found if n.topic_filter is not None and n.value is not None]

    def items(self) -> Iterator[tuple[str, V]]:
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.topic_filter is not None and node.value is not None:
                yield node.topic_filter, node.value
            stack.extend(reversed(node.children.values()))


class TopicNames(dict[bytes, str]):
    """Decoded, checked topic names by their bytes: `names[raw]` checks each name once, in bounded memory."""

    __slots__ = ()
    COUNT_MAX = 10_000

    def __missing__(self, raw: bytes) -> str:
        topic = check_topic(_decoded(raw))
        if len(raw) <= REMEMBERED_CHARS_MAX:
            if len(self) >= self.COUNT_MAX:
                self.clear()
            self[raw] = topic
        return topic


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise TopicError("topic is not valid UTF-8") from None
