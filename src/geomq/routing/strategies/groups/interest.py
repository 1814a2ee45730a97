"""The filters a group wants from the cloud, counted by who wants them, and the link they are sent on.

Each filter is subscribed at the cloud once, when its first holder comes, and unsubscribed with its last. After the
link broke everything is told anew. A mark (`mark()`, later `passed()`) answers whether what was said before it has
taken effect at the cloud.
"""

from collections.abc import Callable, Iterable

from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.groups.messages import CloudPing, CloudSubscribe, CloudUnsubscribe

ANNOUNCEMENTS = BrokerId("")
"""The holder of the subscription to the leaders' topic; no broker has an empty name."""

DROPPED_MAX = 65_536
"""Filters remembered as dropped while the cloud is away."""


class CloudFilters:
    """What the cloud is sent: each wanted filter once, marks, and everything anew after the link broke."""

    def __init__(self, say: Callable[[Message], None]) -> None:
        self.say = say
        self.up = True
        self._wanted: dict[str, int] = {}
        self._dropped: dict[str, None] = {}
        self._asked = 0
        self._passed = 0

    def want(self, topic_filter: str) -> None:
        self._wanted[topic_filter] = self._wanted.get(topic_filter, 0) + 1
        if self._wanted[topic_filter] == 1 and self.up:
            self.say(CloudSubscribe(topic_filter))

    def release(self, topic_filter: str) -> None:
        self._wanted[topic_filter] -= 1
        if self._wanted[topic_filter]:
            return
        del self._wanted[topic_filter]
        if self.up:
            self.say(CloudUnsubscribe(topic_filter))
        elif len(self._dropped) < DROPPED_MAX:
            self._dropped[topic_filter] = None

    def mark(self) -> int:
        self._asked += 1
        if self.up:
            self.say(CloudPing(self._asked))
        return self._asked

    def pong(self, token: int) -> None:
        if self._passed < token <= self._asked:
            self._passed = token

    def passed(self, mark: int) -> bool:
        return mark <= self._passed

    def come_up(self) -> None:
        """Send everything again: the cloud may have forgotten it, or may receive only now what was sent before."""
        self.up = True
        for topic_filter in self._dropped:
            if topic_filter not in self._wanted:
                self.say(CloudUnsubscribe(topic_filter))
        self._dropped.clear()
        for topic_filter in self._wanted:
            self.say(CloudSubscribe(topic_filter))
        if self._passed < self._asked:
            self.say(CloudPing(self._asked))


class GroupInterest:
    """Who in a group wants which filters, kept equal to the subscriptions at the cloud."""

    def __init__(self, say: Callable[[Message], None]) -> None:
        self._say = say
        self._cloud = CloudFilters(say)
        self._holders: dict[str, dict[BrokerId, None]] = {}
        self._filters: dict[BrokerId, dict[str, None]] = {}

    def __len__(self) -> int:
        """What is held for clients."""
        return sum(len(filters) for holder, filters in self._filters.items() if holder != ANNOUNCEMENTS)

    def share_cloud(self, other: "GroupInterest") -> None:
        """Two routings of one broker have one session at the cloud; from now on this one sends."""
        self._cloud = other._cloud
        self._cloud.say = self._say

    @property
    def up(self) -> bool:
        return self._cloud.up

    def subscribed(self) -> tuple[str, ...]:
        """What the cloud holds for this broker once quiet."""
        return tuple(self._holders)

    def filters(self, holder: BrokerId) -> tuple[str, ...]:
        return tuple(self._filters.get(holder, ()))

    def held_by(self, holder: BrokerId) -> int:
        return len(self._filters.get(holder, ()))

    def add(self, holder: BrokerId, topic_filter: str) -> None:
        holders = self._holders.get(topic_filter)
        if holders is None:
            holders = self._holders[topic_filter] = {}
            self._cloud.want(topic_filter)
        holders[holder] = None
        self._filters.setdefault(holder, {})[topic_filter] = None

    def drop(self, holder: BrokerId, topic_filter: str) -> None:
        filters = self._filters.get(holder)
        if filters is None or topic_filter not in filters:
            return
        del filters[topic_filter]
        if not filters:
            del self._filters[holder]
        holders = self._holders[topic_filter]
        del holders[holder]
        if not holders:
            del self._holders[topic_filter]
            self._cloud.release(topic_filter)

    def replace(self, holder: BrokerId, topic_filters: Iterable[str]) -> None:
        """The holder wants exactly these; what stays is not sent again."""
        wanted = dict.fromkeys(topic_filters)
        for topic_filter in wanted:
            self.add(holder, topic_filter)
        for topic_filter in tuple(self._filters.get(holder, ())):
            if topic_filter not in wanted:
                self.drop(holder, topic_filter)

    def drop_all(self) -> None:
        """Nobody here wants anything any more."""
        for holder in tuple(self._filters):
            self.replace(holder, ())

    def mark(self) -> int:
        """Mark this point in what is sent to the cloud; once it is `passed`, the cloud has acted on it all."""
        return self._cloud.mark()

    def pong(self, token: int) -> None:
        self._cloud.pong(token)

    def passed(self, mark: int) -> bool:
        return self._cloud.passed(mark)

    def cloud_down(self) -> None:
        self._cloud.up = False

    def cloud_up(self) -> None:
        self._cloud.come_up()
