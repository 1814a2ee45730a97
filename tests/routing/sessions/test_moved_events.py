"""One broker on the way of a client that moves from broker to broker: in which order its events come and go on."""

import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace
from tests.routing.stage import row_of_squares

from geomq.geo import Circle, Location
from geomq.routing.core.actions import (
    Action,
    DeliverToClients,
    ForgetNote,
    GiveSession,
    KeepNote,
    SendOnceFlushed,
    SendToPeer,
)
from geomq.routing.core.events import (
    ClientArrived,
    ClientDeparted,
    ClientGone,
    ClientMoved,
    ClientSubscribed,
    FederationChanged,
    PeerDown,
    PeerSaid,
    PeerUp,
    SessionPacked,
    SessionSought,
    SessionTaken,
)
from geomq.routing.core.messages import ForwardEvent, Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.sizes import event_bytes
from geomq.routing.node import Node
from geomq.routing.sessions import trails
from geomq.routing.sessions.messages import (
    AskFlushed,
    AskReached,
    DeliverMoved,
    Flushed,
    HandOver,
    Reached,
    SentAll,
    SessionWanted,
    Settled,
)
from geomq.routing.sessions.moves import FORGET_MS
from geomq.routing.sessions.rounds import Drain, Drains, Rounds
from geomq.routing.sessions.searches import OwnSession
from geomq.routing.sessions.trails import BRIEF_MS, HELD, ORDER_MS, TRAIL
from geomq.sim.engine import Simulation

B1, B2, B3 = (BrokerId(f"b{n}") for n in (1, 2, 3))
R = ClientId("r")
MATCH = Match(R, "t")
HERE, FAR = Location(5, 5), Location(5, 25)
SECRET = os.urandom


@dataclass
class Home:
    """Broker b1 of three, whose driver the test is; `r` comes and goes."""

    now: float = 0.0
    notes: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    sessions: dict[ClientId, OwnSession] = field(default_factory=dict)
    attempts: int = 0
    notified: list[BrokerId] = field(default_factory=list)
    """Who heard that its client is known at its new home."""
    asked: dict[type[Message], AskReached | AskFlushed] = field(default_factory=dict)
    """The rounds that are open."""

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        found = Simulation(row_of_squares(3), "flood_events").nodes[B1]
        assert isinstance(found, Node)
        self.node = found

    def load(self) -> None:
        secret = self.node.session_searches.load(self, self.notes, SECRET, now=self.now)
        if secret is not None:
            self.notes.setdefault(secret.kind, {})[secret.key] = secret.value
        for peer in (B2, B3):
            self.feed(PeerUp(peer))

    def find(self, client: ClientId) -> OwnSession | None:
        return self.sessions.get(client)

    def may_take(self, client: ClientId, user: str | None) -> bool:
        return True

    def feed(self, event: Any) -> list[str]:
        return self._told(self.node.handle(event, now=self.now))

    def later(self, ms: float) -> list[str]:
        self.now += ms
        return self._told(self.node.on_deadline(now=self.now))

    def _told(self, actions: list[Action]) -> list[str]:
        """What became of events, in order; notes are kept."""
        told = []
        for action in actions:
            match action:
                case KeepNote(kind=kind, key=key, value=value):
                    self.notes.setdefault(kind, {})[key] = value
                case ForgetNote(kind=kind, key=key):
                    self.notes.get(kind, {}).pop(key, None)
                case DeliverToClients(event=event):
                    told.append(f"{event.id.sequence}")
                case SendToPeer(peer=peer, message=DeliverMoved(event=event, tokens=(token,))):
                    told.append(f"{event.id.sequence} to {peer} by {token}")
                case SendToPeer(message=AskReached() | AskFlushed() as question):
                    self.asked[type(question)] = question
                case SendToPeer(peer=peer, message=Settled()):
                    self.notified.append(peer)
                case SendToPeer(peer=peer, message=SentAll(token=token)):
                    told.append(f"all to {peer} by {token}")
        return told

    # What happens.

    def takes(self, source: BrokerId = B2, *, location: Location | None = HERE) -> int:
        """The session comes from a peer, which had it; the token it came with."""
        self.attempts += 1
        actions = self.node.handle(SessionSought(R, self.attempts, None, False, 500, 3_000.0), now=self.now)
        asked = {a.peer: a.message for a in actions if isinstance(a, SendToPeer)}
        wanted = asked[source]
        assert isinstance(wanted, SessionWanted)
        self._told(actions)
        self.told = self.hears(HandOver(R, wanted.token, 0, 1, b"session"), source)
        self.sessions[R] = OwnSession(None, 500)
        for event in (ClientArrived(R), ClientMoved(R, location), ClientSubscribed(R, "t"), SessionTaken(R)):
            self.told += self.feed(event)
        return wanted.token

    def gives(self, to: BrokerId = B3, token: int = 7) -> None:
        assert GiveSession(R, to, token) in self.node.handle(
            PeerSaid(to, SessionWanted(R, token, None, False, True, 900)), now=self.now
        )
        del self.sessions[R]
        assert self.feed(SessionPacked(R, to, token, (b"session",), (R,))) == []

    def hears(self, message: Message, peer: BrokerId = B2) -> list[str]:
        return self.feed(PeerSaid(peer, message))

    def direct(self, event: Event) -> list[str]:
        """The event comes by itself."""
        return self.hears(ForwardEvent(event), B3)

    def after(self, event: Event, token: int, source: BrokerId = B2, **more: Any) -> list[str]:
        """A former home sends the event after its client."""
        return self.hears(DeliverMoved(event, (MATCH,), (token,), 1, **more), source)

    def rounds(self) -> list[str]:
        """The peers have dealt with everything, and what they sent before is here."""
        told: list[str] = []
        while self.asked:
            _, question = self.asked.popitem()
            for peer in (B2, B3):
                told += self.hears(self.answer(question), peer)
        return told

    def answer(self, question: AskReached | AskFlushed) -> Message:
        return Reached(question.number) if isinstance(question, AskReached) else Flushed(question.number)

    def sent_all(self, token: int, source: BrokerId = B2) -> list[str]:
        return self.hears(SentAll(R, token), source)


