"""Rounds: who has not answered is asked, and what begins while a round is open waits for the next."""

from geomq.routing.core.actions import Action, SendToPeer
from geomq.routing.core.model import BrokerId
from geomq.routing.sessions.messages import AskReached
from geomq.routing.sessions.rounds import Rounds

ME, B2, B3 = (BrokerId(name) for name in ("me", "b2", "b3"))


def three(epoch: int = 1) -> tuple[Rounds, list[Action]]:
    acts: list[Action] = []
    return Rounds(ME, (ME, B2, B3), acts.append, epoch=epoch), acts


def asked(acts: list[Action]) -> list[BrokerId]:
    """Who was asked since the last call."""
    found = [act.peer for act in acts if isinstance(act, SendToPeer) and isinstance(act.message, AskReached)]
    acts.clear()
    return found


def test_a_round_is_past_when_all_have_answered() -> None:
    rounds, acts = three()
    number = rounds.begin()
    assert asked(acts) == [B2, B3]
    assert not rounds.answered(B2, number)
    assert not rounds.is_past(number)
    assert rounds.answered(B3, number)
    assert rounds.is_past(number)
    assert not rounds.answered(B3, number), "once"


def test_what_begins_while_a_round_is_open_is_asked_in_the_next() -> None:
    rounds, acts = three()
    first = rounds.begin()
    asked(acts)
    second = rounds.begin()
    assert second == rounds.begin() == first + 1
    assert asked(acts) == []
    rounds.answered(B2, first)
    rounds.answered(B3, first)
    assert asked(acts) == [B2, B3]
    assert rounds.is_past(first)
    assert not rounds.is_past(second)


def test_only_the_round_that_is_open_is_answered() -> None:
    rounds, _ = three()
    number = rounds.begin()
    rounds.answered(B2, number)
    assert not rounds.answered(B3, number + 1)
    assert not rounds.answered(B3, number - 1)
    assert not rounds.is_past(number)


def test_an_answer_to_who_a_broker_was_before_a_restart_answers_nothing() -> None:
    before, after = three(epoch=7)[0], three(epoch=2**52)[0]
    number, later = before.begin(), after.begin()
    assert number != later
    for peer in (B2, B3):
        after.answered(peer, number)
    assert not after.is_past(later)


def test_who_has_not_answered_is_asked_again() -> None:
    rounds, acts = three()
    rounds.answered(B2, rounds.begin())
    asked(acts)
    rounds.ask_again()
    assert asked(acts) == [B3]


def test_a_peer_that_comes_back_is_asked_what_it_may_not_have_answered() -> None:
    rounds, acts = three()
    rounds.answered(B2, rounds.begin())
    asked(acts)
    rounds.ask(B2)
    rounds.ask(B3)
    assert asked(acts) == [B3]


def test_a_broker_that_left_is_not_waited_for_and_a_new_one_is() -> None:
    rounds, acts = three()
    number = rounds.begin()
    rounds.answered(B2, number)
    rounds.federation_changed((ME, B2))
    assert rounds.is_past(number)
    new = BrokerId("b4")
    rounds.federation_changed((ME, B2, new))
    assert not rounds.is_past(number)
    asked(acts)
    rounds.ask_again()
    assert asked(acts) == [new]


def test_a_broker_alone_waits_for_nobody() -> None:
    acts: list[Action] = []
    rounds = Rounds(ME, (ME,), acts.append, epoch=1)
    assert rounds.is_past(rounds.begin())
    assert acts == []
