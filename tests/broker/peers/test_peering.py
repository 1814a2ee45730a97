"""Several brokers as one service: real sockets between them, real clients at each."""

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.federated import configs, federation, peers_up, until

from geomq.broker.server import Broker
from geomq.client import Client
from geomq.errors import ProtocolError
from geomq.geo import Circle, Location
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed, RoutingEvent
from geomq.routing.core.messages import ForwardEvent
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim.oracle import Oracle

pytestmark = pytest.mark.anyio
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in STRATEGIES if name not in ("single", "broadcast_groups", "mesh")),
    ("mesh", {"announce_ms": 200}),
]
SPOTS = [Location(48.9, 2.4), Location(50.0, 8.0), Location(40.0, -83.0), Location(-34.0, 151.0), Location(0.0, 0.0)]


class Listening:
    """A client that notes every payload it receives."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.got: list[bytes] = []
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for message in self.client:
            self.got.append(bytes(message.payload))

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def join(stack: AsyncExitStack, broker: Broker, name: str) -> Listening:
    client = await stack.enter_async_context(Client("127.0.0.1", broker.port, client_id=name))
    listening = Listening(client)
    stack.push_async_callback(listening.stop)
    return listening


@pytest.mark.parametrize(("strategy", "options"), CASES, ids=[name for name, _ in CASES])
async def test_every_strategy_delivers_what_the_oracle_says(strategy: str, options: dict[str, Any]) -> None:
    dice, oracle = random.Random(7), Oracle()
    async with federation(configs(strategy, options)) as brokers, AsyncExitStack() as stack:
        names = [f"c{number}" for number in range(8)]
        clients = {n: await join(stack, brokers[list(brokers)[i % len(brokers)]], n) for i, n in enumerate(names)}
        for name, listening in clients.items():
            place = dice.choice(SPOTS)
            await listening.client.move(*place, qos=1)
            oracle.observe(ClientMoved(ClientId(name), place))
            for topic_filter in dice.sample(["a/x", "a/+", "b", "#", "+/x"], 2):
                fence = dice.choice([None, Circle(dice.choice(SPOTS), 700_000.0), Circle(SPOTS[0], 9_000_000.0)])
                await listening.client.subscribe(topic_filter, within=fence, qos=1)
                oracle.observe(ClientSubscribed(ClientId(name), topic_filter, fence))
        await asyncio.sleep(1.0)
        expected: dict[str, set[bytes]] = {name: set() for name in names}
        for number in range(40):
            publisher, topic = dice.choice(names), dice.choice(["a/x", "a/y", "b", "c/x"])
            fence = dice.choice([None, Circle(dice.choice(SPOTS), 700_000.0)])
            payload = str(number).encode()
            await clients[publisher].client.publish(topic, payload, to=fence, qos=1)
            receivers = oracle.observe(ClientPublished(ClientId(publisher), topic, fence))
            assert receivers is not None
            for receiver in receivers:
                expected[receiver].add(payload)
            await asyncio.sleep(0.01)
        await until(lambda: all(set(clients[n].got) == expected[n] for n in names))
        assert all(len(listening.got) == len(set(listening.got)) for listening in clients.values())


async def test_a_broker_that_comes_back_is_served_again() -> None:
    configured = configs("disgb_subscriptions", brokers=3)
    async with federation(configured) as brokers, AsyncExitStack() as stack:
        subscriber = await join(stack, brokers["paris"], "s")
        await subscriber.client.subscribe("news")
        await brokers["frankfurt"].stop()
        await until(lambda: peers_up(brokers["paris"]) == 1)
        async with Broker(configured["frankfurt"]) as again:
            await until(lambda: peers_up(again) == 2)
            publisher = await join(stack, again, "p")
            await asyncio.sleep(0.2)
            await publisher.client.publish("news", b"back", qos=1)
            await until(lambda: bool(subscriber.got))
            assert subscriber.got == [b"back"]


async def test_a_broker_whose_disk_was_lost_is_served_again_and_heard(tmp_path: Path) -> None:
    configured = configs("flood_events", brokers=2)
    columbus = configured["columbus"]
    async with Broker(configured["frankfurt"]) as frankfurt, AsyncExitStack() as stack:
        listening = await join(stack, frankfurt, "listener")
        await listening.client.subscribe("t", qos=1)
        for disk in ("old", "new"):
            kept = msgspec.structs.replace(columbus.persistence, enabled=True, path=tmp_path / disk)
            async with Broker(msgspec.structs.replace(columbus, persistence=kept)) as broker:
                await until(lambda: peers_up(frankfurt) == 1)
                async with Client("127.0.0.1", broker.port) as client:
                    await client.publish("t", disk.encode(), qos=1)
                await until(lambda: disk.encode() in listening.got)  # noqa: B023
            await until(lambda: peers_up(frankfurt) == 0)
        assert listening.got == [b"old", b"new"]


async def test_a_peer_that_was_forgotten_and_is_none_the_wiser_hears_everything_again() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers, AsyncExitStack() as stack:
        here, there = brokers["columbus"], brokers["frankfurt"]
        publisher, listening = await join(stack, here, "publisher"), await join(stack, there, "listener")
        await listening.client.subscribe("t", qos=1)
        assert here.peering is not None
        assert here.membership is not None
        for number in range(20):
            await publisher.client.publish("t", b"%d" % number, qos=1)
        await until(lambda: len(listening.got) == 20)
        here.peering.set_peers({})
        here.peering.set_peers(here.membership.addresses)
        await until(lambda: peers_up(here) == peers_up(there) == 1)
        await publisher.client.publish("t", b"again", qos=1)
        await until(lambda: b"again" in listening.got)


async def test_what_waited_at_the_start_is_sent_once_however_often_a_peer_comes_and_goes(tmp_path: Path) -> None:
    configured = configs("flood_events", brokers=2)
    kept = msgspec.structs.replace(configured["columbus"].persistence, enabled=True, path=tmp_path)
    lasting = msgspec.structs.replace(configured["columbus"], persistence=kept)
    async with Broker(lasting) as broker, Client("127.0.0.1", broker.port) as client:
        await client.publish("t", b"x", qos=1)
    async with Broker(lasting) as again, Broker(configured["frankfurt"]):
        peering, membership = again.peering, again.membership
        assert peering is not None
        assert membership is not None

        def waiting() -> int:
            return sum(len(peer.link.durable()) for peer in peering._peers.values())

        assert waiting() == 1
        await until(lambda: waiting() == 0)
        peering.set_peers({})
        peering.set_peers(membership.addresses)
        assert waiting() == 0


async def test_a_message_that_makes_trouble_takes_no_others_with_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "geomq.peers")
    async with federation(configs("flood_events", brokers=2)) as brokers, AsyncExitStack() as stack:
        here, there = brokers["columbus"].peering, brokers["frankfurt"].peering
        assert here is not None
        assert there is not None
        listening = await join(stack, brokers["frankfurt"], "listener")
        await listening.client.subscribe("t", qos=1)
        handle, channel = there._handle, there._peers[BrokerId("columbus")].channel

        def stumble(happened: RoutingEvent) -> None:
            event = getattr(getattr(happened, "message", None), "event", None)
            if event is not None and event.payload == b"2":
                raise RuntimeError("a slip")
            if event is not None and event.payload == b"4":
                raise ProtocolError("nonsense")
            handle(happened)

        there._handle = stumble
        for number in range(1, 6):
            event = Event(EventId(BrokerId("columbus"), 5, number), "t", ClientId("c"), None, None, b"%d" % number, 1)
            here.send(BrokerId("frankfurt"), ForwardEvent(event))
        await until(lambda: len(listening.got) == 3)
        assert listening.got == [b"1", b"3", b"5"]
        assert "failed to handle a message from a peer" in caplog.text
        await until(lambda: any(getattr(record, "reason", "") == "nonsense" for record in caplog.records))
        assert brokers["frankfurt"].core.counts.peer_messages_refused == 2
        assert there._peers[BrokerId("columbus")].channel is channel


async def test_a_stranger_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    configured = configs("flood_events", brokers=2)
    async with federation(configured) as brokers:
        port = configured["frankfurt"].federation.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x00\x00\x00\x05hello" + b"\xff" * 64)
        await writer.drain()
        await reader.read()
        assert reader.at_eof()
        assert peers_up(brokers["frankfurt"]) == 1
        writer.close()


async def test_strangers_that_say_nothing_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.broker.peers.unknown_brokers.UNPROVEN_MAX", 3)
    configured = configs("flood_events", brokers=2)
    async with federation(configured) as brokers:
        port = configured["frankfurt"].federation.port
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for reader, _ in strangers[:2]:
            with suppress(ConnectionResetError):
                await asyncio.wait_for(reader.read(), 2.0)
        assert peers_up(brokers["frankfurt"]) == 1
        for _, writer in strangers:
            writer.close()
