"""The shortest way delivers exactly what the ordinary way would, however the bytes are cut and the ticks fall."""

import asyncio
import gc
import random
import tracemalloc
from collections.abc import Callable
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.broker.config.settings import Config, Limits, Listener
from geomq.broker.connections.connection import Connection
from geomq.broker.parts import Parts
from geomq.broker.platform import Platform
from geomq.broker.security.access import Security
from geomq.broker.security.acl import Acl
from geomq.broker.storage.memory import MemoryStore
from geomq.broker.storage.outbox import PROMPT_MAX
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Disconnect, Publish, Subscribe, SubscribeRequest
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.core.model import BrokerId, ClientId, Match
from geomq.routing.core.topology import Federation
from geomq.routing.node import Node

TOPICS = ["a", "a/b", "c"]


class Loop:
    """Runs what is due when told."""

    def __init__(self) -> None:
        self._ready: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._ticks = 0

    def time(self) -> float:
        return self._ticks / 1_000

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._ready.append((callback, args))

    def call_later(self, _delay: float, callback: Callable[..., object], *args: Any) -> None:
        self._ready.append((callback, args))

    def tick(self) -> None:
        self._ticks += 1
        ready, self._ready = self._ready, []
        for callback, args in ready:
            callback(*args)


class Wire:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: object) -> None:
        """Nothing more comes."""

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, _high: int, _low: int) -> None:
        pass

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default


class Client:
    def __init__(self, stage: "Stage", name: str, version: int, topic_filter: str | None = None, qos: int = 0) -> None:
        self.version = version
        self.wire = Wire()
        self.connection: Connection = stage.handlers.make_connection(stage.listener)
        self.connection.connection_made(self.wire)
        self._decoder = Decoder(Side.CLIENT, version=version)
        self.send(encode(Connect(name, version), version))
        stage.loop.tick()
        if topic_filter is not None:
            self.send(encode(Subscribe(1, (SubscribeRequest(topic_filter, qos),)), version))
            stage.loop.tick()
        self.received()

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bytes:
        return encode(Publish(topic, payload, retain=retain), self.version)

    def received(self) -> list[Publish]:
        writes, self.wire.writes = self.wire.writes, []
        packets = [packet for data in writes for packet in self._decoder.feed(data)]
        return [packet for packet in packets if isinstance(packet, Publish)]


class Stage:
    """A broker without sockets."""

    def __init__(self, limits: Limits = Limits(), acl: Acl | None = None) -> None:  # noqa: B008
        self.listener = Listener(host="127.0.0.1", port=0)
        self.loop = Loop()
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        me = BrokerId("b")
        self.parts = Parts(
            Config(listeners=(self.listener,), limits=limits),
            loop=loop,
            node=Node(me=me, federation=Federation.alone(me, None), strategy="single", rng=random.Random(1)),
            store=MemoryStore(),
            security=Security(None, acl),
            platform=Platform(turn_ns=lambda: 0),
        )
        self.core = self.parts.core
        self.handlers = self.parts.handlers


Burst = tuple[int, list[tuple[int, int, bool]], list[int], bool]
bursts = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.lists(st.tuples(st.integers(0, 2), st.sampled_from([4, 4, 4, 130, 300]), st.booleans()), max_size=6),
        st.lists(st.integers(0, 400), max_size=2),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=150)
@given(bursts)
def test_every_subscriber_gets_every_event_once_and_in_order(script: list[Burst]) -> None:
    stage = Stage()
    subscribers = [
        (Client(stage, "s4", V311, "#"), TOPICS),
        (Client(stage, "s5", V5, "#"), TOPICS),
        (Client(stage, "sa", V311, "a"), ["a"]),
        (Client(stage, "sb", V5, "a/+"), ["a/b"]),
    ]
    publishers = [Client(stage, "p4", V311), Client(stage, "p5", V5)]
    sent: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    number = 0
    for who, publishes, cuts, tick in script:
        stream = b""
        for index, size, retain in publishes:
            number += 1
            payload = b"%0*d" % (size, number)
            sent[TOPICS[index]].append(payload)
            stream += publishers[who].publish(TOPICS[index], payload, retain=retain and size > 4)
        for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(stream)], strict=True):
            if stream[start:stop]:
                publishers[who].send(stream[start:stop])
        if tick:
            stage.loop.tick()
    stage.loop.tick()
    for subscriber, topics in subscribers:
        got = subscriber.received()
        for topic in topics:
            assert [packet.payload for packet in got if packet.topic == topic] == sent[topic]
        assert len(got) == sum(len(sent[topic]) for topic in topics)
    assert stage.core.counts.events_received == number


