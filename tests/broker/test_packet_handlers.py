"""A broker without sockets or clocks: random actions of three clients against a simple model of MQTT.

Connections get pretended transports, the event loop is a queue that runs when told, and time passes when told.
"""

import heapq
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geomq.broker.config.settings import Config, Limits, Listener
from geomq.broker.connections.connection import Connection
from geomq.broker.parts import Parts
from geomq.broker.platform import Platform
from geomq.broker.security.access import Security
from geomq.broker.storage.memory import MemoryStore
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.topics import topic_matches
from geomq.mqtt.codec.types import V5
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import Federation
from geomq.routing.node import Node

FILTERS = ["a", "a/+", "a/#", "#", "+/b", "b"]
TOPICS = ["a", "a/b", "a/c", "b", "c/b"]
WINDOW = 2
LISTENER = Listener(host="127.0.0.1")


class PretendedHandle:
    def cancel(self) -> None:
        """Nothing here is ever cancelled."""


class PretendedLoop:
    """Runs callbacks when told, at a time that passes when told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._ready: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._later: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: Any) -> PretendedHandle:
        self._ready.append((callback, args))
        return PretendedHandle()

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> PretendedHandle:
        self._count += 1
        heapq.heappush(self._later, (self.now + delay, self._count, callback, args))
        return PretendedHandle()

    def run(self) -> None:
        while self._ready or (self._later and self._later[0][0] <= self.now):
            while self._later and self._later[0][0] <= self.now:
                _, _, callback, args = heapq.heappop(self._later)
                self._ready.append((callback, args))
            ready, self._ready = self._ready, []
            for callback, args in ready:
                callback(*args)


class PretendedTransport:
    """Keeps what was written."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        """Data is only given when asked for."""

    resume_reading = pause_reading

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: Any) -> None:
        """Nothing more comes."""

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """There is no buffer."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default


