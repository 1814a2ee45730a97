"""What the clients of a peer may publish into and read from here."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.federated import SITES, configs, federation, until
from tests.broker.peers.test_peering import Listening, join
from tests.broker.peers.test_trust import replaced
from tests.probe import Probe

from geomq.broker.config.settings import Config
from geomq.broker.local_federation import CLOUD, local_configs
from geomq.broker.server import Broker, load_security
from geomq.client import Client
from geomq.errors import ConfigError
from geomq.geo import Circle, Location
from geomq.mqtt.codec.packets import Connect, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5
from geomq.routing.core.messages import DeliverEvent, ForwardEvent, Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.plan import Batched, EventBatch
from geomq.routing.retained.versions import PutRetained
from geomq.routing.sharing.groups import ServeShared
from geomq.routing.strategies.registry import STRATEGIES

pytestmark = pytest.mark.anyio
COLUMBUS, FRANKFURT, PARIS = BrokerId("columbus"), BrokerId("frankfurt"), BrokerId("paris")
OPTIONS: dict[str, dict[str, Any]] = {"mesh": {"announce_ms": 100}}
LINKED = [name for name in STRATEGIES if name not in ("single", "broadcast_groups")]
OPEN = "user columbus\ntopic readwrite open/#\n"


def guarded(folder: Path, lines: str, *, strategy: str = "flood_events", brokers: int = 2) -> dict[str, Config]:
    """A federation where Frankfurt grants its peers what the lines say."""
    configured = configs(strategy, OPTIONS.get(strategy), brokers=brokers)
    (folder / "peers").write_text(lines)
    return configured | {"frankfurt": replaced(configured["frankfurt"], acl_file=str(folder / "peers"))}


def refused(broker: Broker) -> dict[tuple[str, str], int]:
    """How many events were refused, by reason and peer."""
    totals = broker.core.drops.totals()
    return {(drop.reason.value, drop.peer): count for drop, count in totals if drop.reason.value.startswith("peer_may")}


def send(source: Broker, *messages: Message) -> None:
    assert source.peering is not None
    for message in messages:
        source.peering.send(FRANKFURT, message)


async def ready(stack: AsyncExitStack, source: Broker, target: Broker) -> tuple[Client, Listening]:
    """A publisher at one broker and a subscriber to everything at the other, to whom events get."""
    writer = await stack.enter_async_context(Client("127.0.0.1", source.port, client_id="writer"))
    reader = await join(stack, target, "reader")
    await reader.client.subscribe("#", qos=1)
    for _ in range(100):
        await writer.publish("open/first", b"first", qos=1)
        await asyncio.sleep(0.05)
        if reader.got:
            break
    await writer.publish("open/ready", b"ready", qos=1)
    await until(lambda: b"ready" in reader.got)
    reader.got.clear()
    return writer, reader


@pytest.mark.parametrize("strategy", LINKED)
@pytest.mark.parametrize("direction", ["write", "read"])
async def test_clients_of_a_peer_publish_and_read_only_what_it_is_granted(
    tmp_path: Path, strategy: str, direction: str
) -> None:
    async with federation(guarded(tmp_path, OPEN, strategy=strategy)) as brokers, AsyncExitStack() as stack:
        source, target = brokers["columbus"], brokers["frankfurt"]
        if direction == "read":
            source, target = target, source
        writer, reader = await ready(stack, source, target)
        for qos in (0, 1):
            for number in range(5):
                for topic in ("secret/a", "open/a", "secret/open/a"):
                    await writer.publish(topic, f"{topic} {qos} {number}".encode(), qos=qos)
        await writer.publish("open/last", b"last", qos=1)
        await until(lambda: b"last" in reader.got)
        assert reader.got == [b"open/a %d %d" % (qos, number) for qos in (0, 1) for number in range(5)] + [b"last"]
        copies = 2 if strategy == "georendezvous" else 1
        assert refused(brokers["frankfurt"]) == {(f"peer_may_not_{direction}", "columbus"): 20 * copies}
        assert refused(brokers["columbus"]) == {}


@pytest.mark.parametrize("source", ["columbus", "frankfurt"])
async def test_a_cloud_needs_no_rights_but_who_published_does(tmp_path: Path, source: str) -> None:
    (tmp_path / "peers").write_text(OPEN)
    configured = local_configs(SITES[:2], "broadcast_groups", {"join_ms": 0.0})
    configured["frankfurt"] = replaced(configured["frankfurt"], acl_file=str(tmp_path / "peers"))
    async with Broker(configured.pop(CLOUD)), federation(configured) as brokers, AsyncExitStack() as stack:
        await until(lambda: all(broker.cloud is not None and broker.cloud.up for broker in brokers.values()))
        (target,) = set(brokers) - {source}
        writer, reader = await ready(stack, brokers[source], brokers[target])
        for topic in ("secret/a", "open/a"):
            await writer.publish(topic, topic.encode(), qos=1)
        await until(lambda: b"open/a" in reader.got)
        assert (b"secret/a" in reader.got) is (source == "frankfurt")
        assert bool(refused(brokers["frankfurt"])) is (source == "columbus")


@pytest.mark.parametrize("lines", ["", "topic readwrite open/#\n", "user paris\ntopic readwrite #\n"])
async def test_what_no_line_grants_is_refused(tmp_path: Path, lines: str) -> None:
    async with federation(guarded(tmp_path, lines)) as brokers:
        async with Client("127.0.0.1", brokers["columbus"].port) as writer:
            await writer.publish("open/a", b"x", qos=1)
            await until(lambda: bool(refused(brokers["frankfurt"])))
        assert refused(brokers["frankfurt"]) == {("peer_may_not_write", "columbus"): 1}


async def test_a_pattern_line_is_for_all_brokers_by_their_names(tmp_path: Path) -> None:
    lines = "pattern readwrite of/%u/#\npattern read open/#\n"
    async with federation(guarded(tmp_path, lines)) as brokers, AsyncExitStack() as stack:
        reader = await join(stack, brokers["frankfurt"], "reader")
        await reader.client.subscribe("#", qos=1)
        writer = await stack.enter_async_context(Client("127.0.0.1", brokers["columbus"].port))
        for topic in ("of/paris/a", "open/a", "of/columbus/a"):
            await writer.publish(topic, topic.encode(), qos=1)
        await until(lambda: bool(reader.got))
        assert reader.got == [b"of/columbus/a"]


async def test_rights_change_at_reload_and_without_a_file_there_are_all(tmp_path: Path) -> None:
    configured = guarded(tmp_path, OPEN)
    async with federation(configured) as brokers, AsyncExitStack() as stack:
        writer, reader = await ready(stack, brokers["columbus"], brokers["frankfurt"])
        for number in range(3):
            await writer.publish("secret/a", b"%d" % number)
        await writer.publish("open/a", b"a", qos=1)
        await until(lambda: b"a" in reader.got)
        assert reader.got == [b"a"]
        (tmp_path / "peers").write_text("user columbus\ntopic readwrite secret/#\n")
        brokers["frankfurt"].reload(configured["frankfurt"])
        for number in range(3):
            await writer.publish("open/a", b"no")
            await writer.publish("secret/a", b"%d" % number)
        await until(lambda: len(reader.got) == 4)
        assert reader.got == [b"a", b"0", b"1", b"2"]
        brokers["frankfurt"].reload(replaced(configured["frankfurt"], acl_file=None))
        await writer.publish("open/a", b"yes")
        await until(lambda: len(reader.got) == 5)
        assert reader.got[-1] == b"yes"


def event(topic: str, *, origin: BrokerId = COLUMBUS, sequence: int = 1, **more: Any) -> Event:
    return Event(EventId(origin, 7, sequence), topic, ClientId("c"), None, None, b"x", **more)


SECRET = event("secret/a")
BATCH = EventBatch(
    7,
    0,
    (
        Batched(ClientId("c"), None, 11, 1, False, None, 12),
        Batched(ClientId("c"), None, 12, 2, False, (Match(ClientId("reader"), "#"),), 24),
    ),
    (b"0\x0a\x00\x08secret/a" * 3,),
)


@pytest.mark.parametrize(
    ("message", "count"),
    [
        (ForwardEvent(SECRET), 1),
        (ForwardEvent(event("secret/a", origin=PARIS)), 1),
        (ForwardEvent(event("secret/a", origin=FRANKFURT)), 1),
        (ForwardEvent(event("secret/a", origin=BrokerId("nobody"))), 1),
        (DeliverEvent(SECRET, (Match(ClientId("reader"), "#"),)), 1),
        (PutRetained(event("secret/a", retain=True)), 1),
        (ServeShared(SECRET, "g", "#", ()), 1),
        (BATCH, 3),
    ],
    ids=["event", "of another", "of mine", "of nobody", "delivery", "retained", "shared", "batch"],
)
async def test_no_message_brings_what_its_sender_may_not_write(tmp_path: Path, message: Message, count: int) -> None:
    lines = f"{OPEN}user paris\ntopic readwrite #\n"
    async with federation(guarded(tmp_path, lines, brokers=3)) as brokers, AsyncExitStack() as stack:
        frankfurt, reader = brokers["frankfurt"], await join(stack, brokers["frankfurt"], "reader")
        await reader.client.subscribe("#", qos=1)
        await reader.client.subscribe("$share/g/#", qos=1)
        send(brokers["columbus"], message, ForwardEvent(event("open/a", sequence=21)))
        await until(lambda: bool(reader.got))
        await asyncio.sleep(0.1)
        assert set(reader.got) == {b"x"}
        assert len(reader.got) <= 2, "once to each subscription"
        assert refused(frankfurt) == {("peer_may_not_write", "columbus"): count}
        assert frankfurt.core.counts.peer_messages_refused == 0
        assert frankfurt.parts.retention.topics() == []


async def test_a_broker_with_all_rights_brings_nothing_of_one_that_lacks_them(tmp_path: Path) -> None:
    lines = f"{OPEN}user paris\ntopic readwrite #\n"
    async with federation(guarded(tmp_path, lines, brokers=3)) as brokers, AsyncExitStack() as stack:
        frankfurt, reader = brokers["frankfurt"], await join(stack, brokers["frankfurt"], "reader")
        await reader.client.subscribe("#", qos=1)
        send(brokers["paris"], ForwardEvent(SECRET), ForwardEvent(event("secret/b", origin=PARIS)))
        await until(lambda: bool(reader.got))
        assert reader.got == [b"x"]
        assert refused(frankfurt) == {("peer_may_not_write", "columbus"): 1}


@pytest.mark.parametrize(
    ("fence", "location", "reason"),
    [
        (Circle(Location(50.0, 8.0), 1_000.0), Location(40.0, -83.0), None),
        (Circle(Location(50.0, 8.0), 1_000.0), Location(50.0, 8.0), "peer_may_not_write_from"),
        (Circle(Location(50.0, 8.0), 1_000.0), None, "peer_may_not_write_from"),
        (Circle(Location(40.0, 8.0), 1_000.0), Location(40.0, -83.0), "peer_may_not_write_into"),
        (None, Location(40.0, -83.0), "peer_may_not_write_into"),
    ],
)
async def test_clients_of_a_peer_publish_only_from_and_into_areas_that_it_is_granted(
    tmp_path: Path, fence: Circle | None, location: Location | None, reason: str | None
) -> None:
    lines = "user columbus\ntopic readwrite #\nfence into geo:50,8;u=50000\nfence from geo:40,-83;u=50000\n"
    async with federation(guarded(tmp_path, lines)) as brokers, AsyncExitStack() as stack:
        frankfurt, reader = brokers["frankfurt"], await join(stack, brokers["frankfurt"], "reader")
        await reader.client.move(50.0, 8.0, qos=1)
        await reader.client.subscribe("#", qos=1)
        send(brokers["columbus"], ForwardEvent(msgspec.structs.replace(event("a"), fence=fence, location=location)))
        await until(lambda: bool(refused(frankfurt) or reader.got))
        assert bool(reader.got) is (reason is None)
        assert refused(frankfurt) == ({} if reason is None else {(reason, "columbus"): 1})


async def test_what_is_retained_crosses_as_rights_allow_and_is_counted_once(tmp_path: Path) -> None:
    configured = guarded(tmp_path, OPEN)
    async with federation(configured) as brokers, AsyncExitStack() as stack:
        columbus, frankfurt = brokers["columbus"], brokers["frankfurt"]
        for broker in (columbus, frankfurt):
            client = await stack.enter_async_context(Client("127.0.0.1", broker.port))
            for topic in ("open", "secret"):
                await client.publish(f"{topic}/{broker.core.node.me}", b"x", qos=1, retain=True)
        shared = {"open/columbus", "open/frankfurt"}
        await until(lambda: set(columbus.parts.retention.topics()) == {*shared, "secret/columbus"})
        await until(lambda: set(frankfurt.parts.retention.topics()) == {*shared, "secret/frankfurt"})
        before = refused(frankfurt)
        assert before["peer_may_not_write", "columbus"] == before["peer_may_not_read", "columbus"] == 1 * 2
        assert frankfurt.peering is not None
        channel = frankfurt.peering._peers[COLUMBUS].channel
        assert channel is not None
        channel.close("again")
        await until(lambda: refused(frankfurt)["peer_may_not_write", "columbus"] > 2)
        await asyncio.sleep(0.3)
        assert set(columbus.parts.retention.topics()) == {*shared, "secret/columbus"}
        assert set(frankfurt.parts.retention.topics()) == {*shared, "secret/frankfurt"}


async def test_a_session_that_moves_takes_along_only_what_its_new_broker_may_read(tmp_path: Path) -> None:
    async with federation(guarded(tmp_path, OPEN)) as brokers:
        columbus, frankfurt = brokers["columbus"], brokers["frankfurt"]
        kept = Connect("car", V5, clean_start=False, properties=Properties(session_expiry_interval=300))
        client, _ = await Probe.connect(frankfurt.port, kept)
        await client.subscribe(SubscribeRequest("#", 1))
        await client.drop()
        async with Client("127.0.0.1", frankfurt.port) as writer:
            for topic in ("secret/a", "open/a", "secret/b", "open/b"):
                await writer.publish(topic, b"x", qos=1)
        before = refused(frankfurt).get(("peer_may_not_read", "columbus"), 0)
        client, connack = await Probe.connect(columbus.port, kept)
        assert connack.session_present
        assert [(await client.expect(Publish)).topic for _ in range(2)] == ["open/a", "open/b"]
        assert await client.silent(0.3)
        assert refused(frankfurt)["peer_may_not_read", "columbus"] - before >= 2
        await client.drop()


async def test_a_session_brings_along_only_what_its_old_broker_may_write(tmp_path: Path) -> None:
    async with federation(guarded(tmp_path, OPEN)) as brokers:
        columbus, frankfurt = brokers["columbus"], brokers["frankfurt"]
        kept = Connect("car", V5, clean_start=False, properties=Properties(session_expiry_interval=300))
        client, _ = await Probe.connect(columbus.port, kept)
        await client.subscribe(SubscribeRequest("#", 1))
        await client.drop()
        async with Client("127.0.0.1", columbus.port) as writer:
            for topic in ("secret/a", "open/a", "secret/b", "open/b"):
                await writer.publish(topic, b"x", qos=1)
        client, connack = await Probe.connect(frankfurt.port, kept)
        assert connack.session_present
        assert [(await client.expect(Publish)).topic for _ in range(2)] == ["open/a", "open/b"]
        assert await client.silent(0.3)
        assert refused(frankfurt)["peer_may_not_write", "columbus"] >= 2
        await client.drop()


def test_a_mistake_in_the_file_is_named_before_the_start(tmp_path: Path) -> None:
    config = guarded(tmp_path, "user columbus\ntopic often #\n")["frankfurt"]
    with pytest.raises(ConfigError, match="peers, line 2: unknown access 'often'"):
        load_security(config)
