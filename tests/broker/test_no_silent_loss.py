"""Whoever loses an event can know: it is counted, logged, and told to the client that comes back."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.broker.probes import Probe, drop_all

from geomq.broker.config.settings import BrokerSettings, Config, Limits, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.broker.state.drops import Drop, Reason
from geomq.mqtt.codec.packets import Connack, Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import NEVER_EXPIRES, V311
from geomq.vocabulary import DETAILS_PROPERTY, DROPPED_PROPERTY

pytestmark = pytest.mark.anyio

KEEPS = Properties(session_expiry_interval=NEVER_EXPIRES)


@asynccontextmanager
async def running(folder: Path, limits: Limits) -> AsyncIterator[Broker]:
    config = Config(
        broker=BrokerSettings(data_dir=str(folder)),
        listeners=(Listener(host="127.0.0.1", port=0),),
        persistence=Persistence(free_bytes_min=0),
        metrics=Metrics(sys_interval_s=0),
        limits=limits,
    )
    async with Broker(config) as broker:
        yield broker
        await drop_all()


async def comes(broker: Broker, name: str, properties: Properties = KEEPS) -> tuple[Probe, Connack]:
    return await Probe.connect(broker.port, Connect(name, clean_start=False, properties=properties))


async def publish(broker: Broker, topic: str, count: int) -> None:
    """So many events of QoS 1, all acknowledged."""
    p, _ = await Probe.connect(broker.port, Connect("p"))
    for number in range(count):
        p.publish(topic, b"%06d" % number, 1)
        await p.expect(Puback)
    await p.drop()


async def test_a_client_that_comes_back_is_told_what_was_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(queue_messages_max=3)
    async with running(tmp_path, limits) as broker:
        s, connack = await comes(broker, "s")
        assert connack.properties.user(DROPPED_PROPERTY) is None
        await s.subscribe(SubscribeRequest("t", 1))
        await s.drop()
        await publish(broker, "t", 8)
        assert broker.core.counts.events_dropped == 5
        assert dict(broker.core.drops.totals()) == {Drop(Reason.QUEUE_FULL, "session"): 5}
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, limits) as broker:
            await publish(broker, "t", 2)
    assert {record.getMessage() for record in caplog.records} == {"events dropped"}
    assert sum(record.events for record in caplog.records) == 7  # type: ignore[attr-defined]
    async with running(tmp_path, limits) as broker:
        s, connack = await comes(broker, "s")
        assert connack.properties.user(DROPPED_PROPERTY) == "7"
        await s.drop()
    async with running(tmp_path, limits) as broker:
        _, connack = await comes(broker, "s")
        assert connack.properties.user(DROPPED_PROPERTY) is None


async def test_a_client_of_the_older_version_leaves_the_number_for_one_that_can_be_told(tmp_path: Path) -> None:
    async with running(tmp_path, Limits(queue_messages_max=1)) as broker:
        s, _ = await comes(broker, "s")
        await s.subscribe(SubscribeRequest("t", 1))
        await s.drop()
        await publish(broker, "t", 3)
        s, _ = await Probe.connect(broker.port, Connect("s", V311, clean_start=False))
        await s.drop()
        _, connack = await comes(broker, "s")
        assert connack.properties.user(DROPPED_PROPERTY) == "2"


async def test_deliveries_that_waited_in_a_queue_are_counted_too(tmp_path: Path) -> None:
    async with running(tmp_path, Limits()) as broker:
        s, _ = await comes(broker, "s")
        await s.subscribe(SubscribeRequest("t", 1))
        await s.drop()
        await publish(broker, "t", 50)
        assert broker.core.counts.events_delivered == 0
        s, _ = await comes(broker, "s")
        for _ in range(50):
            s.send(Puback((await s.expect(Publish)).packet_id))
        assert broker.core.counts.events_delivered == 50
        s, _ = await comes(broker, "s")
        await publish(broker, "t", 1)
        await s.expect(Publish)
        s, _ = await comes(broker, "s")
        assert (await s.expect(Publish)).dup
        assert broker.core.counts.events_delivered == 51, "the repeated one is counted once"


async def test_details_count_in_a_queue_for_what_they_take_in_a_packet(tmp_path: Path) -> None:
    """Each took 1 KB of the queue, for 6 bytes of payload."""
    limits = Limits(queue_messages_max=1_000_000, queue_bytes_max=200_000)
    asks = Properties(session_expiry_interval=NEVER_EXPIRES, user_properties=((DETAILS_PROPERTY, ""),))
    async with running(tmp_path, limits) as broker:
        s, _ = await comes(broker, "s", asks)
        await s.subscribe(SubscribeRequest("t", 1))
        await s.drop()
        await publish(broker, "t", 1_000)
        assert broker.core.counts.events_dropped == 0
        assert broker.core.clients["s"].session.pending == 1_000
