"""What a broker keeps of its dealings with others comes back after a restart."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.broker.federated import until
from tests.routing.worlds import federation_of

from geomq.broker.peers.channel import Credentials
from geomq.broker.peers.peer_settings import PeerAddress, PeerLimits
from geomq.broker.peers.peering import Peering
from geomq.broker.peers.refusals import PeerRefusals
from geomq.broker.peers.store import PeerStore
from geomq.broker.state.counts import Counts
from geomq.broker.storage.committer import Committer
from geomq.broker.storage.store import open_store
from geomq.geo import Circle, Location
from geomq.routing.core.actions import SendToPeer
from geomq.routing.core.events import ClientPublished, PeerSaid, RoutingEvent
from geomq.routing.core.messages import (
    DeliverEvent,
    DropClient,
    DropSubscription,
    ForwardEvent,
    Message,
    PutLocation,
    PutSubscription,
    SyncBegin,
    SyncEnd,
)
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.table import SubscriptionTable
from geomq.routing.node import Node
from geomq.routing.retained.versions import PutRetained
from geomq.routing.sharing.groups import ChangeMember, Group, PutMember, ServeShared
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.strategies.groups.messages import CloudPublished, DropInterest, Join, Leave, PutInterest
from geomq.routing.strategies.rendezvous import RendezvousStrategy
from geomq.routing.wire import link
from geomq.routing.wire.frames import decode_frame, encode_frame
from geomq.routing.wire.link import Data

pytestmark = pytest.mark.anyio
AMS, BER = BrokerId("ams"), BrokerId("ber")
HERE = Location(52.0, 5.0)


def event(number: int, qos: int = 1) -> Event:
    return Event(EventId(BER, 1, number), "t", ClientId("p"), HERE, None, b"x", qos)


def node() -> Node:
    return Node(me=AMS, federation=federation_of(), strategy="flood_subscriptions", rng=random.Random(1))


def refusals(counts: Counts | None = None) -> PeerRefusals:
    return PeerRefusals(counts or Counts(), node(), now_s=lambda: 0.0)


class Run:
    """One life of a broker's peer store on a folder."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(str(folder), sync=True, free_bytes_min=0)
        self.notes = self.store.load().notes
        self.committer = Committer(self.store, lambda error: None)
        self.kept = PeerStore(self.store, self.committer, strategy="flood_subscriptions")

    async def end(self) -> None:
        await self.committer.close()
        self.store.close()


def table_of(running: Node) -> SubscriptionTable:
    assert isinstance(running.strategy, RendezvousStrategy)
    return running.strategy.table


async def test_what_a_peer_did_not_acknowledge_is_sent_again(tmp_path: Path) -> None:
    first = Run(tmp_path)
    for number in range(5):
        first.kept.keep(BER, Data(1, number, ForwardEvent(event(number))))
    first.kept.acknowledged(BER, 2)
    await first.end()
    second = Run(tmp_path)
    assert second.kept.load_outbox(BER, second.notes) == [ForwardEvent(event(number)) for number in (2, 3, 4)]
    second.kept.acknowledged(BER, 3)
    await second.end()
    third = Run(tmp_path)
    assert third.kept.load_outbox(BER, third.notes) == []
    await third.end()


async def test_what_was_kept_together_is_there_until_all_of_it_is_acknowledged_or_given_up(tmp_path: Path) -> None:
    first = Run(tmp_path)
    messages = tuple(ForwardEvent(event(number)) for number in range(6))
    assert decode_frame(first.kept.keep(BER, link.Run(1, 10, messages[:3]))) == link.Run(1, 10, messages[:3])
    first.kept.keep(BER, link.Run(1, 13, messages[3:]))
    first.kept.acknowledged(BER, 12)
    await first.end()
    second = Run(tmp_path)
    assert second.kept.load_outbox(BER, second.notes) == list(messages)
    for number in (0, 1):
        second.kept.given_up(BER, number)
    await second.end()
    third = Run(tmp_path)
    assert third.kept.load_outbox(BER, third.notes) == list(messages)
    third.kept.given_up(BER, 0)
    third.kept.given_up(BER, 99)
    third.kept.given_up(BER, 1)
    third.kept.given_up(BER, 2)
    third.kept.given_up(BER, 4)
    await third.end()
    last = Run(tmp_path)
    assert last.kept.load_outbox(BER, last.notes) == list(messages[3:])
    last.kept.acknowledged(BER, 3)
    await last.end()
    assert not Run(tmp_path).notes.get(f"outbox/{BER}")


