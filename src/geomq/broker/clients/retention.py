"""Retained events with their fences: kept, stored, given to new subscriptions, and to clients that enter a fence.

The rule of delivery is the one of live events, with the publisher's location as it was when it published.
"""

from collections.abc import Iterator
from typing import NamedTuple

from geomq.broker.clients.delivery import Delivery
from geomq.broker.clients.geotopics import Reading, read_filter
from geomq.broker.config.settings import Limits
from geomq.broker.core import Core
from geomq.broker.state.client import Client, ClientConnection
from geomq.broker.storage.records import RetainedRecord
from geomq.geo import Fence, FenceIndex, Location, fence_text
from geomq.mqtt.codec.topics import topic_matches
from geomq.mqtt.session.message import ApplicationMessage, Fanout
from geomq.mqtt.session.retained import RetainedStore
from geomq.mqtt.session.subscriptions import Subscription, Terms, merge

SLICE, SLICE_BYTES = 256, 1_048_576
"""Retained events looked at for one client, and bytes given to it, before others get their turn."""
TOLD_BYTES = 4_096
RETRY_S = 0.05


class About(NamedTuple):
    """Where a retained event matters, and where, by whom and by which listener of this broker it was published."""

    fence: Fence | None = None
    location: Location | None = None
    client_id: str | None = None
    user: str | None = None
    place: str | None = None


_NOTHING = About()


_NONE: Iterator[None] = iter(())
_ENTERED = ""
"""Beside the filters of new subscriptions: what is due because of where the client went."""


class _Given(NamedTuple):
    """What is left to look at for a new subscription, or of `topics` whose fences were entered."""

    found: Iterator[ApplicationMessage | None]
    subscription: Subscription | None = None
    fence: Fence | None = None
    topics: dict[str, None] | None = None


