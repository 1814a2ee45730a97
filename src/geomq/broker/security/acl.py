"""The access control file: Mosquitto's `user`, `topic` and `pattern` lines, and `fence` lines for areas.

Compiles the file once; a connecting client gets a `Rights` object that answers from a small cache. What no
line grants is denied; `deny` lines win over grants of the same list, and a user's own lines over patterns.
What a client may not read is kept from it at delivery, as Mosquitto does. Subscribing is allowed to everybody whom no
`subscribe` line is about.
"""

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from geomq.broker.security.fence_rules import Direction, FenceRule, FenceRules
from geomq.errors import ConfigError, GeomqError
from geomq.geo import Fence, Location, parse_fence
from geomq.mqtt.codec.topics import REMEMBERED_CHARS_MAX, TopicTrie, check_filter, filter_covers, topic_matches

READ, WRITE, DENY, SUBSCRIBE = 1, 2, 4, 8
ACCESS = {"read": READ, "write": WRITE, "readwrite": READ | WRITE, "subscribe": SUBSCRIBE, "deny": DENY}
FILE_BYTES_MAX = 64 * 1_048_576
LINES_MAX = 1_000_000
CACHE_MAX = 1_024


@dataclass(slots=True)
class _Lines:
    """What stands under one user, or before the first."""

    topics: TopicTrie[int] = field(default_factory=TopicTrie)
    fences: list[FenceRule] = field(default_factory=list)
    filters: list[tuple[str, int]] = field(default_factory=list)
    """What is said about subscribing: `subscribe` and `deny` lines."""


