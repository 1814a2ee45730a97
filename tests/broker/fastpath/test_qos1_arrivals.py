"""Batches of events of QoS 1 from a peer: given to own clients once, whatever comes again and whatever is damaged."""

from typing import Any

import pytest
from tests.broker.fastpath.test_arrivals import PEER, Handled, listening, said
from tests.broker.federated import until

from geomq.broker.security.acl import parse_acl
from geomq.errors import ProtocolError
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.messages import DeliverEvent, ForwardEvent
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.plan import Batched, DurableBatch

pytestmark = pytest.mark.anyio


def batch_of(payloads: list[bytes], *, sequence: int = 100, topic: str = "t/1", **changed: Any) -> DurableBatch:
    version = V5 if changed.get("is_v5") else V311
    packets = [encode(Publish(topic, payload, 1, packet_id=9), version) for payload in payloads]
    data = changed.pop("data", b"".join(packets))
    fields: dict[str, Any] = {"events": len(payloads), "is_v5": False, "matches": None, "place": None}
    fields["size"] = len(data)
    return DurableBatch(1, 5, (Batched(publisher=ClientId("p"), sequence=sequence, **(fields | changed)),), (data,))


@pytest.mark.parametrize("is_v5", [False, True])
async def test_both_versions_get_what_either_published(is_v5: bool) -> None:
    async with listening() as (broker, *clients):
        handled = Handled(broker)
        for sequence, payloads in ((100, [b"1", b"2", b"333"]), (103, [b"4", b"5"])):
            broker.parts.arrivals.arrive(*said(batch_of(payloads, sequence=sequence, is_v5=is_v5)), handled)
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
        single = Event(EventId(PEER, 1, 110), "t/1", ClientId("p"), None, None, b"4", 1)
        handled(PeerSaid(PEER, ForwardEvent(single)))
        early = Event(EventId(PEER, 1, 111), "t/1", ClientId("p"), None, None, b"5", 1)
        handled(PeerSaid(PEER, ForwardEvent(early)))
        broker.parts.arrivals.arrive(*said(batch_of([b"5", b"6"], sequence=111)), handled)
        await until(lambda: len(new.order) >= 6 and len(old.order) >= 6)
        assert new.order == old.order == [b"1", b"2", b"3", b"4", b"5", b"6"]


async def test_who_did_not_get_an_event_of_a_batch_after_all_gets_it_when_it_comes_again() -> None:
    async with listening() as (broker, new, old):
        handled = Handled(broker)
        broker.parts.arrivals.arrive(*said(batch_of([b"1", b"2"])), handled)
        seen, event = broker.core.node.strategy.seen, EventId(PEER, 1, 101)
        assert event in seen.had_by(frozenset((ClientId("s5"),)))
        seen.forget(event, ClientId("s5"))
        assert event not in seen.had_by(frozenset((ClientId("s5"),)))
        assert event in seen.had_by(frozenset((ClientId("s4"),)))
        broker.parts.arrivals.arrive(*said(batch_of([b"1", b"2"])), handled)
        await until(lambda: len(new.order) >= 3 and len(old.order) >= 2)
        assert (new.order, old.order) == ([b"1", b"2", b"2"], [b"1", b"2"])


async def test_what_has_no_short_way_goes_the_ordinary_one() -> None:
    async with listening() as (broker, new, _):
        handled = Handled(broker)
        broker.parts.arrivals.arrive(*said(batch_of([b"1", b"2"]), BrokerId("stranger")), handled)
        assert [one.peer for one in handled.events] == ["stranger"] * 2
        handled.events.clear()
        packets = [encode(Publish(topic, b"x", 1, packet_id=1), V311) for topic in ("t/1", "$SYS/x", "t/2")]
        broker.parts.arrivals.arrive(*said(batch_of([b""] * 3, data=b"".join(packets))), handled)
        events = [one.message.event for one in handled.events if isinstance(one.message, ForwardEvent | DeliverEvent)]
        assert [(event.id.sequence, event.qos) for event in events] == [(101, 1), (102, 1)]
        await until(lambda: new.got[b"x"] >= 2)


async def test_what_a_peer_may_not_write_is_refused_in_batches_too() -> None:
    async with listening() as (broker, new, old):
        broker.core.security.peer_acl = parse_acl("user frankfurt\ntopic readwrite t/1\n", name="acl")
        for number, topic in enumerate(("t/1", "t/2", "t/2", "t/1")):
            batch = batch_of([b"%d" % number], sequence=100 + number, topic=topic)
            broker.parts.arrivals.arrive(*said(batch), broker.parts.driver.handle)
        await until(lambda: b"3" in new.got and b"3" in old.got)
        assert new.order == old.order == [b"0", b"3"]


@pytest.mark.parametrize(
    "changed",
    [
        {"data": b""},
        {"data": b"2\x06\x00\x03t/1\x00"},
        {"data": b"2\x07\x00\x03t/1\x00\x00" * 2},
        {"data": b"2\x07\x00\x03t/+\x00\x01" * 2},
        {"data": b"2\x07\x00\x03t/1\x00\x01" * 3},
        {"data": b"0\x05\x00\x03t/1" * 2},
        {"data": b"2\x08\x00\x03t/1\x00\x01\x05" * 2, "is_v5": True},
        {"place": (1e9, 0.0), "data": b"2\x07\x00\x03t/1\x00\x01"},
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


async def test_routes_are_remembered_for_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.broker.fastpath.qos1_arrivals.ROUTES_MAX", 10)
    async with listening() as (broker, *clients):
        arrivals = broker.parts.arrivals._qos1
        for number in range(30):
            nobody = tuple(Match(ClientId(f"gone {number} {each}"), "t/#") for each in range(4))
            here = tuple(Match(ClientId(client.name), "t/#") for client in clients)
            batch = batch_of([b"%d" % number], sequence=100 + number, matches=(*nobody, *here))
            broker.parts.arrivals.arrive(*said(batch), broker.parts.driver.handle)
            assert sum(1 + len(matches or ()) for _, _, matches, _ in arrivals._routes) < 20
        for client in clients:
            await until(lambda: len(client.got) == 30)  # noqa: B023