async def test_no_more_is_kept_for_a_peer_that_is_away_than_will_be_sent(tmp_path: Path) -> None:
    for life in range(2):
        run = Run(tmp_path)
        peering = Peering(
            me=AMS,
            peers={BER: None},
            handle=lambda _: None,
            credentials=Credentials(AMS, None),
            refusals=refusals(),
            kept=run.kept,
            notes=run.notes,
            limits=PeerLimits(outbox_max=3),
        )
        await peering.start(None, None)
        for number in range(10):
            peering.send(BER, ForwardEvent(event(10 * life + number)))
            peering.send(BER, PutRetained(event(10 * life + number)))
        await peering.stop()
        await run.end()
    last = Run(tmp_path)
    kept = [message for message in last.kept.load_outbox(BER, last.notes) if isinstance(message, ForwardEvent)]
    assert kept == [ForwardEvent(event(number)) for number in (17, 18, 19)]
    assert len(last.notes[f"outbox/{BER}"]) < 12
    await last.end()


async def test_replicas_come_back_as_they_were(tmp_path: Path) -> None:
    first = Run(tmp_path)
    fence, moved = Circle(HERE, 1000.0), Location(53.0, 5.0)
    said: list[Message] = [
        PutSubscription(ClientId("a"), "x", fence, HERE),
        PutSubscription(ClientId("a"), "y", None, HERE),
        PutSubscription(ClientId("b"), "x", None, HERE),
        PutSubscription(ClientId("c"), "x", None, None),
        DropSubscription(ClientId("a"), "y"),
        DropClient(ClientId("b")),
        PutLocation(ClientId("a"), moved),
        SyncBegin(),
        PutSubscription(ClientId("a"), "x", fence, moved),
        SyncEnd(),
    ]
    for message in said:
        first.kept.note_received(BER, message)
    await first.end()
    second, restored = Run(tmp_path), node()
    second.kept.restore(restored, second.notes, now=0)
    table = table_of(restored)
    assert table.subscribers() == ((BER, ClientId("a")),)
    assert dict(table.filters(table.subscribers()[0])) == {"x": fence}
    await second.end()


async def test_a_client_comes_back_where_it_was_last(tmp_path: Path) -> None:
    """Its subscriptions were said at several places, and before and after its moves."""
    first, client, places = Run(tmp_path), ClientId("a"), [Location(50.0 + number, 5.0) for number in range(3)]
    said: list[Message] = [
        PutSubscription(client, "z", None, places[0]),
        PutMember(client, "g", "z", None, places[0], True),
        PutLocation(client, places[1]),
        ChangeMember(client, places[1], True),
        PutSubscription(client, "b", None, places[2]),
        PutMember(client, "g", "b", None, places[2], True),
    ]
    before = node()
    for message in said:
        before.handle(PeerSaid(BER, message), now=0)
        first.kept.note_received(BER, message)
    await first.end()
    second, restored = Run(tmp_path), node()
    second.kept.restore(restored, second.notes, now=0)
    for running in (before, restored):
        near = ClientPublished(ClientId("p"), "z", fence=Circle(places[2], 1000.0))
        actions = running.handle(near, now=0)
        said_to_peer = [action.message for action in actions if isinstance(action, SendToPeer)]
        assert [type(message) for message in said_to_peer] == [DeliverEvent, ServeShared]
    await second.end()