@pytest.fixture
def home() -> Home:
    made = Home()
    made.load()
    return made


def number(sequence: int, *, qos: int = 1, fence: Circle | None = None, **more: Any) -> Event:
    made = Event(EventId(B3, 1, sequence), "t", ClientId("p"), None, fence, qos=qos)
    return replace(made, **more)


def test_what_comes_by_itself_waits_until_the_former_home_has_sent_all(home: Home) -> None:
    token = home.takes()
    assert home.direct(number(2)) == []
    assert home.after(number(1), token) == ["1"]
    assert home.direct(number(3)) == []
    assert home.sent_all(token) == ["2", "3"]
    assert home.direct(number(4)) == ["4"]
    assert not home.notes.get(HELD)
    assert not home.notes.get(TRAIL)


def test_only_the_former_home_says_that_all_was_sent(home: Home) -> None:
    token = home.takes()
    assert home.direct(number(1)) == []
    assert home.sent_all(token, B3) == []
    assert home.sent_all(token + 1) == []
    assert home.sent_all(token) == ["1"]


def test_held_and_sent_after_the_client_an_event_comes_once(home: Home) -> None:
    token = home.takes()
    assert home.direct(number(1)) == []
    assert home.after(number(1), token) == ["1"]
    assert home.sent_all(token) == []
    assert home.direct(number(1)) == []


def test_what_is_older_and_held_comes_before_what_the_former_home_sends(home: Home) -> None:
    token = home.takes()
    assert home.direct(number(1)) == []
    assert home.direct(number(1, id=EventId(B3, 2, 1))) == []
    assert home.direct(number(2, topic="t", publisher=ClientId("q"))) == []
    assert home.after(number(3), token) == ["1", "3"]
    assert home.sent_all(token) == ["1", "2"], "of a publisher before a restart, and of another"


def test_all_subscriptions_that_match_count_also_after_waiting(home: Home) -> None:
    token = home.takes()
    home.feed(ClientSubscribed(R, "#"))
    both = (MATCH, Match(R, "#"))
    sent = DeliverMoved(number(1), both, (token, token), 1)
    assert home.node.handle(PeerSaid(B2, sent), now=0)[0] == DeliverToClients(number(1), both)
    assert home.direct(number(2)) == []
    found = [a for a in home.node.handle(PeerSaid(B2, SentAll(R, token)), now=0) if isinstance(a, DeliverToClients)]
    assert [(each.event, set(each.matches)) for each in found] == [(number(2), set(both))]


