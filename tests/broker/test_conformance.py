"""What MQTT asks of a server where clients rarely look: real bytes against a real broker."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.broker.federated import until
from tests.broker.probes import Probe, client, drop_all
from tests.probe import Closed

from geomq.broker.config.settings import Config, Listener, Metrics, Persistence
from geomq.broker.connections import endings
from geomq.broker.server import Broker
from geomq.mqtt.codec.encode import encode
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


async def _flooding(broker: Broker, first: bytes) -> bytes:
    """What a client reads that only looks after it has sent much behind what ends its connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(first)
    async with asyncio.timeout(30):
        for _ in range(8):
            writer.write(bytes(16_384))
            await writer.drain()
            await asyncio.sleep(0)
        await until(lambda: not broker.parts.handlers.connections)
        writer.write(bytes(16_384))
        await writer.drain()
        found = await reader.read()
    writer.close()
    return found


async def test_who_sends_on_can_still_read_why_it_was_turned_away(broker: Broker) -> None:
    refused = encode(Connect("c", V5, properties=Properties(authentication_method="none such")), V5)
    found = await _flooding(broker, refused)
    assert found[:1] + found[3:4] == bytes((0x20, ReasonCode.BAD_AUTHENTICATION_METHOD))


async def test_who_sends_on_can_still_read_why_it_was_disconnected(broker: Broker) -> None:
    found = await _flooding(broker, encode(Connect("c", V5), V5) + b"\xf3\0")
    assert b"\xe0" in found
    assert bytes((ReasonCode.MALFORMED_PACKET,)) in found
    await until(lambda: not len(broker.parts.handlers.endings))


async def test_a_client_that_stays_after_it_was_told_why_is_left(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "LINGER_S", 0.05)
    _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(encode(Connect("c", V5, properties=Properties(authentication_method="none such")), V5))
    await until(lambda: len(broker.parts.handlers.endings) == 1)
    await until(lambda: not len(broker.parts.handlers.endings))
    assert broker.core.counts.connections_refused == 1
    writer.close()
