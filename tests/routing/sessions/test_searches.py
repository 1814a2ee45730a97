"""Searches for sessions as stories of one broker of three: who is asked, who waits, and who gets the session."""

import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.routing.stage import row_of_squares

from geomq.routing.core.actions import (
    Action,
    EndSession,
    ForgetNote,
    GiveSession,
    KeepNote,
    LetClientIn,
    SendToPeer,
    TakeSession,
    TurnClientAway,
)
from geomq.routing.core.events import (
    AddressAnnounced,
    FederationChanged,
    PeerDown,
    PeerSaid,
    PeerUp,
    SessionPacked,
    SessionSought,
    SessionTaken,
)
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.node import Node
from geomq.routing.sessions import open_searches, searches
from geomq.routing.sessions.messages import (
    AskAgain,
    ClientAddress,
    HandOver,
    NoSession,
    SessionFollows,
    SessionWanted,
    Settled,
)
from geomq.routing.sessions.open_searches import UNASKED, Search, Unasked
from geomq.routing.sessions.searches import OwnSession
from geomq.sim.engine import Simulation

A, B = BrokerId("a"), BrokerId("b")
B1, B2, B3 = (BrokerId(f"b{n}") for n in (1, 2, 3))
R = ClientId("r")
WAIT_MS = 3_000.0


@dataclass
class Alone:
    """Broker b1 of three; the test is its driver and its peers."""

    now: float = 0.0
    up: tuple[BrokerId, ...] = (B2, B3)
    sessions: dict[ClientId, OwnSession] = field(default_factory=dict)
    attempts: int = 0
    strangers: tuple[str, ...] = ()
    """Users that may not have anybody else's session."""
    notes: dict[bytes, bytes] = field(default_factory=dict)
    """What is to be asked later, as it is on disk."""

    def __post_init__(self) -> None:
        found = Simulation(row_of_squares(3), "flood_events").nodes[B1]
        assert isinstance(found, Node)
        self.node = found
        self.node.session_searches.load(self, {UNASKED: self.notes}, os.urandom, now=0)
        for peer in self.up:
            self.node.handle(PeerUp(peer), now=0)

    def find(self, client: ClientId) -> OwnSession | None:
        return self.sessions.get(client)

    def may_take(self, client: ClientId, user: str | None) -> bool:
        return user not in self.strangers

    def feed(self, event: Any) -> list[Action]:
        return self._noted(_ours(self.node.handle(event, now=self.now)))

    def _noted(self, actions: list[Action]) -> list[Action]:
        """Keep what is to be asked later; all other actions."""
        for action in actions:
            if isinstance(action, KeepNote) and action.kind == UNASKED:
                self.notes[action.key] = action.value
            elif isinstance(action, ForgetNote) and action.kind == UNASKED:
                del self.notes[action.key]
        return [a for a in actions if not (isinstance(a, KeepNote | ForgetNote) and a.kind == UNASKED)]

    def comes(self, client: ClientId = R, *, clean: bool = False, wall_ms: int = 500, **more: Any) -> list[Action]:
        """A client connects; the tokens of what is asked are left out."""
        self.attempts += 1
        more = {"wait_ms": WAIT_MS, **more}
        return self.feed(SessionSought(client, self.attempts, "ann", clean, wall_ms, **more))

    def hears(self, message: Message, peer: BrokerId = B2) -> list[Action]:
        return self.feed(PeerSaid(peer, message))

    def later(self, ms: float = WAIT_MS) -> list[Action]:
        self.now += ms
        return self._noted(_ours(self.node.on_deadline(now=self.now)))


def _ours(actions: list[Action]) -> list[Action]:
    return [action for action in actions if not isinstance(action, SendToPeer) or _is_ours(action.message)]


def _is_ours(message: Message) -> bool:
    return isinstance(message, SessionWanted | NoSession | HandOver | ClientAddress | SessionFollows | AskAgain)