def test_nobody_else_can_use_the_gate_of_a_former_home(home: Home) -> None:
    token = home.takes(B2)
    assert home.after(number(1), token, B3) == []
    assert home.after(number(1), token, B2) == ["1"]


def test_nothing_of_qos_0_waits(home: Home) -> None:
    home.takes()
    assert home.direct(number(1, qos=0)) == ["1"]


def test_what_no_former_home_can_know_of_does_not_wait(home: Home) -> None:
    home.takes()
    home.feed(ClientSubscribed(R, "new/#"))
    assert home.direct(number(1, topic="new/t")) == ["1"]
    home.feed(ClientSubscribed(R, "t"))
    assert home.direct(number(2)) == [], "a subscription that was said again"
    home.feed(ClientSubscribed(R, "#"))
    assert home.direct(number(3)) == [], "two match, one of them the former home's"


def test_what_matters_where_the_client_came_to_since_waits_briefly(home: Home) -> None:
    home.takes()
    home.feed(ClientMoved(R, FAR))
    assert home.direct(number(1, fence=Circle(FAR, 1_000))) == []
    assert home.direct(number(2)) == []
    assert home.later(BRIEF_MS + trails.STEP_MS) == ["1"]


def test_a_client_that_goes_elsewhere_meanwhile_still_gets_what_waited(home: Home) -> None:
    token = home.takes()
    home.feed(ClientMoved(R, FAR))
    assert home.direct(number(1, fence=Circle(FAR, 1_000))) == []
    home.feed(ClientMoved(R, HERE))
    assert home.sent_all(token) == ["1"]
    assert home.direct(number(2, fence=Circle(FAR, 1_000))) == []


def test_a_former_home_is_notified_as_soon_as_all_peers_know_the_new_one(home: Home) -> None:
    home.takes()
    home.notified.clear()
    answer = home.answer(home.asked[AskReached])
    home.hears(answer, B2)
    assert home.notified == []
    home.hears(answer, B3)
    assert home.notified == [B2]
    home.hears(answer, B3)
    assert home.notified == [B2], "once"


def test_events_follow_a_client_that_went_on_in_the_same_order(home: Home) -> None:
    came = home.takes()
    assert home.direct(number(2)) == []
    home.gives(B3, 7)
    assert home.after(number(1), came) == ["1 to b3 by 7"]
    assert home.direct(number(3)) == []
    assert home.sent_all(came) == ["2 to b3 by 7", "3 to b3 by 7"]
    assert home.direct(number(4)) == ["4 to b3 by 7"]
    home.now += FORGET_MS
    assert home.hears(Settled((R,)), B3) == []
    assert home.direct(number(5)) == ["5 to b3 by 7"], "it was on its way when everybody knew"
    assert home.rounds() == ["all to b3 by 7"]
    assert not home.node.session_moves


def test_nothing_is_said_to_be_all_before_all_has_come(home: Home) -> None:
    came = home.takes()
    home.gives(B3, 7)
    home.now += FORGET_MS
    assert home.hears(Settled((R,)), B3) == []
    assert home.rounds() == []
    assert home.sent_all(came) == ["all to b3 by 7"]


def test_a_client_that_comes_back_gets_first_what_went_after_it(home: Home) -> None:
    """From b2 to here, on to b3, and back here."""
    first = home.takes(B2)
    home.gives(B3, 7)
    second = home.takes(B3)
    assert home.told == []
    assert home.direct(number(4)) == []
    assert home.after(number(1), first, B2) == ["1 to b3 by 7"], "b3 may have something older"
    assert home.after(number(1), second, B3) == ["1"]
    assert home.sent_all(first, B2) == [], "something may still be on its way to here that was sent before"
    assert home.rounds() == ["all to b3 by 7"]
    assert home.after(number(2), second, B3) == ["2"]
    assert home.sent_all(second, B3) == ["4"]


def test_an_event_that_went_round_and_was_had_goes_no_further(home: Home) -> None:
    came = home.takes()
    assert home.after(number(1), came) == ["1"]
    home.gives(B3, 7)
    assert home.after(number(1), came) == []


