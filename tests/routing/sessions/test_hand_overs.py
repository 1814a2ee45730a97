"""Sessions that are handed over: those asked for are taken once, across restarts too; others are not."""

import os
from dataclasses import dataclass, field

import pytest

from geomq.routing.core.actions import Action, ForgetNote, KeepNote, RefuseHandOver
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.sessions.hand_overs import PART, SECRET, TAKEN, UNDER_WAY_MAX, HandOvers
from geomq.routing.sessions.messages import HandOver

PARIS, SYDNEY = BrokerId("paris"), BrokerId("sydney")
R = ClientId("r")
WHOLE = b"the whole session"


@dataclass
class Disk:
    """A broker's side of hand-overs, and what it has on disk."""

    notes: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    refused: list[RefuseHandOver] = field(default_factory=list)

    def start(self) -> HandOvers:
        made = HandOvers(self.act)
        secret = made.load(self.notes, os.urandom)
        if secret is not None:
            self.act(secret)
        return made

    def act(self, action: Action) -> None:
        match action:
            case KeepNote(kind=kind, key=key, value=value):
                self.notes.setdefault(kind, {})[key] = value
            case ForgetNote(kind=kind, key=key):
                self.notes.get(kind, {}).pop(key, None)
            case RefuseHandOver():
                self.refused.append(action)


def handed(token: int, part: int = 0, parts: int = 1, *, client: str = "r", data: bytes = WHOLE) -> HandOver:
    return HandOver(ClientId(client), token, part, parts, data)


def test_what_was_asked_for_is_taken_once() -> None:
    taking = Disk().start()
    token = taking.make_token(R)
    assert 0 <= token < 2**63
    assert taking.take(PARIS, handed(token)) == WHOLE
    assert taking.take(PARIS, handed(token)) is None


def test_what_was_not_asked_for_is_refused() -> None:
    disk = Disk()
    taking = disk.start()
    token = taking.make_token(R)
    others = (0, 1, token - 1, token + 1, token ^ 1 << 50, Disk().start().make_token(R), 2**63 - 1)
    for other in others:
        assert taking.take(PARIS, handed(other)) is None
    assert taking.take(PARIS, handed(token, client="s")) is None
    assert disk.refused == [
        *[RefuseHandOver(PARIS, R, "nobody asked for this session")] * len(others),
        RefuseHandOver(PARIS, ClientId("s"), "nobody asked for this session"),
    ]
    assert taking.take(PARIS, handed(token)) == WHOLE, "the one that was"


def test_every_token_is_another() -> None:
    taking = Disk().start()
    tokens = [taking.make_token(R) for _ in range(1_000)]
    assert len(set(tokens)) == 1_000
    taking._number = (tokens[0] >> 39) - 1
    assert taking.take(PARIS, handed(tokens[0])) is not None
    assert taking.make_token(R) != tokens[0], "it was taken already"


def test_parts_come_in_any_order_and_those_of_two_brokers_are_not_mixed() -> None:
    taking = Disk().start()
    token = taking.make_token(R)
    halves = WHOLE[:5], WHOLE[5:]
    assert taking.take(PARIS, handed(token, 1, 2, data=halves[1])) is None
    assert taking.take(SYDNEY, handed(token, 0, 2, data=b"?")) is None
    assert taking.take(PARIS, handed(token, 1, 2, data=halves[1])) is None
    assert taking.take(PARIS, handed(token, 0, 2, data=halves[0])) == WHOLE


def test_a_session_that_went_on_from_here_and_comes_back_for_the_same_token_is_taken_again() -> None:
    taking = Disk().start()
    token = taking.make_token(R)
    assert taking.take(PARIS, handed(token)) == WHOLE
    assert taking.take(SYDNEY, handed(token, data=b"later")) == b"later"
    assert taking.take(PARIS, handed(token)) is taking.take(SYDNEY, handed(token)) is None


@pytest.mark.parametrize(("part", "parts"), [(-1, 1), (1, 1), (0, 0), (0, 257)])
def test_parts_that_cannot_be_are_dropped(part: int, parts: int) -> None:
    taking = Disk().start()
    assert taking.take(PARIS, handed(taking.make_token(R), part, parts)) is None
    assert not taking._under_way


def test_parts_that_disagree_about_their_number_do_no_harm() -> None:
    disk = Disk()
    taking = disk.start()
    token = taking.make_token(R)
    assert taking.take(PARIS, handed(token, 5, 9)) is None
    assert taking.take(PARIS, handed(token, 0, 2)) is None
    assert taking.take(PARIS, handed(token, 0, 1)) is not None
    assert disk.notes[PART] == {}, "nothing of it stays on disk"


def test_only_so_many_are_under_way() -> None:
    disk = Disk()
    taking = disk.start()
    for number in range(UNDER_WAY_MAX):
        client = ClientId(str(number))
        assert taking.take(PARIS, handed(taking.make_token(client), 0, 2, client=client)) is None
    assert taking.take(PARIS, handed(taking.make_token(R))) is None
    assert disk.refused == [RefuseHandOver(PARIS, R, "session lost: too many are under way")]
    assert len(taking._under_way) == UNDER_WAY_MAX


def test_what_was_asked_for_before_a_restart_is_taken_after_it() -> None:
    disk = Disk()
    first = disk.start()
    tokens = [first.make_token(R), first.make_token(ClientId("s"))]
    second = disk.start()
    assert second.take(PARIS, handed(tokens[0], 0, 2, data=WHOLE[:5])) is None
    assert second.take(PARIS, handed(tokens[1], client="s")) == WHOLE
    assert [key[12:] for key in disk.notes[PART]] == [b"paris"]
    third = disk.start()
    assert third.take(PARIS, handed(tokens[1], client="s")) is None, "it was taken"
    assert third.take(PARIS, handed(tokens[0], 1, 2, data=WHOLE[5:])) == WHOLE
    assert len(disk.notes[SECRET][b""]) == 32
    assert disk.notes[PART] == {}
    assert len(disk.notes[TAKEN]) == 2
