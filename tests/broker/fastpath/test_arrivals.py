"""Batches of events from a peer: repeated, overlapping, damaged, and from strangers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from tests.broker.federated import configs, federation, until
from tests.broker.real_clients import RealClient, close_all, join

from geomq.broker.server import Broker
from geomq.errors import ProtocolError
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.messages import ForwardEvent
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.plan import Batched, EventBatch

pytestmark = pytest.mark.anyio

PEER = BrokerId("frankfurt")


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Broker, RealClient, RealClient]]:
    """A broker with a subscriber of each version; its peer is there but says nothing."""
    async with federation(configs("flood_events", brokers=2)) as brokers:
        broker = brokers["columbus"]
        clients = [await join(broker.port, f"s{version}", version=version) for version in (V5, V311)]
        for client in clients:
            await client.subscribe("t/#")
        try:
            yield broker, clients[0], clients[1]
        finally:
            close_all(clients)


def batch_of(payloads: list[bytes], *, sequence: int = 100, topic: str = "t/1", **changed: Any) -> EventBatch:
    version = V5 if changed.get("is_v5") else V311
    data = changed.pop("data", b"".join(encode(Publish(topic, payload), version) for payload in payloads))
    fields: dict[str, Any] = {"events": len(payloads), "is_v5": False, "matches": None, "place": None}
    fields["size"] = len(data)
    return EventBatch(1, 5, (Batched(publisher=ClientId("p"), sequence=sequence, **(fields | changed)),), (data,))


def said(batch: EventBatch, peer: BrokerId = PEER) -> tuple[PeerSaid, EventBatch]:
    return PeerSaid(peer, batch), batch


class Handled:
    """Sees what goes the ordinary way, and lets it go."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.events: list[PeerSaid] = []

    def __call__(self, happened: PeerSaid) -> None:
        self.events.append(happened)
        self._broker.parts.driver.handle(happened)


@pytest.mark.parametrize("is_v5", [False, True])
async def test_both_versions_get_what_either_published(is_v5: bool) -> None:
    async with listening() as (broker, *clients):
        handled = Handled(broker)
        broker.parts.arrivals.arrive(*said(batch_of([b"1", b"2", b"333"], is_v5=is_v5)), handled)
        broker.parts.arrivals.arrive(*said(batch_of([b"4", b"5"], sequence=103, is_v5=is_v5)), handled)
        for client in clients:
            await until(lambda client=client: client.order == [b"1", b"2", b"333", b"4", b"5"])  # type: ignore[misc]
        assert handled.events == []


async def test_matches_found_by_the_peer_are_served_if_they_still_hold() -> None:
    async with listening() as (broker, new, old):
        handled = Handled(broker)
        matches = (Match(ClientId("s5"), "t/#"), Match(ClientId("s4"), "gone"), Match(ClientId("nobody"), "t/#"))
        broker.parts.arrivals.arrive(*said(batch_of([b"1", b"2"], matches=matches)), handled)
        await until(lambda: new.order == [b"1", b"2"])
        assert not old.got
        assert handled.events == []


async def test_what_comes_again_is_not_delivered_again() -> None:
    async with listening() as (broker, new, old):
        handled = Handled(broker)
        for sequence, payloads in ((100, [b"1", b"2"]), (100, [b"1", b"2"]), (101, [b"2", b"3"]), (110, [b"4"])):
            broker.parts.arrivals.arrive(*said(batch_of(payloads, sequence=sequence)), handled)
        single = Event(EventId(PEER, 1, 110), "t/1", ClientId("p"), None, None, b"4")
        handled(PeerSaid(PEER, ForwardEvent(single)))
        early = Event(EventId(PEER, 1, 111), "t/1", ClientId("p"), None, None, b"5")
        handled(PeerSaid(PEER, ForwardEvent(early)))
        broker.parts.arrivals.arrive(*said(batch_of([b"5", b"6"], sequence=111)), handled)
        await until(lambda: len(new.order) >= 6 and len(old.order) >= 6)
        assert new.order == old.order == [b"1", b"2", b"3", b"4", b"5", b"6"]