def asked(actions: list[Action]) -> dict[BrokerId, SessionWanted]:
    """Who is asked for a session; nothing else may have happened."""
    found = {}
    for action in actions:
        assert isinstance(action, SendToPeer)
        assert isinstance(action.message, SessionWanted)
        found[action.peer] = action.message
    return found


def wants(since_ms: int = 900, *, clean: bool = False, live: bool = True, user: str = "ann") -> SessionWanted:
    return SessionWanted(R, 77, user, clean, live, since_ms)


def none(broker: Alone, wanted: dict[BrokerId, SessionWanted], *peers: BrokerId) -> list[Action]:
    """These peers have no session."""
    return [action for peer in peers for action in broker.hears(NoSession(R, wanted[peer].token), peer)]


NOTHING = SendToPeer(B2, NoSession(R, 77))


# A client comes.


def test_a_client_whose_session_is_here_comes_in_at_once() -> None:
    broker = Alone(sessions={R: OwnSession("ann", 1)})
    assert broker.comes() == [LetClientIn(R, 1)]


def test_every_peer_is_asked_and_who_has_no_session_lets_the_client_in_when_all_have_said_so() -> None:
    broker = Alone()
    wanted = asked(broker.comes())
    assert [*wanted] == [B2, B3]
    assert wanted[B2].token != wanted[B3].token, "what is given for one question is given once"
    assert (wanted[B2].live, wanted[B2].clean, wanted[B2].since_ms) == (True, False, 500)
    assert broker.hears(NoSession(R, wanted[B2].token + 1)) == [], "an answer to another question"
    assert none(broker, wanted, B2) == []
    assert none(broker, wanted, B3) == [LetClientIn(R, 1, 500)]
    assert broker.node.session_searches.deadline is None


def test_a_client_comes_in_with_its_session_as_soon_as_that_is_here() -> None:
    broker = Alone()
    token = asked(broker.comes())[B2].token
    assert broker.hears(HandOver(R, token, 0, 2, b"half ")) != []
    taken = broker.hears(HandOver(R, token, 1, 2, b"and half"))
    assert TakeSession(R, b"half and half", B2) in taken
    let_in = broker.feed(SessionTaken(R))
    assert let_in[-1] == LetClientIn(R, 1, 500)
    assert broker.hears(NoSession(R, token), B3) == [], "it has not waited for this"


@pytest.mark.parametrize(("refuses", "then"), [(True, TurnClientAway(R, 1, "session missing")), (False, None)])
def test_who_does_not_answer_in_time_keeps_a_client_out_or_is_not_waited_for(
    refuses: bool, then: Action | None
) -> None:
    broker = Alone()
    broker.hears(NoSession(R, asked(broker.comes(refuses=refuses))[B2].token))
    assert broker.later(WAIT_MS - 1) == []
    assert broker.node.session_searches.deadline == WAIT_MS
    assert broker.later(1) == [then or LetClientIn(R, 1, 500)]


def test_a_broker_that_has_been_away_for_long_is_not_waited_for_but_asked_when_it_is_back() -> None:
    broker = Alone(now=WAIT_MS, up=(B2,))
    assert none(broker, asked(broker.comes()), B2) == [LetClientIn(R, 1, 500)]
    broker.sessions[R] = OwnSession("ann", 500)
    wanted = asked(broker.feed(PeerUp(B3)))[B3]
    assert (wanted.live, wanted.since_ms) == (False, 500)
    assert asked(broker.feed(PeerUp(B3)))[B3].since_ms == 500, "until it has answered"
    none(broker, {B3: wanted}, B3)
    assert broker.feed(PeerUp(B3)) == []


def test_a_broker_that_was_away_for_a_moment_is_waited_for_and_asked_when_it_is_back() -> None:
    broker = Alone()
    broker.feed(PeerDown(B3))
    assert none(broker, asked(broker.comes()), B2) == []
    later = asked(broker.feed(PeerUp(B3)))
    assert later[B3].live
    assert none(broker, later, B3) == [LetClientIn(R, 1, 500)]


