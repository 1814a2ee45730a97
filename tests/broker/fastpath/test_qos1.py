"""Who gets events of QoS 1 and 2 is asked once per topic, and nobody can tell but by what it costs."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.broker.fastpath.test_publishing import Client, Stage
from tests.broker.probes import Probe, client, drop_all

from geomq.broker.config.settings import Config, Limits, Listener, Metrics, Persistence
from geomq.broker.fastpath import qos1 as fast_qos1
from geomq.broker.security.acl import parse_acl
from geomq.broker.server import Broker
from geomq.broker.storage.outbox import Outbox
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Puback, Publish, Pubrec, Pubrel, SubscribeRequest, Unsubscribe
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311
from geomq.mqtt.session.session import Session
from geomq.routing.core.events import ClientPublished, RoutingEvent

pytestmark = pytest.mark.anyio


class Asked:
    """Counts how often the routing core is asked about an event."""

    def __init__(self, broker: Broker) -> None:
        self.count = 0
        self._handle = broker.core.node.handle
        broker.core.node.handle = self  # type: ignore[method-assign, assignment]

    def __call__(self, event: RoutingEvent, *, now: float) -> object:
        self.count += isinstance(event, ClientPublished)
        return self._handle(event, now=now)


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Broker, Asked]]:
    config = Config(
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(enabled=False),
        metrics=Metrics(sys_interval_s=0),
    )
    async with Broker(config) as broker:
        yield broker, Asked(broker)
        await drop_all()


async def publish(publisher: Probe, payload: bytes, qos: int = 1, topic: str = "t/1") -> ReasonCode:
    """Publish and wait until it is acknowledged; how."""
    packet_id = publisher.publish(topic, payload, qos)
    if qos == 1:
        return (await publisher.expect(Puback)).reason
    reason = (await publisher.expect(Pubrec)).reason
    publisher.send(Pubrel(packet_id))
    await publisher.receive()
    return reason


async def received(subscriber: Probe, count: int) -> list[tuple[bytes, int]]:
    """What comes next, acknowledged as far as QoS 1 asks for it."""
    found = []
    for _ in range(count):
        packet = await subscriber.expect(Publish)
        found.append((packet.payload, packet.qos))
        if packet.qos == 1:
            subscriber.send(Puback(packet.packet_id))
    return found


@pytest.mark.parametrize("version", [V5, V311])
async def test_every_subscriber_gets_its_qos_and_the_core_is_asked_once(version: int) -> None:
    async with running() as (broker, asked):
        publisher = await client(broker, "p", version)
        subscribers = [await client(broker, f"s{qos}", version) for qos in (0, 1, 2)]
        for qos, subscriber in enumerate(subscribers):
            await subscriber.subscribe(SubscribeRequest("t/#", qos))
        await subscribers[1].subscribe(SubscribeRequest("t/+", 0))
        for number in range(5):
            assert await publish(publisher, b"%d" % number) == ReasonCode.SUCCESS
        for qos, subscriber in enumerate(subscribers):
            assert await received(subscriber, 5) == [(b"%d" % number, min(qos, 1)) for number in range(5)]
            assert await subscriber.silent(0.05)
        assert asked.count == 1
        await publish(publisher, b"surely", 2)
        assert (await subscribers[2].expect(Publish)).qos == 2
        assert asked.count == 1


async def test_events_wait_for_those_who_are_away() -> None:
    async with running() as (broker, asked):
        publisher = await client(broker, "p")
        kept = Properties(session_expiry_interval=600)
        subscriber = await client(broker, "s", properties=kept)
        await subscriber.subscribe(SubscribeRequest("t/1", 1))
        await publish(publisher, b"1")
        assert await received(subscriber, 1) == [(b"1", 1)]
        await subscriber.disconnect()
        for payload in (b"2", b"3", b"4"):
            await publish(publisher, payload)
        assert asked.count == 2
        back = await client(broker, "s", clean_start=False, properties=kept)
        assert await received(back, 3) == [(b"2", 1), (b"3", 1), (b"4", 1)]
        await publish(publisher, b"5")
        assert await received(back, 1) == [(b"5", 1)]


async def test_a_change_of_subscriptions_is_followed_at_once() -> None:
    async with running() as (broker, asked):
        publisher, first, second = [await client(broker, name) for name in ("p", "a", "b")]
        assert await publish(publisher, b"nobody") == ReasonCode.NO_MATCHING_SUBSCRIBERS
        assert await publish(publisher, b"nobody") == ReasonCode.NO_MATCHING_SUBSCRIBERS
        assert asked.count == 1
        await first.subscribe(SubscribeRequest("t/1", 1))
        await publish(publisher, b"first")
        await second.subscribe(SubscribeRequest("#", 1))
        await publish(publisher, b"both")
        assert await received(first, 2) == [(b"first", 1), (b"both", 1)]
        first.send(Unsubscribe(first.next_id(), ("t/1",)))
        await first.receive()
        await publish(publisher, b"second")
        assert await received(second, 2) == [(b"both", 1), (b"second", 1)]
        assert await first.silent(0.05)


async def test_what_depends_on_the_publisher_or_the_receiver_is_asked_each_time() -> None:
    async with running() as (broker, asked):
        publisher, subscriber = await client(broker, "p"), await client(broker, "s")
        near = Properties(user_properties=(("geo-fence", "geo:48.88,2.36;u=5000"),))
        await subscriber.subscribe(SubscribeRequest("t/near", 1), properties=near)
        await subscriber.subscribe(SubscribeRequest("t/other", 1, no_local=True))
        for topic in ("t/near", "t/other"):
            before = asked.count
            for _ in range(3):
                await publish(publisher, b"x", topic=topic)
            assert asked.count == before + 3
        assert await received(subscriber, 3) == [(b"x", 1)] * 3
        assert await subscriber.silent(0.05)


async def test_a_topic_is_not_forgotten_by_what_it_has_just_been_used_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_qos1, "ROUTES_MAX", 2)
    async with running() as (broker, _):
        publisher, subscriber = await client(broker, "p"), await client(broker, "s")
        await subscriber.subscribe(SubscribeRequest("t/#", 1))
        for topic in ("t/1", "t/2", "t/1", "t/1", "t/3", "t/2", "t/1"):
            assert await publish(publisher, topic.encode(), topic=topic) == ReasonCode.SUCCESS
            assert await received(subscriber, 1) == [(topic.encode(), 1)]


async def test_topics_with_the_same_receivers_share_the_memory_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_qos1, "RECEIVERS_MAX", 12)
    async with running() as (broker, asked):
        publisher = await client(broker, "p")
        subscribers = [await client(broker, name) for name in ("a", "b", "c")]
        for subscriber in subscribers:
            await subscriber.subscribe(SubscribeRequest("t/#", 1))
        for _ in range(2):
            for number in range(10):
                await publish(publisher, b"x", topic=f"t/{number}")
        assert asked.count == 10
        for subscriber in subscribers:
            assert len(await received(subscriber, 20)) == 20


TOPICS = ("a", "a/b", "c")
FLAVOURS = ("plain", "plain", "plain", "retain", "again", "typed", "no id", "cut off")
Step = tuple[int, list[tuple[int, int, int, str]], list[int], list[int], bool]
packets = st.tuples(
    st.integers(0, 2), st.sampled_from([1, 1, 1, 0, 2]), st.sampled_from([4, 4, 4, 130, 300]), st.sampled_from(FLAVOURS)
)
steps = st.tuples(
    st.integers(0, 1),
    st.lists(packets, max_size=6),
    st.lists(st.integers(0, 400), max_size=2),
    st.lists(st.integers(1, 30), max_size=4),
    st.booleans(),
)


def play(script: list[Step], *, short: bool) -> list[bytes]:
    """Everything that the clients of a broker were sent; with or without the short way."""
    stage = Stage()
    if not short:
        del stage.handlers.together[0x32], stage.handlers.together[0x40]
    subscribers = [
        Client(stage, "s0", V311, "#", 0),
        Client(stage, "s1", V311, "#", 1),
        Client(stage, "s2", V5, "a/#", 2),
        Client(stage, "s3", V5, "a", 1),
    ]
    publishers = [Client(stage, "p4", V311), Client(stage, "p5", V5)]
    written = [b""] * 6
    for number, (who, publishes, cuts, acked, tick) in enumerate(script):
        version = publishers[who].version
        stream = b"".join([wire(number * 10 + place, version, *each) for place, each in enumerate(publishes, 1)])
        for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(stream)], strict=True):
            if stream[start:stop]:
                publishers[who].send(stream[start:stop])
        for packet_id in acked:
            subscribers[1].send(encode(Puback(packet_id), V311))
        if tick or number == len(script) - 1:
            stage.loop.tick()
        for place, each in enumerate((*subscribers, *publishers)):
            written[place] += b"".join(each.wire.writes)
            each.wire.writes.clear()
    counts = stage.core.counts
    return [*written, repr((counts.events_received, counts.packets_received, counts.events_delivered)).encode()]


def wire(packet_id: int, version: int, topic: int, qos: int, size: int, flavour: str) -> bytes:
    properties = Properties(content_type="x") if flavour == "typed" and version == V5 else NO_PROPERTIES
    again = flavour == "again" and qos > 0
    payload = b"%0*d" % (size, packet_id)
    packet = Publish(TOPICS[topic], payload, qos, flavour == "retain", again, packet_id if qos else 0, properties)
    data = encode(packet, version)
    if flavour == "no id" and qos and packet_id % 7 == 0:
        id_at = data.index(TOPICS[topic].encode()) + len(TOPICS[topic])
        return data[:id_at] + b"\0\0" + data[id_at + 2 :]
    return data[:-1] if flavour == "cut off" and packet_id % 7 == 0 else data


PLAINS: list[Step] = [(0, [(0, 1, 4, "plain")] * 5, [], [], True)] * 4
"""As many as may be on their way to a subscriber."""


@settings(max_examples=200)
@given(st.lists(steps, max_size=10))
@example([*PLAINS, (0, [(0, 0, 4, "plain"), (0, 1, 4, "plain"), (0, 0, 4, "plain")], [], [1], True)])
def test_nobody_can_tell_the_short_way_from_the_ordinary_one(script: list[Step]) -> None:
    assert play(script, short=True) == play(script, short=False)


def test_what_is_known_is_neither_decoded_nor_checked_anew() -> None:
    stage = Stage()
    subscriber, publisher = Client(stage, "s", V311, "#", 1), Client(stage, "p", V5)
    ordinary = []
    receive = stage.parts.publishing.receive
    stage.parts.publishing.receive = lambda *each: ordinary.append(each) or receive(*each)  # type: ignore[func-returns-value, method-assign]
    for number in range(1, 4):
        publisher.send(encode(Publish("t", b"x", 1, packet_id=number), V5) * 2)
        stage.loop.tick()
    assert len(ordinary) == 1
    assert [packet.payload for packet in subscriber.received()] == [b"x"] * 6


PLAIN = Publish("t", b"x", 1, packet_id=2)
PUBACK = b"\x40\x02\0\2"


def known(limits: Limits = Limits(), acl: str | None = None) -> tuple[Stage, Client, Client]:  # noqa: B008
    """A broker that knows who gets events on "t": its subscriber, who had one, and a publisher of them."""
    stage = Stage(limits, None if acl is None else parse_acl(acl, name="acl"))
    subscriber, publisher = Client(stage, "s", V311, "#", 1), Client(stage, "p", V5)
    publisher.send(encode(Publish("$geo/location", b"52.5,13.4"), V5))
    say(stage, publisher, Publish("t", b"first", 1, packet_id=1))
    assert len(subscriber.received()) == 1
    return stage, subscriber, publisher


def say(stage: Stage, publisher: Client, packet: Publish) -> bytes:
    """The answer."""
    publisher.wire.writes.clear()
    publisher.send(encode(packet, V5))
    stage.loop.tick()
    return b"".join(publisher.wire.writes)


def test_rights_count_on_the_short_way() -> None:
    stage, subscriber, publisher = known(acl="topic readwrite #")
    other = Client(stage, "q", V5)
    assert say(stage, publisher, PLAIN) == PUBACK
    stage.core.clients["q"].rights = parse_acl("topic read #", name="acl").rights(user=None, client_id="q")
    assert say(stage, other, PLAIN)[4] == ReasonCode.NOT_AUTHORIZED
    assert len(subscriber.received()) == 1


def test_where_a_publisher_is_counts_on_the_short_way() -> None:
    stage, subscriber, publisher = known(acl="topic readwrite #\nfence from geo:52.5,13.4;u=5000\n")
    assert say(stage, publisher, PLAIN) == PUBACK
    say(stage, publisher, Publish("$geo/location", b"48.8,2.3"))
    assert say(stage, publisher, PLAIN)[4] == ReasonCode.NOT_AUTHORIZED
    assert len(subscriber.received()) == 1


def test_a_packet_over_the_limit_is_refused_on_the_short_way() -> None:
    stage, subscriber, publisher = known(Limits(packet_bytes_max=256))
    assert say(stage, publisher, Publish("t", b"x" * 300, 1, packet_id=2))[2] == ReasonCode.PACKET_TOO_LARGE
    assert subscriber.received() == []


def test_more_on_its_way_than_agreed_is_refused_on_the_short_way() -> None:
    stage, subscriber, publisher = known(Limits(receive_maximum=2))
    for number in (3, 4):
        say(stage, publisher, Publish("other", b"x", 2, packet_id=number))
    assert say(stage, publisher, PLAIN)[2] == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    assert "t" not in [packet.topic for packet in subscriber.received()]


def test_the_rate_of_a_client_counts_on_the_short_way() -> None:
    stage, subscriber, publisher = known(Limits(publish_rate_per_s=1.0, publish_burst=3))
    publisher.send(encode(PLAIN, V5) * 5)
    stage.loop.tick()
    assert len(subscriber.received()) == 1


def test_a_full_disk_is_told_on_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, subscriber, publisher = known()
    monkeypatch.setattr(Outbox, "full", "the disk is full")
    assert say(stage, publisher, PLAIN)[4] == ReasonCode.QUOTA_EXCEEDED
    assert subscriber.received() == []


def test_a_packet_that_ends_before_its_identifier_ends_the_connection() -> None:
    _, subscriber, publisher = known()
    publisher.send(b"\x32\x03\0\1t" + encode(PLAIN, V5))
    assert publisher.wire.closed
    assert subscriber.received() == []


async def test_a_session_that_ended_is_not_kept_in_memory_with_what_waits_in_it() -> None:
    name = "will-be-forgotten"

    def in_memory() -> int:
        gc.collect()
        return sum(isinstance(one, Session) and one.client_id == name for one in gc.get_objects())

    async with running() as (broker, _):
        publisher = await client(broker, "p")
        keeps = Properties(session_expiry_interval=1_000)
        subscriber = await client(broker, name, clean_start=False, properties=keeps)
        await subscriber.subscribe(SubscribeRequest("t/#", 1))
        await subscriber.disconnect()
        for number in range(10):
            await publish(publisher, b"%d" % number)
        assert in_memory() == 1
        broker.view.kick(name, discard=True)
        assert in_memory() == 0
