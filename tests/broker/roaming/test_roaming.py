"""Sessions that follow their clients through a federation of real brokers."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from tests.broker.federated import configs, federation, until
from tests.broker.mosquitto_cloud import join
from tests.broker.peers.test_peering import CASES
from tests.probe import Closed, Probe

from geomq.broker.config.settings import Auth, Config
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    SubscribeRequest,
    Will,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.core.events import ClientGone, PeerDown, PeerSaid, PeerUp
from geomq.routing.core.model import ClientId
from geomq.routing.federation.changes import RemoveBroker
from geomq.routing.sessions.messages import SessionWanted, Settled

pytestmark = pytest.mark.anyio

replace = msgspec.structs.replace
PARIS, FRANKFURT, COLUMBUS = "48.88,2.36", "50.11,8.66", "39.96,-83"


def quick(strategy: str = "disgb_events", *, brokers: int = 3, **federation: Any) -> dict[str, Config]:
    """Brokers that send clients away at once."""
    settings = {"redirect_after_s": 0.0, "session_wait_s": 5.0, **federation}
    return {
        name: replace(config, federation=replace(config.federation, **settings))
        for name, config in configs(strategy, brokers=brokers).items()
    }


def lasting(name: str, *user: tuple[str, str], clean: bool = False, version: int = V5, **more: Any) -> Connect:
    properties = Properties(session_expiry_interval=300, user_properties=user) if version == V5 else Properties()
    return Connect(name, version, clean_start=clean, properties=properties, **more)


async def acked(probe: Probe, topic: str, payload: bytes, qos: int = 1) -> None:
    packet_id = probe.publish(topic, payload, qos)
    if qos == 1:
        await probe.expect(Puback)
        return
    await probe.expect(Pubrec)
    probe.send(Pubrel(packet_id))
    await probe.expect(Pubcomp)


async def drained(probe: Probe) -> list[bytes]:
    """All that arrives, acknowledged as it should be."""
    got = []
    while not await probe.silent(0.4):
        packet = await probe.receive()
        if isinstance(packet, Publish):
            got.append(packet.payload)
            if packet.qos:
                probe.send(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            probe.send(Pubcomp(packet.packet_id))
    return got


@pytest.mark.parametrize(("strategy", "options"), CASES, ids=[name for name, _ in CASES])
async def test_a_client_finds_its_session_at_any_broker(strategy: str, options: dict[str, Any]) -> None:
    async with federation(configs(strategy, options)) as brokers, AsyncExitStack() as stack:
        client, _ = await Probe.connect(brokers["paris"].port, lasting("r", clean=True))
        await client.subscribe(SubscribeRequest("t/#", 2))
        publisher = await join(stack, brokers["columbus"].port, "p")
        await asyncio.sleep(0.5)
        await publisher.client.publish("t/1", b"1", qos=2)
        assert (await client.expect(Publish)).payload == b"1"
        await client.drop()
        await until(lambda: brokers["paris"].core.clients["r"].connection is None)
        await publisher.client.publish("t/2", b"2", qos=2)
        await publisher.client.publish("t/3", b"3", qos=1)
        await until(lambda: brokers["paris"].core.clients["r"].session.pending == 3)
        client, connack = await Probe.connect(brokers["frankfurt"].port, lasting("r"))
        assert connack.session_present
        assert "r" not in brokers["paris"].core.clients
        for number in range(4, 8):
            await publisher.client.publish(f"t/{number}", str(number).encode(), qos=2)
        assert await drained(client) == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
        await client.drop()


async def test_the_same_client_at_another_broker_takes_its_session_over() -> None:
    async with federation(configs("flood_events", brokers=3)) as brokers:
        first, _ = await Probe.connect(brokers["paris"].port, lasting("r"))
        await first.subscribe("t")
        second, connack = await Probe.connect(brokers["columbus"].port, lasting("r"))
        assert connack.session_present
        assert (await first.expect(Disconnect)).reason == ReasonCode.SESSION_TAKEN_OVER
        view, now = brokers["columbus"].view.client("r"), brokers["columbus"].core.wall_s()
        assert view is not None
        assert view.connected_at is not None
        assert view.connected_at <= now, "the wait for the session is not counted"
        third, connack = await Probe.connect(brokers["frankfurt"].port, lasting("r", clean=True))
        assert not connack.session_present
        assert (await second.expect(Disconnect)).reason == ReasonCode.SESSION_TAKEN_OVER
        await until(lambda: "r" not in brokers["columbus"].core.clients)
        for probe in (first, second, third):
            await probe.drop()


async def test_packet_identifiers_and_qos_2_states_survive_the_move() -> None:
    async with federation(configs("disgb_subscriptions", brokers=3)) as brokers:
        client, _ = await Probe.connect(brokers["paris"].port, lasting("r"))
        await client.subscribe(SubscribeRequest("t", 2))
        publisher, _ = await Probe.connect(brokers["paris"].port, Connect("p"))
        for payload in (b"released", b"sent"):
            await acked(publisher, "t", payload, 2)
        released, sent = await client.expect(Publish), await client.expect(Publish)
        client.send(Pubrec(released.packet_id))
        await client.expect(Pubrel)
        open_id = client.publish("from-r", b"half", 2)
        await client.expect(Pubrec)
        await client.drop()
        client, _ = await Probe.connect(brokers["columbus"].port, lasting("r"))
        again = [await client.receive(), await client.receive()]
        assert Pubrel(released.packet_id) in again
        (repeated,) = (packet for packet in again if isinstance(packet, Publish))
        assert (repeated.packet_id, repeated.payload, repeated.dup) == (sent.packet_id, b"sent", True)
        watcher, _ = await Probe.connect(brokers["columbus"].port, Connect("w"))
        await watcher.subscribe("from-r")
        client.send(Publish("from-r", b"half", 2, False, True, open_id))
        await client.expect(Pubrec)
        assert await watcher.silent(), "the broker before had it already"
        for probe in (client, publisher, watcher):
            await probe.drop()


async def test_location_fences_and_shared_subscriptions_travel_too() -> None:
    async with federation(configs("disgb_events", brokers=3)) as brokers:
        client, _ = await Probe.connect(brokers["paris"].port, lasting("r", ("geo-location", PARIS)))
        client.publish("$geo/fence/home", b"geo:48.88,2.36;u=5000", 1)
        await client.expect(Puback)
        fence = Properties(user_properties=(("geo-fence", "geo:50.11,8.66;u=100000"),))
        await client.subscribe("$geo/from/home/a", "$geo/enter/#", "$share/crew/b")
        await client.subscribe("c", properties=fence)
        await client.drop()
        client, _ = await Probe.connect(brokers["frankfurt"].port, lasting("r"))
        moved = brokers["frankfurt"].core.clients["r"]
        assert moved.location is not None
        assert (moved.location.lat, moved.location.lon) == (48.88, 2.36)
        assert list(moved.fences) == ["home"]
        assert not brokers["paris"].parts.fast._fenced.concern("c"), "paris may learn ways of its topics again"
        assert set(moved.session.subscriptions) == {"$geo/from/home/a", "$geo/enter/#", "$share/crew/b", "c"}
        near, _ = await Probe.connect(brokers["paris"].port, Connect("near", properties=at(PARIS)))
        far, _ = await Probe.connect(brokers["columbus"].port, Connect("far", properties=at(FRANKFURT)))
        await asyncio.sleep(0.3)
        for topic in ("a", "b", "c"):
            for probe in (near, far):
                await acked(probe, topic, topic.encode() + probe_name(probe, near))
        assert sorted(await drained(client)) == [b"a near", b"b far", b"b near", b"c far"]
        for probe in (client, near, far):
            await probe.drop()


def at(place: str) -> Properties:
    return Properties(user_properties=(("geo-location", place),))


def probe_name(probe: Probe, near: Probe) -> bytes:
    return b" near" if probe is near else b" far"


async def test_a_client_that_asks_for_it_is_sent_to_the_right_broker_and_loses_nothing() -> None:
    async with federation(quick()) as brokers, AsyncExitStack() as stack:
        asked = lasting("r", ("geo-roam", "1"), ("geo-location", PARIS))
        client, _ = await Probe.connect(brokers["paris"].port, asked)
        await client.subscribe(SubscribeRequest("t", 2))
        publisher = await join(stack, brokers["columbus"].port, "p")
        await asyncio.sleep(0.3)
        await publisher.client.publish("t", b"before", qos=2)
        await client.expect(Publish)
        client.publish("$geo/location", FRANKFURT.encode(), 1)
        await client.expect(Puback)
        told = await client.expect(Disconnect)
        assert told.reason == ReasonCode.USE_ANOTHER_SERVER
        assert told.properties.server_reference == f"127.0.0.1:{brokers['frankfurt'].port}"
        await client.drop()
        await publisher.client.publish("t", b"between", qos=2)
        there = lasting("r", ("geo-roam", "1"), ("geo-location", FRANKFURT))
        client, connack = await Probe.connect(brokers["frankfurt"].port, there)
        assert connack.session_present
        await publisher.client.publish("t", b"after", qos=2)
        assert await drained(client) == [b"before", b"between", b"after"]
        await client.drop()


async def test_a_client_at_the_wrong_broker_is_told_the_right_one() -> None:
    async with federation(quick()) as brokers:
        asked = lasting("r", ("geo-roam", "1"), ("geo-location", COLUMBUS))
        await until(lambda: bool(brokers["paris"].peering and len(brokers["paris"].peering.connected) == 2))
        await asyncio.sleep(0.2)
        client, connack = await Probe.connect(brokers["paris"].port, asked)
        assert connack.reason == ReasonCode.USE_ANOTHER_SERVER
        assert connack.properties.server_reference == f"127.0.0.1:{brokers['columbus'].port}"
        with pytest.raises(Closed):
            await client.receive()
        await client.drop()


@pytest.mark.parametrize(
    ("policy", "connect"),
    [
        ("asked", lasting("r")),
        ("never", lasting("r", ("geo-roam", "1"))),
        ("all", lasting("r", ("geo-stay", "1"))),
        ("all", lasting("r", version=V311)),
    ],
    ids=["not asked", "switched off", "told to stay", "3.1.1"],
)
async def test_others_are_served_where_they_are_and_get_everything(policy: str, connect: Connect) -> None:
    async with federation(quick(redirect=policy)) as brokers, AsyncExitStack() as stack:
        client, _ = await Probe.connect(brokers["paris"].port, connect)
        await client.subscribe(SubscribeRequest("t", 1))
        client.publish("$geo/location", COLUMBUS.encode(), 1)
        await client.expect(Puback)
        await asyncio.sleep(1.5)
        publisher = await join(stack, brokers["columbus"].port, "p")
        fence = "geo:39.96,-83;u=50000"
        await publisher.client.publish("t", b"here", to=fence, qos=1)
        assert (await client.expect(Publish)).payload == b"here"
        await client.drop()


async def test_a_client_on_the_border_is_not_sent_to_and_fro() -> None:
    async with federation(quick(redirect="all", redirect_after_s=60.0)) as brokers:
        client, _ = await Probe.connect(brokers["paris"].port, lasting("r"))
        for place in (FRANKFURT, PARIS, FRANKFURT):
            await acked(client, "$geo/location", place.encode())
        assert await client.silent(1.5)
        await client.drop()


async def test_the_will_of_a_client_that_was_sent_on_is_not_published() -> None:
    async with federation(quick(redirect="all")) as brokers:
        watcher, _ = await Probe.connect(brokers["columbus"].port, Connect("w"))
        await watcher.subscribe("will")
        await asyncio.sleep(0.2)
        will = Will("will", b"died", 0, False)
        client, _ = await Probe.connect(brokers["paris"].port, lasting("r", will=will))
        client.publish("$geo/location", FRANKFURT.encode())
        await client.expect(Disconnect)
        await client.drop()
        client, connack = await Probe.connect(brokers["frankfurt"].port, lasting("r", will=will))
        assert connack.session_present
        assert await watcher.silent(0.5)
        await client.drop()
        assert (await watcher.expect(Publish)).payload == b"died"
        assert await watcher.silent(0.5)
        await watcher.drop()


async def test_nobody_takes_another_users_session_at_another_broker() -> None:
    owned = {n: replace(c, auth=Auth(anonymous="always", client_id="owned")) for n, c in quick().items()}
    async with federation(owned) as brokers:
        mine, _ = await Probe.connect(brokers["paris"].port, lasting("r", username="alice"))
        for clean in (False, True):
            thief, connack = await Probe.connect(
                brokers["columbus"].port, lasting("r", username="mallory", clean=clean)
            )
            assert connack.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
            await thief.drop()
        assert await mine.silent()
        await mine.drop()


async def test_a_session_found_late_brings_what_waited_in_it() -> None:
    configured = quick(session_wait_s=0.3)
    async with federation(configured) as brokers, AsyncExitStack() as stack:
        client, _ = await Probe.connect(brokers["paris"].port, lasting("r"))
        await client.subscribe(SubscribeRequest("t", 1))
        await client.drop()
        await until(lambda: brokers["paris"].core.clients["r"].connection is None)
        publisher = await join(stack, brokers["paris"].port, "p")
        for number in range(3):
            await publisher.client.publish("t", str(number).encode(), qos=1)
        cut(brokers["columbus"], brokers["paris"])
        client, connack = await Probe.connect(brokers["columbus"].port, lasting("r"))
        assert isinstance(connack, Connack)
        if not connack.session_present:
            await until(lambda: "r" not in brokers["paris"].core.clients)
        assert await drained(client) == [b"0", b"1", b"2"]
        await client.drop()


async def test_what_a_lost_session_had_sent_comes_as_a_repeat_and_nothing_else_comes_twice() -> None:
    """The holder hangs while the client waits, so the client starts anew and is told what it may have had."""
    async with federation(quick(session_wait_s=0.3)) as brokers:
        paris, columbus = brokers["paris"], brokers["columbus"]
        client, _ = await Probe.connect(paris.port, lasting("r"))
        await client.subscribe(SubscribeRequest("t", 2))
        publisher, _ = await Probe.connect(paris.port, Connect("p"))
        for payload in (b"finished", b"released", b"sent"):
            await acked(publisher, "t", payload, 2)
        finished, released, _ = [await client.expect(Publish) for _ in range(3)]
        for each in (finished, released):
            client.send(Pubrec(each.packet_id))
            await client.expect(Pubrel)
        client.send(Pubcomp(finished.packet_id))
        await until(lambda: paris.core.clients["r"].session.pending == 2)
        await client.drop()
        await until(lambda: paris.core.clients["r"].connection is None)
        await acked(publisher, "t", b"queued", 2)
        answer = deaf(paris)
        client, connack = await Probe.connect(columbus.port, lasting("r"))
        assert not connack.session_present
        answer()
        cut(columbus, paris)
        client.send(Pubcomp((await client.expect(Pubrel)).packet_id))
        got = [await client.expect(Publish) for _ in range(2)]
        assert [(packet.payload, packet.dup) for packet in got] == [(b"sent", True), (b"queued", False)]
        for packet in got:
            client.send(Pubrec(packet.packet_id))
        assert await drained(client) == []
        assert columbus.core.clients["r"].session.pending == 0
        for probe in (client, publisher):
            await probe.drop()


def deaf(broker: Broker) -> Callable[[], None]:
    """A broker that hears of no wanted session until the returned function is called."""
    searches = broker.core.node.session_searches
    said = searches.said
    searches.said = lambda peer, message, now: isinstance(message, SessionWanted) or said(peer, message, now)  # type: ignore[method-assign]

    def again() -> None:
        searches.said = said  # type: ignore[method-assign]

    return again


@pytest.mark.parametrize("version", [V5, V311])
async def test_a_client_is_refused_for_as_long_as_its_session_is_missing_if_that_is_wanted(version: int) -> None:
    async with federation(quick(session_wait_s=0.2, session_missing="refuse")) as brokers:
        first, _ = await Probe.connect(brokers["paris"].port, lasting("r", version=version))
        await first.subscribe(SubscribeRequest("t", 2))
        await first.drop()
        answer = deaf(brokers["paris"])
        for _ in range(2):
            client, connack = await Probe.connect(brokers["columbus"].port, lasting("r", version=version))
            assert connack.reason == ReasonCode.SERVER_UNAVAILABLE
            await client.drop()
        fresh, connack = await Probe.connect(brokers["columbus"].port, Connect("new", clean_start=True))
        assert connack.reason == ReasonCode.SUCCESS
        answer()
        client, connack = await Probe.connect(brokers["columbus"].port, lasting("r", version=version))
        assert connack.session_present
        for probe in (client, fresh):
            await probe.drop()


async def test_a_broker_that_left_the_federation_keeps_nobody_out() -> None:
    async with federation(quick(session_wait_s=0.2, session_missing="refuse")) as brokers:
        await brokers["paris"].stop()
        await until(lambda: "paris" not in linked(brokers["columbus"]))
        await asyncio.sleep(0.3)
        client, connack = await Probe.connect(brokers["columbus"].port, lasting("r"))
        assert connack.reason == ReasonCode.SERVER_UNAVAILABLE
        await client.drop()
        membership = brokers["columbus"].membership
        assert membership is not None
        membership.change(RemoveBroker("paris"))
        await until(lambda: "paris" not in brokers["columbus"].core.node.strategy.federation.position)
        client, connack = await Probe.connect(brokers["columbus"].port, lasting("r"))
        assert connack.reason == ReasonCode.SUCCESS
        await client.drop()


def linked(broker: Broker) -> tuple[str, ...]:
    assert broker.peering is not None
    return broker.peering.connected


def cut(a: Broker, b: Broker) -> None:
    """Break the link between two brokers; they dial again after a pause."""
    assert a.peering is not None
    channel = a.peering._peers[b.core.node.me].channel
    assert channel is not None
    channel.close("cut by the test")


async def test_a_clean_start_ends_the_session_at_a_broker_that_was_away_for_a_moment() -> None:
    configured = configs("flood_events", brokers=2)
    free = {name: replace(config, auth=replace(config.auth, client_id="any")) for name, config in configured.items()}
    async with federation(free) as brokers:
        columbus, frankfurt = brokers["columbus"], brokers["frankfurt"]
        client, _ = await Probe.connect(frankfurt.port, lasting("r"))
        await client.drop()
        columbus.parts.driver.handle(PeerDown(frankfurt.core.node.me))
        await asyncio.sleep(0.01)  # so that the clocks can tell which connection is the later
        client, _ = await Probe.connect(columbus.port, lasting("r", clean=True))
        columbus.parts.driver.handle(PeerUp(frankfurt.core.node.me))
        await until(lambda: "r" not in frankfurt.core.clients)
        assert "r" in columbus.core.clients
        await client.drop()


async def test_a_client_that_left_is_remembered_until_routing_has_forgotten_it() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        here, there = brokers["columbus"], brokers["frankfurt"]
        for broker in (here, there):
            client, _ = await Probe.connect(broker.port, lasting("r"))
            await client.drop()
        left = here.core.node.session_moves.left
        here.parts.driver.handle(PeerSaid(there.core.node.me, Settled((ClientId("r"),))))
        assert left(ClientId("r")), "the links are not up for long enough to be sure"
        here.parts.driver.handle(ClientGone(ClientId("r")))
        assert not left(ClientId("r"))


async def test_a_session_larger_than_a_frame_is_handed_over_in_parts() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        client, _ = await Probe.connect(brokers["columbus"].port, lasting("r"))
        await client.subscribe(SubscribeRequest("t", 1))
        await client.drop()
        publisher, _ = await Probe.connect(brokers["columbus"].port, Connect("p"))
        payloads = [bytes([number]) * 300_000 for number in range(12)]
        for payload in payloads:
            await acked(publisher, "t", payload)
        client, connack = await Probe.connect(brokers["frankfurt"].port, lasting("r"))
        assert connack.session_present
        assert await drained(client) == payloads
        for probe in (client, publisher):
            await probe.drop()