def test_a_session_that_ended_meanwhile_is_not_asked_for() -> None:
    broker = Alone(now=WAIT_MS, up=(B2,))
    broker.hears(NoSession(R, asked(broker.comes())[B2].token))
    assert broker.feed(PeerUp(B3)) == []


def test_a_clean_start_waits_for_leave_only_where_ids_belong_to_users() -> None:
    broker = Alone()
    assert [*asked(broker.comes(clean=True))] == [B2, B3]
    freely = broker.comes(ClientId("s"), clean=True, unchecked=True)
    assert freely[-1] == LetClientIn(ClientId("s"), 2, 500)
    assert [*asked(freely[:-1])] == [B2, B3], "their sessions of it are to end"


def test_a_client_is_kept_out_of_another_users_session() -> None:
    broker = Alone()
    token = asked(broker.comes())[B2].token
    assert broker.hears(NoSession(R, token, True)) == [TurnClientAway(R, 1, "another user's")]


def test_a_client_that_came_to_a_peer_later_is_turned_away_instead_of_getting_a_second_session() -> None:
    broker = Alone()
    wanted = asked(broker.comes())
    assert broker.hears(NoSession(R, wanted[B2].token, later=True)) == []
    assert none(broker, wanted, B3) == [TurnClientAway(R, 1, "connects again")]


def test_who_connects_once_more_takes_the_place_of_the_connection_before() -> None:
    broker = Alone()
    broker.comes()
    again = broker.comes(wall_ms=600)
    assert again[0] == TurnClientAway(R, 1, "connects again")
    assert none(broker, asked(again[1:]), B2, B3) == [LetClientIn(R, 2, 600)]


def test_only_so_many_clients_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "PENDING_MAX", 1)
    broker = Alone()
    broker.comes()
    assert broker.comes(ClientId("s")) == [TurnClientAway(ClientId("s"), 2, "too many wait")]


def test_a_peer_that_lost_its_link_is_asked_anew_with_another_token() -> None:
    broker = Alone()
    first = asked(broker.comes())[B2]
    broker.feed(PeerDown(B2))
    assert asked(broker.feed(PeerUp(B2)))[B2].token != first.token


# Sessions on their way.


def test_who_gave_a_session_away_sends_word_after_it_instead_of_saying_that_there_is_none() -> None:
    broker = Alone(sessions={R: OwnSession("ann", 1)})
    broker.hears(wants(), B3)
    del broker.sessions[R]
    broker.feed(SessionPacked(R, B3, 77, (b"1",), (R,), b"left"))
    assert broker.hears(wants()) == [SendToPeer(B3, SessionFollows(R, 77, B2))]
    assert broker.hears(wants(), B3) == [SendToPeer(B3, NoSession(R, 77))], "it has it, or is about to"
    broker.hears(Settled((R,)), B3)
    assert broker.hears(wants()) == [SendToPeer(B3, SessionFollows(R, 77, B2))], "questions may be slow"


def test_who_gets_word_after_a_session_has_the_asker_ask_once_more() -> None:
    assert Alone().hears(SessionFollows(R, 5, B3)) == [SendToPeer(B3, AskAgain(R, 5, B2))]


def test_a_session_that_moved_while_it_was_searched_is_asked_for_where_it_went() -> None:
    broker = Alone()
    wanted = asked(broker.comes())
    none(broker, wanted, B3)
    assert broker.hears(AskAgain(R, 1, B2), B3) == [], "an answer to another question"
    again = asked(broker.hears(AskAgain(R, wanted[B2].token, B2), B3))
    assert [*again] == [B3]
    assert again[B3].live
    assert broker.hears(AskAgain(R, wanted[B2].token, B2), B3) == [], "once"
    assert none(broker, again, B3) == [LetClientIn(R, 1, 500)], "it ended there"


def test_a_session_that_moved_is_asked_for_later_if_its_client_did_not_wait() -> None:
    broker = Alone()
    wanted = asked(broker.comes())
    none(broker, wanted, B3)
    broker.later()
    broker.sessions[R] = OwnSession("ann", 500)
    again = asked(broker.hears(AskAgain(R, wanted[B2].token, B2), B3))
    assert not again[B3].live
    assert broker.node.session_searches.open == 1
    none(broker, again, B3)
    assert broker.node.session_searches.open == 0


