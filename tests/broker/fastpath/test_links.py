"""Plain events cross links in batches, and nobody can tell but by what it costs."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.federated import SITES, configs, federation, until
from tests.broker.real_clients import RealClient, close_all, join

from geomq.broker.fastpath.links import peer_targets
from geomq.broker.server import Broker
from geomq.broker.state.links import Send
from geomq.geo import Circle, Location
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.core.messages import DeliverEvent, ForwardEvent, Message
from geomq.routing.core.model import BrokerId, ClientId, Edition, Match
from geomq.routing.core.plan import BATCH_BYTES_MAX, Batched, DurableBatch, EventBatch, ToPeer
from geomq.routing.federation.changes import SetStrategy
from geomq.routing.federation.edition_messages import unwrapped
from geomq.routing.strategies.registry import STRATEGIES
from geomq.routing.wire.frames import LooseBatch, encode_frame
from geomq.routing.wire.link import Data

pytestmark = pytest.mark.anyio

PLANNING = [name for name, kind in STRATEGIES.items() if kind.__dict__.get("plans") and name != "single"]
TOPICS = ("t/1", "t/2", "t/long/and/longer")
BURST = 40


class Sent:
    """What a broker says to its peers."""

    def __init__(self, broker: Broker) -> None:
        assert broker.peering is not None
        self._send, self._send_batch = broker.peering.send, broker.peering.send_batch
        self.batched = self.batches = 0
        self.durable: list[DurableBatch] = []
        self.single: list[str] = []
        self.room = broker.peering.room
        self._once_flushed = broker.peering.once_flushed
        broker.core.links.lead(self)

    def send(self, peer: BrokerId, message: Message) -> None:
        said, _ = unwrapped(message)
        if isinstance(said, ForwardEvent | DeliverEvent):
            self.single.append(said.event.topic)
        elif isinstance(said, DurableBatch):
            self.durable.append(said)
        self._send(peer, message)

    def once_flushed(self, peer: BrokerId, message: Message, send: Send) -> None:
        send(peer, message)

    def send_batch(self, peer: BrokerId, batch: EventBatch, edition: Edition | None) -> None:
        self.batches += 1
        self.batched += sum(entry.events for entry in batch.entries)
        self._send_batch(peer, batch, edition)


async def everybody(brokers: dict[str, Broker]) -> tuple[list[RealClient], list[RealClient]]:
    """A publisher and a subscriber of each version at each broker."""
    publishers, subscribers = [], []
    for name, broker in brokers.items():
        for version in (V5, V311):
            publishers.append(await join(broker.port, f"p-{name}-{version}", version=version))
            subscribers.append(await join(broker.port, f"s-{name}-{version}", version=version))
            for topic_filter in ("t/#", "t/+"):
                await subscribers[-1].subscribe(topic_filter)
    return publishers, subscribers


async def settled(publishers: list[RealClient], subscribers: list[RealClient]) -> None:
    """Publish plain events until those of every publisher, on every topic, reach everybody."""
    for attempt in range(100):
        probes = {}
        for publisher in publishers:
            probes[publisher] = [(topic, f"probe {attempt} {publisher.name} {topic}".encode()) for topic in TOPICS]
            publisher.publish_at_once(probes[publisher])
        await asyncio.sleep(0.1)
        wanted = {payload for events in probes.values() for _, payload in events}
        if all(wanted <= subscriber.got.keys() for subscriber in subscribers):
            return
    raise AssertionError("the brokers never agreed")


@pytest.mark.parametrize("strategy", PLANNING)
async def test_every_event_arrives_once_and_in_order_in_few_messages(strategy: str) -> None:
    dice = random.Random(5)
    async with federation(configs(strategy, brokers=4)) as brokers:
        publishers, subscribers = await everybody(brokers)
        try:
            await settled(publishers, subscribers)
            sent = [Sent(broker) for broker in brokers.values()]
            due: Counter[bytes] = Counter()
            for burst in range(4):
                for publisher in publishers:
                    topics = [TOPICS[0]] * BURST if burst % 2 else dice.choices(TOPICS, k=BURST)
                    events = [
                        (topic, f"{publisher.name} {topic} {burst * BURST + n:04}".encode() + b"." * dice.randrange(9))
                        for n, topic in enumerate(topics)
                    ]
                    due.update(payload for _, payload in events)
                    publisher.publish_at_once(events)
                await until(lambda: all(due.keys() <= one.got.keys() for one in subscribers), seconds=30)
            for subscriber in subscribers:
                assert {payload: n for payload, n in subscriber.got.items() if payload in due} == due
                check_order([payload for payload in subscriber.order if payload in due])
            batched, batches = sum(one.batched for one in sent), sum(one.batches for one in sent)
            assert batched >= due.total()
            assert batches < batched / 5
        finally:
            close_all([*publishers, *subscribers])


@pytest.mark.parametrize("strategy", PLANNING)
async def test_every_event_of_qos_1_arrives_once_and_in_order_in_few_messages(strategy: str) -> None:
    dice = random.Random(6)
    async with federation(configs(strategy, brokers=4)) as brokers:
        publishers, subscribers = await everybody(brokers)
        try:
            await settled(publishers, subscribers)
            sent = [Sent(broker) for broker in brokers.values()]
            due: Counter[bytes] = Counter()
            for publisher in publishers:
                for number in range(2 * BURST):
                    topic, qos = dice.choice(TOPICS), 1 if number % 50 else 0
                    due[f"{publisher.name} {topic} {number:04}".encode()] += 1
                    publisher.publish(topic, f"{publisher.name} {topic} {number:04}".encode(), qos=qos)
            await until(lambda: all(due.keys() <= one.got.keys() for one in subscribers), seconds=30)
            for subscriber in subscribers:
                assert {payload: n for payload, n in subscriber.got.items() if payload in due} == due
                check_order([payload for payload in subscriber.order if not payload.endswith((b"00", b"50"))])
            together = sum(entry.events for one in sent for batch in one.durable for entry in batch.entries)
            assert together > 0.7 * due.total()
            assert sum(len(one.durable) for one in sent) < together / 2
        finally:
            close_all([*publishers, *subscribers])


def test_a_batch_counts_the_bytes_that_say_for_whom_its_events_are() -> None:
    matches = tuple(Match(ClientId(f"client-{number}"), "a/+/filter") for number in range(1_000))
    entry = Batched(ClientId("c"), None, 1, 1, True, matches, 0)
    size = len(encode_frame(Data(1, 1, EventBatch(1, 0, (entry,), ()))))
    assert 0.8 * size < peer_targets((ToPeer(BrokerId("b"), matches),), frozenset()).weight < size


def check_order(payloads: list[bytes]) -> None:
    """Events of one publisher on one topic come in the order they were published."""
    ways: dict[bytes, list[bytes]] = {}
    for payload in payloads:
        way, _, number = payload.rpartition(b" ")
        ways.setdefault(way, []).append(number)
    assert all(numbers == sorted(numbers) for numbers in ways.values())


async def test_other_events_between_plain_ones_keep_their_place() -> None:
    async with federation(configs("disgb_subscriptions", brokers=2)) as brokers:
        publishers, subscribers = await everybody(brokers)
        try:
            await settled(publishers, subscribers)
            publisher, far = publishers[0], subscribers[-1]
            assert publisher.name.startswith("p-columbus")
            for number in range(30):
                publisher.publish_at_once([("t/1", f"event {number:03} a".encode())] * 1)
                publisher.publish("t/1", f"event {number:03} b".encode(), qos=1)
                publisher.publish_at_once([("t/1", f"event {number:03} c".encode())])
            await until(lambda: sum(payload.startswith(b"event") for payload in far.got) == 90)
            got = [payload for payload in far.order if payload.startswith(b"event") and not payload.endswith(b"b")]
            assert got == sorted(got)
        finally:
            close_all([*publishers, *subscribers])


async def burst_over_link(brokers: dict[str, Broker], publisher: RealClient, far: RealClient, name: str) -> int:
    """Publish a burst to a far subscriber; how many numbers the link took for it."""
    peering = brokers["columbus"].peering
    assert peering is not None
    link = peering._peers[BrokerId("frankfurt")].link
    before = link.latest
    due = [f"{name} {number}".encode() for number in range(BURST)]
    publisher.publish_at_once([("t/1", payload) for payload in due])
    await until(lambda: due[-1] in far.got)
    assert [payload for payload in far.order if payload in due] == due
    return link.latest - before


async def test_batches_need_a_number_only_while_the_peer_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        publishers, subscribers = await everybody(brokers)
        try:
            await settled(publishers, subscribers)
            assert await burst_over_link(brokers, publishers[0], subscribers[-1], "reads") == 0
            monkeypatch.setattr("geomq.broker.peers.channel.UNREAD_BYTES_MAX", -1)
            assert await burst_over_link(brokers, publishers[0], subscribers[-1], "does not") > 0
        finally:
            close_all([*publishers, *subscribers])


async def test_a_batch_does_not_overtake_what_waits_for_the_disk(tmp_path: Path) -> None:
    configured = configs("flood_events", brokers=2)
    kept = msgspec.structs.replace(configured["columbus"].persistence, enabled=True, path=tmp_path)
    configured["columbus"] = msgspec.structs.replace(configured["columbus"], persistence=kept)
    async with federation(configured) as brokers:
        publishers, subscribers = await everybody(brokers)
        try:
            await settled(publishers, subscribers)
            peering, publisher, far = brokers["columbus"].peering, publishers[0], subscribers[-1]
            assert peering is not None
            assert peering._kept is not None
            unsafe: list[Callable[[], None]] = []
            when_safe, peering._kept.when_safe = peering._kept.when_safe, unsafe.append  # type: ignore[method-assign,assignment]
            publisher.publish("t/1", b"on disk", qos=1)
            await until(lambda: bool(unsafe))
            publisher.publish_at_once([("t/1", b"after it")])
            await asyncio.sleep(0.3)
            assert not {b"on disk", b"after it"} & far.got.keys()
            peering._kept.when_safe = when_safe  # type: ignore[method-assign]
            for done in unsafe:
                done()
            await until(lambda: b"after it" in far.got)
            assert far.order[-2:] == [b"on disk", b"after it"]
        finally:
            close_all([*publishers, *subscribers])


async def test_a_batch_from_a_peer_that_has_not_greeted_is_not_taken() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        subscriber = await join(brokers["frankfurt"].port, "s", version=V311)
        try:
            await subscriber.subscribe("t/1")
            peering = brokers["frankfurt"].peering
            assert peering is not None
            peer = peering._peers[BrokerId("columbus")]
            for up, payload in ((False, b"early"), (True, b"late")):
                data, peer.up = encode(Publish("t/1", payload), V311), up
                entry = Batched(ClientId("c"), None, 1_000, 1, False, None, len(data))
                assert peer.channel is not None
                peering.heard(peer.channel, LooseBatch(None, 1, 0, (entry,), memoryview(data)))
            await until(lambda: b"late" in subscriber.got)
            assert b"early" not in subscriber.got
        finally:
            close_all([subscriber])


async def test_a_change_of_subscriptions_is_followed_at_once() -> None:
    """What was learned about a topic is forgotten when a fence or another subscriber comes, here or elsewhere."""
    async with federation(configs("disgb_subscriptions", brokers=2)) as brokers:
        here = await join(brokers["columbus"].port, "here", SITES[0].location)
        far = await join(brokers["frankfurt"].port, "far", SITES[1].location)
        other = await join(brokers["frankfurt"].port, "other", SITES[1].location)
        try:
            await far.subscribe("t/1")
            await settled_pair(here, far, "t/1")
            await other.subscribe("t/1", within=Circle(Location(0.0, 0.0), 1_000.0))
            await settled_pair(here, far, "t/1")
            assert not other.got
            await other.subscribe("t/1", within=Circle(SITES[0].location, 1_000.0))
            await settled_pair(here, other, "t/1")
            await settled_pair(here, far, "t/1")
            await other.subscribe("t/1")
            await settled_pair(here, other, "t/1")
            for client in (here, far, other):
                assert set(client.got.values()) <= {1}
        finally:
            close_all([here, far, other])


async def settled_pair(publisher: RealClient, subscriber: RealClient, topic: str) -> None:
    before = len(subscriber.got)
    for number in range(100):
        publisher.publish_at_once(
            [(topic, f"{before} {number} {part} to {subscriber.name}".encode()) for part in "abc"]
        )
        await asyncio.sleep(0.05)
        if any(payload.startswith(f"{before} {number} ".encode()) for payload in subscriber.got):
            return
    raise AssertionError("nothing came")


async def test_what_is_large_goes_in_several_batches() -> None:
    async with federation(configs("flood_events", brokers=2)) as brokers:
        publishers, subscribers = await everybody(brokers)
        try:
            await settled(publishers, subscribers)
            sent = Sent(brokers["columbus"])
            count = 2 * BATCH_BYTES_MAX // 10_000
            publishers[0].publish_at_once([("t/1", f"{n:06}".encode().ljust(10_000, b"x")) for n in range(count)])
            await until(lambda: sum(payload.endswith(b"xxx") for payload in subscribers[-1].got) == count)
            assert sent.batched == count
            assert sent.batches >= 2
        finally:
            close_all([*publishers, *subscribers])


async def test_a_traced_broker_sends_and_takes_events_one_by_one() -> None:
    records: list[Any] = []
    async with federation(configs("flood_events", brokers=2)) as brokers:
        publishers, subscribers = await everybody(brokers)
        try:
            await settled(publishers, subscribers)
            stop = brokers["frankfurt"].core.trace(records.append, steps=["received"])
            far = subscribers[-1]
            publishers[0].publish_at_once([("t/1", f"to a traced one {n}".encode()) for n in range(20)])
            await until(lambda: sum(payload.startswith(b"to a traced") for payload in far.got) == 20)
            assert len({record.event_id for record in records if record.topic == "t/1"}) == 20
            stop()
            brokers["columbus"].core.trace(records.append, steps=["sent"])
            sent = Sent(brokers["columbus"])
            publishers[0].publish_at_once([("t/1", f"from a traced one {n}".encode()) for n in range(20)])
            await until(lambda: sum(payload.startswith(b"from a traced") for payload in far.got) == 20)
            assert (sent.batched, len(sent.single)) == (0, 20)
        finally:
            close_all([*publishers, *subscribers])


async def test_a_change_of_strategy_under_load_neither_loses_nor_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.routing.federation.live_editions.PAUSE_MS", 300.0)
    async with federation(configs("flood_events", brokers=3)) as brokers:
        publishers, subscribers = await everybody(brokers)
        try:
            await settled(publishers, subscribers)
            due: Counter[bytes] = Counter()
            numbers = count()

            def burst() -> None:
                for publisher in publishers:
                    events = [("t/1", f"{publisher.name} {next(numbers):06}".encode()) for _ in range(5)]
                    due.update(payload for _, payload in events)
                    publisher.publish_at_once(events)

            def views() -> list[Any]:
                return [broker.membership.status() for broker in brokers.values() if broker.membership is not None]

            for edition, strategy in enumerate(("disgb_subscriptions", "dht"), 1):
                membership = brokers["columbus"].membership
                assert membership is not None
                membership.change(SetStrategy(strategy, {}))
                for _ in range(1_500):
                    burst()
                    await asyncio.sleep(0.02)
                    if all(view.edition.number >= edition and view.change is None for view in views()):
                        break
            sent = [Sent(broker) for broker in brokers.values()]
            for _ in range(10):
                burst()
                await asyncio.sleep(0.02)
            await until(lambda: all(due.keys() <= one.got.keys() for one in subscribers), seconds=30)
            for subscriber in subscribers:
                assert {payload: n for payload, n in subscriber.got.items() if payload in due} == due
            assert {view.strategy for view in views()} == {"dht"}
            assert sum(one.batched for one in sent) > 0
        finally:
            close_all([*publishers, *subscribers])


async def test_what_waits_for_a_slow_reader_stays_as_it_was_sent() -> None:
    """Long frames are written without being copied, while the next ones come."""
    async with federation(configs("flood_events", brokers=2)) as brokers:
        publishers, subscribers = await everybody(brokers)
        try:
            await settled(publishers, subscribers)
            slow = subscribers[0]
            slow._transport.pause_reading()
            due = [[(TOPICS[0], b"%d %d " % (burst, n) * 1_500) for n in range(20)] for burst in range(60)]
            for events in due:
                publishers[-1].publish_at_once(events)
                await asyncio.sleep(0.005)
            last = due[-1][-1][1]
            await until(lambda: all(last in one.got for one in subscribers if one is not slow))
            before = len(slow.order)
            slow._transport.resume_reading()
            await until(lambda: len(slow.order) > before + 100)
            await asyncio.sleep(0.5)
            sent = [payload for events in due for _, payload in events]
            places = [sent.index(payload) for payload in slow.order if not payload.startswith(b"probe")]
            assert places == sorted(set(places))
        finally:
            close_all([*publishers, *subscribers])


async def test_long_and_short_pieces_stay_in_order() -> None:
    """Long ones are written at once, short ones at the end of the tick."""
    async with federation(configs("flood_events", brokers=2)) as brokers:
        publisher = await join(brokers["columbus"].port, "p", version=V311)
        subscriber = await join(brokers["frankfurt"].port, "s", version=V311)
        try:
            await subscriber.subscribe("t/#")
            await settled([publisher], [subscriber])
            due = []
            for burst in range(60):
                events = [(TOPICS[n % 2], b"%d %d " % (burst, n) * (700 if burst % 2 else 1)) for n in range(20)]
                publisher.publish_at_once(events)
                due += [payload for _, payload in events]
                await asyncio.sleep(0.005 * (burst % 7 == 0))
            await until(lambda: due[-1] in subscriber.got)
            assert [payload for payload in subscriber.order if not payload.startswith(b"probe")] == due
        finally:
            close_all([publisher, subscriber])