@pytest.mark.parametrize("key", [b"", b"ams/1/2 and more", b"\xff" * 8])
async def test_notes_of_a_version_that_is_gone_do_no_harm(tmp_path: Path, key: bytes) -> None:
    first = Run(tmp_path)
    waiting = encode_frame(Data(1, 0, ForwardEvent(event(1))))
    delivered = msgspec.msgpack.encode([(event(1).id, ["a"])])
    for kind, value in ((f"outbox/{BER}", waiting), ("seen", delivered), ("served", b"")):
        first.store.put_note(kind, key, value)
    first.store.put_note("seen", b"\0" * 8, b"?")
    first.committer.wrote()
    await first.end()
    second = Run(tmp_path)
    assert second.kept.load_outbox(BER, second.notes) == []
    second.kept.restore(node(), second.notes, now=0)
    second.kept.keep(BER, Data(1, 0, ForwardEvent(event(2))))
    await second.end()
    third = Run(tmp_path)
    assert third.kept.load_outbox(BER, third.notes) == [ForwardEvent(event(2))]
    assert set(third.notes) == {f"outbox/{BER}"}
    await third.end()


async def test_notes_of_what_no_message_can_be_are_skipped(tmp_path: Path) -> None:
    first = Run(tmp_path)
    nowhere = msgspec.structs.replace(event(1), topic="a/+")
    for number, message in enumerate([ForwardEvent(event(1)), ForwardEvent(nowhere), ForwardEvent(event(2))]):
        first.kept.keep(BER, Data(1, number, message))
    for topic_filter in ("a/#/b", "x"):
        first.kept.note_received(BER, PutSubscription(ClientId("s"), topic_filter, None, None))
    await first.end()
    second, restored = Run(tmp_path), node()
    assert second.kept.load_outbox(BER, second.notes) == [ForwardEvent(event(1)), ForwardEvent(event(2))]
    second.kept.restore(restored, second.notes, now=0)
    assert restored.strategy.state_size() == node().strategy.state_size() + 1
    await second.end()


async def test_an_event_that_was_delivered_is_not_delivered_again(tmp_path: Path) -> None:
    first = Run(tmp_path)
    match = Match(ClientId("a"), "x")
    first.kept.note_delivered(event(1).id, (match,))
    await first.end()
    second, restored = Run(tmp_path), node()
    second.kept.restore(restored, second.notes, now=0)
    assert restored.strategy.seen.unseen(event(1).id, (match,)) == ()
    assert restored.strategy.seen.unseen(event(2).id, (match,)) == (match,)
    await second.end()


async def test_what_was_delivered_of_a_run_is_not_delivered_again_but_to_whom_it_was_taken_from(tmp_path: Path) -> None:
    first = Run(tmp_path)
    a, b = Match(ClientId("a"), "x"), Match(ClientId("b"), "x")
    first.kept.note_run(event(1).id, 3, (a.client, b.client))
    first.kept.note_not_had(event(2).id, (b.client,))
    await first.end()
    second, restored = Run(tmp_path), node()
    second.kept.restore(restored, second.notes, now=0)
    fresh = [restored.strategy.seen.unseen(event(number).id, (a, b)) for number in (1, 2, 3, 4)]
    assert fresh == [(), (b,), (), (a, b)]
    await second.end()


async def test_an_event_of_a_share_group_that_was_dealt_with_is_not_dealt_with_again(tmp_path: Path) -> None:
    first, group = Run(tmp_path), Group("s", "t")
    for number, qos in ((1, 1), (2, 0)):
        first.kept.note_received(BER, ServeShared(event(number, qos), *group, (BER,)))
    await first.end()
    for _ in range(2):
        second, restored = Run(tmp_path), node()
        second.kept.restore(restored, second.notes, now=0)
        assert not restored.shared.is_first(event(1).id, group, 1)
        assert restored.shared.is_first(event(2).id, group, 1)
        await second.end()


async def test_only_so_many_events_that_were_dealt_with_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geomq.broker.peers.store.SEEN_MAX", 3)
    first = Run(tmp_path)
    for number in range(5):
        first.kept.note_received(BER, ServeShared(event(number), "s", "t", ()))
    await first.end()
    second, restored = Run(tmp_path), node()
    second.kept.restore(restored, second.notes, now=0)
    remembered = [n for n in range(5) if not restored.shared.is_first(event(n).id, Group("s", "t"), 0)]
    assert remembered == [2, 3, 4]
    await second.end()


