"""Sessions under random traffic, lost connections and crashes: nothing lost, QoS 2 once, limits kept.

The client is written down here independently of the package's own state machines.
"""

from collections import deque

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.packets import Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import NEVER_EXPIRES, V5
from geomq.mqtt.session.backlog import Backlog
from geomq.mqtt.session.changes import (
    DeliveryAdded,
    DeliveryReleased,
    DeliveryRemoved,
    DeliverySent,
    Journal,
    ReceiptAdded,
    ReceiptRemoved,
)
from geomq.mqtt.session.handshake import Policy, agree
from geomq.mqtt.session.message import ApplicationMessage, Fanout
from geomq.mqtt.session.outbound import InFlight, Phase
from geomq.mqtt.session.session import Session
from geomq.mqtt.session.subscriptions import Terms

POLICY = Policy(receive_max=3, in_flight_max=10)


def _replayed(journal: Journal) -> tuple[list[InFlight], list[int]]:
    """What a store would hold after these changes."""
    deliveries: dict[int, InFlight] = {}
    receipts: dict[int, None] = {}
    for change in journal:
        if isinstance(change, DeliveryAdded):
            message = change.message
            delivery = InFlight(
                change.number, message, change.qos, change.retain, change.identifiers, message.wire_size
            )
            delivery.packet_id = change.packet_id
            delivery.phase = Phase.SENT if change.packet_id else Phase.QUEUED
            deliveries[change.number] = delivery
        elif isinstance(change, DeliverySent):
            deliveries[change.number].packet_id = change.packet_id
            deliveries[change.number].phase = Phase.SENT
        elif isinstance(change, DeliveryReleased):
            deliveries[change.number].phase = Phase.RELEASED
        elif isinstance(change, DeliveryRemoved):
            del deliveries[change.number]
        elif isinstance(change, ReceiptAdded):
            receipts[change.packet_id] = None
        elif isinstance(change, ReceiptRemoved):
            del receipts[change.packet_id]
    return [deliveries[number] for number in sorted(deliveries)], list(receipts)


