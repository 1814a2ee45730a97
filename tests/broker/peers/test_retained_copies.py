"""Retained events at one broker are there at all of them, and so are their deletions."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.broker.federated import configs, federation, peers_up, until

from geomq.broker.server import Broker
from geomq.client import Client
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.retained.versions import PutRetained, RetainedVersions, RetainedWanted

pytestmark = pytest.mark.anyio


async def retained_at(broker: Broker, topic_filter: str, *, at: tuple[float, float] | None = None) -> list[bytes]:
    """What a new subscriber is given."""
    got: list[bytes] = []
    async with Client("127.0.0.1", broker.port, at=at) as client:
        await client.subscribe(topic_filter)
        with suppress(TimeoutError):
            while True:
                message = await asyncio.wait_for(anext(aiter(client.messages)), 0.3)
                got.append(bytes(message.payload))
    return got


async def retain(broker: Broker, topic: str, payload: bytes, **more: object) -> None:
    async with Client("127.0.0.1", broker.port) as client:
        await client.publish(topic, payload, retain=True, qos=1, **more)  # type: ignore[arg-type]


async def test_a_retained_event_and_its_deletion_reach_every_broker() -> None:
    async with federation(configs("disgb_subscriptions", brokers=3)) as brokers:
        await retain(brokers["paris"], "state/a", b"on")
        await retain(brokers["columbus"], "state/b", b"near Paris", to=(48.88, 2.36, 5_000))
        await asyncio.sleep(0.1)
        assert await retained_at(brokers["columbus"], "state/#") == [b"on"]
        assert sorted(await retained_at(brokers["frankfurt"], "state/#", at=(48.88, 2.36))) == [b"near Paris", b"on"]
        await retain(brokers["frankfurt"], "state/a", b"")
        await asyncio.sleep(0.1)
        assert await retained_at(brokers["paris"], "state/#") == []


async def test_what_is_deleted_before_a_broker_heard_of_it_is_deleted_everywhere() -> None:
    async with federation(configs("flood_events", brokers=3)) as brokers:
        driver, held = brokers["paris"].parts.driver, list[tuple[BrokerId, Message]]()
        send, driver.tell_peer = driver.tell_peer, lambda *said: held.append(said)  # type: ignore[method-assign]
        await retain(brokers["paris"], "state/a", b"on")
        await retain(brokers["columbus"], "state/a", b"")
        for said in held:
            send(*said)
        await asyncio.sleep(0.2)
        for broker in brokers.values():
            assert await retained_at(broker, "state/#") == []


async def test_a_retained_event_that_waits_for_a_broker_expires_on_the_way() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        driver, held = brokers["columbus"].parts.driver, list[tuple[BrokerId, Message]]()
        send, driver.tell_peer = driver.tell_peer, lambda *said: held.append(said)  # type: ignore[method-assign]
        await retain(brokers["columbus"], "brief", b"brief", expiry_s=1)
        await retain(brokers["columbus"], "long", b"long", expiry_s=600)
        await asyncio.sleep(1.2)
        for said in held:
            send(*said)
        await asyncio.sleep(0.2)
        assert await retained_at(brokers["frankfurt"], "#") == [b"long"]


async def test_topics_that_begin_with_a_dollar_are_the_same_everywhere_but_for_the_brokers_own() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        await retain(brokers["columbus"], "$state/x", b"on")
        await asyncio.sleep(0.2)
        assert await retained_at(brokers["frankfurt"], "$state/#") == [b"on"]
        assert await retained_at(brokers["frankfurt"], "#") == []
        retained = brokers["frankfurt"].core.node.retained
        assert retained.version("$state/x") is not None
        assert not [topic for topic in retained._versions if topic.startswith("$SYS")]


@pytest.mark.parametrize("strategy", ["flood_events", "flood_subscriptions", "disgb_subscriptions", "dht"])
async def test_who_subscribes_at_the_moment_of_a_change_learns_of_it_once(strategy: str) -> None:
    """The subscription is still on its way to the publisher's broker."""
    async with federation(configs(strategy, brokers=3)) as brokers:
        here = brokers["paris"].peering
        assert here is not None
        held: list[tuple[BrokerId, Message]] = []
        send, here.send = here.send, lambda *said: held.append(said)  # type: ignore[method-assign]
        async with Client("127.0.0.1", brokers["paris"].port) as client:
            await client.subscribe("state/x", qos=1)
            await retain(brokers["columbus"], "state/x", b"on")
            message = await asyncio.wait_for(anext(aiter(client.messages)), 30)
            assert message.payload == b"on"
            here.send = send  # type: ignore[method-assign]
            for said in held:
                send(*said)
            await asyncio.sleep(0.2)
            await retain(brokers["columbus"], "state/x", b"off")
            message = await asyncio.wait_for(anext(aiter(client.messages)), 30)
            assert message.payload == b"off"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(aiter(client.messages)), 0.3)


