"""A client at both sides of a federation that is split: when it is whole again, there is one session."""

import asyncio
from collections.abc import Callable

import pytest
from tests.broker.federated import federation, peers_up, until
from tests.broker.roaming.test_roaming import acked, cut, deaf, drained, lasting, quick
from tests.probe import Probe

from geomq.broker.peers.channel import PeerChannel
from geomq.broker.peers.peering import Peering
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import Connect, Publish, SubscribeRequest

pytestmark = pytest.mark.anyio


def split(brokers: dict[str, Broker], alone: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Cut a broker off from all others, until the returned function is called."""
    opened = Peering.opened

    def guarded(self: Peering, channel: PeerChannel) -> bool:
        if alone in (self._me, channel.peer):
            self._unproven.discard(channel)
            return False
        return opened(self, channel)

    monkeypatch.setattr(Peering, "opened", guarded)
    peering = brokers[alone].peering
    assert peering is not None
    for peer in peering._peers.values():
        assert peer.channel is not None
        peer.channel.close("cut by the test")
    return monkeypatch.undo


async def leave(broker: Broker, client: Probe) -> None:
    await client.drop()
    await until(lambda: broker.core.clients["r"].connection is None)


async def at_both_sides(
    brokers: dict[str, Broker], monkeypatch: pytest.MonkeyPatch, *, clean: bool
) -> tuple[Probe, Callable[[], None]]:
    """A client of paris that finds paris cut off, starts anew at columbus, and comes back to paris."""
    paris, columbus = brokers["paris"], brokers["columbus"]
    client, _ = await Probe.connect(paris.port, lasting("r"))
    await client.subscribe(SubscribeRequest("t", 2))
    await leave(paris, client)
    heal = split(brokers, "paris", monkeypatch)
    await until(lambda: peers_up(paris) == 0 and peers_up(columbus) == 1)
    await asyncio.sleep(0.3)
    client, connack = await Probe.connect(columbus.port, lasting("r"))
    assert not connack.session_present
    await client.subscribe(SubscribeRequest("t", 2))
    await leave(columbus, client)
    publisher, _ = await Probe.connect(columbus.port, Connect("p"))
    await acked(publisher, "t", b"at columbus", 2)
    await publisher.drop()
    client, connack = await Probe.connect(paris.port, lasting("r", clean=clean))
    assert connack.session_present is not clean
    return client, heal


@pytest.mark.parametrize("strategy", ["flood_events", "dht"])
async def test_a_client_that_returned_has_one_session_with_all_that_waited(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with federation(quick(strategy, session_wait_s=0.2)) as brokers:
        client, heal = await at_both_sides(brokers, monkeypatch, clean=False)
        heal()
        await until(lambda: all(peers_up(broker) == 2 for broker in brokers.values()), seconds=30)
        await until(lambda: "r" not in brokers["columbus"].core.clients)
        assert await drained(client) == [b"at columbus"]
        publisher, _ = await Probe.connect(brokers["frankfurt"].port, Connect("p"))
        await acked(publisher, "t", b"later", 2)
        assert await drained(client) == [b"later"]
        await leave(brokers["paris"], client)
        client, connack = await Probe.connect(brokers["columbus"].port, lasting("r"))
        assert connack.session_present
        assert await drained(client) == []
        for probe in (client, publisher):
            await probe.drop()


async def test_a_client_that_returned_with_a_clean_start_gets_nothing_from_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with federation(quick("flood_events", session_wait_s=0.2)) as brokers:
        client, heal = await at_both_sides(brokers, monkeypatch, clean=True)
        heal()
        await until(lambda: "r" not in brokers["columbus"].core.clients, seconds=30)
        assert await drained(client) == []
        await client.drop()


async def test_the_latest_of_sessions_that_ask_each_other_in_turn_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async with federation(quick("flood_events", session_wait_s=0.2)) as brokers:
        client, heal = await at_both_sides(brokers, monkeypatch, clean=False)
        await leave(brokers["paris"], client)
        client, connack = await Probe.connect(brokers["columbus"].port, lasting("r"))
        assert connack.session_present
        heal()
        await until(lambda: "r" not in brokers["paris"].core.clients, seconds=30)
        assert await drained(client) == [b"at columbus"]
        assert "r" in brokers["columbus"].core.clients
        await client.drop()


async def test_an_event_that_reached_both_sessions_comes_once_when_they_become_one() -> None:
    async with federation(quick("flood_events", session_wait_s=0.2)) as brokers:
        paris, columbus = brokers["paris"], brokers["columbus"]
        client, _ = await Probe.connect(paris.port, lasting("r"))
        await client.subscribe(SubscribeRequest("t", 2))
        await leave(paris, client)
        answer = deaf(paris)
        client, connack = await Probe.connect(columbus.port, lasting("r"))
        assert not connack.session_present
        publisher, _ = await Probe.connect(paris.port, Connect("p"))
        watcher, _ = await Probe.connect(columbus.port, Connect("w"))
        await watcher.subscribe(SubscribeRequest("t", 0))
        await acked(publisher, "t", b"before", 2)
        await watcher.expect(Publish)  # what is still on its way to columbus would reach who subscribes there
        await client.subscribe(SubscribeRequest("t", 2))
        await acked(publisher, "t", b"at both", 2)
        assert await drained(client) == [b"at both"]
        answer()
        cut(columbus, paris)
        await until(lambda: "r" not in paris.core.clients)
        assert await drained(client) == [b"before"]
        for probe in (client, publisher, watcher):
            await probe.drop()
