"""A whole broker over TCP, packet by packet."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from geomq.broker.config import Config, Limits, Listener, Metrics, Persistence
from geomq.broker.probe import Closed
from geomq.broker.probe import Probe as PlainProbe
from geomq.broker.server import Broker
from geomq.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from geomq.mqtt.properties import Properties
from geomq.mqtt.reasons import ReasonCode
from geomq.mqtt.types import V5, V311

pytestmark = pytest.mark.anyio

OPEN: list[PlainProbe] = []


class Probe(PlainProbe):
    """A probe that is dropped after its test."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        OPEN.append(self)


CONFIG = Config(
    listeners=(Listener(host="127.0.0.1", port=0),),
    persistence=Persistence(enabled=False),
    metrics=Metrics(sys_interval_s=0),
    limits=Limits(connect_timeout_s=1.0, inflight_messages_max=2, queue_messages_max=3),
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(CONFIG) as running:
        yield running
        while OPEN:
            await OPEN.pop().drop()


async def _client(broker: Broker, name: str, version: int = V5, **more: Any) -> Probe:
    probe, connack = await Probe.connect(broker.port, Connect(name, version, **more))
    assert connack.reason == ReasonCode.SUCCESS
    return probe


def _keeps(seconds: int = 60) -> dict[str, Any]:
    return {"clean_start": False, "properties": Properties(session_expiry_interval=seconds)}


@pytest.mark.parametrize("publisher", [V311, V5])
@pytest.mark.parametrize("subscriber", [V311, V5])
async def test_qos_0_reaches_both_versions_from_both(broker: Broker, publisher: int, subscriber: int) -> None:
    async with await _client(broker, "s", subscriber) as s, await _client(broker, "p", publisher) as p:
        await s.subscribe("a/+")
        for number in range(5):
            p.publish("a/b", b"%d" % number)
            assert await s.expect(Publish) == Publish("a/b", b"%d" % number)
        p.send_bytes(b"".join(_wire(publisher, number) for number in range(200)))
        for number in range(200):
            assert (await s.expect(Publish)).payload == b"%d" % number


def _wire(version: int, number: int) -> bytes:
    body = b"\0\3a/b" + (b"\0" if version == V5 else b"") + b"%d" % number
    return b"0" + bytes((len(body),)) + body


async def test_order_is_kept_between_plain_and_special_publishes(broker: Broker) -> None:
    async with await _client(broker, "s") as s, await _client(broker, "p") as p:
        await s.subscribe("t")
        p.publish("t", b"warm")
        await s.expect(Publish)
        for number in range(20):
            properties = Properties(content_type="x") if number % 3 == 0 else Properties()
            p.publish("t", b"%d" % number, properties=properties)
        assert [(await s.expect(Publish)).payload for _ in range(20)] == [b"%d" % n for n in range(20)]


async def test_qos_1_and_2_are_acknowledged_and_delivered(broker: Broker) -> None:
    async with await _client(broker, "s") as s, await _client(broker, "p") as p:
        suback = await s.subscribe(SubscribeRequest("t", 2))
        assert suback.reasons == (ReasonCode.GRANTED_QOS_2,)
        one = p.publish("t", b"1", 1)
        assert await p.expect(Puback) == Puback(one)
        got = await s.expect(Publish)
        assert (got.qos, got.payload) == (1, b"1")
        s.send(Puback(got.packet_id))
        two = p.publish("t", b"2", 2)
        assert await p.expect(Pubrec) == Pubrec(two)
        p.send(Publish("t", b"2", 2, dup=True, packet_id=two))
        assert await p.expect(Pubrec) == Pubrec(two)
        p.send(Pubrel(two))
        assert await p.expect(Pubcomp) == Pubcomp(two)
        got = await s.expect(Publish)
        assert (got.qos, got.payload) == (2, b"2")
        s.send(Pubrec(got.packet_id))
        assert await s.expect(Pubrel) == Pubrel(got.packet_id)
        s.send(Pubcomp(got.packet_id))
        assert await s.silent()


async def test_a_publish_nobody_wants_says_so(broker: Broker) -> None:
    async with await _client(broker, "p") as p:
        packet_id = p.publish("t", b"", 1)
        assert await p.expect(Puback) == Puback(packet_id, ReasonCode.NO_MATCHING_SUBSCRIBERS)


async def test_a_session_is_resumed_with_what_was_missed(broker: Broker) -> None:
    s = await _client(broker, "s", **_keeps())
    await s.subscribe(SubscribeRequest("t", 1))
    await s.drop()
    async with await _client(broker, "p") as p:
        for number in range(4):
            p.publish("t", b"%d" % number, 1)
            await p.expect(Puback)
    s, connack = await Probe.connect(broker.port, Connect("s", **_keeps()))
    assert connack.session_present
    first, second = await s.expect(Publish), await s.expect(Publish)
    assert (first.payload, second.payload) == (b"0", b"1")
    await s.drop()
    s, _ = await Probe.connect(broker.port, Connect("s", **_keeps()))
    again = await s.expect(Publish)
    assert again.dup
    assert (again.payload, again.packet_id) == (b"0", first.packet_id)
    await s.expect(Publish)
    s.send(Puback(first.packet_id))
    assert (await s.expect(Publish)).payload == b"2"
    assert broker.core.counts.events_dropped == 1
    await s.drop()


async def test_clean_start_forgets_the_session(broker: Broker) -> None:
    s = await _client(broker, "s", **_keeps())
    await s.subscribe(SubscribeRequest("t", 1))
    await s.drop()
    _, connack = await Probe.connect(broker.port, Connect("s"))
    assert not connack.session_present
    assert "t" not in broker.core.clients["s"].session.subscriptions


async def test_a_session_without_expiry_ends_with_its_connection(broker: Broker) -> None:
    s = await _client(broker, "s")
    await s.subscribe("t")
    await s.disconnect()
    assert "s" not in broker.core.clients
    assert not broker.core.node.clients


async def test_sessions_expire(broker: Broker) -> None:
    s = await _client(broker, "s", **_keeps(1))
    await s.drop()
    await asyncio.sleep(0.05)
    assert "s" in broker.core.clients
    await asyncio.sleep(2.2)
    assert "s" not in broker.core.clients


async def test_a_second_connection_takes_the_session_over(broker: Broker) -> None:
    first = await _client(broker, "s", **_keeps())
    await first.subscribe("t")
    second, connack = await Probe.connect(broker.port, Connect("s", **_keeps()))
    assert connack.session_present
    farewell = await first.expect(Disconnect)
    assert farewell.reason == ReasonCode.SESSION_TAKEN_OVER
    with pytest.raises(Closed):
        await first.receive()
    async with await _client(broker, "p") as p:
        p.publish("t", b"x")
        assert (await second.expect(Publish)).payload == b"x"


async def test_retained_events_follow_retain_handling(broker: Broker) -> None:
    async with await _client(broker, "p") as p, await _client(broker, "s") as s:
        p.publish("r/1", b"one", 1, retain=True)
        await p.expect(Puback)
        await s.subscribe("r/#")
        assert await s.expect(Publish) == Publish("r/1", b"one", 0, True)
        await s.subscribe(SubscribeRequest("r/#", retain_handling=1))
        assert await s.silent()
        await s.subscribe(SubscribeRequest("r/+", retain_handling=2))
        assert await s.silent()
        p.publish("r/1", b"", 1, retain=True)
        await p.expect(Puback)
        await s.expect(Publish)
        await s.subscribe("r/#")
        assert await s.silent()


async def test_retain_as_published_keeps_the_flag(broker: Broker) -> None:
    async with await _client(broker, "p") as p, await _client(broker, "s") as s:
        await s.subscribe(SubscribeRequest("a", retain_as_published=True), "b")
        p.publish("a", b"x", retain=True)
        p.publish("b", b"x", retain=True)
        assert (await s.expect(Publish)).retain
        assert not (await s.expect(Publish)).retain


async def test_no_local_and_identifiers_and_overlap(broker: Broker) -> None:
    async with await _client(broker, "s") as s, await _client(broker, "p") as p:
        await s.subscribe(SubscribeRequest("a/#", 1), properties=Properties(subscription_identifiers=(7,)))
        await s.subscribe(SubscribeRequest("a/b", 0), properties=Properties(subscription_identifiers=(9,)))
        await s.subscribe(SubscribeRequest("own", 0, no_local=True))
        p.publish("a/b", b"x", 1)
        got = await s.expect(Publish)
        assert got.qos == 1
        assert sorted(got.properties.subscription_identifiers) == [7, 9]
        s.publish("own", b"mine")
        assert await s.silent()
        p.publish("own", b"theirs")
        assert (await s.expect(Publish)).payload == b"theirs"


async def test_shared_subscriptions_take_turns(broker: Broker) -> None:
    members = [await _client(broker, f"m{number}") for number in range(3)]
    for member in members:
        await member.subscribe("$share/g/t/#")
    async with await _client(broker, "whole") as whole, await _client(broker, "p") as p:
        await whole.subscribe("t/+")
        for number in range(9):
            p.publish("t/x", b"%d" % number)
        assert [(await whole.expect(Publish)).payload for _ in range(9)] == [b"%d" % n for n in range(9)]
        for member in members:
            assert len([await member.expect(Publish) for _ in range(3)]) == 3
            assert await member.silent(0.05)
        await members[0].drop()
        await asyncio.sleep(0.05)
        for number in range(4):
            p.publish("t/x", b"%d" % number)
        for member in members[1:]:
            assert [await member.expect(Publish) for _ in range(2)]


async def test_unsubscribe_ends_deliveries(broker: Broker) -> None:
    async with await _client(broker, "s") as s, await _client(broker, "p") as p:
        await s.subscribe("a", "$share/g/a")
        s.send(Unsubscribe(5, ("a", "b", "$share/g/a")))
        unsuback = await s.expect(Unsuback)
        assert unsuback.reasons == (
            ReasonCode.SUCCESS,
            ReasonCode.NO_SUBSCRIPTION_EXISTED,
            ReasonCode.SUCCESS,
        )
        p.publish("a")
        assert await s.silent()


async def test_a_will_is_published_when_the_connection_breaks(broker: Broker) -> None:
    async with await _client(broker, "s") as s:
        await s.subscribe("w")
        quiet = await _client(broker, "quiet", will=Will("w", b"never"))
        await quiet.disconnect()
        loud = await _client(broker, "loud", will=Will("w", b"gone"))
        await loud.drop()
        assert (await s.expect(Publish)).payload == b"gone"
        asked = await _client(broker, "asked", will=Will("w", b"asked"))
        await asked.disconnect(Disconnect(ReasonCode.DISCONNECT_WITH_WILL))
        assert (await s.expect(Publish)).payload == b"asked"


async def test_a_delayed_will_waits_and_is_forgotten_if_the_client_returns(broker: Broker) -> None:
    async with await _client(broker, "s") as s:
        await s.subscribe("w")
        delayed = Will("w", b"late", properties=Properties(will_delay_interval=1))
        back = await _client(broker, "c", will=delayed, **_keeps())
        await back.drop()
        back = await _client(broker, "c", will=delayed, **_keeps())
        assert await s.silent(1.5)
        await back.drop()
        assert await s.silent(0.3)
        assert (await s.expect(Publish)).payload == b"late"


async def test_messages_expire_before_they_are_delivered(broker: Broker) -> None:
    s = await _client(broker, "s", **_keeps())
    await s.subscribe(SubscribeRequest("t", 1))
    await s.drop()
    async with await _client(broker, "p") as p:
        p.publish("t", b"short", 1, properties=Properties(message_expiry_interval=1))
        p.publish("t", b"long", 1, properties=Properties(message_expiry_interval=100))
        await p.expect(Puback)
        await p.expect(Puback)
    await asyncio.sleep(1.1)
    s = await _client(broker, "s", **_keeps())
    got = await s.expect(Publish)
    assert got.payload == b"long"
    assert got.properties.message_expiry_interval in (98, 99)


async def test_topic_aliases_work_both_ways(broker: Broker) -> None:
    async with (
        await _client(broker, "s", properties=Properties(topic_alias_maximum=5)) as s,
        await _client(broker, "p") as p,
    ):
        await s.subscribe("long/topic")
        p.publish("long/topic", b"1", properties=Properties(topic_alias=3))
        p.publish("", b"2", properties=Properties(topic_alias=3))
        assert await s.expect(Publish) == Publish("long/topic", b"1", properties=Properties(topic_alias=1))
        assert await s.expect(Publish) == Publish("", b"2", properties=Properties(topic_alias=1))


async def test_pings_are_answered_and_silence_ends_the_connection(broker: Broker) -> None:
    async with await _client(broker, "c", keep_alive=1) as c:
        c.send(Pingreq())
        await c.expect(Pingresp)
        assert (await c.expect(Disconnect, 5.0)).reason == ReasonCode.KEEP_ALIVE_TIMEOUT


@pytest.mark.parametrize(
    ("version", "wire", "reason"),
    [
        (V5, b"\x36\x06\0\1a\0\1\0", ReasonCode.MALFORMED_PACKET),
        (V5, b"\x30\x04\0\1#\0", ReasonCode.TOPIC_NAME_INVALID),
        (V5, b"\x82\x08\0\1\0\0\2a#\0", ReasonCode.TOPIC_FILTER_INVALID),
        (V5, b"\x30\x07\0\1a\3\x23\0\x63", ReasonCode.TOPIC_ALIAS_INVALID),
        (V5, b"\x20\x03\0\0\0", ReasonCode.PROTOCOL_ERROR),
        (V5, b"\x30\xff\xff\xff\x7f", ReasonCode.PACKET_TOO_LARGE),
        (V5, b"\0\0", ReasonCode.MALFORMED_PACKET),
        (V311, b"\0\0", None),
    ],
)
async def test_a_protocol_error_is_named_before_closing(
    broker: Broker, version: int, wire: bytes, reason: ReasonCode | None
) -> None:
    c = await _client(broker, "c", version)
    c.send_bytes(wire)
    if reason is not None:
        assert (await c.expect(Disconnect)).reason == reason
    with pytest.raises(Closed):
        await c.receive()


async def test_too_many_unacknowledged_publishes_are_refused(broker: Broker) -> None:
    async with await _client(broker, "c") as c:
        for _ in range(21):
            c.publish("t", b"", 2)
        packets = [await c.receive() for _ in range(21)]
        assert isinstance(packets[-1], Disconnect)
        assert packets[-1].reason == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


@pytest.mark.parametrize(
    ("connect", "reason"),
    [
        (Connect("", V311, clean_start=False), ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        (Connect("c", properties=Properties(authentication_method="x")), ReasonCode.BAD_AUTHENTICATION_METHOD),
        (
            Connect("c", properties=Properties(user_properties=(("geo-location", "91,0"),))),
            ReasonCode.PAYLOAD_FORMAT_INVALID,
        ),
    ],
)
async def test_an_impossible_connect_is_refused(broker: Broker, connect: Connect, reason: ReasonCode) -> None:
    probe, connack = await Probe.connect(broker.port, connect)
    assert connack.reason == reason
    with pytest.raises(Closed):
        await probe.receive()


async def test_an_unknown_version_is_answered(broker: Broker) -> None:
    probe = await Probe.open(broker.port, version=V311)
    probe.send_bytes(b"\x10\x0c\0\4MQTT\3\2\0\x3c\0\0")
    assert (await probe.expect(Connack)).reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION


async def test_a_damaged_connect_of_version_5_gets_its_reason(broker: Broker) -> None:
    probe = await Probe.open(broker.port)
    probe.send_bytes(b"\x10\x10\0\4MQTT\5\2\0\x3c\3\x21\0\0\0\0")
    assert (await probe.expect(Connack)).reason == ReasonCode.PROTOCOL_ERROR


async def test_clients_without_an_id_get_one(broker: Broker) -> None:
    _, connack = await Probe.connect(broker.port, Connect(""))
    assigned = connack.properties.assigned_client_identifier
    assert assigned in broker.core.clients


async def test_a_connection_that_says_nothing_is_closed(broker: Broker) -> None:
    probe = await Probe.open(broker.port)
    with pytest.raises(Closed):
        await probe.receive(4.0)
    assert not broker.desk.connections


async def test_packets_sent_right_behind_connect_are_handled(broker: Broker) -> None:
    probe = await Probe.open(broker.port)
    probe.send(Connect("c"))
    probe.send(Pingreq())
    probe.publish("t", b"x", 1)
    await probe.expect(Connack)
    await probe.expect(Pingresp)
    await probe.expect(Puback)


async def test_a_reader_that_is_too_slow_loses_qos_0_and_hurts_nobody() -> None:
    config = Config(
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(enabled=False),
        metrics=Metrics(sys_interval_s=0),
        limits=Limits(write_buffer_bytes_max=65_536),
    )
    async with Broker(config) as broker:
        slow, fast, p = [await _client(broker, name) for name in ("slow", "fast", "p")]
        await slow.subscribe("t")
        await fast.subscribe("t")
        payload = bytes(10_000)
        for _ in range(1_500):
            p.publish("t", payload)
            assert len((await fast.expect(Publish)).payload) == 10_000
        assert broker.core.counts.events_dropped > 100
        assert broker.core.clients["slow"].connection is not None
        while OPEN:
            await OPEN.pop().drop()


async def test_a_reader_that_is_too_slow_costs_bounded_memory_with_qos_1() -> None:
    config = Config(
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(enabled=False),
        metrics=Metrics(sys_interval_s=0),
        limits=Limits(write_buffer_bytes_max=65_536, queue_messages_max=50),
    )
    async with Broker(config) as broker:
        slow = await _client(broker, "slow", properties=Properties(receive_maximum=65_535))
        p = await _client(broker, "p")
        await slow.subscribe(SubscribeRequest("t", 1))
        payload = bytes(20_000)
        for _ in range(1_000):
            p.publish("t", payload, 1)
            await p.expect(Puback)
        session = broker.core.clients["slow"].session
        assert session.dropped > 100
        assert broker.core.counts.bytes_sent < 15_000_000
        got = 0
        while not await slow.silent(0.3):
            packet = await slow.expect(Publish)
            slow.send(Puback(packet.packet_id))
            got += 1
        assert got == 1_000 - session.dropped
        while OPEN:
            await OPEN.pop().drop()


async def test_stopping_says_goodbye(broker: Broker) -> None:
    c = await _client(broker, "c")
    stopping = asyncio.create_task(broker.stop())
    assert (await c.expect(Disconnect)).reason == ReasonCode.SERVER_SHUTTING_DOWN
    await stopping
