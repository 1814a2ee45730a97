"""Who gets events of QoS 1 and 2 is asked once per topic, and nobody can tell but by what it costs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.broker.probes import Probe, client, drop_all

from geomq.broker import fast_sure
from geomq.broker.config import Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.mqtt.packets import Puback, Publish, Pubrec, Pubrel, SubscribeRequest, Unsubscribe
from geomq.mqtt.properties import Properties
from geomq.mqtt.reasons import ReasonCode
from geomq.mqtt.types import V5, V311
from geomq.routing.events import ClientPublished, RoutingEvent

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
    monkeypatch.setattr(fast_sure, "ROUTES_MAX", 2)
    async with running() as (broker, _):
        publisher, subscriber = await client(broker, "p"), await client(broker, "s")
        await subscriber.subscribe(SubscribeRequest("t/#", 1))
        for topic in ("t/1", "t/2", "t/1", "t/1", "t/3", "t/2", "t/1"):
            assert await publish(publisher, topic.encode(), topic=topic) == ReasonCode.SUCCESS
            assert await received(subscriber, 1) == [(topic.encode(), 1)]


async def test_topics_with_the_same_receivers_share_the_memory_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_sure, "RECEIVERS_MAX", 4)
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
