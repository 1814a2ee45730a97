"""Shared subscriptions, wills, expiry and wildcards of a federation behave as those of one broker: real clients."""

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.federated import configs, federation, until
from tests.broker.mosquitto_cloud import Listening, groups, join, mosquitto, needs_mosquitto
from tests.broker.peers.test_peering import CASES, SPOTS
from tests.broker.test_federation_crash import processes
from tests.probe import Probe

from geomq.broker.config.settings import Auth
from geomq.broker.server import Broker
from geomq.geo import Circle
from geomq.mqtt.codec.packets import Connect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.packets import Will as WillPacket
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed
from geomq.routing.core.model import ClientId
from geomq.sim.oracle import Oracle

pytestmark = pytest.mark.anyio


async def members_known(brokers: dict[str, Broker], count: int) -> None:
    await until(lambda: all(len(broker.core.node.shared) == count for broker in brokers.values()))


@pytest.mark.parametrize(("strategy", "options"), CASES, ids=[name for name, _ in CASES])
async def test_one_member_gets_each_event_under_every_strategy(strategy: str, options: dict[str, Any]) -> None:
    dice, oracle = random.Random(11), Oracle()
    async with federation(configs(strategy, options, brokers=3)) as brokers, AsyncExitStack() as stack:
        homes = list(brokers.values())
        members = [await join(stack, homes[i % len(homes)].port, f"m{i}") for i in range(6)]
        for number, member in enumerate(members):
            name, place = ClientId(f"m{number}"), SPOTS[number % 3]
            fence = Circle(SPOTS[0], 2_000_000.0) if number % 2 else None
            await member.client.move(*place, qos=1)
            oracle.observe(ClientMoved(name, place))
            for topic_filter in ("t/#", "t/+"):
                await member.client.subscribe(f"$share/crew/{topic_filter}", within=fence, qos=2)
                oracle.observe(ClientSubscribed(name, topic_filter, fence, "crew"))
        publishers = [await join(stack, home.port, f"p{i}") for i, home in enumerate(homes)]
        await members_known(brokers, 12)
        candidates: dict[bytes, set[ClientId]] = {}
        for number in range(45):
            which = number % len(homes)
            place, fence = dice.choice(SPOTS), dice.choice([None, Circle(dice.choice(SPOTS[:3]), 700_000.0)])
            payload = str(number).encode()
            await publishers[which].client.publish("t/x", payload, to=fence, at=place, qos=number % 3)
            oracle.observe(ClientPublished(ClientId(f"p{which}"), "t/x", fence, place))
            found = oracle.candidates(ClientPublished(ClientId(f"p{which}"), "t/x", fence))
            candidates[payload] = {client for group in found.values() for client in group}
        expected = Counter({payload: 2 for payload, found_for in candidates.items() if found_for})

        def received() -> Counter[bytes]:
            return Counter(payload for member in members for payload in member.got)

        await until(lambda: received().total() >= expected.total())
        await asyncio.sleep(0.2)
        assert received() == expected
        for number, member in enumerate(members):
            assert all(f"m{number}" in candidates[payload] for payload in member.got)


@needs_mosquitto
async def test_one_member_gets_each_event_of_brokers_and_of_clients_of_the_cloud(tmp_path: Path) -> None:
    async with (
        mosquitto(tmp_path) as cloud,
        groups(cloud, formation="fixed", groups={"columbus": [], "frankfurt": ["paris"]}) as brokers,
        AsyncExitStack() as stack,
    ):
        members = [await join(stack, broker.port, f"m{name}") for name, broker in brokers.items()]
        for member in members:
            await member.client.subscribe("$share/crew/t/#", qos=2)
        publishers = [await join(stack, broker.port, f"p{name}") for name, broker in brokers.items()]
        stranger = await join(stack, cloud.port, "stranger")
        await members_known(brokers, 3)
        await until(lambda: any("t/#" in line for line in cloud.log))
        await asyncio.sleep(0.3)
        for number in range(12):
            for publisher in (*publishers, stranger):
                payload = f"{publisher.client.client_id} {number}".encode()
                await publisher.client.publish("t/x", payload, qos=number % 3)
        await until(lambda: sum(len(member.got) for member in members) >= 48)
        await asyncio.sleep(0.3)
        received = Counter(payload for member in members for payload in member.got)
        assert (len(received), received.total()) == (48, 48)
        assert all(len(member.got) > 4 for member in members), "everybody has a share"


