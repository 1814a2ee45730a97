"""The subscriptions a rendezvous knows, its own clients' and others', and the one matching rule.

An event reaches a subscription iff its topic matches, the publisher is inside the subscription's fence (or it has
none), and the subscriber is inside the event's fence (or it has none). Without a location only fenceless checks pass.
"""

from collections.abc import Iterator, Mapping

from geomq.geo import Fence, FenceIndex, Location, PointIndex
from geomq.mqtt.codec.topics import REMEMBERED_CHARS_MAX, TopicTrie, first_level
from geomq.routing.core.model import BrokerId, Event, Match, Subscriber

INDEX_FROM = 64
"""From this many subscriptions of one filter on, an index is cheaper than asking each of them."""
ROUTES_MAX = 65_536
"""Topics whose matches are remembered."""
MATCHES_MAX = 1_000_000
"""Matches that are remembered for all of them; topics that match the same filters share theirs."""

Matched = dict[BrokerId, tuple[Match, ...]]


class _Bucket:
    """All subscriptions of one filter."""

    __slots__ = ("fences", "index", "unfenced")

    def __init__(self) -> None:
        self.fences: dict[Subscriber, Fence | None] = {}
        self.unfenced: dict[Subscriber, None] = {}
        self.index: FenceIndex[Subscriber] | None = None

    def put(self, subscriber: Subscriber, fence: Fence | None) -> None:
        self.fences[subscriber] = fence
        if fence is None:
            self.unfenced[subscriber] = None
        else:
            self.unfenced.pop(subscriber, None)
        if self.index is not None:
            if fence is None:
                self.index.remove(subscriber)
            else:
                self.index.put(subscriber, fence)
        elif len(self.fences) - len(self.unfenced) >= INDEX_FROM:
            self.index = FenceIndex()
            for each, its_fence in self.fences.items():
                if its_fence is not None:
                    self.index.put(each, its_fence)

    def drop(self, subscriber: Subscriber) -> None:
        self.fences.pop(subscriber, None)
        self.unfenced.pop(subscriber, None)
        if self.index is not None:
            self.index.remove(subscriber)

    def open_to(self, publisher: Location | None) -> Iterator[Subscriber]:
        """The subscribers whose subscription check the publisher's location passes."""
        if publisher is None:
            yield from self.unfenced
        elif self.index is not None:
            yield from self.unfenced
            yield from self.index.holding(publisher)
        else:
            for subscriber, fence in self.fences.items():
                if fence is None or fence.contains(publisher):
                    yield subscriber


