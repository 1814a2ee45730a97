"""What is kept of messages: receiving it once more makes a node know what it knew."""

import random
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.routing.own_strategies import Letter, Note, TearOut
from tests.routing.worlds import federation_of

from geomq.geo import Circle, Location
from geomq.routing.core import keeping
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.keeping import PlacedMessages, check_rules
from geomq.routing.core.keeps import Once, Put, Rules, Table
from geomq.routing.core.message_registry import part_of
from geomq.routing.core.messages import (
    DropClient,
    DropSubscription,
    ForwardEvent,
    Message,
    PutLocation,
    PutSubscription,
    SyncBegin,
    SyncEnd,
)
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.node import Node
from geomq.routing.sharing.groups import (
    ChangeMember,
    DropMember,
    Group,
    MembersBegin,
    MembersEnd,
    PutMember,
    ServeShared,
)
from geomq.routing.strategies.coverage import CoverageStrategy, DropGuest, PutGuest
from geomq.routing.strategies.groups.messages import DropInterest, Join, Leave, PutInterest

AMS, BER = BrokerId("ams"), BrokerId("ber")
PLACES = (Location(52.0, 5.0), Location(0.0, 0.0))

clients = st.sampled_from([ClientId("c"), ClientId("c\0geo/"), ClientId("cc"), ClientId("c\1\1geo/")])
filters, shares = st.sampled_from(["a", "a/b", "+"]), st.sampled_from(["s", "ss"])
places = st.none() | st.sampled_from(PLACES)
fences = st.none() | st.just(Circle(PLACES[0], 1000.0))
guests = st.sampled_from([ClientId("g"), ClientId("g\0geo/")])
steps = st.one_of(
    st.tuples(st.just("move"), clients, places, st.booleans()),
    st.tuples(st.just("put"), clients, filters, fences),
    st.tuples(st.just("join"), clients, shares, filters, fences),
    st.builds(DropSubscription, clients, filters),
    st.builds(DropClient, clients),
    st.builds(PutGuest, guests, filters, fences, st.just(PLACES[0])),
    st.builds(DropGuest, guests),
    st.builds(SyncBegin),
    st.builds(SyncEnd),
    st.builds(DropMember, clients, shares, filters),
    st.builds(MembersBegin),
    st.builds(MembersEnd),
)


def sent(steps: list[Message | tuple[Any, ...]]) -> list[Message]:
    """As a broker sends them: whoever holds anything of a client hears of its moves, and nobody else."""
    found: list[Message] = []
    at: dict[ClientId, tuple[Location | None, bool]] = {}
    held, member_of = set[tuple[ClientId, str]](), set[tuple[ClientId, str, str]]()
    for step in steps:
        match step:
            case ("move", client, place, ready):
                at[client] = place, ready
                if any(client == each for each, *_ in held):
                    found.append(PutLocation(client, place))
                if any(client == each for each, *_ in member_of):
                    found.append(ChangeMember(client, place, ready))
                continue
            case ("put", client, topic_filter, fence):
                held.add((client, topic_filter))
                step = PutSubscription(client, topic_filter, fence, at.get(client, (None, True))[0])
            case ("join", client, share, topic_filter, fence):
                member_of.add((client, share, topic_filter))
                step = PutMember(client, share, topic_filter, fence, *at.get(client, (None, True)))
            case DropSubscription(client=client, topic_filter=topic_filter):
                held.discard((client, topic_filter))
            case DropMember(client=client, share=share, topic_filter=topic_filter):
                member_of.discard((client, share, topic_filter))
            case DropClient(client=client):
                held = {each for each in held if each[0] != client}
        assert isinstance(step, Message)
        found.append(step)
    return found


SEEN_ELSEWHERE: list[Message | tuple[Any, ...]] = [
    ("put", ClientId("c"), "a", None),
    ("join", ClientId("c"), "s", "a", None),
    ("move", ClientId("c"), PLACES[0], True),
    DropSubscription(ClientId("c"), "a"),
    DropMember(ClientId("c"), "s", "a"),
    ("move", ClientId("c"), PLACES[1], False),
]
"""A client that moves on while nothing of it is held here."""


class Disk:
    """What would be written, by part or routing."""

    def __init__(self) -> None:
        self._placed: dict[str, PlacedMessages] = {}
        self.kept: dict[str, dict[bytes, Message]] = {}

    def receive(self, message: Message) -> None:
        part = part_of(type(message)) or ""
        kept = self.kept.setdefault(part, {})
        for key, written in self._placed.setdefault(part, PlacedMessages()).receive(message):
            if written is None:
                del kept[key]
            else:
                kept[key] = written

    def in_order(self) -> list[Message]:
        return [kept[key] for _, kept in sorted(self.kept.items()) for key in sorted(kept)]