def test_nobody_waits_for_ever(home: Home) -> None:
    token = home.takes()
    home.feed(PeerDown(B2))
    assert home.direct(number(1)) == []
    assert home.later(ORDER_MS - trails.STEP_MS) == []
    assert home.later(2 * trails.STEP_MS) == ["1"]
    assert home.direct(number(2)) == ["2"]
    assert home.after(number(3), token) == ["3"], "late, but not lost"


def test_a_former_home_that_left_the_federation_is_not_waited_for(home: Home) -> None:
    home.takes(B3)
    assert home.hears(ForwardEvent(number(1, id=EventId(B2, 1, 1))), B2) == []
    assert home.feed(FederationChanged(row_of_squares(2))) == ["1"]


@pytest.mark.parametrize("limit", ["HELD_MAX", "HELD_BYTES_MAX"])
def test_when_there_is_no_room_what_waits_comes_in_order(home: Home, limit: str, monkeypatch: Any) -> None:
    sizes = [replace(number(n), properties=b"." * n) for n in (1, 2, 3)]
    room = sum(map(event_bytes, sizes[:2]))
    monkeypatch.setattr(trails, limit, 2 if limit == "HELD_MAX" else room)
    home.takes()
    assert [home.direct(each) for each in sizes[:2]] == [[], []]
    assert (home.node.session_moves.held.messages, home.node.session_moves.held.bytes) == (2, room)
    assert home.direct(sizes[2]) == ["1", "2", "3"]
    assert (home.node.session_moves.held.messages, home.node.session_moves.held.bytes) == (0, 0)
    assert not home.notes.get(HELD)


def test_what_waits_for_a_session_that_ends_is_dropped(home: Home) -> None:
    token = home.takes()
    home.direct(number(1))
    del home.sessions[R]
    assert home.feed(ClientGone(R)) == []
    assert home.sent_all(token) == []
    assert not home.notes.get(HELD)
    assert not home.notes.get(TRAIL)


def test_a_restart_loses_neither_what_waits_nor_the_way(home: Home) -> None:
    came = home.takes()
    assert [home.direct(number(n)) for n in (1, 2)] == [[], []]
    home.gives(B3, 7)
    home.start()
    for event in (ClientSubscribed(R, "t"), ClientDeparted(R, B3)):
        home.feed(event)
    home.load()
    assert home.direct(number(3)) == []
    assert home.after(number(2), came) == ["1 to b3 by 7", "2 to b3 by 7"]
    assert home.sent_all(came) == ["3 to b3 by 7"]
    assert not home.notes[HELD]


def test_a_restart_without_the_session_forgets_what_waited_for_it(home: Home) -> None:
    home.takes()
    home.direct(number(1))
    home.sessions.clear()
    home.start()
    home.load()
    home.later(0)
    assert not home.notes[HELD]
    assert not home.notes[TRAIL]


def test_of_two_starts_of_a_publishers_broker_its_clock_knows_which_event_is_older(home: Home) -> None:
    token = home.takes()
    restarted = EventId(B3, 77, 1)
    assert home.direct(replace(number(5), at_ms=1_000)) == []
    assert home.direct(replace(number(9), at_ms=3_000)) == []
    assert home.after(replace(number(1), id=restarted, at_ms=2_000), token) == ["5", "1"]
    assert home.sent_all(token) == ["9"]


def test_once_a_client_is_known_where_it_went_the_brokers_it_came_from_are_notified_too(home: Home) -> None:
    home.takes()
    home.gives(B3, 7)
    home.notified.clear()
    home.hears(Settled((R,)), B2)
    assert home.notified == [], "it did not go there"
    home.hears(Settled((R,)), B3)
    assert home.notified == [B2]


def test_a_former_home_goes_on_until_what_was_under_way_between_others_has_arrived(home: Home) -> None:
    home.sessions[R] = OwnSession(None, 500)
    home.feed(ClientSubscribed(R, "t"))
    home.rounds()
    home.gives(B2, 7)
    home.asked.clear()
    home.hears(Settled((R,)), B2)
    assert [*home.asked] == [AskFlushed]
    flushed = home.answer(home.asked.pop(AskFlushed))
    home.hears(flushed, B2)
    assert home.direct(number(1)) == ["1 to b2 by 7"]
    assert not home.asked
    home.hears(flushed, B3)
    assert home.direct(number(2)) == ["2 to b2 by 7"], "what came to a rendezvous last may still be on its way here"
    assert home.rounds() == ["all to b2 by 7"]