class SubscriptionTable:
    """Subscriptions by filter and by subscriber, and the subscribers' locations."""

    def __init__(self) -> None:
        self._buckets: TopicTrie[_Bucket] = TopicTrie()
        self._filters: dict[Subscriber, dict[str, Fence | None]] = {}
        self._points: PointIndex[Subscriber] = PointIndex()
        self._routes: dict[str, list[tuple[str, _Bucket]]] = {}
        self._anywhere: dict[str, Matched | None] = {}
        self._together: dict[tuple[str, ...], Matched | None] = {}
        """By the filters that a topic matches; both are about `_remembered_at`, a version."""
        self._remembered = 0
        self._remembered_at = 0
        self._homes: dict[str | None, dict[BrokerId, int]] = {}
        self._count = 0
        self.version = 0
        """Grows whenever a subscription comes, changes or goes."""

    def __len__(self) -> int:
        return self._count

    def subscribers(self) -> tuple[Subscriber, ...]:
        return tuple(self._filters)

    def filters(self, subscriber: Subscriber) -> Mapping[str, Fence | None]:
        return self._filters.get(subscriber, {})

    def put(self, subscriber: Subscriber, topic_filter: str, fence: Fence | None, location: Location | None) -> None:
        bucket = self._buckets.get(topic_filter)
        if bucket is None:
            bucket = _Bucket()
            self._buckets.put(topic_filter, bucket)
            self._forget_routes(topic_filter)
        bucket.put(subscriber, fence)
        filters = self._filters.setdefault(subscriber, {})
        self.version += 1
        if topic_filter not in filters:
            homes = self._homes.setdefault(first_level(topic_filter), {})
            homes[subscriber.home] = homes.get(subscriber.home, 0) + 1
            self._count += 1
        filters[topic_filter] = fence
        self.move(subscriber, location)

    def drop(self, subscriber: Subscriber, topic_filter: str) -> None:
        filters = self._filters.get(subscriber)
        if filters is None or topic_filter not in filters:
            return
        del filters[topic_filter]
        self._count -= 1
        self.version += 1
        self._leave_home(first_level(topic_filter), subscriber.home)
        if not filters:
            del self._filters[subscriber]
            self._points.remove(subscriber)
        bucket = self._buckets.get(topic_filter)
        assert bucket is not None
        bucket.drop(subscriber)
        if not bucket.fences:
            self._buckets.remove(topic_filter)
            self._forget_routes(topic_filter)

    def drop_subscriber(self, subscriber: Subscriber) -> None:
        for topic_filter in tuple(self._filters.get(subscriber, ())):
            self.drop(subscriber, topic_filter)

    def move(self, subscriber: Subscriber, location: Location | None) -> None:
        """Note where a subscriber is; one that has no subscription here is not worth remembering."""
        if subscriber not in self._filters:
            return
        if location is None:
            self._points.remove(subscriber)
        elif self._points.location(subscriber) != location:
            self._points.move(subscriber, location)

    def match(self, event: Event) -> Matched:
        """The subscriptions the event satisfies, by the home of their client; not to be changed by the caller."""
        if event.fence is None:
            if self._remembered_at != self.version:
                self._forget_matches()
            known = self._anywhere.get(event.topic)
            if known is None and event.topic not in self._anywhere:
                known = self._remember(event.topic)
            if known is not None:
                return known
        route = self._routes.get(event.topic)
        if route is None:
            route = self._route(event.topic)
        found: dict[BrokerId, list[Match]] = {}
        for topic_filter, bucket in route:
            for home, client in self._passing(bucket, event):
                found.setdefault(home, []).append(Match(client, topic_filter))
        return {home: tuple(matches) for home, matches in found.items()}

    def _remember(self, topic: str) -> Matched | None:
        """What `match_anywhere` says as long as no subscription changes."""
        found = self.match_anywhere(topic)
        if len(topic) <= REMEMBERED_CHARS_MAX:
            if len(self._anywhere) >= ROUTES_MAX:
                self._anywhere.clear()
            self._anywhere[topic] = found
        return found

    def _forget_matches(self) -> None:
        self._anywhere.clear()
        self._together.clear()
        self._remembered, self._remembered_at = 0, self.version

    def concerns(self, topic: str) -> bool:
        """Whether any filter matches the topic."""
        return bool(self._buckets.match_items(topic))

    def match_anywhere(self, topic: str) -> Matched | None:
        """What an event of this topic without a fence matches wherever it is published; None if that matters. Not to
        be changed by the caller."""
        route = self._routes.get(topic) or self._buckets.match_items(topic)
        filters = tuple([topic_filter for topic_filter, _ in route])
        if self._remembered_at != self.version or self._remembered > MATCHES_MAX:
            self._forget_matches()
        if filters not in self._together:
            self._together[filters] = self._all_of(route)
        return self._together[filters]

    def _all_of(self, route: list[tuple[str, _Bucket]]) -> Matched | None:
        """Every subscription of these filters; None if one of them has a fence."""
        self._remembered += 1
        if any(len(bucket.unfenced) < len(bucket.fences) for _, bucket in route):
            return None
        found: dict[BrokerId, list[Match]] = {}
        for topic_filter, bucket in route:
            self._remembered += len(bucket.unfenced)
            for home, client in bucket.unfenced:
                found.setdefault(home, []).append(Match(client, topic_filter))
        return {home: tuple(matches) for home, matches in found.items()}

    def homes(self, level: str | None) -> tuple[BrokerId, ...]:
        """The homes with subscriptions whose filter starts with this level (None: with a wildcard)."""
        return tuple(self._homes.get(level, ()))

    def _leave_home(self, level: str | None, home: BrokerId) -> None:
        homes = self._homes[level]
        homes[home] -= 1
        if not homes[home]:
            del homes[home]
            if not homes:
                del self._homes[level]

    def _passing(self, bucket: _Bucket, event: Event) -> Iterator[Subscriber]:
        fence, place = event.fence, event.location
        if fence is None:
            yield from bucket.open_to(place)
            return
        if len(bucket.fences) > INDEX_FROM and self._points.count_bound(fence) < len(bucket.fences):
            for subscriber in self._points.inside(fence):
                if subscriber in bucket.fences and _passes(bucket.fences[subscriber], place):
                    yield subscriber
            return
        for subscriber in bucket.open_to(place):
            location = self._points.location(subscriber)
            if location is not None and fence.contains(location):
                yield subscriber

    def _route(self, topic: str) -> list[tuple[str, _Bucket]]:
        route = self._buckets.match_items(topic)
        if len(topic) <= REMEMBERED_CHARS_MAX:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[topic] = route
        return route

    def _forget_routes(self, topic_filter: str) -> None:
        if "+" in topic_filter or "#" in topic_filter:
            self._routes.clear()
        else:
            self._routes.pop(topic_filter, None)


def _passes(fence: Fence | None, location: Location | None) -> bool:
    return fence is None or (location is not None and fence.contains(location))