def test_lone_events_are_written_at_once_after_a_while_and_crowds_once_a_tick() -> None:
    stage = Stage()
    subscriber = Client(stage, "s", V311, "#")
    first, second = Client(stage, "p1", V311), Client(stage, "p2", V311)
    for _ in range(10):
        first.send(first.publish("a", b"x"))
        stage.loop.tick()
    subscriber.received()
    first.send(first.publish("a", b"x"))
    assert len(subscriber.received()) == 1
    for _ in range(3 * PROMPT_MAX):
        for publisher in (first, second):
            publisher.send(publisher.publish("a", b"x"))
        stage.loop.tick()
    subscriber.received()
    first.send(first.publish("a", b"x"))
    second.send(second.publish("a", b"x"))
    assert not subscriber.wire.writes
    stage.loop.tick()
    assert len(subscriber.wire.writes) == 1
    assert len(subscriber.received()) == 2


def test_a_route_is_forgotten_when_somebody_subscribes_or_leaves() -> None:
    stage = Stage()
    publisher, early = Client(stage, "p", V311), Client(stage, "s1", V311, "a")
    for _ in range(3):
        publisher.send(publisher.publish("a", b"1"))
        stage.loop.tick()
    late = Client(stage, "s2", V5, "a")
    publisher.send(publisher.publish("a", b"2"))
    stage.loop.tick()
    assert [packet.payload for packet in late.received()] == [b"2"]
    early.send(encode(Disconnect(), V311))
    publisher.send(publisher.publish("a", b"3"))
    stage.loop.tick()
    assert [packet.payload for packet in early.received()] == [b"1", b"1", b"1", b"2"]
    assert [packet.payload for packet in late.received()] == [b"3"]


def test_a_reader_that_is_too_slow_loses_events_and_nobody_else_does() -> None:
    stage = Stage()
    slow, quick = Client(stage, "s1", V311, "a"), Client(stage, "s2", V311, "a")
    publisher = Client(stage, "p", V311)
    publisher.send(publisher.publish("a", b"1"))
    stage.loop.tick()
    slow.connection.pause_writing()
    publisher.send(publisher.publish("a", b"2"))
    stage.loop.tick()
    slow.connection.resume_writing()
    publisher.send(publisher.publish("a", b"3"))
    stage.loop.tick()
    assert [packet.payload for packet in slow.received()] == [b"1", b"3"]
    assert [packet.payload for packet in quick.received()] == [b"1", b"2", b"3"]
    assert stage.core.counts.events_dropped == 1


def test_a_packet_over_the_limit_is_refused_although_its_topic_is_known() -> None:
    stage = Stage(Limits(packet_bytes_max=200))
    subscriber, publisher = Client(stage, "s", V5, "a"), Client(stage, "p", V5)
    for _ in range(3):
        publisher.send(publisher.publish("a", b"x"))
        stage.loop.tick()
    publisher.send(publisher.publish("a", b"x" * 300))
    stage.loop.tick()
    assert publisher.wire.closed
    farewell = b"".join(publisher.wire.writes)
    assert farewell[0] == 0xE0
    assert farewell[2] == ReasonCode.PACKET_TOO_LARGE
    assert len(subscriber.received()) == 3


def test_long_topics_are_served_and_not_remembered() -> None:
    stage = Stage()
    publisher, subscriber = Client(stage, "p", V5), Client(stage, "s", V5, "#")
    tracemalloc.start()
    for number in range(50):
        publisher.send(publisher.publish(f"{number:05}" * 12_000, b"x"))
        stage.loop.tick()
        assert len(subscriber.received()) == 1
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1_000_000


def test_connections_that_ended_are_forgotten_by_a_broker_that_only_hears_from_peers() -> None:
    stage = Stage()
    for _ in range(20):
        subscriber = Client(stage, "s", V5, "a")
        assert stage.parts.fast.route("a", (Match(ClientId("s"), "a"),)) is not None
        subscriber.send(encode(Disconnect(), V5))
        stage.loop.tick()
    del subscriber
    gc.collect()
    assert sum(isinstance(one, Connection) for one in gc.get_objects()) < 5


def test_events_without_subscribers_cost_nothing_but_are_counted() -> None:
    stage = Stage()
    publisher = Client(stage, "p", V311)
    for _ in range(5):
        publisher.send(publisher.publish("a", b"x") * 3)
        publisher.send(publisher.publish("a", b"x"))
        stage.loop.tick()
    assert stage.core.counts.events_received == 20
    assert stage.core.counts.events_delivered == 0
