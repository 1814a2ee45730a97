"""What MQTT asks of a server where clients rarely look: real bytes against a real broker."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.broker.probes import Probe, client, drop_all
from tests.probe import Closed

from geomq.broker.config.settings import Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import Connack, Connect
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5

pytestmark = pytest.mark.anyio

CONFIG = Config(
    listeners=(Listener(host="127.0.0.1", port=0),),
    persistence=Persistence(enabled=False),
    metrics=Metrics(sys_interval_s=0),
)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(CONFIG) as running:
        yield running
        await drop_all()


async def all_bytes(port: int, data: bytes) -> bytes:
    """Everything that comes back for these bytes until the broker closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


def _small(size_max: int, **more: object) -> Connect:
    return Connect("tiny", V5, properties=Properties(maximum_packet_size=size_max, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("size_max", [13, 15, 16, 30])
async def test_connack_is_as_short_as_the_client_wants_it(broker: Broker, size_max: int) -> None:
    probe, connack = await Probe.connect(broker.port, _small(size_max))
    assert connack.reason == ReasonCode.SUCCESS
    assert connack.properties.receive_maximum == 20  # what limits the client is always said
    assert (connack.properties.topic_alias_maximum is not None) == (size_max >= 16)
    await probe.drop()


@pytest.mark.parametrize("size_max", range(1, 13))
async def test_who_takes_no_connack_is_not_served(broker: Broker, size_max: int) -> None:
    before = broker.core.counts.connections_refused
    probe = await Probe.open(broker.port)
    probe.send(_small(size_max))
    with pytest.raises(Closed):
        await probe.receive()
    assert "tiny" not in broker.core.clients
    assert broker.core.counts.connections_refused == before + 1


async def test_a_refusal_is_as_short_as_the_client_wants_it(broker: Broker) -> None:
    long = _small(5, authentication_method="none such")
    probe, connack = await Probe.connect(broker.port, long)
    assert connack == Connack(False, ReasonCode.BAD_AUTHENTICATION_METHOD)
    await probe.drop()


async def test_who_takes_no_connack_takes_nobody_s_session_over(broker: Broker) -> None:
    async with await client(broker, "tiny") as first:
        probe = await Probe.open(broker.port)
        probe.send(_small(4))
        with pytest.raises(Closed):
            await probe.receive()
        assert await first.silent()