async def test_an_event_finds_the_one_member_of_all_brokers_that_may_read_it(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic write t/#\npattern read t/%c\n")
    configured = {
        name: msgspec.structs.replace(config, auth=Auth(acl_file=str(rules)))
        for name, config in configs("disgb_events", brokers=3).items()
    }
    async with federation(configured) as brokers, AsyncExitStack() as stack:
        homes = list(brokers.values())
        members = [await join(stack, homes[i % len(homes)].port, f"m{i}") for i in range(6)]
        for member in members:
            await member.client.subscribe("$share/crew/t/+", qos=1)
        publishers = [await join(stack, home.port, f"p{i}") for i, home in enumerate(homes)]
        await members_known(brokers, 6)
        for number in range(36):
            await publishers[number % 3].client.publish(f"t/m{number % 6}", str(number).encode(), qos=number % 2)
            await publishers[number % 3].client.publish("t/nobody", b"secret", qos=1)
        expected = [sorted(str(number).encode() for number in range(each, 36, 6)) for each in range(6)]
        await until(lambda: sum(len(member.got) for member in members) >= 36)
        await until(lambda: sum(broker.core.counts.deliveries_denied for broker in homes) == 36)
        assert [sorted(member.got) for member in members] == expected


async def test_an_away_member_is_not_served_while_one_elsewhere_is_there() -> None:
    lasting = Properties(session_expiry_interval=300)
    async with federation(configs("disgb_events", brokers=3)) as brokers, AsyncExitStack() as stack:
        probe, _ = await Probe.connect(brokers["paris"].port, Connect("away", V5, properties=lasting))
        await probe.subscribe(SubscribeRequest("$share/crew/t", 1))
        present = await join(stack, brokers["columbus"].port, "present")
        await present.client.subscribe("$share/crew/t", qos=1)
        publisher = await join(stack, brokers["frankfurt"].port, "p")
        await probe.drop()
        await until(lambda: brokers["paris"].core.clients["away"].connection is None)
        await asyncio.sleep(0.2)
        for number in range(6):
            await publisher.client.publish("t", str(number).encode(), qos=1)
        await until(lambda: len(present.got) == 6)
        await present.client.unsubscribe("$share/crew/t")
        await until(lambda: len(brokers["frankfurt"].core.node.shared) == 1)
        await publisher.client.publish("t", b"kept", qos=1)
        await until(lambda: brokers["paris"].core.clients["away"].session.pending == 1)
        probe, connack = await Probe.connect(
            brokers["paris"].port, Connect("away", V5, clean_start=False, properties=lasting)
        )
        assert connack.session_present
        assert (await probe.expect(Publish)).payload == b"kept"
        await probe.drop()


async def test_an_event_for_a_member_survives_the_death_of_its_broker(tmp_path: Path) -> None:
    running = processes("disgb_subscriptions", tmp_path)
    lasting = Properties(session_expiry_interval=3600)
    try:
        for process in running.values():
            await process.start()
        member, _ = await Probe.connect(running["paris"].port, Connect("member", V5, properties=lasting))
        await member.subscribe(SubscribeRequest("$share/crew/t", 1))
        publisher, _ = await Probe.connect(running["columbus"].port, Connect("publisher"))
        await until_served(publisher, member)
        running["paris"].stop()
        await member.drop()
        for number in range(20):
            publisher.publish("t", str(number).encode(), 1)
            await publisher.expect(Puback)
        await publisher.drop()
        running["columbus"].stop()
        for name in ("columbus", "paris"):
            await running[name].start()
        member, _ = await Probe.connect(
            running["paris"].port, Connect("member", V5, clean_start=False, properties=lasting)
        )
        got: list[bytes] = []
        while len(got) < 20:
            packet = await member.expect(Publish)
            got.append(packet.payload)
            member.send(Puback(packet.packet_id))
        assert got == [str(number).encode() for number in range(20)]
        assert await member.silent(0.5)
        await member.drop()
    finally:
        for process in running.values():
            process.stop()


async def until_served(publisher: Probe, member: Probe) -> None:
    """Publish until the member, somewhere else, gets it."""
    for _ in range(100):
        publisher.publish("t", b"?", 0)
        if not await member.silent(0.1):
            while not await member.silent(0.3):
                await member.receive()
            return
    raise AssertionError("the member is never served")


async def watcher(stack: AsyncExitStack, broker: Broker, topic_filter: str) -> Listening:
    listening = await join(stack, broker.port, f"watcher-{broker.core.node.me}")
    await listening.client.subscribe(topic_filter, qos=1)
    return listening


async def test_a_will_reaches_every_broker_once_and_only_after_its_delay() -> None:
    async with federation(configs("flood_subscriptions", brokers=3)) as brokers, AsyncExitStack() as stack:
        watchers = [await watcher(stack, broker, "wills/+") for broker in brokers.values()]
        await asyncio.sleep(0.3)
        at_once, _ = await Probe.connect(brokers["paris"].port, with_will("at-once", delay_s=0))
        delayed, _ = await Probe.connect(brokers["paris"].port, with_will("delayed", delay_s=2))
        saved, _ = await Probe.connect(brokers["paris"].port, with_will("saved", delay_s=2))
        dropped = time.monotonic()
        for probe in (at_once, delayed, saved):
            await probe.drop()
        back, _ = await Probe.connect(brokers["paris"].port, with_will("saved", delay_s=2, clean_start=False))
        await until(lambda: all(each.got == [b"at-once"] for each in watchers))
        await until(lambda: all(each.got == [b"at-once", b"delayed"] for each in watchers))
        assert time.monotonic() - dropped >= 2
        await asyncio.sleep(1.5)
        assert [each.got for each in watchers] == [[b"at-once", b"delayed"]] * 3
        await back.drop()


def with_will(name: str, *, delay_s: int, clean_start: bool = True) -> Connect:
    properties = Properties(will_delay_interval=delay_s)
    will = WillPacket(f"wills/{name}", name.encode(), 1, False, properties)
    lasting = Properties(session_expiry_interval=60)
    return Connect(name, V5, clean_start=clean_start, will=will, properties=lasting)


async def test_a_message_expires_on_its_way_as_if_there_were_one_broker() -> None:
    lasting = Properties(session_expiry_interval=300)
    async with federation(configs("disgb_events", brokers=3)) as brokers, AsyncExitStack() as stack:
        probe, _ = await Probe.connect(brokers["paris"].port, Connect("s", V5, properties=lasting))
        await probe.subscribe(SubscribeRequest("t", 1))
        await asyncio.sleep(0.2)
        publisher = await join(stack, brokers["columbus"].port, "p")
        await publisher.client.publish("t", b"now", qos=1, expiry_s=30)
        arrived = await probe.expect(Publish)
        assert arrived.properties.message_expiry_interval in (29, 30)
        probe.send(Puback(arrived.packet_id))
        await probe.drop()
        await until(lambda: brokers["paris"].core.clients["s"].connection is None)
        await publisher.client.publish("t", b"short", qos=1, expiry_s=1)
        await publisher.client.publish("t", b"long", qos=1, expiry_s=60)
        await until(lambda: brokers["paris"].core.clients["s"].session.pending == 2)
        await asyncio.sleep(1.2)
        probe, _ = await Probe.connect(brokers["paris"].port, Connect("s", V5, clean_start=False, properties=lasting))
        left = await probe.expect(Publish)
        assert left.payload == b"long"
        assert left.properties.message_expiry_interval in (57, 58, 59)
        assert await probe.silent(0.3)
        await probe.drop()


async def test_a_message_expires_while_it_waits_for_another_broker(tmp_path: Path) -> None:
    running = processes("flood_events", tmp_path)
    lasting = Properties(session_expiry_interval=3600)
    try:
        for process in running.values():
            await process.start()
        subscriber, _ = await Probe.connect(running["paris"].port, Connect("s", V5, properties=lasting))
        await subscriber.subscribe(SubscribeRequest("t", 1))
        publisher, _ = await Probe.connect(running["columbus"].port, Connect("p"))
        await until_served(publisher, subscriber)
        running["paris"].stop()
        await subscriber.drop()
        for payload, expiry_s in ((b"short", 1), (b"long", 600), (b"never", None)):
            publisher.publish("t", payload, 1, properties=Properties(message_expiry_interval=expiry_s))
            await publisher.expect(Puback)
        await asyncio.sleep(1.5)
        await running["paris"].start()
        again = Connect("s", V5, clean_start=False, properties=lasting)
        subscriber, _ = await Probe.connect(running["paris"].port, again)
        first, second = await subscriber.expect(Publish), await subscriber.expect(Publish)
        assert (first.payload, second.payload) == (b"long", b"never")
        assert first.properties.message_expiry_interval is not None
        assert 500 < first.properties.message_expiry_interval < 600
        for probe in (subscriber, publisher):
            await probe.drop()
    finally:
        for process in running.values():
            process.stop()


async def test_a_session_that_expires_is_forgotten_by_every_broker() -> None:
    async with federation(configs("flood_subscriptions", brokers=3)) as brokers:
        short = Properties(session_expiry_interval=1)
        probe, _ = await Probe.connect(brokers["paris"].port, Connect("s", V5, properties=short))
        await probe.subscribe("t", "$share/crew/t")
        await members_known(brokers, 1)
        await until(lambda: all(held(broker) == 1 for broker in brokers.values()))
        await probe.drop()
        await members_known(brokers, 0)
        await until(lambda: all(held(broker) == 0 for broker in brokers.values()))
        assert "s" not in brokers["paris"].core.clients


def held(broker: Broker) -> int:
    return len(broker.core.node.strategy.table)  # type: ignore[attr-defined]


async def test_wildcards_reach_across_brokers() -> None:
    async with federation(configs("dht", brokers=3)) as brokers, AsyncExitStack() as stack:
        filters = ("#", "+/b", "a/#", "a/+", "+/+/c", "/+")
        listeners = {each: await join(stack, brokers["paris"].port, f"s{n}") for n, each in enumerate(filters)}
        for topic_filter, listening in listeners.items():
            await listening.client.subscribe(topic_filter, qos=1)
        publisher = await join(stack, brokers["columbus"].port, "p")
        await asyncio.sleep(0.3)
        for topic in ("a", "a/b", "x/b", "a/b/c", "/x"):
            await publisher.client.publish(topic, topic.encode(), qos=1)
        expected = {
            "#": [b"a", b"a/b", b"x/b", b"a/b/c", b"/x"],
            "+/b": [b"a/b", b"x/b"],
            "a/#": [b"a", b"a/b", b"a/b/c"],
            "a/+": [b"a/b"],
            "+/+/c": [b"a/b/c"],
            "/+": [b"/x"],
        }
        await until(lambda: all(len(listeners[each].got) >= len(expected[each]) for each in filters))
        assert {each: sorted(listeners[each].got) for each in filters} == {e: sorted(expected[e]) for e in filters}
