"""Connections to a whole broker: how they begin, break the rules, fall silent, fall behind and end."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from msgspec import structs
from tests.broker.probes import Probe, client, drop_all
from tests.probe import Closed

from geomq.broker.config.settings import Config, Limits, Listener, Metrics, Persistence
from geomq.broker.connections import endings
from geomq.broker.connections.connection import Connection
from geomq.broker.server import Broker
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Subscribe,
    SubscribeRequest,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311

pytestmark = pytest.mark.anyio


CONFIG = Config(
    listeners=(Listener(host="127.0.0.1", port=0),),
    persistence=Persistence(enabled=False),
    metrics=Metrics(sys_interval_s=0),
    limits=Limits(connect_timeout_s=1.0, inflight_messages_max=2, queue_messages_max=3),
)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(CONFIG) as running:
        yield running
        await drop_all()


async def test_pings_are_answered_and_silence_ends_the_connection(broker: Broker) -> None:
    async with await client(broker, "c", keep_alive=1) as c:
        c.send(Pingreq())
        await c.expect(Pingresp)
        assert (await c.expect(Disconnect)).reason == ReasonCode.KEEP_ALIVE_TIMEOUT


async def test_the_system_looks_after_clients_that_asked_for_no_keep_alive(broker: Broker) -> None:
    async with await client(broker, "c", keep_alive=0):
        held = broker.core.clients["c"].connection
        assert isinstance(held, Connection)
        assert held._transport is not None
        wire = held._transport.get_extra_info("socket")
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@pytest.mark.parametrize(
    ("version", "wire", "reason"),
    [
        (V5, b"\x36\x06\0\1a\0\1\0", ReasonCode.MALFORMED_PACKET),
        (V5, b"\x30\x04\0\1#\0", ReasonCode.MALFORMED_PACKET),
        (V5, b"\x82\x08\0\1\0\0\2a#\0", ReasonCode.MALFORMED_PACKET),
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
    c = await client(broker, "c", version)
    c.send_bytes(wire)
    if reason is not None:
        assert (await c.expect(Disconnect)).reason == reason
    with pytest.raises(Closed):
        await c.receive()


async def test_too_many_unacknowledged_publishes_are_refused(broker: Broker) -> None:
    async with await client(broker, "c") as c:
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
        await probe.receive()
    assert not broker.parts.handlers.connections


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
        slow, fast, p = [await client(broker, name) for name in ("slow", "fast", "p")]
        await slow.subscribe("t")
        await fast.subscribe("t")
        payload = bytes(10_000)
        for _ in range(1_500):
            p.publish("t", payload)
            assert len((await fast.expect(Publish)).payload) == 10_000
        assert broker.core.counts.events_dropped > 100
        assert broker.core.clients["slow"].connection is not None
        await drop_all()


async def test_a_reader_that_is_too_slow_costs_bounded_memory_with_qos_1() -> None:
    config = Config(
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(enabled=False),
        metrics=Metrics(sys_interval_s=0),
        limits=Limits(write_buffer_bytes_max=65_536, queue_messages_max=50),
    )
    async with Broker(config) as broker:
        slow = await client(broker, "slow", properties=Properties(receive_maximum=65_535))
        p = await client(broker, "p")
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
        await drop_all()


async def test_subscribing_to_much_at_once_and_reading_nothing_costs_bounded_memory() -> None:
    limits = Limits(write_buffer_bytes_max=65_536)
    async with Broker(structs.replace(CONFIG, limits=limits)) as broker:
        p = await client(broker, "p")
        for number in range(100):
            p.publish(f"kept/{number}", bytes(20_000), 1, retain=True)
            await p.expect(Puback)
        slow = await client(broker, "slow")
        filters = ("kept/+", "kept/#", "+/#", "#", "+/+")
        wanted = [Subscribe(1, (SubscribeRequest(one),)) for one in filters]
        before = broker.core.counts.bytes_sent
        slow.send_bytes(20 * b"".join(encode(each, V5) for each in wanted))
        p.publish("last", b"", 1)
        await p.expect(Puback)
        while len(broker.core.clients["slow"].session.subscriptions) < 5:
            await asyncio.sleep(0.01)
        assert broker.core.counts.bytes_sent - before < 20_000_000
        for _ in range(20 * 5 + 100):
            await slow.receive()
        await drop_all()


async def test_entering_much_at_once_and_reading_nothing_costs_bounded_memory_and_loses_nothing() -> None:
    limits = Limits(write_buffer_bytes_max=65_536, queue_messages_max=20)
    fenced = Properties(user_properties=(("geo-fence", "geo:52.52,13.405;u=1000"),))
    async with Broker(structs.replace(CONFIG, limits=limits)) as broker:
        p = await client(broker, "p")
        for number in range(100):
            p.publish(f"kept/{number}", bytes(20_000), 1, retain=True, properties=fenced)
            await p.expect(Puback)
        slow = await client(broker, "slow")
        await slow.subscribe(SubscribeRequest("kept/+", 1))
        before = broker.core.counts.bytes_sent
        places = (Publish("$geo/location", place) for place in (b"52.52,13.405", b"0,0"))
        slow.send_bytes(50 * b"".join(encode(each, V5) for each in places))
        slow.send_bytes(encode(Publish("$geo/location", b"52.52,13.405"), V5))
        while broker.core.counts.location_updates < 101:
            await asyncio.sleep(0.01)
        assert broker.core.counts.bytes_sent - before < 20_000_000
        topics: set[str] = set()
        while len(topics) < 100:
            packet = await slow.expect(Publish)
            topics.add(packet.topic)
            slow.send(Puback(packet.packet_id))
        assert broker.core.clients["slow"].session.dropped == 0
        await drop_all()


async def test_who_says_goodbye_and_reads_no_more_is_cut_off_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "FAREWELL_S", 0.1)
    limits = Limits(packet_bytes_max=1 << 25, write_buffer_bytes_max=1 << 26)
    async with Broker(structs.replace(CONFIG, limits=limits)) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1_024)
        writer.write(encode(Connect("s"), V5) + encode(Subscribe(1, (SubscribeRequest("t"),)), V5))
        while not (broker.core.clients and broker.core.clients["s"].session.subscriptions):
            await asyncio.sleep(0.01)
        p = await client(broker, "p")
        p.publish("t", bytes(24_000_000), 1)
        await p.expect(Puback)
        writer.write(encode(Disconnect(), V5))
        while "s" in broker.core.clients:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        got = 0
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 20):
                got += len(data)
        assert 0 < got < 24_000_000
        writer.transport.abort()
        await drop_all()


async def test_stopping_says_goodbye(broker: Broker) -> None:
    c = await client(broker, "c")
    stopping = asyncio.create_task(broker.stop())
    assert (await c.expect(Disconnect)).reason == ReasonCode.SERVER_SHUTTING_DOWN
    await stopping