def test_who_is_asked_answers_once_all_it_sent_has_arrived(home: Home) -> None:
    actions = home.node.handle(PeerSaid(B2, AskFlushed(3)), now=0)
    assert actions == [SendOnceFlushed(B2, Flushed(3))]


def test_a_client_with_two_sessions_came_through_two_gates_and_leaves_when_both_are_shut() -> None:
    way = trails.Trails(lambda _: None)
    way.enter(R, 1, B2, now=0.0)
    way.enter(R, 2, B3, now=0.0)
    first, second = way.through(R, 1), way.through(R, 2)
    assert first is not None
    assert second is not None
    assert way.waiting(R) is first
    assert way.sources(R) == (B2, B3)
    way.leave(R, 9, B2, now=0.0)
    assert (first.visit.exit, second.visit.exit) == (9, 9)
    way.come_back(R, Drain)
    way.shut(R, first)
    assert way.sources(R) == (B3,)
    assert list(way.passed(R, lambda _: True)) == []
    way.shut(R, second)
    assert list(way.passed(R, lambda _: True)) == [(9, B2)]
    assert len(way) == 0


def test_what_waited_in_two_sessions_of_a_client_ends_with_it() -> None:
    way = trails.Trails(lambda _: None)
    for gate, source in ((1, B2), (2, B3)):
        way.enter(R, gate, source, now=0.0)
        stay = way.last(R)
        assert stay is not None
        way.hold(R, stay, number(gate), (MATCH,), now=0.0)
    assert [held.event.id.sequence for held in way.end(R)] == [1, 2]
    assert len(way) == 0


def test_an_event_that_comes_twice_for_two_subscriptions_of_a_client_waits_for_both() -> None:
    kept: list[Action] = []
    way = trails.Trails(kept.append)
    way.enter(R, 1, B2, now=0.0)
    stay, other = way.last(R), Match(ClientId(f"{R}\0#inside/"), "t")
    assert stay is not None
    for match in (MATCH, other):
        assert way.hold(R, stay, number(1), (match,), now=0.0)
    notes = {
        kind: {a.key: a.value for a in kept if isinstance(a, KeepNote) and a.kind == kind} for kind in (TRAIL, HELD)
    }
    again = trails.Trails(kept.append)
    again.load(notes, lambda client: False, Drains(*[Rounds(B1, (B1,), kept.append, epoch=0)] * 2), now=0.0)
    restored = again.last(R)
    assert restored is not None
    for each, of in ((way, stay), (again, restored)):
        assert [held.matches for held in each.shut(R, of)] == [(MATCH, other)]


def test_a_client_that_comes_and_goes_while_a_broker_is_away_leaves_no_endless_trail(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trails, "VISITS_MAX", 2)
    first = home.takes()
    assert home.direct(number(1)) == []
    home.gives(B2, 7)
    assert home.takes() != first
    assert home.told == []
    home.gives(B2, 8)
    home.takes()
    assert home.told == ["1 to b2 by 7", "all to b2 by 7"]
    assert home.after(number(2), first) == []
    assert home.later(ORDER_MS + trails.STEP_MS) == ["2"], "late, but not lost"


def test_a_client_that_left_is_forgotten_when_the_broker_that_had_not_answered_leaves(home: Home) -> None:
    home.sessions[R] = OwnSession(None, 500)
    home.feed(ClientSubscribed(R, "t"))
    home.gives(B2, 7)
    home.now += FORGET_MS
    home.hears(Settled((R,)), B2)
    home.hears(home.answer(home.asked.pop(AskFlushed)), B2)
    home.feed(PeerDown(B3))
    assert home.node.session_moves.new_home(R) == B2
    home.feed(FederationChanged(row_of_squares(2)))
    home.hears(home.answer(home.asked[AskReached]), B2)
    assert home.node.session_moves.new_home(R) is None
    assert R not in home.node.clients