@pytest.mark.parametrize("is_v5", [False, True])
async def test_entries_of_any_shape_that_follow_each_other_arrive_whole_and_in_order(is_v5: bool) -> None:
    async with listening() as (broker, *clients):
        client = clients[0] if is_v5 else clients[1]
        close_all([other for other in clients if other is not client])
        await until(lambda: len(broker.core.clients) == 1)
        random, expected, sequence, handled = Random(4), list[bytes](), 100, Handled(broker)
        version = V5 if is_v5 else V311
        for number in range(300):
            topics = random.choice((["t/1"], ["t/1"], ["t/2"], ["t/1", "t/2"], ["t/1", "x/1"]))
            size, count = random.choice((5, 5, 5, 300)), random.choice((1, 2, 12, 12, 12))
            said_on = [random.choice(topics) for _ in range(count)]
            payloads = [(b"%d %d " % (number, each)).ljust(size, b".") for each in range(count)]
            data = b"".join(encode(Publish(t, p), version) for t, p in zip(said_on, payloads, strict=True))
            batch = batch_of(payloads, sequence=sequence, data=data, is_v5=is_v5)
            broker.parts.arrivals.arrive(*said(batch), handled)
            expected += [p for t, p in zip(said_on, payloads, strict=True) if t[0] == "t"]
            sequence += count
        await until(lambda: len(client.order) >= len(expected))
        assert client.order == expected
        assert handled.events == []


async def test_an_entry_that_only_begins_like_the_one_before_is_looked_at_in_full() -> None:
    async with listening() as (broker, new, old):
        close_all([new])
        await until(lambda: len(broker.core.clients) == 1)
        one, handled = encode(Publish("t/1", b"x"), V311), Handled(broker)
        broker.parts.arrivals.arrive(*said(batch_of([b"x"] * 20)), handled)
        other = one * 10 + encode(Publish("u/1", b"y"), V311) + one * 9
        broker.parts.arrivals.arrive(*said(batch_of([b""] * 20, sequence=120, data=other)), handled)
        await until(lambda: old.got[b"x"] == 39)
        bad = one * 10 + b"2" + one[1:] + one * 9
        with pytest.raises(ProtocolError):
            broker.parts.arrivals.arrive(*said(batch_of([b""] * 20, sequence=140, data=bad)), handled)
        with pytest.raises(ProtocolError):
            broker.parts.arrivals.arrive(*said(batch_of([b"x"] * 20, sequence=150, data=one * 20 + one[:5])), handled)
        with pytest.raises(ProtocolError):
            broker.parts.arrivals.arrive(*said(batch_of([b"x"] * 20, sequence=170, data=one * 20, is_v5=True)), handled)
        with pytest.raises(ProtocolError):
            broker.parts.arrivals.arrive(*said(batch_of([b"x"] * 30, sequence=190, data=one * 20)), handled)
        nobody = (Match(ClientId("nobody"), "t/#"),)
        broker.parts.arrivals.arrive(*said(batch_of([b"x"] * 20, sequence=220, matches=nobody)), handled)
        for _ in range(2):
            broker.parts.arrivals.arrive(*said(batch_of([b"z"] * 20, sequence=240)), handled)
        broker.parts.arrivals.arrive(*said(batch_of([b"end"], sequence=260)), handled)
        await until(lambda: b"end" in old.got)
        assert old.got == {b"x": 39 + 10 + 20 + 20, b"z": 20, b"end": 1}  # of the damaged ones, what was well before it


async def test_what_has_no_short_way_goes_the_ordinary_one() -> None:
    async with listening() as (broker, new, _):
        handled = Handled(broker)
        broker.parts.arrivals.arrive(*said(batch_of([b"1", b"2"]), BrokerId("stranger")), handled)
        assert [one.peer for one in handled.events] == ["stranger"] * 2
        handled.events.clear()
        data = b"".join(encode(Publish(topic, b"x"), V311) for topic in ("t/1", "$SYS/x", "t/2"))
        broker.parts.arrivals.arrive(*said(batch_of([b""] * 3, data=data)), handled)
        sequences = [one.message.event.id.sequence for one in handled.events if isinstance(one.message, ForwardEvent)]
        assert sequences == [101, 102]
        await until(lambda: new.got[b"x"] >= 2)


