"""The fast path of plain events of QoS 1 and 2, and of what acknowledges them.

The routing core is asked once per topic; its answer holds as long as the routes of the fast path for QoS 0 do.
Sessions, disk and acknowledgements are those of the normal path: an event is kept for those who are away, too. What is
for peers goes to them in batches, which are kept until they have them.
"""

from typing import NamedTuple

from geomq.broker.clients.delivery import PLAIN_TERMS, Delivery
from geomq.broker.core import Core
from geomq.broker.fastpath.links import PeerTargets
from geomq.broker.fastpath.publishing import ROUTES_MAX, FastPath
from geomq.broker.peers.store import PeerStore
from geomq.broker.state.client import Client
from geomq.broker.state.client import ClientConnection as Connection
from geomq.mqtt.codec.cutter import plain_publish, pubacks_at
from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.topics import REMEMBERED_CHARS_MAX
from geomq.mqtt.codec.types import PACKET_SIZE_MAX, V5, V311
from geomq.mqtt.codec.wire import text
from geomq.mqtt.session.message import ApplicationMessage, Fanout
from geomq.routing.core.model import ClientId, EventId, Match

Receivers = tuple[tuple[Client, int], ...]
"""Clients and the QoS of their subscriptions."""
STEPS = range(64)
"""So many events are sent at most before it may be the turn of another connection."""
RECEIVERS_MAX = 1_000_000
"""Receivers that are remembered for all topics; topics with the same receivers share theirs."""


class Audience(NamedTuple):
    """Who gets the events of a topic: for packets of one version those that get them as they are, and the others."""

    alike: tuple[Client, ...]
    others: Receivers


class Route:
    """Where packets with one topic go, by version: to `clients`, and to the peers of the targets.

    `writer` is who was seen last to have the right to send them.
    """

    __slots__ = ("clients", "old", "targets", "topic", "v5", "writer")

    def __init__(
        self, topic: str, old: Audience, v5: Audience, clients: frozenset[ClientId], targets: PeerTargets | None
    ) -> None:
        self.topic = topic
        self.old = old
        self.v5 = v5
        self.clients = clients
        self.targets = targets
        self.writer: Client | None = None


class Sent(NamedTuple):
    """An event of a broker with peers: where it goes, its number, and where its packet begins and ends."""

    route: Route
    sequence: int
    start: int
    stop: int