# A peer asks.


def test_a_session_is_given_in_parts_and_its_client_known_to_have_left() -> None:
    broker = Alone(sessions={R: OwnSession("ann", 1)})
    assert broker.hears(wants()) == [GiveSession(R, B2, 77)]
    given = broker.feed(SessionPacked(R, B2, 77, (b"1", b"2"), (R,), b"what remains"))
    assert given == [
        SendToPeer(B2, HandOver(R, 77, 0, 2, b"1")),
        SendToPeer(B2, HandOver(R, 77, 1, 2, b"2")),
        KeepNote("trail", b"r", b"\x91\x96\x00\xa0\xc2M\xa2b2\xc2"),
        KeepNote("departed", b"r", b"what remains"),
    ]
    assert broker.node.session_moves.new_home(R) is not None


def test_who_has_no_session_or_cannot_give_it_says_so() -> None:
    broker = Alone()
    assert broker.hears(wants()) == [NOTHING]
    assert broker.feed(SessionPacked(R, B2, 77)) == [NOTHING]


def test_a_session_is_ended_for_a_client_that_starts_anew() -> None:
    broker = Alone(sessions={R: OwnSession("ann", 1)})
    assert broker.hears(wants(clean=True)) == [EndSession(R), NOTHING]


def test_a_session_is_not_given_to_another_user() -> None:
    broker = Alone(sessions={R: OwnSession("ann", 1)}, strangers=("bob",))
    assert broker.hears(wants(user="bob")) == [SendToPeer(B2, NoSession(R, 77, True))]


def test_of_sessions_at_both_sides_of_a_split_the_later_stays_and_asks_for_the_earlier() -> None:
    broker = Alone(sessions={R: OwnSession("ann", 1_000)})
    assert broker.hears(wants(1_001, live=False)) == [GiveSession(R, B2, 77)]
    stays = broker.hears(wants(999, live=False))
    assert stays[0] == NOTHING
    assert asked(stays[1:])[B2].since_ms == 1_000
    assert not asked(stays[1:])[B2].live


def test_a_client_at_two_brokers_at_once_is_given_to_the_one_it_came_to_later() -> None:
    broker = Alone()
    token = asked(broker.comes(wall_ms=500))[B2].token
    assert broker.hears(wants(501)) == [TurnClientAway(R, 1, "connects again")]
    assert broker.hears(HandOver(R, token, 0, 1, b"x"), B3)[-1] == TakeSession(R, b"x", B3)
    broker.sessions[R] = OwnSession("ann", 500)
    assert broker.feed(SessionTaken(R))[-1] == GiveSession(R, B2, 77), "what was found is the other's"


def test_a_client_that_comes_back_from_the_other_broker_is_sought_there() -> None:
    broker = Alone()
    broker.comes(wall_ms=500)
    broker.hears(wants(501))
    again = broker.comes(wall_ms=502)
    assert again[0] == NOTHING, "who was turned away is not turned away twice"
    assert [*asked(again[1:])] == [B2, B3]


def test_a_client_at_two_brokers_at_once_stays_where_it_came_to_later() -> None:
    broker = Alone()
    broker.comes(wall_ms=500)
    assert broker.hears(wants(499)) == [NOTHING]


def test_of_two_that_were_let_in_without_waiting_the_earlier_gives_way() -> None:
    broker = Alone()
    broker.comes(clean=True, unchecked=True)
    broker.sessions[R] = OwnSession("ann", 500)
    assert broker.hears(wants(499, clean=True)) == [SendToPeer(B2, NoSession(R, 77, later=True))]
    assert broker.hears(wants(501, clean=True)) == [EndSession(R), NOTHING]