class Retention:
    """The retained events of a broker."""

    def __init__(self, core: Core, delivery: Delivery) -> None:
        self._core = core
        self._delivery = delivery
        limits = core.config.limits
        self._events = RetainedStore(limits.retained_messages_max, limits.retained_bytes_max)
        self._about: dict[str, About] = {}
        self._fences: FenceIndex[str] = FenceIndex()
        self._waiting: dict[ClientConnection, dict[str, _Given]] = {}

    def __len__(self) -> int:
        return len(self._events)

    def take_limits(self, limits: Limits) -> None:
        """The settings changed."""
        self._events.bound(limits.retained_messages_max, limits.retained_bytes_max)

    def load(self, retained: dict[str, tuple[ApplicationMessage, RetainedRecord]]) -> None:
        """Take in what the store remembered."""
        for message, record in retained.values():
            fence = None if record.fence is None else self._core.fence_texts.written(record.fence)
            place = None if record.location is None else Location(*record.location)
            self._keep(message, About(fence, place, record.client_id, record.user, record.place), beyond=True)

    @property
    def bytes(self) -> int:
        """What they roughly occupy."""
        return self._events.bytes

    def would_grow(self, message: ApplicationMessage) -> bool:
        """Whether more would be kept with this event than without it."""
        before = self._events.get(message.topic)
        return bool(message.payload) and (before is None or before.size < message.size)

    def put(self, message: ApplicationMessage, about: About, *, stored: bool = True) -> bool:
        """Keep the event, or forget its topic's if the payload is empty; False if there is no room."""
        if not message.payload:
            if self._events.remove(message.topic):
                self._forget_about(message.topic)
                self._core.store.delete_retained(message.topic)
                self._core.outbox.schedule()
            return True
        # What the broker itself publishes is little, and must not depend on how much clients have it keep.
        if not self._keep(message, about, beyond=not stored):
            self._core.counts.retained_refused += 1
            return False
        if stored:
            text = None if about.fence is None else fence_text(about.fence)
            record = RetainedRecord(text, about.location, about.client_id, about.user, place=about.place)
            self._core.store.put_retained(message, record)
            self._core.outbox.schedule()
        return True

    def _keep(self, message: ApplicationMessage, about: About, *, beyond: bool) -> bool:
        if not self._events.put(message, beyond=beyond):
            return False
        topic = message.topic
        self._forget_about(topic)
        if about != _NOTHING:
            self._about[topic] = about
        if about.fence is not None:
            self._fences.put(topic, about.fence)
        return True

    def _forget_about(self, topic: str) -> None:
        about = self._about.pop(topic, None)
        if about is not None and about.fence is not None:
            self._fences.remove(topic)

    def get(self, topic: str) -> tuple[ApplicationMessage | None, About]:
        """A topic's retained event and what is known about it."""
        return self._events.get(topic), self._about.get(topic, _NOTHING)

    def topics(self) -> list[str]:
        """All topics, but not the broker's own."""
        return [message.topic for message in self._events.match("#", self._core.now_s())]

    def expire(self) -> tuple[str, ...]:
        """Forget what has expired, as many as are forgotten at once; of which topics."""
        topics = tuple(self._events.expire(self._core.now_s()))
        for topic in topics:
            self._forget_about(topic)
            self._core.store.delete_retained(topic)
            self._core.outbox.schedule()
        return topics

    # To a new subscription.

    def give(self, client: Client, subscription: Subscription, reading: Reading, fence: Fence | None) -> None:
        """Start giving a new subscription what is retained for it, in slices, after what its client waits for."""
        if client.connection is not None and len(self._events):
            found = self._events.search(reading.plain, self._core.now_s())
            self._wait(client, client.connection, subscription.topic_filter, _Given(found, subscription, fence))

    def _wait(self, client: Client, connection: ClientConnection, name: str, given: _Given) -> None:
        waiting, mine = self._waiting.get(connection), client.session.subscriptions
        if waiting is None:
            self._waiting[connection] = {name: given}
            self._go_on(client, connection)
            return
        waiting.pop(name, None)
        waiting[name] = given
        if len(waiting) > 2 * len(mine) + 16:
            for gone in [whole for whole in waiting if whole not in mine and whole != _ENTERED]:
                del waiting[gone]

    def _go_on(self, client: Client, connection: ClientConnection) -> None:
        """Give one slice, and the next when others had their turn and the client has room."""
        waiting, mine = self._waiting[connection], client.session.subscriptions
        looked = size = 0
        while waiting and looked < SLICE and size < SLICE_BYTES and not self._is_busy(client, connection):
            name, given = next(iter(waiting.items()))
            looked += 1
            try:
                # Who unsubscribed gets no more, and who subscribed again gets it all from there.
                message = next(given.found if mine.get(name) is given.subscription else _NONE)
            except StopIteration:
                del waiting[name]
                continue
            if message is None:
                continue
            if given.subscription is None:
                looked += len(mine) // 16
                sent = self._give_entered(client, message)
            else:
                sent = self._give_one(client, given.subscription, given.fence, message)
            size += message.size if sent else 0
        if size >= TOLD_BYTES:
            # Only what was written can make a connection say that it has enough.
            connection.write_out()
        if not waiting or connection.closed:
            del self._waiting[connection]
            return
        later = RETRY_S if self._is_busy(client, connection) else 0.0
        self._core.loop.call_later(later, self._go_on, client, connection)

    def _is_busy(self, client: Client, connection: ClientConnection) -> bool:
        """Whether what is given now would be lost, or is no longer for anybody."""
        limits, session = self._core.config.limits, client.session
        return (
            connection.paused
            or client.connection is not connection
            or session.pending > limits.queue_messages_max // 2
            or session.pending_bytes > limits.queue_bytes_max // 2
        )

    def _give_one(
        self, client: Client, subscription: Subscription, fence: Fence | None, message: ApplicationMessage
    ) -> int:
        about = self._about.get(message.topic, _NOTHING)
        if not self._may_source_write(message.topic, about):
            return 0
        if not (_holds(fence, about.location) and _holds(about.fence, client.location)):
            return 0
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        terms = Terms(min(subscription.qos, message.qos), True, identifiers)
        return self._delivery.send(client, Fanout(message, self._core.now_s()), terms)

    def _may_source_write(self, topic: str, about: About) -> bool:
        """Whether the client that published it here, if one did, might still do so."""
        core, place = self._core, about.place
        if place is None or not core.config.auth.check_retain_source:
            return True
        return core.security.rights_of_source(about.user, about.client_id or "", place).may_write(topic)

    # To a client that moves.

    def entered(self, client: Client, before: Location | None, after: Location | None) -> None:
        """Give the client, in slices, the retained events whose fence it has just entered."""
        connection = client.connection
        if connection is None or after is None or not len(self._fences):
            return
        about = self._about
        topics = {topic: None for topic in self._fences.holding(after) if not _holds(about[topic].fence, before)}
        waiting = self._waiting.get(connection, {}).get(_ENTERED)
        if waiting is not None and waiting.topics is not None:
            waiting.topics.update(topics)
        elif topics:
            self._wait(client, connection, _ENTERED, _Given(self._of_topics(topics), topics=topics))

    def _of_topics(self, topics: dict[str, None]) -> Iterator[ApplicationMessage]:
        while topics:
            message = self._events.get(topics.popitem()[0])
            if message is not None and not message.expired(self._core.now_s()):
                yield message

    def _give_entered(self, client: Client, message: ApplicationMessage) -> int:
        about = self._about.get(message.topic, _NOTHING)
        if not _holds(about.fence, client.location) or not self._may_source_write(message.topic, about):
            return 0
        terms = merge(self._matching(client, message.topic, about), qos=message.qos, retain=True, own=False)
        if terms is None:
            return 0
        fanout = Fanout(message, self._core.now_s())
        return self._delivery.send(client, fanout, Terms(terms.qos, True, terms.identifiers))

    def _matching(self, client: Client, topic: str, about: About) -> Iterator[Subscription]:
        for whole, subscription in client.session.subscriptions.items():
            reading = read_filter(whole)
            if reading.private or reading.group is not None or not topic_matches(reading.plain, topic):
                continue
            state = self._core.node.clients.get(client.subscription_key(reading.prefix))
            if state is not None and _holds(state.subscriptions.get(reading.plain), about.location):
                yield subscription


def _holds(fence: Fence | None, location: Location | None) -> bool:
    return fence is None or (location is not None and fence.contains(location))