class FastQos1:
    """Remembers who gets the events of a topic; None if that has to be asked each time."""

    def __init__(self, core: Core, delivery: Delivery, fast: FastPath, kept: PeerStore | None) -> None:
        self._core = core
        self._counts = core.counts
        self._outbox = core.outbox
        self._delivery = delivery
        self._fast = fast
        self._kept = kept
        self._receivers: dict[str, Receivers | None] = {}
        self._alike: dict[Receivers, Receivers] = {}
        self._audiences: dict[Audience, Audience] = {}
        """Both, that topics with the same receivers share them."""
        self._routes: dict[bytes, Route] = {}
        """The same by how the topic stands in a packet, if anybody gets its events."""
        self._count = self._generation = 0

    # From clients.

    def publish(self, connection: Connection, data: bytes, pos: int) -> int:
        """Send plain PUBLISH packets of QoS 1 on their way, and answer them, as long as it is known who gets them, up
        to a number of them.

        Returns the position after them; the rest takes the normal path.
        """
        client, outbox, linked = connection.client, self._outbox, self._core.links.active
        if linked:
            self._fast.check_plans()
        if client is None or not self._routes or not self._may_publish(client):
            return pos
        self._fast.drain()
        was_arriving = outbox.arriving
        outbox.arrive()
        new, end, count, room = connection.version == V5, len(data), 0, STEPS.stop
        between, event_id, sent, pressure = 2 + new, None, list[Sent](), self._core.pressure
        unplaced: tuple[int, int, ReasonCode] | None = None
        asked: PeerTargets | None = None
        pressure.begin()
        for _ in STEPS:
            if pos == end or data[pos] != 0x32 or pressure.active:
                break
            body, id_at, payload_at, stop = plain_publish(data, pos, end, new, between)
            packet_id = data[id_at : id_at + 2]
            route = self._routes.get(data[body:id_at])
            if route is None or packet_id == b"\0\0" or stop - pos > connection.plain_size_max:
                break
            if route.writer is not client:
                if not client.rights.may_write(route.topic):
                    break
                route.writer = client
            if linked:
                if route.targets is not asked:
                    asked, room = route.targets, self._room(route.targets, end - pos)
                if room <= len(sent):
                    break
                event_id = self._number(route)
                sent.append(Sent(route, event_id.sequence, pos, stop))
            message = ApplicationMessage(route.topic, data[payload_at:stop], 1, event_id=event_id)
            head, tail = data[pos:id_at], data[id_at + 2 : stop]
            reached = self.deliver(message, route.v5 if new else route.old, head, tail) or linked
            reason = ReasonCode.SUCCESS if reached else ReasonCode.NO_MATCHING_SUBSCRIBERS
            if pressure.active:
                unplaced = int.from_bytes(packet_id), 1, reason
            elif reached:
                outbox.hold(connection, b"\x40\x02" + packet_id)
            else:
                outbox.hold(connection, client.session.answer(int.from_bytes(packet_id), 1, reason))
            pos = stop
            count += 1
        if sent:
            self._send_on(connection, data, sent)
        if unplaced is not None:
            pressure.answer(client, *unplaced, None)
        pressure.end()
        if count:
            self._took(client, connection, count)
        if not was_arriving:
            outbox.arrived()
        return pos

    def _took(self, client: Client, connection: Connection, count: int) -> None:
        self._counts.events_received += count
        self._counts.packets_received += count
        self._fast.promised(client, connection)

    def _may_publish(self, client: Client) -> bool:
        """Whether what the client publishes now depends on nothing but its topic."""
        return (
            self._generation == self._fast.generation
            and client.publish_bucket is None
            and not client.rights.fenced
            and not client.session.receiving
            and not self._outbox.crowded
            and (bool(self._outbox.held) or not self._outbox.full)
        )

    def _room(self, targets: PeerTargets | None, size: int) -> int:
        """How many events, of so many bytes together, fit into what waits for all of these peers; more take the normal
        path, where it is decided what becomes of them."""
        return STEPS.stop if targets is None else self._fast.links.room(targets, size)

    def _number(self, route: Route) -> EventId:
        """The id of an event; what comes back of it from peers is recognised, also after a restart."""
        node = self._core.node
        event_id = EventId(node.me, node.epoch, node.take_ids(1, route.clients))
        if route.targets is not None and route.clients and self._kept is not None:
            self._kept.note_run(event_id, 1, route.clients)
        return event_id

    def _send_on(self, connection: Connection, data: bytes, sent: list[Sent]) -> None:
        """Gather for peers what goes to them; events that follow each other and go the same way as one piece."""
        gather = self._fast.links.gather_durable
        first, targets = 0, sent[0].route.targets
        for number, each in enumerate((*sent[1:], None), 1):
            if each is None or each.route.targets is not targets:
                if targets is not None:
                    piece = data[sent[first].start : sent[number - 1].stop]
                    gather(connection, targets, piece, number - first, sent[first].sequence)
                if each is not None:
                    first, targets = number, each.route.targets

    def deliver(self, message: ApplicationMessage, audience: Audience, head: bytes, tail: bytes) -> int:
        """Give a plain message of QoS 1 to everybody; most get this packet, but for its identifier. To how many."""
        alike, others = audience
        reached = self._send(message, others) if others else 0
        if alike:
            size = message.wire_size
            for receiver in alike:
                out = receiver.session.forward(message, size, head, tail)
                if out is not None:
                    reached += 1
                    if out and receiver.connection is not None:
                        self._outbox.hold(receiver.connection, out)
                    else:
                        self._outbox.schedule()
        return reached

    def acknowledge(self, connection: Connection, data: bytes, pos: int) -> int:
        """Take the plain PUBACKs that begin here together; the position after them."""
        client, outbox = connection.client, self._outbox
        packet_ids = pubacks_at(data, pos)
        if client is None or not packet_ids:
            return pos
        was_arriving = outbox.arriving
        outbox.arrive()
        try:
            if client.session.on_pubacks(packet_ids):
                for out in client.session.pump(self._core.now_s()):
                    outbox.hold(connection, out)
            pos += 4 * len(packet_ids)
            self._counts.control_bytes_received += 4 * len(packet_ids)
            self._counts.packets_received += len(packet_ids)
        except ProtocolViolation:
            pass  # one of them is not what this acknowledges: the normal path finds it
        if outbox.journal:
            outbox.schedule()
        if not was_arriving:
            outbox.arrived()
        return pos

    def send(self, message: ApplicationMessage) -> int | None:
        """Send a plain event to everybody who gets it; to how many, or None if that is not known here."""
        if self._generation != self._fast.generation:
            return None
        receivers = self._receivers.get(message.topic)
        if receivers is None:
            return None
        self._fast.drain()
        return self._send(message, receivers)

    def _send(self, message: ApplicationMessage, receivers: Receivers) -> int:
        fanout, send, qos = Fanout(message, self._core.now_s()), self._delivery.send, message.qos
        return sum([send(client, fanout, PLAIN_TERMS[min(qos, theirs)]) for client, theirs in receivers])

    # What is remembered.

    def learn(self, topic: str, matches: tuple[Match, ...]) -> None:
        """A plain event on this topic was sent; if it took the normal path, the next goes to the same clients."""
        self.begin()
        if topic in self._receivers or len(topic) > REMEMBERED_CHARS_MAX or self._fast.is_followed():
            return
        if len(self._receivers) >= ROUTES_MAX:
            self._forget()
        plan = self._fast.planned(topic, matches)
        found = None if plan is None else self._fast.plain_receivers(topic, plan.own)
        receivers = self._receivers[topic] = None if found is None else self._shared(tuple(found.items()))
        if plan is not None and receivers is not None and (receivers or plan.peers):
            clients = self._fast.clients_of(plan.own)
            targets = self._fast.targets(plan, clients)
            old, v5 = (self.audience(topic, receivers, version) for version in (V311, V5))
            self._routes[text(topic)] = Route(topic, old, v5, clients, targets)
        if self._core.links.active:
            self._receivers[topic] = None  # others get them, too

    def begin(self) -> None:
        """Forget what was remembered if it may be no longer true, or is too much."""
        if self._generation != self._fast.generation or self._count >= RECEIVERS_MAX:
            self._generation = self._fast.generation
            self._forget()

    def receivers_of(self, topic: str, matches: tuple[Match, ...]) -> Receivers | None:
        """Who gets what these matches are of; None if it is not the same for all events of the topic."""
        found = self._fast.plain_receivers(topic, matches)
        return None if found is None else self._shared(tuple(found.items()))

    def _shared(self, receivers: Receivers) -> Receivers:
        if receivers not in self._alike:
            self._alike[receivers] = receivers
            self._count += len(receivers)
        return self._alike[receivers]

    def audience(self, topic: str, receivers: Receivers, version: int) -> Audience:
        """The same for packets of one version."""
        alike = dict.fromkeys([client for client, qos in receivers if qos and _takes_as_it_is(client, topic, version)])
        found = Audience(tuple(alike), tuple([each for each in receivers if each[0] not in alike]))
        if found not in self._audiences:
            self._audiences[found] = found
            self._count += len(receivers)
        return self._audiences[found]

    def forget(self) -> None:
        """Who receives what may have changed; also lets go of sessions that ended, with all that waits in them."""
        if self._receivers or self._audiences:
            self._forget()

    def _forget(self) -> None:
        self._receivers.clear()
        self._alike.clear()
        self._audiences.clear()
        self._routes.clear()
        self._count = 0


def _takes_as_it_is(client: Client, topic: str, version: int) -> bool:
    """Whether packets of the version go to the client just so, but for their identifiers."""
    session = client.session
    fits = session.packet_size_max >= PACKET_SIZE_MAX and not session.uses_aliases
    return session.version == version and fits and client.rights.may_read(topic)