def test_of_two_brokers_that_ask_each_other_exactly_one_was_first() -> None:
    for here, there in ((1, 2), (2, 1), (1, 1)):
        first = Search(wants(here), {B: None}).is_before(B, wants(there), A)
        assert first is not Search(wants(there), {A: None}).is_before(A, wants(here), B)
        assert first is (here <= there)


def test_who_has_answered_has_the_client_later_whatever_its_clock_says() -> None:
    assert Search(wants(1_000), {}).is_before(B, wants(1), A)


# Bounds, notes, addresses.


def test_what_is_asked_later_is_not_urgent_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_searches, "UNASKED_MAX", 10)
    done: list[Action] = []
    unasked = Unasked(done.append)
    for number in range(11):
        unasked.add(B, SessionWanted(ClientId(str(number)), 1, None, False, True, 5))
    wanted = unasked.of(B)
    assert len(wanted) == len(done) == 10
    assert not any(each.live for each in wanted.values())
    unasked.forget(B)
    assert unasked.of(B) == {}
    assert [type(each) for each in done[10:]] == [ForgetNote] * 10


def test_who_did_not_answer_is_asked_also_after_a_restart_and_until_it_has_answered() -> None:
    before = Alone(up=(B2,))
    none(before, asked(before.comes()), B2)
    before.later()
    after = Alone(up=(B2,), notes=before.notes, sessions={R: OwnSession("ann", 700)})
    wanted = asked(after.feed(PeerUp(B3)))
    assert [*wanted] == [B3]
    assert (wanted[B3].live, wanted[B3].user, wanted[B3].since_ms) == (False, "ann", 700)
    after.feed(PeerDown(B3))
    again = asked(after.feed(PeerUp(B3)))
    assert [*again] == [B3]
    after.hears(NoSession(R, again[B3].token), B3)
    assert after.notes == {}
    after.feed(PeerDown(B3))
    assert after.feed(PeerUp(B3)) == []


def test_who_is_there_and_did_not_answer_is_asked_once_more_until_it_has() -> None:
    broker = Alone()
    none(broker, asked(broker.comes()), B2)
    assert broker.later() == [LetClientIn(R, 1, 500)]
    broker.sessions[R] = OwnSession("ann", 500)
    for _ in range(2):
        again = asked(broker.later(searches.LET_IN_MS))
        assert [*again] == [B3]
        assert not again[B3].live
    none(broker, again, B3)
    assert broker.later(searches.LET_IN_MS) == []
    assert broker.notes == {}


def test_where_a_session_went_is_asked_instead_also_after_a_restart() -> None:
    before = Alone(up=(B2,))
    none(before, asked(before.comes()), B2)
    before.later()
    after = Alone(up=(B2,), notes=before.notes, sessions={R: OwnSession("ann", 700)})
    token = asked(after.feed(PeerUp(B3)))[B3].token
    assert [*asked(after.hears(AskAgain(R, token, B3), B2))] == [B2]
    assert [key.partition(b"\0")[0] for key in after.notes] == [b"b2"]


def test_nothing_is_wanted_of_a_broker_that_left_the_federation() -> None:
    broker = Alone(now=WAIT_MS, up=(B2,))
    none(broker, asked(broker.comes()), B2)
    broker.feed(FederationChanged(row_of_squares(2)))
    assert broker.node.session_searches._unasked.peers() == ()


def test_what_a_client_had_before_is_on_disk_until_it_leaves_again() -> None:
    broker = Alone()
    broker.node.session_moves.arrived(R, (), now=0)
    assert broker.feed(SessionTaken(R))[0] == KeepNote("had", b"r", b"\x90")
    assert ForgetNote("had", b"r") in broker.feed(SessionPacked(R, B2, 77, (b"1",), (R,), b"left"))


def test_peers_are_told_where_clients_connect_now_and_when_their_links_come_up() -> None:
    broker = Alone(up=(B2,))
    here = ClientAddress("b1.example.org:1883")
    assert broker.feed(AddressAnnounced(here.address)) == [SendToPeer(B2, here)]
    assert broker.feed(PeerUp(B3)) == [SendToPeer(B3, here)]
