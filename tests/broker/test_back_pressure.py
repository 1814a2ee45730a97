"""Who publishes faster than others take in is slowed down, and nothing that was acknowledged is lost."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.broker.federated import configs, federation, peers_up, until
from tests.broker.probes import Probe, client, drop_all

from geomq.broker.config.queues import QueueFull, Queues, TopicRule
from geomq.broker.config.settings import BrokerSettings, Config, Limits, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.broker.state.drops import Drop, Reason
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrec,
    SubscribeRequest,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import NEVER_EXPIRES, V5, V311
from geomq.vocabulary import DROPPED_PROPERTY

pytestmark = pytest.mark.anyio

KEEPS = Properties(session_expiry_interval=NEVER_EXPIRES)
SLOW = Queues(durable=("s*",), slow_s_max=0)
ROOM = 5
FEW = Limits(queue_messages_max=ROOM, inflight_messages_max=1)


@asynccontextmanager
async def running(
    folder: Path,
    queues: Queues = SLOW,
    *,
    limits: Limits = FEW,
    topics: tuple[TopicRule, ...] = (),
    listener: QueueFull | None = None,
) -> AsyncIterator[Broker]:
    config = Config(
        broker=BrokerSettings(data_dir=str(folder)),
        listeners=(Listener(host="127.0.0.1", port=0, queue_full=listener),),
        persistence=Persistence(free_bytes_min=0),
        metrics=Metrics(sys_interval_s=0),
        limits=limits,
        queues=queues,
        topics=topics,
    )
    async with Broker(config) as broker:
        yield broker
        await drop_all()


async def subscriber(broker: Broker, name: str = "s", topic: str = "t") -> Probe:
    probe, _ = await Probe.connect(broker.port, Connect(name, clean_start=False, properties=KEEPS))
    await probe.subscribe(SubscribeRequest(topic, 1))
    return probe


async def sleeper(broker: Broker, name: str = "s", topic: str = "t") -> None:
    """A kept session whose client is away."""
    probe = await subscriber(broker, name, topic)
    await probe.drop()
    await until(lambda: broker.core.clients[name].connection is None)


async def read(broker: Broker, count: int, name: str = "s") -> list[bytes]:
    """So many messages that wait for a client that comes back, and that there are no more."""
    probe, _ = await Probe.connect(broker.port, Connect(name, clean_start=False, properties=KEEPS))
    return await read_on(probe, count)


async def read_on(probe: Probe, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        packet = await probe.expect(Publish)
        probe.send(Puback(packet.packet_id))
        found.append(packet.payload)
    await pings(probe)
    return found


async def pings(probe: Probe) -> None:
    """The client is served, and nothing else is there for it."""
    probe.send(Pingreq())
    await probe.expect(Pingresp)


async def waits(broker: Broker, probe: Probe, *, publishers: int = 1) -> None:
    """So many publishers wait for an answer; this one is served all the same."""
    await until(lambda: broker.core.pressure.waiting == publishers)
    await pings(probe)


def payloads(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


async def fill(broker: Broker, count: int = ROOM, topic: str = "t") -> None:
    """So many events, all acknowledged."""
    probe = await client(broker, "filler")
    for payload in payloads(0, count):
        probe.publish(topic, payload, 1)
        await probe.expect(Puback)
    await probe.disconnect()


@pytest.mark.parametrize("version", [V5, V311])
async def test_a_publisher_is_answered_when_its_event_has_a_place_in_the_queue(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await sleeper(broker)
        await fill(broker)
        p = await client(broker, "p", version)
        for payload in payloads(ROOM, 3):
            p.publish("t", payload, 1)
        await waits(broker, p)
        s, _ = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=KEEPS))
        first = await s.expect(Publish)
        assert (await p.expect(Puback)).packet_id == 1, "one was sent, so that there is room for one"
        await waits(broker, p)
        s.send(Puback(first.packet_id))
        assert [first.payload, *await read_on(s, ROOM + 2)] == payloads(0, ROOM + 3)
        assert [(await p.expect(Puback)).packet_id for _ in range(2)] == [2, 3]
        assert broker.core.counts.events_dropped == 0
        assert broker.core.counts.events_slowed == 3
        await until(lambda: not broker.core.pressure.active)


@pytest.mark.parametrize("version", [V5, V311])
async def test_the_first_event_beyond_the_end_waits_also_where_its_way_is_known(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as broker:
        await sleeper(broker)
        p = await client(broker, "p", version)
        for payload in payloads(0, ROOM):
            p.publish("t", payload, 1)
            await p.expect(Puback)
        assert broker.parts.qos1._routes, "or the test shows nothing"
        p.publish("t", b"5", 1)
        await waits(broker, p)
        assert await read(broker, ROOM + 1) == payloads(0, ROOM + 1)
        await p.expect(Puback)


async def test_events_for_which_memory_is_missing_are_refused_also_where_their_way_is_known(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await subscriber(broker)
        p = await client(broker, "p")
        for payload in payloads(0, 3):
            p.publish("t", payload, 1)
            await p.expect(Puback)
        broker.core.outbox.held.append((broker.core.clients["p"].connection, b""))  # type: ignore[arg-type]
        broker.core.outbox.crowd("no memory")
        assert broker.parts.qos1.publish(broker.core.clients["p"].connection, plain(b"x"), 0) == 0  # type: ignore[arg-type]


def plain(payload: bytes) -> bytes:
    return encode(Publish("t", payload, 1, packet_id=1), V5)


async def test_what_was_not_acknowledged_is_in_the_store_with_what_was(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await sleeper(broker)
        await fill(broker)
        p = await client(broker, "p")
        p.publish("t", b"5", 2)
        await waits(broker, p)
    async with running(tmp_path) as broker:
        assert await read(broker, ROOM + 1) == payloads(0, ROOM + 1)


async def test_a_slowed_publisher_pings_subscribes_and_receives(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await sleeper(broker)
        await fill(broker)
        p, other = await client(broker, "p"), await client(broker, "o")
        for _ in range(ROOM):
            p.publish("t", b"x", 1)
        await waits(broker, p)
        await p.subscribe(SubscribeRequest("news", 1))
        for number in range(3):
            other.publish("news", b"%d" % number, 1)
            got = await p.expect(Publish)
            assert got.payload == b"%d" % number
            p.send(Puback(got.packet_id))
            assert (await other.expect(Puback)).reason == ReasonCode.SUCCESS
        await waits(broker, p)


async def test_others_are_not_slowed_and_a_publisher_is_answered_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await sleeper(broker)
        s2 = await subscriber(broker, "x", "else")
        await fill(broker)
        p, other = await client(broker, "p"), await client(broker, "o")
        p.publish("t", b"5", 1)
        p.publish("else", b"e", 2)
        await waits(broker, p)
        assert (await s2.expect(Publish)).payload == b"e", "it goes at once to those who take it"
        for _ in range(2 * FEW.receive_maximum):
            other.publish("else2", b"x", 1)
            await other.expect(Puback)
        assert await read(broker, ROOM + 1) == payloads(0, ROOM + 1)
        assert (await p.expect(Puback)).packet_id == 1
        assert (await p.expect(Pubrec)).packet_id == 2


async def test_a_client_that_knows_no_receive_maximum_is_read_no_further(tmp_path: Path) -> None:
    limits = Limits(queue_messages_max=ROOM, inflight_messages_max=1, receive_maximum=3)
    async with running(tmp_path, limits=limits) as broker:
        await sleeper(broker)
        await fill(broker)
        p = await client(broker, "p", V311)
        for payload in payloads(ROOM, 20):
            p.publish("t", payload, 1)
        await until(lambda: broker.core.pressure.waiting == 1 and broker.core.clients["s"].session.pending == ROOM + 3)
        q = await client(broker, "q")
        await pings(q)
        assert broker.core.clients["s"].session.pending == ROOM + 3
        assert await read(broker, ROOM + 20) == payloads(0, ROOM + 20)
        assert [(await p.expect(Puback)).packet_id for _ in range(20)] == [*range(1, 21)]
        assert broker.core.counts.events_dropped == 0


async def test_what_is_twice_too_much_is_refused_and_said_to_be(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await sleeper(broker)
        await fill(broker)
        p = await client(broker, "p")
        for _ in range(ROOM):
            p.publish("t", b"x", 1)
        await waits(broker, p)
        late, old = await client(broker, "late"), await client(broker, "old", V311)
        late.publish("t", b"no", 1)
        assert (await late.expect(Puback)).reason == ReasonCode.QUOTA_EXCEEDED
        late.publish("t", b"no", 2)
        assert (await late.expect(Pubrec)).reason == ReasonCode.QUOTA_EXCEEDED
        old.publish("t", b"no", 1)
        with pytest.raises(Exception, match="closed"):
            await old.receive()
        assert dict(broker.core.drops.totals()) == {Drop(Reason.QUEUE_FULL, "session"): 3}
        assert await read(broker, 2 * ROOM) == [*payloads(0, ROOM), *[b"x"] * ROOM]
        assert [(await p.expect(Puback)).reason for _ in range(ROOM)] == [ReasonCode.SUCCESS] * ROOM


async def test_nobody_waits_for_longer_than_the_settings_say(tmp_path: Path) -> None:
    async with running(tmp_path, Queues(durable=("s",), slow_s_max=0.2)) as broker:
        await sleeper(broker)
        await fill(broker)
        p = await client(broker, "p")
        p.publish("t", b"5", 1)
        await p.expect(Puback)
        for _ in range(3):
            p.publish("t", b"gone", 1)
            await p.expect(Puback)
        assert not broker.core.pressure.active
        assert dict(broker.core.drops.totals()) == {Drop(Reason.QUEUE_FULL, "session"): 3}
        s, connack = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=KEEPS))
        assert connack.properties.user(DROPPED_PROPERTY) == "3"
        assert await read_on(s, ROOM + 1) == payloads(0, ROOM + 1)
        await s.drop()
        await until(lambda: broker.core.clients["s"].connection is None)
        await until(lambda: not broker.core.pressure.full)
        await fill(broker)
        p.publish("t", b"5", 1)
        await until(lambda: broker.core.counts.events_slowed == 2)


async def test_a_session_that_ends_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await sleeper(broker)
        await fill(broker)
        p = await client(broker, "p")
        p.publish("t", b"5", 1)
        await waits(broker, p)
        await client(broker, "s")
        await p.expect(Puback)
        await until(lambda: not broker.core.pressure.active)
        assert broker.core.backlog.messages == broker.core.backlog.bytes == 0


async def test_a_publisher_that_went_away_is_not_answered_on_another_connection(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await sleeper(broker)
        await fill(broker)
        p, _ = await Probe.connect(broker.port, Connect("p", properties=KEEPS))
        p.publish("t", b"5", 1)
        await waits(broker, p)
        await p.drop()
        p, _ = await Probe.connect(broker.port, Connect("p", clean_start=False, properties=KEEPS))
        p.publish("t", b"6", 1)
        p.publish("t", b"7", 1)
        await waits(broker, p)
        assert await read(broker, ROOM + 3) == payloads(0, ROOM + 3)
        assert [(await p.expect(Puback)).packet_id for _ in range(2)] == [1, 2]
        await pings(p)


async def offer(broker: Broker, count: int, topic: str = "t") -> None:
    p = await client(broker, "offers")
    for payload in payloads(0, count):
        p.publish(topic, payload, 1)
        await p.expect(Puback)


@pytest.mark.parametrize(("policy", "kept"), [("drop_newest", payloads(0, ROOM)), ("drop_oldest", payloads(3, ROOM))])
async def test_the_settings_say_which_events_are_dropped(tmp_path: Path, policy: QueueFull, kept: list[bytes]) -> None:
    async with running(tmp_path, Queues(full=policy)) as broker:
        await sleeper(broker)
        await offer(broker, ROOM + 3)
        assert dict(broker.core.drops.totals()) == {Drop(Reason.QUEUE_FULL, "session"): 3}
        s, connack = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=KEEPS))
        assert connack.properties.user(DROPPED_PROPERTY) == "3"
        assert await read_on(s, ROOM) == kept


async def test_a_client_that_does_not_keep_up_is_disconnected_and_finds_what_waits(tmp_path: Path) -> None:
    async with running(tmp_path, Queues(full="disconnect")) as broker:
        s = await subscriber(broker)
        await offer(broker, ROOM + 2)
        assert (await s.expect(Publish)).payload == b"0"
        assert (await s.expect(Disconnect)).reason == ReasonCode.QUOTA_EXCEEDED
        assert await read(broker, ROOM + 1) == payloads(0, ROOM + 1)


async def test_a_listener_has_its_own_say_also_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, Queues(), listener="drop_oldest") as broker:
        await sleeper(broker)
    async with running(tmp_path, Queues(), listener="drop_oldest") as broker:
        await offer(broker, ROOM + 2)
        assert await read(broker, ROOM) == payloads(2, ROOM)


async def test_the_first_rule_of_a_topic_has_the_last_word(tmp_path: Path) -> None:
    rules = (
        TopicRule(topic_filter="alarm/+", queue_full="slow"),
        TopicRule(topic_filter="alarm/#", queue_full="drop_newest"),
        TopicRule(topic_filter="state/#", queue_full="drop_oldest"),
    )
    async with running(tmp_path, Queues(slow_s_max=0), topics=rules) as broker:
        await sleeper(broker, topic="#")
        await offer(broker, ROOM - 1, "alarm/a/b")
        await offer(broker, 2, "state/x")
        p = await client(broker, "p")
        p.publish("alarm/fire", b"fire", 1)
        await waits(broker, p)
        await offer(broker, 1, "state/x")
        assert dict(broker.core.drops.totals()) == {Drop(Reason.QUEUE_FULL, "session"): 2}
        found = await read(broker, ROOM + 1)
        assert found == [*payloads(0, ROOM - 1), b"fire", b"0"], "an alarm is not given up for a state"
        await p.expect(Puback)


# Links.


@asynccontextmanager
async def two(queues: Queues) -> AsyncIterator[tuple[Broker, Broker]]:
    """Two brokers; the second stops reading what the first sends when it is told to."""
    configured = {name: replace(config, queues=queues) for name, config in configs("flood_events", brokers=2).items()}
    async with federation(configured) as brokers:
        first, second = brokers.values()
        yield first, second
        await drop_all()


def hold_back(broker: Broker) -> Callable[[], None]:
    """Let nothing of what peers send arrive; returns what undoes it."""
    peering = broker.peering
    assert peering is not None
    channels = [peer.channel for peer in peering._peers.values()]
    for channel in channels:
        assert channel is not None
        channel._transport.pause_reading()

    def undo() -> None:
        for channel in channels:
            assert channel is not None
            channel._transport.resume_reading()

    return undo


async def test_a_paused_peer_slows_publishers_and_loses_nothing() -> None:
    async with two(Queues(peer_messages_max=50)) as (first, second):
        s = await client(second, "s")
        await s.subscribe(SubscribeRequest("t", 1))
        let_go = hold_back(second)
        p = await client(first, "p")
        for payload in payloads(0, 50):
            p.publish("t", payload, 1)
            await p.expect(Puback)
        for payload in payloads(50, 11):
            p.publish("t", payload, 1)
        await waits(first, p)
        assert first.core.clients["p"].connection is not None
        let_go()
        assert [(await p.expect(Puback)).reason for _ in range(11)] == [ReasonCode.SUCCESS] * 11
        assert await read_on(s, 61) == payloads(0, 61)
        assert first.core.counts.events_dropped == second.core.counts.events_dropped == 0


async def test_of_a_burst_for_a_peer_that_is_away_only_what_has_room_is_acknowledged() -> None:
    async with two(Queues(peer_messages_max=5, slow_s_max=0)) as (first, second):
        s = await client(second, "s", clean_start=False, properties=KEEPS)
        await s.subscribe(SubscribeRequest("t", 1))
        p = await client(first, "p")
        p.publish("t", b"over the link", 1)
        assert (await s.expect(Publish)).payload == b"over the link"
        await p.expect(Puback)
        await second.stop()
        await until(lambda: not peers_up(first))
        p.publish("t", b"0", 1)
        await p.expect(Puback)
        assert first.parts.qos1._routes, "or the test shows nothing"
        p.send_bytes(b"".join(plain(payload) for payload in payloads(1, 8)))
        await until(lambda: first.core.pressure.waiting == 1)
        p.send(Pingreq())
        for _ in range(4):
            await p.expect(Puback)
        await p.expect(Pingresp)


async def test_events_of_qos_0_do_not_push_out_what_was_acknowledged() -> None:
    async with two(Queues(peer_messages_max=20, slow_s_max=0.2)) as (first, second):
        s = await client(second, "s")
        await s.subscribe(SubscribeRequest("#", 1))
        let_go = hold_back(second)
        p = await client(first, "p")
        for payload in payloads(0, 20):
            p.publish("sure", payload, 1)
            await p.expect(Puback)
        for number in range(300):
            p.publish("plain", b"%d" % number)
        p.send(Pingreq())
        await p.expect(Pingresp)
        let_go()
        got = [await s.expect(Publish) for _ in range(20)]
        for packet in got:
            s.send(Puback(packet.packet_id))
        assert [packet.payload for packet in got if packet.topic == "sure"] == payloads(0, 20)


async def test_a_peer_that_stays_away_keeps_nobody_waiting_for_ever_and_every_drop_is_counted() -> None:
    async with two(Queues(peer_messages_max=10, slow_s_max=0.3)) as (first, second):
        s = await client(second, "s")
        await s.subscribe(SubscribeRequest("t", 1))
        hold_back(second)
        p = await client(first, "p")
        for payload in payloads(0, 15):
            p.publish("t", payload, 1)
            await p.expect(Puback)
        name = second.core.node.me
        assert dict(first.core.drops.totals()) == {Drop(Reason.QUEUE_FULL, "peer", name): 4}
