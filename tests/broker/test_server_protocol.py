"""A whole broker over TCP, packet by packet."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.broker.probes import Probe, client, drop_all
from tests.probe import Closed

from geomq.broker.clients.retention import SLICE
from geomq.broker.config.settings import Config, Limits, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
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


def _keeps(seconds: int = 60) -> dict[str, Any]:
    return {"clean_start": False, "properties": Properties(session_expiry_interval=seconds)}


@pytest.mark.parametrize("publisher", [V311, V5])
@pytest.mark.parametrize("subscriber", [V311, V5])
async def test_qos_0_reaches_both_versions_from_both(broker: Broker, publisher: int, subscriber: int) -> None:
    async with await client(broker, "s", subscriber) as s, await client(broker, "p", publisher) as p:
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
    async with await client(broker, "s") as s, await client(broker, "p") as p:
        await s.subscribe("t")
        p.publish("t", b"warm")
        await s.expect(Publish)
        for number in range(20):
            properties = Properties(content_type="x") if number % 3 == 0 else Properties()
            p.publish("t", b"%d" % number, properties=properties)
        assert [(await s.expect(Publish)).payload for _ in range(20)] == [b"%d" % n for n in range(20)]


async def test_qos_1_and_2_are_acknowledged_and_delivered(broker: Broker) -> None:
    async with await client(broker, "s") as s, await client(broker, "p") as p:
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
    async with await client(broker, "p") as p:
        packet_id = p.publish("t", b"", 1)
        assert await p.expect(Puback) == Puback(packet_id, ReasonCode.NO_MATCHING_SUBSCRIBERS)


async def test_a_session_is_resumed_with_what_was_missed(broker: Broker) -> None:
    s = await client(broker, "s", **_keeps())
    await s.subscribe(SubscribeRequest("t", 1))
    await s.drop()
    async with await client(broker, "p") as p:
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
    s = await client(broker, "s", **_keeps())
    await s.subscribe(SubscribeRequest("t", 1))
    await s.drop()
    _, connack = await Probe.connect(broker.port, Connect("s"))
    assert not connack.session_present
    assert "t" not in broker.core.clients["s"].session.subscriptions


async def test_a_session_without_expiry_ends_with_its_connection(broker: Broker) -> None:
    s = await client(broker, "s")
    await s.subscribe("t")
    await s.disconnect()
    assert "s" not in broker.core.clients
    assert not broker.core.node.clients


async def test_sessions_expire(broker: Broker) -> None:
    s = await client(broker, "s", **_keeps(1))
    await s.drop()
    await asyncio.sleep(0.05)
    assert "s" in broker.core.clients
    await asyncio.sleep(2.2)
    assert "s" not in broker.core.clients


async def test_a_second_connection_takes_the_session_over(broker: Broker) -> None:
    first = await client(broker, "s", **_keeps())
    await first.subscribe("t")
    second, connack = await Probe.connect(broker.port, Connect("s", **_keeps()))
    assert connack.session_present
    farewell = await first.expect(Disconnect)
    assert farewell.reason == ReasonCode.SESSION_TAKEN_OVER
    with pytest.raises(Closed):
        await first.receive()
    async with await client(broker, "p") as p:
        p.publish("t", b"x")
        assert (await second.expect(Publish)).payload == b"x"


async def test_retained_events_follow_retain_handling(broker: Broker) -> None:
    async with await client(broker, "p") as p, await client(broker, "s") as s:
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
    async with await client(broker, "p") as p, await client(broker, "s") as s:
        await s.subscribe(SubscribeRequest("a", retain_as_published=True), "b")
        p.publish("a", b"x", retain=True)
        p.publish("b", b"x", retain=True)
        assert (await s.expect(Publish)).retain
        assert not (await s.expect(Publish)).retain


async def test_no_local_and_identifiers_and_overlap(broker: Broker) -> None:
    async with await client(broker, "s") as s, await client(broker, "p") as p:
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
    members = [await client(broker, f"m{number}") for number in range(3)]
    for member in members:
        await member.subscribe("$share/g/t/#")
    async with await client(broker, "whole") as whole, await client(broker, "p") as p:
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


async def test_a_member_that_is_stuck_costs_its_group_no_events(broker: Broker) -> None:
    stuck, busy, p = [await client(broker, name) for name in ("stuck", "busy", "p")]
    for member in (stuck, busy):
        await member.subscribe(SubscribeRequest("$share/g/job", 1))
    done = 0
    for number in range(1, 31):
        p.publish("job", b"x", 1)
        assert (await p.expect(Puback)).reason == ReasonCode.SUCCESS
        if done + broker.core.clients["stuck"].session.pending < number:
            busy.send(Puback((await busy.expect(Publish)).packet_id))
            done += 1
    assert done + broker.core.clients["stuck"].session.pending == 30


async def test_unsubscribe_ends_deliveries(broker: Broker) -> None:
    async with await client(broker, "s") as s, await client(broker, "p") as p:
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


async def test_a_new_subscription_is_given_nothing_more_once_it_is_gone_or_replaced(broker: Broker) -> None:
    async with await client(broker, "s") as s:
        for number in range(2 * SLICE):
            s.publish(f"kept/{number}", b"x", retain=True)
        wanted = Subscribe(1, (SubscribeRequest("kept/+"),))
        s.send_bytes(encode(wanted, V5) + encode(Unsubscribe(2, ("kept/+",)), V5))
        while not isinstance(await s.receive(), Unsuback):
            pass
        assert await s.silent()
        s.send_bytes(3 * encode(wanted, V5))
        got = []
        while not await s.silent(0.5):
            got.append(await s.receive())
        topics = [packet.topic for packet in got if isinstance(packet, Publish)]
        assert len(set(topics)) == 2 * SLICE
        assert len(topics) <= 3 * SLICE


async def test_a_will_is_published_when_the_connection_breaks(broker: Broker) -> None:
    async with await client(broker, "s") as s:
        await s.subscribe("w")
        quiet = await client(broker, "quiet", will=Will("w", b"never"))
        await quiet.disconnect()
        loud = await client(broker, "loud", will=Will("w", b"gone"))
        await loud.drop()
        assert (await s.expect(Publish)).payload == b"gone"
        asked = await client(broker, "asked", will=Will("w", b"asked"))
        await asked.disconnect(Disconnect(ReasonCode.DISCONNECT_WITH_WILL))
        assert (await s.expect(Publish)).payload == b"asked"


async def test_a_delayed_will_waits_and_is_forgotten_if_the_client_returns(broker: Broker) -> None:
    async with await client(broker, "s") as s:
        await s.subscribe("w")
        delayed = Will("w", b"late", properties=Properties(will_delay_interval=1))
        back = await client(broker, "c", will=delayed, **_keeps())
        await back.drop()
        back = await client(broker, "c", will=delayed, **_keeps())
        assert await s.silent(1.5)
        await back.drop()
        assert await s.silent(0.3)
        assert (await s.expect(Publish)).payload == b"late"


async def test_messages_expire_before_they_are_delivered(broker: Broker) -> None:
    s = await client(broker, "s", **_keeps())
    await s.subscribe(SubscribeRequest("t", 1))
    await s.drop()
    async with await client(broker, "p") as p:
        p.publish("t", b"short", 1, properties=Properties(message_expiry_interval=1))
        p.publish("t", b"long", 1, properties=Properties(message_expiry_interval=100))
        await p.expect(Puback)
        await p.expect(Puback)
    await asyncio.sleep(1.1)
    s = await client(broker, "s", **_keeps())
    got = await s.expect(Publish)
    assert got.payload == b"long"
    assert got.properties.message_expiry_interval in (98, 99)


async def test_topic_aliases_work_both_ways(broker: Broker) -> None:
    async with (
        await client(broker, "s", properties=Properties(topic_alias_maximum=5)) as s,
        await client(broker, "p") as p,
    ):
        await s.subscribe("long/topic")
        p.publish("long/topic", b"1", properties=Properties(topic_alias=3))
        p.publish("", b"2", properties=Properties(topic_alias=3))
        assert await s.expect(Publish) == Publish("long/topic", b"1", properties=Properties(topic_alias=1))
        assert await s.expect(Publish) == Publish("", b"2", properties=Properties(topic_alias=1))


async def test_events_of_every_length_arrive_whole_however_they_are_cut(broker: Broker) -> None:
    async with await client(broker, "s", V311) as s, await client(broker, "p", V311) as p:
        await s.subscribe("t")
        sizes = [0, 1, 120, 124, 125, 126, 1_000, 16_376, 16_380, 16_381, 16_400, 40_000]
        for size in sizes:
            for cut in (1, 2, 3, 4, size, size + 2):
                wire = encode(Publish("t", bytes(size)), V311)
                p.send_bytes(wire[:cut])
                await asyncio.sleep(0.002)
                p.send_bytes(wire[cut:])
                assert len((await s.expect(Publish)).payload) == size
