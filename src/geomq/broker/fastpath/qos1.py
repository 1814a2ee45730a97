"""The fast path of plain events of QoS 1 and 2 in a broker without peers.

The routing core is asked once per topic; its answer holds as long as the routes of the fast path for QoS 0 do.
Sessions, disk and acknowledgements are those of the normal path: an event is kept for those who are away, too.
"""

from geomq.broker.clients.delivery import PLAIN_TERMS, Delivery
from geomq.broker.core import Core
from geomq.broker.fastpath.publishing import ROUTES_MAX, FastPath
from geomq.broker.state.client import Client
from geomq.broker.state.client import ClientConnection as Connection
from geomq.mqtt.codec.cutter import plain_publish
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.topics import REMEMBERED_CHARS_MAX
from geomq.mqtt.codec.types import V5
from geomq.mqtt.codec.wire import text
from geomq.mqtt.session.message import ApplicationMessage, Fanout
from geomq.routing.core.model import Match

Receivers = tuple[tuple[Client, int], ...]
"""Clients and the QoS of their subscriptions."""
STEPS = range(64)
"""So many events are sent at most before it may be the turn of another connection."""
RECEIVERS_MAX = 1_000_000
"""Receivers that are remembered for all topics; topics with the same receivers share theirs."""


class FastQos1:
    """Remembers who gets the events of a topic; None if that has to be asked each time."""

    def __init__(self, core: Core, delivery: Delivery, fast: FastPath) -> None:
        self._core = core
        self._delivery = delivery
        self._fast = fast
        self._receivers: dict[str, Receivers | None] = {}
        self._alike: dict[Receivers, Receivers] = {}
        self._by_key: dict[bytes, tuple[str, Receivers]] = {}
        """The same by how the topic stands in a packet, if anybody gets its events."""
        self._count = self._generation = 0

    def publish(self, connection: Connection, data: bytes, pos: int) -> int:
        """Send plain PUBLISH packets of QoS 1 on their way, and answer them, as long as it is known who gets them, up
        to a number of them.

        Returns the position after them; the rest takes the normal path.
        """
        client, outbox = connection.client, self._core.outbox
        if (
            client is None
            or not self._by_key
            or self._generation != self._fast.generation
            or client.publish_bucket is not None
            or client.rights.fenced
            or client.session.receiving
            or outbox.full
        ):
            return pos
        self._fast.drain()
        version, may_write, send, hold = connection.version, client.rights.may_write, self._delivery.send, outbox.hold
        new, end, count, pressure = version == V5, len(data), 0, self._core.pressure
        between = 2 + new
        for _ in STEPS:
            if pos == end or data[pos] != 0x32 or pressure.active:
                break
            body, id_at, payload_at, stop = plain_publish(data, pos, end, new, between)
            rest = id_at + 2
            packet_id = data[id_at:rest]
            known = self._by_key.get(data[body:id_at])
            if known is None or packet_id == b"\0\0":
                break
            topic, receivers = known
            if stop - pos > connection.size_max or not may_write(topic):
                break
            payload = data[payload_at:stop]
            fanout = Fanout(ApplicationMessage(topic, payload, 1), 0.0)
            fanout.preset(version, 1, data[pos:id_at], data[rest:stop] if new else payload)
            if sum([send(receiver, fanout, PLAIN_TERMS[min(1, theirs)]) for receiver, theirs in receivers]):
                hold(connection, b"\x40\x02" + packet_id)
            else:
                number = int.from_bytes(packet_id, "big")
                hold(connection, client.session.answer(number, 1, ReasonCode.NO_MATCHING_SUBSCRIBERS))
            pos = stop
            count += 1
        self._core.counts.events_received += count
        self._core.counts.packets_received += count
        return pos

    def send(self, message: ApplicationMessage) -> int | None:
        """Send a plain event to everybody who gets it; to how many, or None if that is not known here."""
        if self._generation != self._fast.generation:
            return None
        receivers = self._receivers.get(message.topic)
        if receivers is None:
            return None
        self._fast.drain()
        fanout, send, qos = Fanout(message, self._core.now_s()), self._delivery.send, message.qos
        return sum([send(client, fanout, PLAIN_TERMS[min(qos, theirs)]) for client, theirs in receivers])

    def learn(self, topic: str, matches: tuple[Match, ...]) -> None:
        """A plain event on this topic was sent; if it took the normal path, the next goes to the same clients."""
        if self._generation != self._fast.generation:
            self._generation = self._fast.generation
            self._forget()
        if topic in self._receivers or len(topic) > REMEMBERED_CHARS_MAX:
            return
        if len(self._receivers) >= ROUTES_MAX or self._count >= RECEIVERS_MAX:
            self._forget()
        if not self._core.links.active and not self._fast.is_followed():
            found = self._fast.plain_receivers(topic, matches)
            receivers = self._receivers[topic] = None if found is None else self._shared(tuple(found.items()))
            if receivers:
                self._by_key[text(topic)] = (topic, receivers)

    def _shared(self, receivers: Receivers) -> Receivers:
        if receivers not in self._alike:
            self._alike[receivers] = receivers
            self._count += len(receivers)
        return self._alike[receivers]

    def forget(self) -> None:
        """Who receives what may have changed; also lets go of sessions that ended, with all that waits in them."""
        if self._receivers:
            self._forget()

    def _forget(self) -> None:
        self._receivers.clear()
        self._alike.clear()
        self._by_key.clear()
        self._count = 0
