"""The shortest way for the most common publish: QoS 0, not retained, no properties, to plain subscriptions.

The routing core is asked once per topic; its answer holds until who is connected or subscribed changes, or if it
could depend on the publisher's place it is never kept. The received bytes go on as they came, gathered per topic
and tick. Everything that is not exactly this case takes the ordinary way and is delivered in order after it.
"""

from collections.abc import Iterator

from geomq.broker.connection import Connection
from geomq.broker.core import Core
from geomq.broker.delivery import Delivery
from geomq.broker.fenced import FencedFilters
from geomq.broker.publishing import Publishing
from geomq.mqtt.packets import Publish
from geomq.mqtt.properties import NO_PROPERTIES
from geomq.mqtt.types import PACKET_SIZE_MAX, V5
from geomq.mqtt.wire import varint

ROUTES_MAX = 65_536


class Route:
    """Who gets the events of one topic, by version, and what has gathered for them in this tick."""

    __slots__ = ("chunks", "count", "old", "old_chunks", "topic", "v5")

    def __init__(self, topic: str, old: list[Connection], v5: list[Connection]) -> None:
        self.topic = topic
        self.old = old
        self.v5 = v5
        self.chunks: list[bytes] = []
        self.old_chunks: list[bytes] = []
        self.count = 0


class FastPath:
    """Remembers routes and sends along them."""

    def __init__(self, core: Core, publishing: Publishing, delivery: Delivery, fenced: FencedFilters) -> None:
        self._core = core
        self._publishing = publishing
        self._delivery = delivery
        self._fenced = fenced
        self._routes: dict[bytes, Route] = {}
        self._unfit: set[str] = set()
        self._dirty: list[Route] = []

    def publish(self, connection: Connection, data: bytes, start: int, body: int, end: int) -> int:
        """Send a QoS 0 PUBLISH on its way if its topic has a route, and those right behind it that look the same.

        Returns the position after them; 0 leaves the packet to the ordinary way.
        """
        topic_end = body + 2
        if topic_end > end:
            return 0
        topic_end += data[body] << 8 | data[body + 1]
        route = self._routes.get(data[body + 2 : topic_end])
        client = connection.client
        if route is None or client is None or client.publish_bucket is not None:
            return 0
        rights = client.rights
        if not rights.all_allowed and (rights.fenced or not rights.may_write(route.topic)):
            return 0
        new = connection.version == V5
        if new and (topic_end >= end or data[topic_end]):
            return 0
        count, stop = 1, end
        others = route.old if new else route.v5
        if not others and end < len(data):
            stop = _end_of_run(data, start, topic_end + new, end)
            count = (stop - start) // (end - start)
        counts = self._core.counts
        counts.events_received += count
        counts.packets_received += count - 1
        if not route.count:
            self._dirty.append(route)
            self._core.outbox.schedule()
        route.count += count
        if route.v5:
            route.chunks.append(data[start:stop] if new else _as_v5(data, body, topic_end, end))
        if route.old:
            route.old_chunks.append(_as_old(data, body, topic_end, end) if new else data[start:stop])
        return stop

    def drain(self) -> None:
        """Hand what has gathered to the connections, to be written at the end of the tick."""
        for connections, data, count in self._gathered():
            for connection in connections:
                if connection.paused:
                    self._core.counts.events_dropped += count
                else:
                    connection.send(data)

    def write(self) -> None:
        """The tick ends: write what has gathered, behind what already waits for the same connection."""
        for connections, data, count in self._gathered():
            written = 0
            single = len(connections) == 1
            for connection in connections:
                if connection.paused:
                    self._core.counts.events_dropped += count
                elif single or connection.out:
                    connection.send(data)
                else:
                    connection.write(data)
                    written += 1
            self._core.counts.bytes_sent += written * len(data)

    def _gathered(self) -> Iterator[tuple[list[Connection], bytes, int]]:
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, []
        for route in dirty:
            count, route.count = route.count, 0
            self._core.counts.events_delivered += count * (len(route.v5) + len(route.old))
            if route.v5:
                chunks, route.chunks = route.chunks, []
                yield route.v5, chunks[0] if len(chunks) == 1 else b"".join(chunks), count
            if route.old:
                chunks, route.old_chunks = route.old_chunks, []
                yield route.old, chunks[0] if len(chunks) == 1 else b"".join(chunks), count

    def forget(self) -> None:
        """Who receives what may have changed."""
        self.drain()
        if self._routes or self._unfit:
            self._routes.clear()
            self._unfit.clear()

    def learn(self, packet: Publish) -> None:
        """A QoS 0 event just went the ordinary way: keep its route if the next one would go the same."""
        topic = packet.topic
        if packet.properties is not NO_PROPERTIES or self._core.links is not None or topic in self._unfit:
            return
        if len(self._routes) + len(self._unfit) >= ROUTES_MAX:
            self.forget()
        route = self._route(topic)
        if route is None:
            self._unfit.add(topic)
        else:
            self._routes[topic.encode()] = route

    def _route(self, topic: str) -> Route | None:
        if self._publishing.watches(topic) or self._fenced.concern(topic):
            return None
        if topic.count("/") >= self._core.config.limits.topic_levels_max:
            return None
        connections: dict[Connection, bool] = {}
        for client_id, topic_filter in self._delivery.last:
            client = self._core.clients.get(client_id)
            subscription = None if client is None else client.session.subscriptions.get(topic_filter)
            if client is None or subscription is None or subscription.identifier or subscription.no_local:
                return None
            if client.connection is None or not client.rights.may_read(topic):
                continue
            session = client.session
            if session.uses_aliases or session.packet_size_max < PACKET_SIZE_MAX:
                return None
            connections[client.connection] = session.version == V5
        return Route(
            topic,
            [connection for connection, new in connections.items() if not new],
            [connection for connection, new in connections.items() if new],
        )


def _end_of_run(data: bytes, start: int, head_end: int, end: int) -> int:
    """Where the last of the packets ends that follow with the same length and topic."""
    head, size, last = data[start:head_end], end - start, len(data) - (end - start)
    while end <= last and data.startswith(head, end):
        end += size
    return end


def _as_v5(data: bytes, body: int, topic_end: int, end: int) -> bytes:
    """A 3.1.1 packet for MQTT 5: with an empty property list."""
    return b"0%b%b\0%b" % (varint(end - body + 1), data[body:topic_end], data[topic_end:end])


def _as_old(data: bytes, body: int, topic_end: int, end: int) -> bytes:
    """An MQTT 5 packet for 3.1.1: without its empty property list."""
    return b"0%b%b%b" % (varint(end - body - 1), data[body:topic_end], data[topic_end + 1 : end])
