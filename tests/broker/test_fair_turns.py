"""While one client sends what is costly, others are answered between its packets, and its own stay in order.

Every step of a connection takes a whole turn here, so nothing depends on how fast the machine is.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from tests.broker.probes import Probe, client, drop_all

from geomq.broker.config.settings import Config, Limits, Listener, Metrics, Persistence
from geomq.broker.connections.websocket import frame
from geomq.broker.platform import Platform
from geomq.broker.server import Broker
from geomq.broker.state.turns import TURN_NS
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5

pytestmark = pytest.mark.anyio

CONFIG = Config(
    listeners=(Listener(host="127.0.0.1", port=0), Listener(kind="websocket", host="127.0.0.1", port=0)),
    persistence=Persistence(enabled=False),
    metrics=Metrics(sys_interval_s=0),
    limits=Limits(receive_maximum=65_535, inflight_messages_max=65_535, queue_messages_max=100_000),
)
SLOW = Platform(turn_ns=itertools.count(0, TURN_NS).__next__)
COUNT = 2_000


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(CONFIG, platform=SLOW) as running:
        yield running
        await drop_all()


async def _answered_meanwhile(broker: Broker, flood: bytes, attacker: Probe, last: type[object]) -> int:
    """How many events of a canary come back to it before the attacker's last answer."""
    canary = await client(broker, "canary")
    await canary.subscribe("canary")
    attacker.send_bytes(flood)
    ends = asyncio.create_task(_until(attacker, last))
    await asyncio.sleep(0)
    answered = 0
    while not ends.done() and answered < 20:
        canary.publish("canary", b"%d" % answered, 1)
        kinds = {type(await canary.receive()), type(await canary.receive())}
        assert kinds == {Puback, Publish}
        answered += not ends.done()
    await ends
    return answered


async def _until(probe: Probe, last: type[object]) -> None:
    while not isinstance(await probe.receive(), last):
        pass


def _publishes(count: int, topic: str, **more: object) -> bytes:
    properties = Properties(user_properties=tuple((name.replace("_", "-"), str(text)) for name, text in more.items()))
    return b"".join(
        encode(Publish(topic, b"%d" % number, 0, False, False, 0, properties), V5) for number in range(count)
    )


async def test_others_are_served_between_the_events_of_a_flood(broker: Broker) -> None:
    attacker = await client(broker, "attacker")
    await attacker.subscribe(*["/".join(levels) for levels in itertools.product("a+", repeat=8)])
    flood = _publishes(COUNT, "a/a/a/a/a/a/a/a", geo_location="1,2") + encode(Pingreq(), V5)
    assert await _answered_meanwhile(broker, flood, attacker, Pingresp) == 20


async def test_others_are_served_between_the_filters_of_one_subscribe(broker: Broker) -> None:
    attacker = await client(broker, "attacker")
    requests = tuple(SubscribeRequest(f"a/{number}") for number in range(COUNT))
    flood = encode(Subscribe(1, requests), V5)
    assert await _answered_meanwhile(broker, flood, attacker, Suback) == 20
    flood = encode(Unsubscribe(1, tuple(request.topic_filter for request in requests)), V5)
    attacker.send_bytes(flood + encode(Pingreq(), V5))
    await _until(attacker, Pingresp)
    assert not broker.core.clients["attacker"].session.subscriptions


async def test_what_follows_a_subscribe_in_its_packet_waits_for_it(broker: Broker) -> None:
    attacker = await client(broker, "attacker")
    requests = tuple(SubscribeRequest(f"a/{number}") for number in range(COUNT))
    attacker.send_bytes(encode(Subscribe(1, requests), V5) + _publishes(1, f"a/{COUNT - 1}"))
    assert isinstance(await attacker.receive(), Suback)
    assert (await attacker.expect(Publish)).payload == b"0"


async def test_an_event_between_the_filters_of_one_subscribe_reaches_those_that_are_placed(broker: Broker) -> None:
    attacker, other = await client(broker, "attacker"), await client(broker, "other")
    other.publish("a/0", b"before the first, so that its way is known", 1)
    await other.expect(Puback)
    attacker.send(Subscribe(1, tuple(SubscribeRequest(f"a/{number}") for number in range(COUNT))))
    while "a/0" not in (mine := broker.core.clients["attacker"].session.subscriptions):
        await asyncio.sleep(0)
    assert len(mine) < COUNT
    other.publish("a/0", b"between")
    assert (await attacker.expect(Publish)).payload == b"between"
    await attacker.expect(Suback)