@pytest.mark.parametrize(
    "changed",
    [
        {"data": b""},
        {"data": b"0\x04\x00\x03t/1"},
        {"data": b"0\x05\x00\x03t/1" * 3},
        {"data": b"0\x05\x00\x03t/1" + b"0\x09\x00\x03t/1"},
        {"data": b"0\x05\x00\x03t/+" * 2},
        {"data": b"2\x07\x00\x03t/1\x00\x01" * 2},
        {"data": b"0\x06\x00\x03t/1\x05" * 2, "is_v5": True},
        {"place": (1e9, 0.0), "data": b"0\x05\x00\x03t/1"},
        {"events": 0},
        {"events": -1},
        {"size": 1},
        {"size": -1},
        {"size": 1 << 40},
    ],
)
async def test_what_is_damaged_is_refused_and_what_follows_arrives(changed: dict[str, Any]) -> None:
    async with listening() as (broker, new, _):
        with pytest.raises(ProtocolError):
            broker.parts.arrivals.arrive(*said(batch_of([b"1", b"2"], **changed)), Handled(broker))
        broker.parts.arrivals.arrive(*said(batch_of([b"well"], sequence=500)), Handled(broker))
        await until(lambda: b"well" in new.got)


async def test_ways_are_remembered_for_so_many_matches_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.broker.fastpath.arrivals.MATCHES_MAX", 10)
    async with listening() as (broker, *clients):
        for number in range(8):
            nobody = tuple(Match(ClientId(f"gone {number} {each}"), "t/#") for each in range(4))
            here = tuple(Match(ClientId(client.name), "t/#") for client in clients)
            batch = batch_of([b"%d" % number], sequence=100 + number, matches=(*nobody, *here))
            broker.parts.arrivals.arrive(*said(batch), broker.parts.driver.handle)
            known = [matches for cache in broker.parts.arrivals._caches.values() for matches in cache.routes]
            assert sum(len(matches or ()) for matches in known) < 20
        for client in clients:
            await until(lambda: len(client.got) == 8)  # noqa: B023


async def test_connections_that_are_gone_are_not_kept_by_a_broker_that_only_receives() -> None:
    async with listening() as (broker, *_):
        for number in range(12):
            passing = await join(broker.port, f"passing {number}")
            await passing.subscribe("t/1")
            broker.parts.arrivals.arrive(*said(batch_of([b"x"], sequence=100 + number)), broker.parts.driver.handle)
            await until(lambda: b"x" in passing.got)  # noqa: B023
            close_all([passing])
            await until(lambda: passing.name not in broker.core.clients)  # noqa: B023
        broker.parts.arrivals.arrive(*said(batch_of([b"y"], sequence=200)), broker.parts.driver.handle)
        assert len(broker.parts.fast._receivers) <= 2
        assert len(broker.parts.fast._sets) <= 1


async def test_routes_are_forgotten_when_they_name_too_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.broker.fastpath.publishing.WEIGHT_MAX", 500)
    async with listening() as (broker, *clients):
        for number in range(20):
            others = await join(broker.port, f"other {number}")
            await others.subscribe(f"t/{number}")
            clients.append(others)
        generation = broker.parts.fast.generation
        for number in range(20):
            batch = batch_of([b"%d" % number], sequence=100 + number, topic=f"t/{number}")
            broker.parts.arrivals.arrive(*said(batch), broker.parts.driver.handle)
            assert sum(map(len, broker.parts.fast._sets)) <= 12
        assert broker.parts.fast.generation > generation
        await until(lambda: [len(client.got) for client in clients] == [20, 20, *[1] * 20])
        close_all(clients[2:])
