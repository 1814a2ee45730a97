"""Topics and their groups: the versioned map from first topic levels to groups, and where own subscriptions belong.

Knows nothing of meshes. A level the map does not name is a group of its own.
"""

from collections.abc import Callable, Mapping

from geomq.errors import ConfigError
from geomq.mqtt.codec.topics import first_level
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.mesh.messages import NAME_MAX, SEQUENCE_MAX, Stamp, TopicMap

WILD = "#"
"""The group of all filters that start with a wildcard."""

MANAGEMENT = "#management"
"""The group that spans all brokers; no topic level can be called so."""

MAP_MAX = 4096


def level_of(topic_filter: str) -> str:
    """The first level of a filter, `#` standing for either wildcard."""
    level = first_level(topic_filter)
    return WILD if level is None else level


class TopicGroups:
    """The map in force, and the own subscriptions by first level."""

    def __init__(self, groups: Mapping[str, str], version: int, origin: BrokerId) -> None:
        check_groups(groups)
        self._groups = dict(groups)
        self.stamp = Stamp(version, origin) if groups else None
        self._subscriptions: dict[str, int] = {}
        self._placed: dict[str, str] = {}
        self._levels: dict[str, int] = {}

    def group_of(self, level: str) -> str:
        """The group of a first level; levels that only differ beyond the longest name share one."""
        return self._groups.get(level) or level[:NAME_MAX]

    def add(self, topic_filter: str, room: Callable[[str], bool]) -> str | None:
        """Count a subscription; the group it belongs to if it is the first own one there."""
        level = level_of(topic_filter)
        self._subscriptions[level] = self._subscriptions.get(level, 0) + 1
        if level in self._placed:
            return None
        group = self._place(level, room)
        return group if self._levels[group] == 1 else None

    def remove(self, topic_filter: str) -> str | None:
        """Forget a subscription; its group if no other own subscription belongs to that."""
        level = level_of(topic_filter)
        self._subscriptions[level] -= 1
        if self._subscriptions[level]:
            return None
        del self._subscriptions[level]
        group = self._placed.pop(level)
        self._levels[group] -= 1
        if self._levels[group]:
            return None
        del self._levels[group]
        return group

    def wanted(self) -> tuple[str, ...]:
        """The groups that own subscriptions belong to."""
        return tuple(self._levels)

    def adopt(self, news: TopicMap, room: Callable[[str], bool]) -> None:
        """Put another map in force and find every subscription its group anew."""
        self._groups = dict(news.groups)
        self.stamp = Stamp(news.version, news.origin)
        self._levels.clear()
        for level in self._placed:
            self._place(level, room)

    def as_message(self) -> TopicMap | None:
        if self.stamp is None:
            return None
        return TopicMap(self.stamp.version, self.stamp.origin, tuple(sorted(self._groups.items())))

    def _place(self, level: str, room: Callable[[str], bool]) -> str:
        """A group there is no room for is served by the group that gets every event."""
        group = self.group_of(level)
        if not room(group):
            group = WILD
        self._placed[level] = group
        self._levels[group] = self._levels.get(group, 0) + 1
        return group


def check_groups(groups: Mapping[str, str]) -> None:
    """Raise ConfigError unless this can be a topic-to-group map."""
    flaw = _flaw(tuple(groups.items()))
    if flaw is not None:
        raise ConfigError(f"mesh groups: {flaw}")


def is_sound(news: TopicMap) -> bool:
    return 0 < news.version <= SEQUENCE_MAX and 0 < len(news.origin) <= NAME_MAX and _flaw(news.groups) is None


def _flaw(groups: tuple[tuple[str, str], ...]) -> str | None:
    if len(groups) > MAP_MAX:
        return f"{len(groups)} levels, at most {MAP_MAX} can be mapped"
    for level, group in groups:
        if len(level) > NAME_MAX or len(group) > NAME_MAX:
            return f"{level[:40]!r} -> {group[:40]!r} is longer than {NAME_MAX} characters"
        if any(sign in level for sign in "/+#"):
            return f"{level[:40]!r} is not one topic level without wildcards"
        if not group or "+" in group or "#" in group:
            return f"{group[:40]!r} is not a group name (it is empty or has a wildcard)"
    return None
