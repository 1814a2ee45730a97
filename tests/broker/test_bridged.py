"""Old clients, and brokers that connect as Mosquitto's bridges do: real bytes, and a real Mosquitto."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.broker.federated import until
from tests.broker.mosquitto_cloud import mosquitto, needs_mosquitto
from tests.broker.probes import Probe, client, drop_all
from tests.probe import Closed

from geomq.broker.config.settings import Config, Listener, Metrics, Persistence
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import Connack, Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311

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


async def test_mqtt_3_1_is_spoken(broker: Broker) -> None:
    probe = await Probe.open(broker.port, version=V311)
    probe.send_bytes(b"\x10\x13\0\6MQIsdp\3\2\0\x3c\0\5older")
    assert await probe.expect(Connack) == Connack(False, ReasonCode.SUCCESS)
    await probe.subscribe(SubscribeRequest("t", 1))
    probe.publish("t", b"self", 1)
    assert {type(await probe.receive()) for _ in range(2)} == {Puback, Publish}


async def test_mqtt_3_1_knows_no_session_present_and_no_empty_client_id(broker: Broker) -> None:
    for _ in range(2):
        probe, connack = await Probe.connect(broker.port, Connect("old", V311, clean_start=False, is_v31=True))
        assert connack == Connack(False, ReasonCode.SUCCESS)
        await probe.drop()
        await until(lambda: broker.core.clients["old"].connection is None)
    probe, connack = await Probe.connect(broker.port, Connect("", V311, is_v31=True))
    assert connack.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    with pytest.raises(Closed):
        await probe.receive()


@pytest.mark.parametrize(("version", "is_v31"), [(V311, True), (V311, False), (V5, False)])
async def test_a_bridge_gets_nothing_of_its_own_and_retained_as_published(
    broker: Broker, version: int, is_v31: bool
) -> None:
    bridge, _ = await Probe.connect(broker.port, Connect("bridge", version, bridge=True, is_v31=is_v31))
    await bridge.subscribe(SubscribeRequest("#", 1))
    publisher = await client(broker, "p")
    bridge.publish("t", b"own", 1)
    await bridge.expect(Puback)
    publisher.publish("t", b"kept", 1, retain=True)
    publisher.publish("u", b"not kept", 1)
    first, second = await bridge.expect(Publish), await bridge.expect(Publish)
    assert [(each.payload, each.retain) for each in (first, second)] == [(b"kept", True), (b"not kept", False)]


@needs_mosquitto
async def test_a_mosquitto_that_bridges_everything_both_ways_makes_no_copies(broker: Broker, tmp_path: Path) -> None:
    bridging = f"connection geomq\naddress 127.0.0.1:{broker.port}\ntopic # both 1\nnotifications false"
    async with mosquitto(tmp_path, bridging) as other:
        await until(lambda: any(each.session.subscriptions for each in broker.core.clients.values()))
        here, (there, _) = await client(broker, "here"), await Probe.connect(other.port, Connect("there", V311))
        for probe in (here, there):
            await probe.subscribe(SubscribeRequest("t/#", 1))
        here.publish("t/a", b"from here", 1)
        there.publish("t/b", b"from there", 1)
        got = []
        for probe in (here, there):
            for _ in range(3):
                packet = await probe.receive()
                if isinstance(packet, Publish):
                    got.append(packet.payload)
                    probe.send(Puback(packet.packet_id))
        assert sorted(got) == [b"from here", b"from here", b"from there", b"from there"]
        assert await here.silent(0.5)
        assert await there.silent(0.1)
        await there.drop()
