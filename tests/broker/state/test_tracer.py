"""What a running broker tells of itself, with real clients, and how listening to it starts and stops."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.broker.federated import configs, federation, until
from tests.probe import Probe

from geomq.broker.config.settings import Admin, Config, Limits, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.broker.state import tracer
from geomq.broker.state.tracer import Ring
from geomq.client import Client
from geomq.mqtt.codec.packets import Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.routing.core.model import BrokerId
from geomq.routing.trace.records import TraceRecord
from geomq.workload.traffic.verdict import Case

pytestmark = pytest.mark.anyio
KEEPS = Properties(session_expiry_interval=1000)


def config(**sections: Any) -> Config:
    return Config(
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(enabled=False),
        metrics=Metrics(sys_interval_s=0),
        **sections,
    )


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(config()) as running:
        yield running


def steps(records: list[TraceRecord], *fields: str) -> list[tuple[Any, ...]]:
    return [(record.step, *(getattr(record, field) for field in fields)) for record in records]


async def joined(broker: Broker, name: str, *filters: SubscribeRequest | str, kept: bool = False) -> Probe:
    probe, _ = await Probe.connect(broker.port, Connect(name, properties=KEEPS) if kept else Connect(name))
    if filters:
        await probe.subscribe(*filters)
    return probe


async def test_a_client_and_its_event_are_followed_from_end_to_end(broker: Broker) -> None:
    records: list[TraceRecord] = []
    broker.core.trace(records.append)
    fence = "geo:48.9,2.4;u=5000.0"
    async with Client("127.0.0.1", broker.port, client_id="c", at=(48.9, 2.4)) as client:
        await client.subscribe("t/+", within=fence, qos=1)
        await client.publish("t/1", b"four", to=fence, qos=1)
        await asyncio.wait_for(anext(client.messages), 30)
        await client.unsubscribe("t/+")
    await until(lambda: records[-1].step == "disconnected")
    event = records[3].event_id
    assert event is not None
    assert steps(records, "kind", "client", "topic", "event_id", "qos", "fence", "reason") == [
        ("connected", "client", "c", None, None, None, None, None),
        ("moved", "location", "c", None, None, None, None, None),
        ("subscribed", "subscription", "c", "t/+", None, 1, fence, None),
        ("published", "event", "c", "t/1", event, 1, fence, None),
        ("matched", "event", "c", "t/+", event, None, None, None),
        ("delivered", "event", "c", "t/1", event, 1, None, None),
        ("unsubscribed", "subscription", "c", "t/+", None, None, None, None),
        ("disconnected", "client", "c", None, None, None, None, "session ended"),
    ]
    assert {record.broker for record in records} == {"geomq"}
    assert (records[3].lat, records[3].size, records[5].size, records[1].lon) == (48.9, 4, 4, 2.4)
    assert records[0].t_ms == pytest.approx(broker.core.wall_s() * 1000.0, abs=60_000)


async def test_events_on_the_shortest_way_are_followed_too_and_it_is_taken_again_afterwards(broker: Broker) -> None:
    async with await joined(broker, "s", "t") as subscriber, await joined(broker, "p") as publisher:

        async def publish(times: int) -> None:
            for _ in range(times):
                publisher.publish("t", b"x")
                await subscriber.expect(Publish)

        await publish(3)
        before = broker.core.node.latest
        await publish(3)
        assert broker.core.node.latest is before  # the core was not asked again
        records: list[TraceRecord] = []
        stop = broker.core.trace(records.append)
        await publish(3)
        assert steps(records, "client") == [("published", "p"), ("matched", "s"), ("delivered", "s")] * 3
        stop()
        assert broker.core.tracer is None
        await publish(2)
        before = broker.core.node.latest
        await publish(3)
        assert len(records) == 9
        assert broker.core.node.latest is before
        stop = broker.core.trace(records.append, steps=["subscribed"])
        await publish(2)
        before = broker.core.node.latest
        await publish(2)
        assert broker.core.node.latest is before
        stop()


async def test_what_waited_for_a_client_is_recorded_when_it_is_delivered(broker: Broker) -> None:
    records: list[TraceRecord] = []
    broker.core.trace(records.append, steps=["published", "delivered", "disconnected", "connected"])
    once = SubscribeRequest("t", 1)
    await (await joined(broker, "s", once, kept=True)).disconnect()
    async with await joined(broker, "p") as publisher:
        publisher.publish("t", b"x", 1)
        await publisher.expect(Puback)
        again, _ = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=KEEPS))
        async with again:
            await again.expect(Publish)
    assert steps(records, "client", "reason")[:6] == [
        ("connected", "s", None),
        ("disconnected", "s", "session kept"),
        ("connected", "p", None),
        ("published", "p", None),
        ("connected", "s", None),
        ("delivered", "s", None),
    ]
    assert records[3].event_id == records[5].event_id is not None


async def test_what_is_dropped_is_recorded_with_the_reason() -> None:
    records: list[TraceRecord] = []
    async with Broker(config(limits=Limits(queue_messages_max=1))) as broker:
        broker.core.trace(records.append, steps=["dropped"])
        filters = (SubscribeRequest("t", 1), SubscribeRequest("short", 1))
        await (await joined(broker, "s", *filters, kept=True)).disconnect()
        picky = Properties(maximum_packet_size=64)
        small, _ = await Probe.connect(broker.port, Connect("small", properties=picky))
        await small.subscribe(SubscribeRequest("large", 1), "wide")
        async with small, await joined(broker, "p", SubscribeRequest("own", no_local=True)) as publisher:
            soon = Properties(message_expiry_interval=0)
            publisher.publish("short", b"", 1, properties=soon)
            for topic, size, qos in (("t", 1, 0), ("t", 1, 1), ("large", 99, 1), ("wide", 99, 0), ("own", 1, 0)):
                publisher.publish(topic, bytes(size), qos)
            publisher.publish("$SYS/no", b"")
            again, _ = await Probe.connect(broker.port, Connect("s", clean_start=False, properties=KEEPS))
            await until(lambda: len(records) >= 7)
            await again.drop()
    assert steps(records, "client", "topic", "qos", "reason") == [
        ("dropped", "s", "t", 0, "offline"),
        ("dropped", "s", "t", 1, "queue full"),
        ("dropped", "small", "large", 1, "too large for the client"),
        ("dropped", "small", "wide", 0, "too large for the client"),
        ("dropped", "p", "own", 0, "own event"),
        ("dropped", "p", "$SYS/no", 0, "$SYS belongs to the broker"),
        ("dropped", "s", "short", 1, "expired"),
    ]
    assert [record.event_id is None for record in records] == [False] * 5 + [True, False]


async def test_a_retained_event_given_later_is_told_apart(broker: Broker) -> None:
    records: list[TraceRecord] = []
    async with await joined(broker, "p") as publisher:
        publisher.publish("t", b"x", 1, retain=True)
        await publisher.expect(Puback)
        broker.core.trace(records.append, steps=["delivered"])
        for qos in (0, 1):
            async with await joined(broker, f"s{qos}", SubscribeRequest("t", qos)) as subscriber:
                await subscriber.expect(Publish)
    assert steps(records, "client", "event_id", "qos", "reason") == [
        ("delivered", "s0", None, 0, "retained"),
        ("delivered", "s1", None, 1, "retained"),
    ]


async def test_an_event_between_brokers_is_followed_at_both() -> None:
    async with federation(configs("disgb_subscriptions", brokers=3)) as brokers:
        ring = Ring(1000)
        for one in brokers.values():
            one.core.trace(ring)
        async with (
            Client("127.0.0.1", brokers["paris"].port, client_id="s") as subscriber,
            Client("127.0.0.1", brokers["columbus"].port, client_id="p") as publisher,
        ):
            await subscriber.subscribe("t")
            await until(lambda: len([r for r in ring.since(0).items if r.reason == "PutSubscription"]) == 4)
            await publisher.publish("t", b"x", retain=True)
            await asyncio.wait_for(anext(subscriber.messages), 30)
        await until(lambda: sum(r.step == "received" and r.reason == "PutRetained" for r in ring.since(0).items) == 2)
        records = ring.since(0).items
    of_event = [record for record in records if record.event_id is not None]
    paris, columbus = BrokerId("paris"), BrokerId("columbus")
    assert [(r.broker, r.step, r.peer, r.client) for r in of_event] == [
        (columbus, "published", None, "p"),
        (columbus, "matched", paris, "s"),
        (columbus, "sent", paris, None),
        (paris, "received", columbus, None),
        (paris, "delivered", None, "s"),
    ]
    assert [(r.broker, r.peer) for r in records if r.step == "sent" and r.reason == "PutRetained"] == [
        (columbus, "frankfurt"),
        (columbus, paris),
    ]


async def test_a_share_group_over_brokers_is_explained() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        ring = Ring(1000)
        for one in brokers.values():
            one.core.trace(ring)
        async with (
            Client("127.0.0.1", brokers["columbus"].port, client_id="m1") as first,
            Client("127.0.0.1", brokers["frankfurt"].port, client_id="m2") as second,
        ):
            for member in (first, second):
                await member.subscribe("$share/g/t", qos=1)
            await until(lambda: sum(r.step == "received" and r.reason == "PutMember" for r in ring.since(0).items) == 2)
            for _ in range(2):
                await first.publish("t", b"x", qos=1)
            for member in (first, second):
                await asyncio.wait_for(anext(member.messages), 30)
        records = ring.since(0).items
    events = [record.event_id for record in records if record.step == "published" and record.event_id is not None]
    answers = [[Case(event, records, brokers).answer(name).verdict for name in ("m1", "m2")] for event in events]
    assert sorted(answers) == [["delivered", "shared"], ["shared", "delivered"]]


async def test_an_event_for_a_peer_that_is_away_is_recorded_as_lost() -> None:
    records: list[TraceRecord] = []
    async with federation(configs("flood_events", brokers=2)) as brokers:
        await brokers["frankfurt"].stop()
        columbus = brokers["columbus"]
        await until(lambda: columbus.peering is not None and not columbus.peering.connected)
        columbus.core.trace(records.append, steps=["dropped"])
        async with Client("127.0.0.1", columbus.port) as publisher:
            await publisher.publish("t", b"x")
            await until(lambda: bool(records))
    assert steps(records, "peer", "topic", "reason") == [("dropped", "frankfurt", "t", "link down")]


def test_a_ring_holds_fewer_records_where_they_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "RING_CHARS", 1_000)
    ring = Ring(100)
    for number in range(50):
        ring(TraceRecord(float(number), BrokerId("b"), "published", "event", topic="t" * 40, fence="f" * 160))
    page = ring.since(0)
    assert ([record.t_ms for record in page.items], page.missed) == ([45.0, 46.0, 47.0, 48.0, 49.0], 45)
    for number in range(200):
        ring(TraceRecord(float(number), BrokerId("b"), "connected", "client"))
    assert len(ring.since(0).items) == 100


def test_a_ring_says_what_it_forgot() -> None:
    ring = Ring(3)
    assert ring.since(0) == ([], 0, 0)
    made = [TraceRecord(t_ms, BrokerId("b"), "moved", "location") for t_ms in range(5)]
    for record in made[:2]:
        ring(record)
    assert ring.since(0) == (made[:2], 2, 0)
    for record in made[2:]:
        ring(record)
    assert ring.since(2, limit=2) == (made[2:4], 4, 0)
    assert ring.since(0) == (made[2:], 5, 2)
    assert ring.since(5) == ([], 5, 0)
    assert ring.since(99) == (made[2:], 5, 2)


async def test_asking_starts_the_recording_and_silence_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "IDLE_S", 0.2)
    async with Broker(config(admin=Admin(enabled=True, port=0))) as broker:
        assert broker.core.tracer is None
        assert broker.view.trace(0, 10) == ([], 0, 0)
        assert broker.core.tracer is not None
        async with await joined(broker, "c"):
            assert steps(broker.view.trace(0, 10).items, "client") == [("connected", "c")]
        await until(lambda: broker.core.tracer is None)
        assert broker.view.trace(2, 10).next >= 2
        assert broker.core.tracer is not None