async def test_a_broker_that_was_away_catches_up_and_spreads_nothing_old() -> None:
    configured = configs("flood_events", brokers=3)
    async with federation(configured) as brokers:
        await retain(brokers["paris"], "a", b"1")
        await retain(brokers["paris"], "b", b"1")
        await asyncio.sleep(0.1)
        await brokers["frankfurt"].stop()
        await until(lambda: peers_up(brokers["paris"]) == 1)
        await retain(brokers["paris"], "a", b"2")
        await retain(brokers["paris"], "b", b"")
        async with Broker(configured["frankfurt"]) as again:
            await until(lambda: peers_up(again) == 2)
            await asyncio.sleep(0.2)
            assert await retained_at(again, "#") == [b"2"]
            assert await retained_at(brokers["columbus"], "#") == [b"2"]


async def test_topics_that_were_deleted_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetainedVersions.__init__, "__defaults__", (3,))
    async with federation(configs("flood_events", brokers=2)) as brokers:
        here, there = brokers.values()
        await retain(here, "stays", b"1")
        for number in range(4):
            await retain(here, f"t{number}", b"1")
            await retain(here, f"t{number}", b"")
        await retain(here, "new", b"2")
        await until(lambda: len(there.parts.retention) == len(here.parts.retention))
        assert sorted(await retained_at(there, "#")) == [b"1", b"2"]
        for topic in ("third", "fourth"):
            await retain(here, topic, b"3")
        assert sorted(await retained_at(here, "#")) == [b"1", b"2", b"3", b"3"]
        assert sorted(await retained_at(there, "#")) == [b"1", b"2", b"3"]


async def test_a_broker_without_room_does_not_tell_others_that_an_event_was_deleted() -> None:
    configured = configs("flood_events", brokers=2)
    narrow = configured["frankfurt"]
    configured["frankfurt"] = replace(narrow, limits=replace(narrow.limits, retained_messages_max=1))
    async with federation(configured) as brokers:
        here, there = brokers["columbus"], brokers["frankfurt"]
        for topic in ("a", "b"):
            await retain(here, topic, b"1")
        await until(lambda: there.core.counts.retained_refused == 1)
        said: list[Message] = []
        there.parts.driver.tell_peer = lambda _, message: said.append(message)  # type: ignore[method-assign, assignment]
        there.parts.driver.handle(PeerSaid(BrokerId("columbus"), RetainedWanted()))
        await until(lambda: bool(said))
        assert [message.event.payload for message in said if isinstance(message, PutRetained)] == [b"1"]


async def test_an_event_that_expired_is_let_go_of_but_not_its_version() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        here, there = brokers["columbus"], brokers["frankfurt"]
        await retain(here, "brief", b"1", expiry_s=1)
        await until(lambda: there.core.node.retained.version("brief") is not None)
        await until(lambda: len(here.parts.retention) == len(there.parts.retention) == 0)
        assert here.core.node.retained.version("brief") == there.core.node.retained.version("brief") is not None


async def test_versions_survive_a_restart(tmp_path: Path) -> None:
    configured = configs("flood_events", brokers=2)
    was = configured["columbus"]
    kept = replace(
        was, broker=replace(was.broker, data_dir=str(tmp_path)), persistence=replace(was.persistence, enabled=True)
    )
    async with federation(configured | {"columbus": kept}) as brokers:
        await retain(brokers["columbus"], "stays", b"1")
        await retain(brokers["columbus"], "gone", b"1")
        await retain(brokers["columbus"], "gone", b"")
        before = {topic: brokers["columbus"].core.node.retained.version(topic) for topic in ("stays", "gone")}
        await brokers["columbus"].stop()
        async with Broker(kept) as again:
            assert {topic: again.core.node.retained.version(topic) for topic in before} == before
            assert None not in before.values()