def node() -> Node:
    return Node(me=AMS, federation=federation_of(), strategy="disgb_events", rng=random.Random(1))


def known_to(running: Node) -> list[object]:
    """Whom events of several topics and places would reach, and who would be served."""
    strategy = running.strategy
    assert isinstance(strategy, CoverageStrategy)
    found: list[object] = []
    for topic in ("a", "a/b", "x"):
        for place in (None, *PLACES):
            for fence in (None, Circle(PLACES[1], 1000.0)):
                event = Event(EventId(AMS, 1, 1), topic, ClientId("p"), place, fence)
                tables = (strategy.table, strategy.guests, running.shared._table)
                found += [{home: sorted(m) for home, m in table.match(event).items()} for table in tables]
    return [*found, sorted(running.shared._away)]


@settings(max_examples=400)
@given(st.lists(steps, max_size=30).map(sent))
@example(sent([*SEEN_ELSEWHERE, ("put", ClientId("c"), "a/b", None), ("join", ClientId("c"), "s", "a/b", None)]))
def test_a_node_that_receives_what_was_kept_knows_what_it_knew(received: list[Message]) -> None:
    before, after, disk = node(), node(), Disk()
    for message in received:
        before.handle(PeerSaid(BER, message), now=0)
        disk.receive(message)
    for message in disk.in_order():
        after.handle(PeerSaid(BER, message), now=0)
    assert known_to(after) == known_to(before)


def test_of_a_seat_everything_is_kept_since_the_member_joined() -> None:
    disk = Disk()
    early: list[Message] = [PutInterest(1, "early"), Leave(1)]
    for message in early:
        disk.receive(message)
    assert disk.in_order() == []
    later: list[Message] = [Join(1, ("old",)), Join(2, ("x",)), PutInterest(2, "b"), DropInterest(2, "a")]
    for message in [*later, DropInterest(2, "b")]:
        disk.receive(message)
    disk.receive(Leave(2))
    assert disk.in_order() == [Join(2, ("x",)), DropInterest(2, "a"), DropInterest(2, "b"), Leave(2)]


def test_values_of_any_type_make_keys_that_are_told_apart() -> None:
    disk = Disk()
    notes = [Note("a", 1), Note("a", 2), Note("a", -1), Note("a\0", 1), Note("a\0001", 1), Note("", 1), Note("ab", 1)]
    for note in [*notes, Note("a", 1, "again"), Letter("not kept")]:
        disk.receive(note)
    assert len(disk.in_order()) == len(notes)
    disk.receive(TearOut("a"))
    assert {note.page for note in disk.in_order() if isinstance(note, Note)} == {"a\0", "a\0001", "", "ab"}


def test_no_more_is_kept_of_a_peer_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "PLACED_MAX", 3)
    disk = Disk()
    for number in range(5):
        disk.receive(Note("a", number))
    disk.receive(Note("a", 1, "changed"))
    assert disk.in_order() == [Note("a", 0), Note("a", 1, "changed"), Note("a", 2)]


def test_an_event_that_is_served_once_is_remembered_by_its_id_if_it_was_not_to_be_lost() -> None:
    (rule,) = ServeShared.keeps
    assert isinstance(rule, Once)
    event = Event(EventId(BER, 1, 2), "t", ClientId("p"), None, None, b"x" * 1000, 1)
    values = rule.values(ServeShared(event, "s", "t", (BER,)))
    assert values == (event.id, "s", "t", (BER,))
    running = node()
    running.shared.dealt_with(*values)
    assert not running.shared.is_first(event.id, Group("s", "t"), 1)
    assert running.shared.is_first(event.id, Group("s", "t"), 2)
    plain = Event(EventId(BER, 1, 3), "t", ClientId("p"), None, None)
    assert rule.values(ServeShared(plain, "s", "t", ())) is None


class NamesNoField(Message, frozen=True):
    keeps: ClassVar[Rules] = (Put(Table("x"), by=("page",)),)


class HasNoRule(Message, frozen=True):
    keeps = ("drop",)  # type: ignore[assignment]


def test_rules_that_cannot_be_applied_are_found_beforehand() -> None:
    assert "names page" in (check_rules(NamesNoField) or "")
    assert "not a rule" in (check_rules(HasNoRule) or "")
    assert check_rules(ForwardEvent) is None