class ModelClient:
    """A client by the book: acknowledges, remembers QoS 2 identifiers, repeats what was not acknowledged."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.half_received: set[int] = set()
        self.unacknowledged: dict[int, Publish] = {}
        self.releasing: dict[int, None] = {}
        self.open: set[int] = set()
        self.window = 0
        self.next_id = 1

    def connected(self, window: int) -> list[Packet]:
        self.window = window
        self.open.clear()
        repeats: list[Packet] = [
            Publish(p.topic, p.payload, p.qos, dup=True, packet_id=p.packet_id) for p in self.unacknowledged.values()
        ]
        return repeats + [Pubrel(packet_id) for packet_id in self.releasing]

    def publish(self, payload: bytes, qos: int) -> Publish:
        packet = Publish("up", payload, qos, packet_id=self.next_id)
        self.next_id += 1
        self.unacknowledged[packet.packet_id] = packet
        return packet

    @property
    def quota(self) -> int:
        return POLICY.receive_max - len(self.unacknowledged) - len(self.releasing)

    def handle(self, packet: Packet) -> list[Packet]:
        if isinstance(packet, Publish):
            return self._published(packet)
        if isinstance(packet, Pubrel):
            self.half_received.discard(packet.packet_id)
            self.open.discard(packet.packet_id)
            return [Pubcomp(packet.packet_id)]
        if isinstance(packet, Puback):
            del self.unacknowledged[packet.packet_id]
            return []
        if isinstance(packet, Pubrec):
            self.unacknowledged.pop(packet.packet_id, None)
            self.releasing[packet.packet_id] = None
            return [Pubrel(packet.packet_id)]
        assert isinstance(packet, Pubcomp)
        self.releasing.pop(packet.packet_id, None)
        return []

    def _published(self, packet: Publish) -> list[Packet]:
        assert packet.packet_id not in self.open, "a packet identifier in flight was used again"
        self.open.add(packet.packet_id)
        assert len(self.open) <= self.window, "the receive maximum was exceeded"
        if packet.qos == 1:
            self.got.append(packet.payload)
            self.open.discard(packet.packet_id)
            return [Puback(packet.packet_id)]
        if packet.packet_id not in self.half_received:
            self.half_received.add(packet.packet_id)
            self.got.append(packet.payload)
        return [Pubrec(packet.packet_id)]


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.journal: Journal = []
        self.backlog = Backlog()
        self.session = Session("c", POLICY, self.journal, backlog=self.backlog)
        self.client = ModelClient()
        self.to_client: deque[Packet] = deque()
        self.to_server: deque[Packet] = deque()
        self.sent: dict[int, list[bytes]] = {1: [], 2: []}
        self.published: dict[int, list[bytes]] = {1: [], 2: []}
        self.routed: list[bytes] = []
        self.count = 0

    def _emit(self, *wires: bytes | None) -> None:
        packets = Decoder(Side.CLIENT, version=V5).feed(b"".join(filter(None, wires)))
        if self.session.connected:
            self.to_client.extend(packets)

    @rule(window=st.integers(1, 4))
    def reconnect(self, window: int) -> None:
        self.lose_connection()
        properties = Properties(session_expiry_interval=NEVER_EXPIRES, receive_maximum=window)
        connect = Connect("c", clean_start=False, properties=properties)
        wires = self.session.attach(agree(connect, POLICY, spare_id=""), None, 0.0)
        self.to_server.extend(self.client.connected(window))
        self._emit(*wires)

    @rule()
    def lose_connection(self) -> None:
        self.to_client.clear()
        self.to_server.clear()
        self.session.detach(NEVER_EXPIRES, 0.0)

    @rule()
    def crash(self) -> None:
        self.lose_connection()
        self.session.close()
        assert (self.backlog.messages, self.backlog.bytes) == (0, 0)
        self.session = Session("c", POLICY, self.journal, backlog=self.backlog)
        self.session.restore(*_replayed(self.journal))

    @rule(qos=st.integers(1, 2))
    def deliver(self, qos: int) -> None:
        self.count += 1
        payload = b"%d" % self.count
        self.sent[qos].append(payload)
        self._emit(self.session.deliver(Fanout(ApplicationMessage("t", payload, qos), 0.0), Terms(qos, False, ())))

    @precondition(lambda self: self.session.connected and self.client.quota > 0)
    @rule(qos=st.integers(1, 2))
    def client_publishes(self, qos: int) -> None:
        self.count += 1
        payload = b"%d" % self.count
        self.published[qos].append(payload)
        self.to_server.append(self.client.publish(payload, qos))

    @precondition(lambda self: self.to_client)
    @rule(count=st.integers(1, 3))
    def client_reads(self, count: int) -> None:
        for _ in range(min(count, len(self.to_client))):
            self.to_server.extend(self.client.handle(self.to_client.popleft()))

    @precondition(lambda self: self.to_server)
    @rule(count=st.integers(1, 3))
    def server_reads(self, count: int) -> None:
        for _ in range(min(count, len(self.to_server))):
            self._serve(self.to_server.popleft())

    def _serve(self, packet: Packet) -> None:
        session = self.session
        if isinstance(packet, Publish):
            message = session.accept(packet, 0.0)
            if message is not None:
                self.routed.append(message.payload)
            self._emit(session.answer(packet.packet_id, packet.qos))
        elif isinstance(packet, Pubrel):
            self._emit(session.on_pubrel(packet))
        elif isinstance(packet, Puback):
            self._emit(*session.on_puback(packet, 0.0))
        elif isinstance(packet, Pubrec):
            self._emit(*session.on_pubrec(packet, 0.0))
        else:
            assert isinstance(packet, Pubcomp)
            self._emit(*session.on_pubcomp(packet, 0.0))

    @invariant()
    def what_waits_is_counted(self) -> None:
        deliveries, _ = self.session.unfinished()
        sizes = [delivery.message.wire_size for delivery in deliveries]
        assert (self.backlog.messages, self.backlog.bytes) == (len(sizes), sum(sizes))

    @invariant()
    def qos_2_is_never_doubled(self) -> None:
        for seen, made in ((self.client.got, self.sent[2]), (self.routed, self.published[2])):
            twice = [payload for payload in seen if payload in made]
            assert len(twice) == len(set(twice))

    def teardown(self) -> None:
        self.reconnect(4)
        while self.to_client or self.to_server:
            self.client_reads(99)
            self.server_reads(99)
        assert self.session.pending == 0
        assert _replayed(self.journal) == ([], [])
        for seen, made in ((self.client.got, self.sent), (self.routed, self.published)):
            for qos in (1, 2):
                first = list(dict.fromkeys(payload for payload in seen if payload in made[qos]))
                assert first == made[qos], "lost or out of order"


TestSession = SessionMachine.TestCase
TestSession.settings = settings(
    max_examples=300,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
