"""One client at two brokers at once: one connection and one session remain."""

import asyncio
import time
from itertools import product

import pytest
from tests.broker.federated import federation, until
from tests.broker.roaming.test_roaming import lasting, quick, replace
from tests.probe import Probe

from geomq.broker.config.settings import Config
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import Connack, Connect, Disconnect
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.sessions.messages import ClientAddress, HandOver, NoSession, SessionWanted

pytestmark = pytest.mark.anyio

SESSION_MESSAGES = (ClientAddress, SessionWanted, NoSession, HandOver)


def slow(brokers: dict[str, Broker], delay_s: float) -> None:
    """What brokers say to each other about sessions takes its time."""
    for broker in brokers.values():
        _slow(broker, delay_s)


def _slow(broker: Broker, delay_s: float) -> None:
    searches, driver, loop = broker.core.node.session_searches, broker.parts.driver, broker.core.loop
    said, late = searches.said, set[int]()

    def again(peer: BrokerId, message: Message) -> None:
        late.add(id(message))
        driver.handle(PeerSaid(peer, message))

    def later(peer: BrokerId, message: Message, now: float) -> bool:
        if not isinstance(message, SESSION_MESSAGES):
            return False
        if id(message) in late:
            late.discard(id(message))
            return said(peer, message, now)
        loop.call_later(delay_s, again, peer, message)
        return True

    searches.said = later  # type: ignore[method-assign]


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


def anybody(configured: dict[str, Config]) -> dict[str, Config]:
    """Brokers at which a client id is not bound to a user, so that a clean start waits for nobody."""
    return {name: replace(config, auth=replace(config.auth, client_id="any")) for name, config in configured.items()}


async def check_the_later_stays(
    brokers: dict[str, Broker], first: str, second: str, one: Connect, other: Connect
) -> None:
    """One client at two brokers within the latency of their link: the later connection stays, with the one session."""
    early = await connecting(brokers[first], one)
    late = await connecting(brokers[second], other)
    assert (await late.expect(Connack)).reason == ReasonCode.SUCCESS
    refused = (await early.expect(Connack)).reason
    if refused == ReasonCode.SUCCESS:
        assert (await early.expect(Disconnect)).reason == ReasonCode.SESSION_TAKEN_OVER
    else:
        assert refused == ReasonCode.SERVER_BUSY
    assert await late.silent(0.4)
    assert [name for name, broker in brokers.items() if one.client_id in broker.core.clients] == [second]
    for probe in (early, late):
        await probe.drop()


@pytest.mark.parametrize("second", ["columbus", "paris"])
@pytest.mark.parametrize("wait_s", [0.0, 5.0])
async def test_of_two_connections_within_the_latency_of_a_link_the_later_stays(second: str, wait_s: float) -> None:
    first = "paris" if second == "columbus" else "columbus"
    async with federation(anybody(quick("flood_events", session_wait_s=wait_s))) as brokers:
        slow(brokers, 0.15)
        for number, (one, other) in enumerate(product((True, False), repeat=2)):
            name = f"r{number}"
            if wait_s:
                before, _ = await Probe.connect(brokers["frankfurt"].port, lasting(name))
                await before.drop()
            await check_the_later_stays(brokers, first, second, lasting(name, clean=one), lasting(name, clean=other))


async def test_a_client_that_moves_on_is_not_sent_back_by_a_clock_that_is_ahead() -> None:
    async with federation(anybody(quick("flood_events"))) as brokers:
        brokers["paris"].core.wall_s = lambda: time.time() + 600.0
        first, _ = await Probe.connect(brokers["paris"].port, lasting("r", clean=True))
        await until(lambda: not brokers["paris"].core.node.session_searches.open)
        second, _ = await Probe.connect(brokers["columbus"].port, lasting("r", clean=True))
        assert (await first.expect(Disconnect)).reason == ReasonCode.SESSION_TAKEN_OVER
        assert await second.silent()
        for probe in (first, second):
            await probe.drop()


async def test_a_client_comes_once_more_to_the_broker_that_had_yielded_to_another() -> None:
    async with federation(quick("flood_events", session_wait_s=2.0)) as brokers:
        slow(brokers, 0.15)
        probes = [await connecting(brokers[name], lasting("r")) for name in ("columbus", "paris")]
        await asyncio.sleep(0.2)
        probes.append(await connecting(brokers["columbus"], lasting("r")))
        clock = asyncio.get_running_loop().time
        begun = clock()
        reasons = [(await probe.expect(Connack)).reason for probe in probes]
        assert reasons[0] == ReasonCode.SERVER_BUSY
        assert reasons[2] == ReasonCode.SUCCESS
        assert clock() - begun < 1.5, "nobody waits in vain"
        await asyncio.sleep(0.5)
        assert [name for name, broker in brokers.items() if "r" in broker.core.clients] == ["columbus"]
        for probe in probes:
            await probe.drop()
