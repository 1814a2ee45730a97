"""Events of one publisher and topic come in the order they were published in, whatever their QoS: real brokers."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.broker.federated import configs, federation, until
from tests.broker.probes import Probe, client, drop_all

from geomq.broker.config.settings import Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.broker.storage import outbox
from geomq.broker.storage.store import Store
from geomq.mqtt.codec.packets import Puback, Publish, Suback, Subscribe, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5, V311

pytestmark = pytest.mark.anyio


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    config = Config(
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(path=str(tmp_path / "store")),
        metrics=Metrics(sys_interval_s=0),
    )
    async with Broker(config) as running:
        yield running
        await drop_all()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing becomes safe before it is set."""
    gate, sync = threading.Event(), Store.sync
    gate.set()

    def wait(store: Store) -> None:
        assert gate.wait(30)
        sync(store)

    monkeypatch.setattr(Store, "sync", wait)
    return gate


async def taken(probe: Probe, count: int) -> list[bytes]:
    got = []
    for _ in range(count):
        packet = await probe.expect(Publish)
        got.append(packet.payload)
        if packet.qos:
            probe.send(Puback(packet.packet_id))
    return got


NUMBERS = [b"%d" % number for number in range(12)]


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("warm", [0, 3], ids=["first", "along routes"])
async def test_qos_0_does_not_overtake_what_waits_for_the_disk(
    broker: Broker, disk: threading.Event, version: int, warm: int
) -> None:
    lasting = {"properties": Properties(session_expiry_interval=60)} if version == V5 else {"clean_start": False}
    subscriber = await client(broker, "s", version, **lasting)
    await subscriber.subscribe(SubscribeRequest("t", 1))
    publisher, other = await client(broker, "p", version), await client(broker, "o", version)
    for _ in range(warm):
        for qos in (0, 1):
            publisher.publish("t", b"warm", qos)
            await taken(subscriber, 1)
    disk.clear()
    for number, payload in enumerate(NUMBERS):
        publisher.publish("t", payload, int(number % 4 == 0))
    await until(lambda: broker.core.counts.events_received == 2 * warm + len(NUMBERS))
    other.publish("t", b"other")
    assert await taken(subscriber, 1) == [b"other"]  # whose publisher has nothing that waits
    disk.set()
    assert await taken(subscriber, len(NUMBERS)) == NUMBERS
    for payload in NUMBERS:
        publisher.publish("t", payload)
    assert await taken(subscriber, len(NUMBERS)) == NUMBERS
    assert not broker.core.outbox.is_behind("p")


async def test_retained_messages_come_behind_suback(broker: Broker, disk: threading.Event) -> None:
    publisher = await client(broker, "p")
    publisher.publish("t", b"kept", 1, retain=True)
    await publisher.expect(Puback)
    subscriber = await client(broker, "s", properties=Properties(session_expiry_interval=60))
    disk.clear()
    subscriber.send(Subscribe(subscriber.next_id(), (SubscribeRequest("t"), SubscribeRequest("+", 1))))
    await until(lambda: len(broker.core.clients["s"].session.subscriptions) == 2)
    assert await subscriber.silent()
    disk.set()
    assert isinstance(await subscriber.receive(), Suback)
    assert await taken(subscriber, 2) == [b"kept", b"kept"]


async def test_order_is_kept_across_a_link(tmp_path: Path, disk: threading.Event) -> None:
    lasting = {
        name: msgspec.structs.replace(config, persistence=Persistence(path=str(tmp_path / name)))
        for name, config in configs("flood_events", brokers=2).items()
    }
    async with federation(lasting) as brokers:
        here, there = brokers.values()
        subscriber = await client(there, "s", properties=Properties(session_expiry_interval=60))
        await subscriber.subscribe(SubscribeRequest("t", 1))
        publisher = await client(here, "p")
        for qos in (0, 1) * 3:
            publisher.publish("t", b"warm", qos)
            await taken(subscriber, 1)
        for _ in range(5):
            for number, payload in enumerate(NUMBERS):
                publisher.publish("t", payload, int(number % 4 == 0))
                await asyncio.sleep(0)
            assert await taken(subscriber, len(NUMBERS)) == NUMBERS
        await drop_all()


async def test_qos_0_that_waits_is_bounded(
    broker: Broker, disk: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "HELD_BACK_MAX", 20)
    subscriber = await client(broker, "s", properties=Properties(session_expiry_interval=60))
    await subscriber.subscribe(SubscribeRequest("t", 1))
    publisher = await client(broker, "p")
    disk.clear()
    publisher.publish("t", b"kept", 1)
    for payload in (b"0", b"1", b"2", b"3"):
        publisher.publish("t", payload * 8)
    assert await taken(subscriber, 2) == [b"2" * 8, b"3" * 8]
    disk.set()
    assert await taken(subscriber, 3) == [b"kept", b"0" * 8, b"1" * 8]


async def test_what_waits_introduces_no_alias_to_what_does_not(broker: Broker, disk: threading.Event) -> None:
    subscriber = await client(broker, "s", properties=Properties(session_expiry_interval=60, topic_alias_maximum=5))
    await subscriber.subscribe(SubscribeRequest("+", 1))
    publisher, other = await client(broker, "p"), await client(broker, "o")
    disk.clear()
    publisher.publish("u", b"first", 1)
    publisher.publish("t", b"second")
    await until(lambda: broker.core.counts.events_received == 2)
    other.publish("t", b"other")
    assert await subscriber.expect(Publish) == Publish("t", b"other", properties=Properties(topic_alias=2))
    disk.set()
    assert await taken(subscriber, 2) == [b"first", b"second"]