async def test_events_that_reached_many_are_remembered_for_less_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geomq.broker.peers.store.SEEN_CLIENTS_MAX", 10)
    first, crowd = Run(tmp_path), tuple(Match(ClientId(f"c{number}"), "x") for number in range(4))
    for number in range(5):
        for part in (crowd[:2], crowd[1:]):
            first.kept.note_delivered(event(number).id, part)
        await first.committer.safe()
    await first.end()
    second, restored = Run(tmp_path), node()
    second.kept.restore(restored, second.notes, now=0)
    assert [number for number in range(5) if event(number).id in restored.strategy.seen] == [3, 4]
    assert restored.strategy.seen.unseen(event(4).id, crowd) == ()
    await second.end()


@pytest.mark.parametrize("left", [False, True], ids=["a member", "one that just left"])
async def test_a_leader_serves_those_of_before_a_crash(tmp_path: Path, left: bool) -> None:
    """What waited for it at the cloud may be for them alone."""
    said: list[Message] = [Join(1, ("old",)), Join(2, ("x", "y")), PutInterest(2, "t"), DropInterest(2, "y")]
    first = Run(tmp_path)
    for message in [*said, *([Leave(2)] if left else [])]:
        first.kept.note_received(BER, message)
    await first.end()
    second = Run(tmp_path)
    restored = Node(me=AMS, federation=federation_of(), strategy="broadcast_groups", rng=random.Random(1))
    second.kept.restore(restored, second.notes, now=0)
    strategy = restored.strategy
    assert isinstance(strategy, BroadcastGroups)
    assert strategy.interest.filters(BER) == (() if left else ("x", "t"))
    came = Event(EventId(BrokerId("par"), 1, 1), "t", ClientId("p"), HERE, None, b"x", 1)
    actions = restored.handle(PeerSaid(strategy.cloud, CloudPublished(came)), now=1)
    assert SendToPeer(BER, ForwardEvent(came)) in actions
    await second.end()


async def test_another_strategys_replicas_are_forgotten(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.kept.note_received(BER, PutSubscription(ClientId("a"), "x", None, None))
    await first.end()
    second, restored = Run(tmp_path), node()
    other = PeerStore(second.store, second.committer, strategy="dht")
    other.restore(restored, second.notes, now=0)
    assert len(table_of(restored)) == 0
    await second.end()
    third = Run(tmp_path)
    assert not any(kept for kind, kept in third.notes.items() if kind.startswith("replica/"))
    await third.end()


def test_own_events_are_no_business_of_the_peer_store() -> None:
    assert node().handle(ClientPublished(ClientId("p"), "t"), now=0) == []


async def test_a_promise_waits_for_the_disk_but_what_was_said_before_does_not(tmp_path: Path) -> None:
    run, safe, heard = Run(tmp_path), list[Callable[[], None]](), list[RoutingEvent]()
    run.kept.when_safe = safe.append  # type: ignore[method-assign, assignment]
    there = Peering(
        me=BER, peers={AMS: None}, handle=heard.append, credentials=Credentials(BER, None), refusals=refusals()
    )
    await there.start("127.0.0.1", 0)
    assert there.port is not None
    here = Peering(
        me=AMS,
        peers={BER: PeerAddress("127.0.0.1", there.port)},
        handle=lambda _: None,
        credentials=Credentials(AMS, None),
        refusals=refusals(),
        kept=run.kept,
    )
    await here.start(None, None)
    await until(lambda: here.connected == (BER,) and there.connected == (AMS,))
    messages = [ForwardEvent(event(number, qos)) for number, qos in enumerate((0, 0, 1, 0, 1))]
    for message in messages:
        here.send(BER, message)
    await until(lambda: len(said(heard)) == 2)
    await asyncio.sleep(0.1)
    assert said(heard) == messages[:2]
    for callback in safe:
        callback()
    await until(lambda: len(said(heard)) == 5)
    assert said(heard) == messages
    await here.stop()
    await there.stop()
    await run.end()


def said(heard: list[RoutingEvent]) -> list[Message]:
    return [each.message for each in heard if isinstance(each, PeerSaid)]