class Rights:
    """What one connected client may do. Without an ACL file one shared instance allows everything."""

    __slots__ = ("_cache", "_fences", "_filters", "_patterns", "_topics", "all_allowed")

    def __init__(
        self,
        topics: TopicTrie[int] | None,
        patterns: tuple[tuple[str, int], ...],
        fences: FenceRules | None,
        filters: tuple[tuple[str, int], ...] = (),
        *,
        all_allowed: bool = False,
    ) -> None:
        self.all_allowed = all_allowed
        self._topics = topics
        self._patterns = patterns
        self._fences = fences
        self._filters = filters
        self._cache: dict[str, int] | None = None

    @property
    def fenced(self) -> bool:
        """Whether any area rule holds for this client."""
        return self._fences is not None

    def may_read(self, topic: str) -> bool:
        return self.all_allowed or bool(self._access(topic) & READ)

    def may_write(self, topic: str) -> bool:
        return self.all_allowed or bool(self._access(topic) & WRITE)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether the client may have this filter, without what names a group or a fence."""
        rules = (self._filters, self._patterns)
        if not any(access & SUBSCRIBE for each in rules for _, access in each):
            return True
        for each in rules:
            found = 0
            for wider, access in each:
                if access & (SUBSCRIBE | DENY) and filter_covers(wider, topic_filter):
                    found |= access
            if found:
                return not found & DENY
        return False

    def may_publish_from(self, topic: str, location: Location | None) -> bool:
        return self._fences is None or self._fences.may_publish_from(topic, location)

    def may_publish_into(self, topic: str, fence: Fence | None) -> bool:
        return self._fences is None or self._fences.may_publish_into(topic, fence)

    def _access(self, topic: str) -> int:
        cache = self._cache
        if cache is None:
            cache = self._cache = {}
        access = cache.get(topic)
        if access is None and len(topic) > REMEMBERED_CHARS_MAX:
            return self._decide(topic)
        if access is None:
            if len(cache) >= CACHE_MAX:
                cache.clear()
            access = cache[topic] = self._decide(topic)
        return access

    def _decide(self, topic: str) -> int:
        own = 0
        if self._topics is not None:
            for access in self._topics.match(topic):
                own |= access
        if own & DENY:
            return 0
        general = 0
        for topic_filter, access in self._patterns:
            if topic_matches(topic_filter, topic):
                general |= access
        return own if general & DENY else own | general


ALL_RIGHTS = Rights(None, (), None, all_allowed=True)


class Acl:
    """A compiled access control file."""

    def __init__(self) -> None:
        self._anonymous = _Lines()
        self._users: dict[str, _Lines] = {}
        self._patterns: list[tuple[str, int]] = []
        self._pattern_fences: list[FenceRule] = []

    def rights(self, *, user: str | None, client_id: str) -> Rights:
        """The rights of a client; make them once per connection.

        A name that cannot be filled into a pattern gains nothing by it: grants are lost, and a rule against
        the client holds for all topics.
        """
        lines = self._anonymous if user is None else self._users.get(user)
        fences = list(lines.fences) if lines else []
        patterns = []
        for topic_filter, access in self._patterns:
            filled = fill_pattern(topic_filter, user=user, client_id=client_id)
            if filled is not None:
                patterns.append((filled, access))
            elif access & DENY and not (user is None and "%u" in topic_filter):
                patterns = []
                break
        for rule in self._pattern_fences:
            topic_filter = rule.topic_filter or ""
            filled = fill_pattern(topic_filter, user=user, client_id=client_id)
            if filled is not None or not (user is None and "%u" in topic_filter):
                fences.append(replace(rule, topic_filter=filled or None))
        topics = lines.topics if lines and len(lines.topics) else None
        filters = tuple(lines.filters) if lines else ()
        return Rights(topics, tuple(patterns), FenceRules(tuple(fences)) if fences else None, filters)

    def add_line(self, line: str, user: str | None) -> str | None:
        """Take in one line that stands under `user`; returns the user the next line stands under."""
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word == "user":
            if not rest:
                raise ValueError("a user line needs a user name")
            self._users.setdefault(rest, _Lines())
            return rest
        lines = self._anonymous if user is None else self._users[user]
        if word == "topic":
            topic_filter, access = _topic_access(rest)
            if access & (SUBSCRIBE | DENY):
                lines.filters.append((topic_filter, access))
            if access != SUBSCRIBE:
                lines.topics.put(topic_filter, (lines.topics.get(topic_filter) or 0) | access)
        elif word == "fence":
            lines.fences.append(_fence_rule(rest))
        elif word == "pattern" and rest.startswith("fence "):
            self._pattern_fences.append(_fence_rule(rest[len("fence ") :].strip()))
        elif word == "pattern":
            self._patterns.append(_topic_access(rest))
        else:
            raise ValueError(f"unknown keyword {word[:40]!r}; lines start with user, topic, pattern or fence")
        return user


def load_acl(path: str | os.PathLike[str]) -> Acl:
    """Read an access control file, or raise ConfigError that names the file and line."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: larger than {FILE_BYTES_MAX} bytes, not an ACL file")
        return parse_acl(data.decode(), name=str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None


def parse_acl(text: str, *, name: str) -> Acl:
    acl = Acl()
    user: str | None = None
    lines = text.split("\n")
    if len(lines) > LINES_MAX:
        raise ConfigError(f"{name}: more than {LINES_MAX} lines")
    for number, line in enumerate(lines, 1):
        line = line.strip().replace("\t", " ")
        if not line or line.startswith("#"):
            continue
        try:
            user = acl.add_line(line, user)
        except (ValueError, GeomqError) as error:
            raise ConfigError(f"{name}, line {number}: {error}") from None
    return acl


def fill_pattern(topic_filter: str, *, user: str | None, client_id: str) -> str | None:
    """The filter with `%u` and `%c` filled in, or None if a name it needs is missing or could widen it."""
    values = {"%u": user, "%c": client_id}
    for mark, value in values.items():
        if mark in topic_filter and (not value or any(char in value for char in "+#/")):
            return None
    return re.sub("%[uc]", lambda match: values[match[0]] or "", topic_filter)


def _topic_access(text: str) -> tuple[str, int]:
    word, _, rest = text.partition(" ")
    rest = rest.strip()
    if not word:
        raise ValueError("a topic is missing")
    if not rest:
        return check_filter(word), READ | WRITE
    if word not in ACCESS:
        raise ValueError(f"unknown access {word[:40]!r}; use read, write, readwrite, subscribe or deny")
    return check_filter(rest), ACCESS[word]


def _fence_rule(text: str) -> FenceRule:
    word, _, rest = text.partition(" ")
    deny = word == "deny"
    if deny:
        word, _, rest = rest.strip().partition(" ")
    if word not in ("into", "from"):
        raise ValueError("expected: fence [deny] into|from [on FILTER] FENCE")
    direction: Direction = "into" if word == "into" else "from"
    rest = rest.strip()
    topic_filter = None
    if rest.startswith("on "):
        topic_filter, _, rest = rest[len("on ") :].strip().partition(" ")
        check_filter(topic_filter)
    return FenceRule(direction, deny, parse_fence(rest), topic_filter)
