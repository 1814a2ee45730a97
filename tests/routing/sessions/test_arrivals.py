"""What a client had elsewhere is remembered, of two sessions together, until its peers have forgotten that."""

import msgspec

from geomq.routing.core.actions import Action, ForgetNote, KeepNote
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.routing.sessions import arrivals
from geomq.routing.sessions.arrivals import HAD, Arrivals
from geomq.routing.sessions.rounds import Rounds

ME, B2 = BrokerId("me"), BrokerId("b2")
R, VOICE = ClientId("r"), ClientId("r\0$geo/near/")


def event(number: int) -> EventId:
    return EventId(B2, 1, number)


class Kept:
    """The arrivals of a broker with one peer, and what it was asked to do."""

    def __init__(self) -> None:
        self.acts: list[Action] = []
        self.rounds = Rounds(ME, (ME, B2), self.acts.append, epoch=1)
        self.arrivals = Arrivals(self.rounds, self.acts.append)


def test_what_two_sessions_of_a_client_had_is_known_together_and_kept() -> None:
    kept = Kept()
    kept.arrivals.add(R, [event(1)], now=0)
    kept.arrivals.add(R, [event(2)], now=5)
    assert [kept.arrivals.is_new(event(number), R) for number in (1, 2, 3, 3)] == [False, False, True, False]
    kept.arrivals.keep(R)
    (note,) = kept.acts
    assert isinstance(note, KeepNote)
    assert msgspec.msgpack.decode(note.value, type=tuple[EventId, ...]) == (event(1), event(2), event(3))


def test_of_a_client_that_was_always_here_everything_is_new() -> None:
    kept = Kept()
    assert kept.arrivals.is_new(event(1), R)
    assert kept.arrivals.is_new(event(1), R)
    assert not kept.arrivals.had(event(1), R)


def test_the_oldest_events_are_forgotten_first() -> None:
    kept = Kept()
    kept.arrivals.add(R, [], now=0)
    count = 2 * arrivals.HAD_MAX + 1
    assert all(kept.arrivals.is_new(event(number), R) for number in range(count))
    assert not kept.arrivals.had(event(0), R)
    assert len([*kept.arrivals.had_by([R])]) == count - 1


def test_everybody_knows_a_client_once_a_round_is_past_that_began_with_its_subscriptions() -> None:
    kept = Kept()
    kept.arrivals.add(R, [], now=10)
    kept.arrivals.add(VOICE, [], now=10)
    kept.arrivals.taken(R)
    number = kept.rounds.begin() - 1
    assert not kept.arrivals.is_known_since(R, 10)
    kept.rounds.answered(B2, number)
    assert kept.arrivals.is_known_since(R, 10)
    assert kept.arrivals.is_known_since(VOICE, 10), "its other keys are known with it"
    assert not kept.arrivals.is_known_since(R, 9)


def test_after_a_restart_a_round_begins_when_somebody_asks() -> None:
    kept = Kept()
    kept.arrivals.add(R, [], now=10)
    assert not kept.arrivals.is_known_since(R, 10)
    kept.rounds.answered(B2, kept.rounds.begin() - 1)
    assert kept.arrivals.is_known_since(R, 10)


def test_what_is_on_disk_goes_when_it_is_forgotten() -> None:
    kept = Kept()
    for client, now in ((R, 1), (VOICE, 1), (ClientId("q"), 2)):
        kept.arrivals.add(client, [], now=now)
    kept.arrivals.forget_before(1)
    assert kept.acts == [ForgetNote(HAD, b"r")]
    assert len(kept.arrivals) == 1