async def test_a_client_that_leaves_in_the_midst_of_its_packets_leaves_nothing_behind(broker: Broker) -> None:
    attacker = await client(broker, "attacker")
    attacker.send(Subscribe(1, tuple(SubscribeRequest(f"a/{number}") for number in range(COUNT))))
    while "attacker" in broker.core.clients and not broker.core.clients["attacker"].session.subscriptions:
        await asyncio.sleep(0)
    await client(broker, "attacker", clean_start=True)
    while len(broker.core.turns):
        await asyncio.sleep(0)
    assert not broker.core.clients["attacker"].session.subscriptions


def _in_turn(number: int) -> Publish:
    """An event that takes another path through the broker than the one before."""
    payload = b"%d" % number
    if number % 4 == 1:
        return Publish("a/qos1", payload, 1, packet_id=number + 1)
    if number % 4 == 2:
        return Publish("a/slow", payload, properties=Properties(content_type="x"))
    return Publish("a/fast", payload)


async def test_events_of_a_flood_arrive_in_their_order(broker: Broker) -> None:
    reader, attacker = await client(broker, "reader"), await client(broker, "attacker")
    await reader.subscribe("a/#")
    packets = [_in_turn(number) for number in range(500)]
    attacker.send_bytes(b"".join(encode(packet, V5) for packet in packets))
    payloads = [(await reader.expect(Publish)).payload for _ in packets]
    assert payloads == [packet.payload for packet in packets]


async def test_all_that_precedes_the_end_of_a_websocket_is_taken_in_however_many_turns_it_takes(broker: Broker) -> None:
    reader = await client(broker, "reader")
    await reader.subscribe("a")
    packets = [encode(Connect("pages", V5), V5), *[_publishes(1, "a", geo_location="1,2")] * COUNT]
    _, writer = await asyncio.open_connection("127.0.0.1", broker.addresses[1][2])
    frames = [_masked(2, packet) + _masked(9, b"") for packet in packets]
    writer.write(UPGRADE + b"".join(frames) + _masked(8, b"\x03\xe8"))
    canary = await client(broker, "canary")
    canary.send(Pingreq())
    await canary.expect(Pingresp)
    for _ in range(COUNT):
        await reader.expect(Publish)
    while "pages" in broker.core.clients:
        await asyncio.sleep(0)
    writer.close()


UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def _masked(opcode: int, payload: bytes) -> bytes:
    """A frame of a client whose mask changes nothing."""
    whole = frame(opcode, payload)
    head = len(whole) - len(payload)
    return whole[:1] + bytes([whole[1] | 0x80]) + whole[2:head] + bytes(4) + payload


async def test_of_sessions_that_end_at_the_same_time_some_wait_until_others_had_their_turn() -> None:
    async with Broker(CONFIG, platform=SLOW) as broker:
        for number in range(20):
            short = await client(broker, str(number), properties=Properties(session_expiry_interval=5))
            await short.drop()
        while any(each.connection is not None for each in broker.core.clients.values()):
            await asyncio.sleep(0)
        broker.core.now_s._ahead_s += 10
        broker.parts.registry.sweep()
        broker.parts.registry.sweep()
        assert len(broker.core.clients) == 18
        while broker.core.clients:
            assert len(broker.core.turns)
            await asyncio.sleep(0)
        assert broker.core.counts.expired_sessions == 20


async def test_connections_that_are_lost_together_end_one_turn_after_the_other(broker: Broker) -> None:
    probes = [await client(broker, str(number)) for number in range(20)]
    connections = [each.connection for each in broker.core.clients.values()]
    for connection in connections:
        connection.connection_lost(None)  # type: ignore[union-attr]
    assert len(broker.core.clients) == 20
    seen = set()
    while broker.core.clients:
        seen.add(len(broker.core.clients))
        await asyncio.sleep(0)
    assert len(seen) >= 10
    assert not broker.parts.handlers.connections
    assert len(probes) == 20


async def test_a_client_that_comes_back_before_its_lost_connection_was_looked_at_keeps_its_session(
    broker: Broker,
) -> None:
    keeps = Properties(session_expiry_interval=100)
    await client(broker, "c", properties=keeps)
    lost = broker.core.clients["c"].connection
    assert lost is not None
    lost.connection_lost(None)  # type: ignore[attr-defined]
    again = await client(broker, "c", clean_start=False, properties=keeps)
    while len(broker.core.turns):
        await asyncio.sleep(0)
    await again.subscribe("t")
    again.publish("t", b"x")
    assert (await again.expect(Publish)).payload == b"x"
    assert len(broker.parts.handlers.connections) == 1