class Peer:
    """A client by the book, and beside it what the model says it must get."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connection: Connection | None = None
        self.transport = PretendedTransport()
        self.decoder = Decoder(Side.CLIENT, version=V5)
        self.got: list[tuple[str, bytes, bool]] = []
        self.half: set[int] = set()
        self.open: set[int] = set()
        self.next_id = 0
        self.answers: list[Packet] = []
        # The model.
        self.session = False
        self.expiry = 0
        self.left_at = 0.0
        self.subscriptions: dict[str, SubscribeRequest] = {}
        self.will: Will | None = None
        self.expected: list[tuple[str, bytes, bool]] = []

    def send(self, packet: Packet) -> None:
        assert self.connection is not None
        self.connection.data_received(encode(packet, V5))

    def read(self) -> bool:
        """Take in what was written; whether anything was."""
        data = bytes(self.transport.written)
        self.transport.written.clear()
        for packet in self.decoder.feed(data):
            self._take(packet)
        return bool(data)

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            assert packet.packet_id not in self.open
            if packet.qos:
                self.open.add(packet.packet_id)
                assert len(self.open) <= WINDOW, "receive maximum exceeded"
            if packet.qos != 2 or packet.packet_id not in self.half:
                self.got.append((packet.topic, packet.payload, packet.retain))
            if packet.qos == 1:
                self.open.discard(packet.packet_id)
                self.answers.append(Puback(packet.packet_id))
            elif packet.qos == 2:
                self.half.add(packet.packet_id)
                self.answers.append(Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self.half.discard(packet.packet_id)
            self.open.discard(packet.packet_id)
            self.answers.append(Pubcomp(packet.packet_id))
        elif isinstance(packet, Pubrec):
            self.answers.append(Pubrel(packet.packet_id))
        else:
            assert isinstance(packet, Connack | Suback | Unsuback | Puback | Pubcomp | Disconnect), packet


class BrokerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        loop: Any = PretendedLoop()
        self.loop = loop
        config = Config(limits=Limits(queue_messages_max=10_000))
        me = BrokerId("b")
        node = Node(me=me, federation=Federation.alone(me), strategy="single", rng=None)  # type: ignore[arg-type]
        self.parts = Parts(
            config,
            loop=loop,
            node=node,
            store=MemoryStore(),
            security=Security(None, None),
            platform=Platform(wall_s=self.loop.time, turn_ns=lambda: 0),
        )
        self.core = self.parts.core
        self.handlers = self.parts.handlers
        self.peers = [Peer(f"p{number}") for number in range(3)]
        self.retained: dict[str, bytes] = {}
        self.count = 0

    peer = st.integers(0, 2)
    often_0 = st.sampled_from([0, 0, 0, 1, 2])
    rarely = st.sampled_from([False, False, False, False, True])

    def _settle(self) -> None:
        busy = True
        while busy:
            self.loop.run()
            busy = False
            for peer in self.peers:
                busy = peer.read() or busy
                answers, peer.answers = peer.answers, []
                for answer in answers:
                    if peer.connection is not None and not peer.connection.closed:
                        peer.send(answer)
                        busy = True

    # The model.

    def _model_publish(self, sender: Peer | None, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        if retain and payload:
            self.retained[topic] = payload
        elif retain:
            self.retained.pop(topic, None)
        for peer in self.peers:
            matching = [
                each
                for each in peer.subscriptions.values()
                if topic_matches(each.topic_filter, topic) and not (each.no_local and peer is sender)
            ]
            if not matching:
                continue
            best = min(qos, max(each.qos for each in matching))
            if peer.connection is not None or best:
                flag = retain and any(each.retain_as_published for each in matching)
                peer.expected.append((topic, payload, flag))

    def _model_end(self, peer: Peer) -> None:
        peer.session = False
        peer.subscriptions = {}
        peer.expected = list(peer.got)
        peer.half.clear()

    def _model_will(self, peer: Peer) -> None:
        will, peer.will = peer.will, None
        if will is not None:
            self._model_publish(peer, will.topic, will.payload, will.qos, will.retain)

    # The actions.

    @rule(number=peer, clean=st.booleans(), expiry=st.sampled_from([0, 30]), will=st.booleans(), qos=st.integers(0, 2))
    def connect(self, number: int, clean: bool, expiry: int, will: bool, qos: int) -> None:
        peer = self.peers[number]
        self.count += 1
        if peer.connection is not None:
            self._lose(peer)
        if clean and peer.session:
            self._model_end(peer)
        if not peer.session:
            peer.half.clear()
        peer.transport, peer.decoder = PretendedTransport(), Decoder(Side.CLIENT, version=V5)
        peer.open.clear()
        peer.connection = self.handlers.make_connection(LISTENER)
        peer.connection.connection_made(peer.transport)
        peer.session, peer.expiry = True, expiry
        peer.will = Will("a/b", b"will %d" % self.count, qos) if will else None
        properties = Properties(session_expiry_interval=expiry, receive_maximum=WINDOW)
        peer.send(Connect(peer.name, V5, clean, 0, peer.will, properties=properties))
        self._settle()

    @rule(number=peer, gracefully=st.booleans())
    def leave(self, number: int, gracefully: bool) -> None:
        peer = self.peers[number]
        if peer.connection is None:
            return
        if gracefully:
            peer.will = None
            peer.send(Disconnect())
            self._gone(peer)
        else:
            self._lose(peer)
        self._settle()

    def _lose(self, peer: Peer) -> None:
        assert peer.connection is not None
        peer.connection.connection_lost(None)
        self._gone(peer)

    def _gone(self, peer: Peer) -> None:
        peer.connection = None
        peer.left_at = self.loop.now
        if not peer.expiry:
            # The session, its subscriptions included, outlives the connection by nothing but the will.
            self._model_will(peer)
            self._model_end(peer)
        else:
            self._model_will(peer)

    @rule(seconds=st.sampled_from([1, 20, 31]))
    def wait(self, seconds: int) -> None:
        self.loop.now += seconds
        self.parts.registry.sweep()
        for peer in self.peers:
            if peer.session and peer.connection is None and self.loop.now - peer.left_at >= peer.expiry:
                self._model_end(peer)
        self._settle()

    @precondition(lambda self: any(peer.connection for peer in self.peers))
    @rule(
        number=peer,
        topic_filter=st.sampled_from(FILTERS),
        qos=st.integers(0, 2),
        no_local=rarely,
        as_published=rarely,
        handling=st.integers(0, 2),
    )
    def subscribe(
        self, number: int, topic_filter: str, qos: int, no_local: bool, as_published: bool, handling: int
    ) -> None:
        peer = self.peers[number]
        if peer.connection is None:
            return
        request = SubscribeRequest(topic_filter, qos, no_local, as_published, handling)
        existed = topic_filter in peer.subscriptions
        peer.subscriptions[topic_filter] = request
        if handling == 0 or (handling == 1 and not existed):
            peer.expected += [
                (topic, payload, True) for topic, payload in self.retained.items() if topic_matches(topic_filter, topic)
            ]
        peer.send(Subscribe(1, (request,)))
        self._settle()

    @rule(number=peer, topic_filter=st.sampled_from(FILTERS))
    def unsubscribe(self, number: int, topic_filter: str) -> None:
        peer = self.peers[number]
        if peer.connection is not None:
            peer.subscriptions.pop(topic_filter, None)
            peer.send(Unsubscribe(1, (topic_filter,)))
            self._settle()

    @rule(number=peer, topic=st.sampled_from(TOPICS), qos=often_0, retain=rarely, times=st.integers(1, 5))
    def publish(self, number: int, topic: str, qos: int, retain: bool, times: int) -> None:
        peer = self.peers[number]
        if peer.connection is None:
            return
        for _ in range(times):
            self.count += 1
            payload = b"" if retain and self.count % 3 == 0 else b"%d" % self.count
            peer.next_id = peer.next_id % 1000 + 1
            self._model_publish(peer, topic, payload, qos, retain)
            peer.send(Publish(topic, payload, qos, retain, packet_id=peer.next_id if qos else 0))
        self._settle()

    @invariant()
    def connected_clients_have_what_they_must(self) -> None:
        for peer in self.peers:
            if peer.connection is not None:
                assert not peer.connection.closed
                assert sorted(peer.got) == sorted(peer.expected), peer.name

    @invariant()
    def nothing_is_left_of_ended_sessions(self) -> None:
        alive = {peer.name for peer in self.peers if peer.session}
        assert set(self.core.clients) == alive
        assert set(self.core.node.clients) <= alive


TestBroker = BrokerMachine.TestCase
TestBroker.settings = settings(max_examples=200, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow])
