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


def filter_covers(wider: str, narrower: str) -> bool:
    """Whether every topic that matches the second filter matches the first."""
    levels, wanted = wider.split("/"), narrower.split("/")
    if wanted[0].startswith("$") and levels[0] in ("#", "+"):
        return False
    for number, level in enumerate(levels):
        if level == "#":
            return True
        if number == len(wanted) or wanted[number] == "#" or level not in ("+", wanted[number]):
            return False
    return len(levels) == len(wanted)


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
    """Some levels that have no choice between them, and what may follow.

    `alone` is whether it is one level only, `wild` whether any of them is a wildcard.
    """

    __slots__ = ("alone", "children", "levels", "topic_filter", "value", "wild")

    def __init__(self, levels: list[str]) -> None:
        self.children: dict[str, _Node[V]] | None = None
        self.name(levels)
        self.topic_filter: str | None = None
        self.value: V | None = None

    def name(self, levels: list[str]) -> None:
        self.levels = levels
        self.alone = len(levels) == 1
        self.wild = "+" in levels or "#" in levels

    def put(self, child: "_Node[V]") -> None:
        if self.children is None:
            self.children = {}
        self.children[child.levels[0]] = child

    def common(self, levels: list[str], start: int) -> int:
        """How many of its levels are those that begin at `start`."""
        mine = self.levels
        end = min(len(mine), len(levels) - start)
        if mine[:end] == levels[start : start + end]:
            return end
        return next(index for index in range(end) if mine[index] != levels[start + index])


class TopicTrie(Generic[V]):
    """Maps filters to values and finds the values of all filters that match a topic, in a fixed order.

    Levels between which no two filters part share a node, so that a long filter costs hardly more than a short one.
    """

    def __init__(self) -> None:
        self._root: _Node[V] = _Node([])
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, topic_filter: str) -> V | None:
        levels, node, start = topic_filter.split("/"), self._root, 0
        while start < len(levels):
            child = node.children.get(levels[start]) if node.children else None
            if child is None:
                return None
            stop = start + len(child.levels)
            if not child.alone and child.levels != levels[start:stop]:
                return None
            node, start = child, stop
        return node.value

    def _path(self, topic_filter: str) -> list[_Node[V]]:
        """The nodes from the root to that of the filter; none if there is no such node."""
        levels, node, start = topic_filter.split("/"), self._root, 0
        path = [node]
        while start < len(levels):
            child = node.children.get(levels[start]) if node.children else None
            if child is None or child.levels != levels[start : start + len(child.levels)]:
                return []
            start += len(child.levels)
            path.append(child)
            node = child
        return path

    def put(self, topic_filter: str, value: V) -> None:
        levels, node, start = topic_filter.split("/"), self._root, 0
        while start < len(levels):
            child = node.children.get(levels[start]) if node.children else None
            if child is None:
                child = _Node(levels[start:])
                node.put(child)
            else:
                common = child.common(levels, start)
                if common < len(child.levels):
                    fork: _Node[V] = _Node(child.levels[:common])
                    child.name(child.levels[common:])
                    fork.put(child)
                    node.put(fork)
                    child = fork
            start += len(child.levels)
            node = child
        if node.topic_filter is None:
            self._size += 1
        node.topic_filter, node.value = topic_filter, value

    def remove(self, topic_filter: str) -> None:
        """Forget the filter and prune what only it needed; an unknown filter is ignored."""
        path = self._path(topic_filter)
        if not path or path[-1].topic_filter is None:
            return
        node = path.pop()
        node.topic_filter = node.value = None
        self._size -= 1
        parent = path.pop()
        if not node.children:
            assert parent.children is not None
            del parent.children[node.levels[0]]
            if path:
                _join(path[-1], parent)
        else:
            _join(parent, node)

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match the topic."""
        return [value for _, value in self.match_items(topic)]

    def match_items(self, topic: str) -> list[tuple[str, V]]:
        """The filters that match the topic, with their values: those that end early with `#` first, and `+` before what
        the topic says."""
        levels, wild = topic.split("/"), not topic.startswith("$")
        end = len(levels)
        found: list[tuple[int, _Node[V]]] = []
        stack = [(self._root, 0)]
        while stack:
            node, start = stack.pop()
            if start < 0:
                found.append((~start, node))
                continue
            if start == end:
                found.append((end, node))
            children = node.children
            if not children:
                continue
            if start == end:
                child = children.get("#")
                if child is not None:
                    found.append((end, child))
                continue
            child = children.get(levels[start])
            if child is not None:
                if child.alone:
                    stack.append((child, start + 1))
                else:
                    _follow(child, levels, start, stack)
            if start or wild:
                child = children.get("+")
                if child is not None:
                    if child.alone:
                        stack.append((child, start + 1))
                    else:
                        _follow(child, levels, start, stack)
                child = children.get("#")
                if child is not None:
                    found.append((start, child))
        found.sort(key=_depth)
        return [(n.topic_filter, n.value) for _, n in found if n.topic_filter is not None and n.value is not None]

    def items(self) -> Iterator[tuple[str, V]]:
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.topic_filter is not None and node.value is not None:
                yield node.topic_filter, node.value
            if node.children:
                stack.extend(reversed(node.children.values()))


def _join(parent: _Node[V], node: _Node[V]) -> None:
    """Let the one child of a node that has no filter of its own take its place."""
    if node.topic_filter is None and node.children and len(node.children) == 1:
        (child,) = node.children.values()
        child.name(node.levels + child.levels)
        parent.put(child)


def _follow(child: _Node[V], levels: list[str], start: int, stack: list[tuple[_Node[V], int]]) -> None:
    """Look whether the topic goes on as the child does, whose first level does already; where it does not matter how,
    the level is noted as what it is not, below zero."""
    mine, end = child.levels, len(levels)
    stop = start + len(mine)
    if not child.wild:
        if mine == levels[start:stop]:
            stack.append((child, stop))
        return
    if mine[-1] == "#":
        stop -= 1
    if stop > end:
        return
    for index in range(start + 1, stop):
        level = mine[index - start]
        if level != "+" and level != levels[index]:
            return
    stack.append((child, ~stop if mine[-1] == "#" else stop))


def _depth(found: tuple[int, object]) -> int:
    return found[0]


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
