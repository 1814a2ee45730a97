"""One client at two brokers at once: one connection and one session remain."""

import asyncio

import pytest
from tests.broker.federated import federation, until
from tests.broker.test_roaming import lasting, quick

from geomq.broker.probe import Probe
from geomq.broker.server import Broker
from geomq.mqtt.packets import Connack, Connect
from geomq.mqtt.reasons import ReasonCode
from geomq.mqtt.types import V5, V311
from geomq.routing.messages import Message
from geomq.routing.model import BrokerId
from geomq.routing.travellers import ClientAddress

pytestmark = pytest.mark.anyio


def slow(brokers: dict[str, Broker], delay_s: float) -> None:
    """What brokers say to each other about sessions takes its time."""
    for broker in brokers.values():
        _slow(broker, delay_s)


def _slow(broker: Broker, delay_s: float) -> None:
    roaming = broker._roaming
    assert roaming is not None
    heard = roaming.heard

    def later(peer: BrokerId, message: Message) -> bool:
        ours = type(message).__module__ == ClientAddress.__module__
        if ours:
            broker.core.loop.call_later(delay_s, heard, peer, message)
        return ours

    roaming.heard = later  # type: ignore[method-assign]


async def connecting(broker: Broker, connect: Connect) -> Probe:
    """A client that waits for its CONNACK."""
    before = broker.core.counts.connections_opened
    probe = await Probe.open(broker.port, version=connect.version)
    probe.send(connect)
    await until(lambda: broker.core.counts.connections_opened > before)
    await asyncio.sleep(0.02)
    return probe


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("second", ["columbus", "paris"])
async def test_who_connects_once_more_while_its_session_is_sought_gets_a_reason_that_connack_may_carry(
    second: str, version: int
) -> None:
    async with federation(quick("flood_events")) as brokers:
        slow(brokers, 0.1)
        first = await connecting(brokers["columbus"], lasting("r", version=version))
        late = await connecting(brokers[second], lasting("r", version=version))
        refused, welcome = await first.expect(Connack), await late.expect(Connack)
        busy = ReasonCode.SERVER_BUSY if version == V5 else ReasonCode.SERVER_UNAVAILABLE
        assert (refused.reason, welcome.reason) == (busy, ReasonCode.SUCCESS)
        for probe in (first, late):
            await probe.drop()


async def test_who_waits_for_its_session_at_a_broker_that_stops_is_told_so_in_connack() -> None:
    async with federation(quick("flood_events")) as brokers:
        slow(brokers, 60.0)
        client = await connecting(brokers["columbus"], lasting("r"))
        stopping = asyncio.create_task(brokers["columbus"].stop())
        assert (await client.expect(Connack)).reason == ReasonCode.SERVER_UNAVAILABLE
        await client.drop()
        await stopping
