"""Sessions that are handed over: those asked for are taken once, across restarts too; others are not."""

import logging
from pathlib import Path

import msgspec
import pytest

from geomq.broker.roaming.handovers import PART, SECRET, UNDER_WAY_MAX, HandOvers
from geomq.broker.roaming.session_transfer import Luggage
from geomq.broker.storage.committer import Committer
from geomq.broker.storage.memory import MemoryStore
from geomq.broker.storage.outbox import Outbox
from geomq.broker.storage.records import SessionRecord
from geomq.broker.storage.store import open_store
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.sessions.moves import HandOver

pytestmark = pytest.mark.anyio

PARIS, SYDNEY = BrokerId("paris"), BrokerId("sydney")
WHOLE = msgspec.msgpack.encode(Luggage(SessionRecord(user="alice"), (), {}, (), (), ()))


class Quiet(Outbox):
    """One that never writes of itself."""

    def __init__(self) -> None:
        pass

    def schedule(self) -> None:
        pass


def handovers() -> HandOvers:
    made = HandOvers(MemoryStore(), Quiet())
    made.load({})
    return made


def handed(token: int, part: int = 0, parts: int = 1, *, client: str = "r", data: bytes = WHOLE) -> HandOver:
    return HandOver(ClientId(client), token, part, parts, data)


def test_what_was_asked_for_is_taken_once() -> None:
    taking = handovers()
    token = taking.make_token("r")
    assert 0 <= token < 2**63
    found = taking.take(PARIS, handed(token))
    assert found is not None
    assert found[0].record.user == "alice"
    assert taking.take(PARIS, handed(token)) is None


def test_what_was_not_asked_for_is_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    taking = handovers()
    token = taking.make_token("r")
    others = (0, 1, token - 1, token + 1, token ^ 1 << 50, handovers().make_token("r"), 2**63 - 1)
    with caplog.at_level(logging.WARNING, "geomq.roaming"):
        for other in others:
            assert taking.take(PARIS, handed(other)) is None
        assert taking.take(PARIS, handed(token, client="s")) is None
    assert caplog.text.count("that this broker did not request") == len(others) + 1
    assert taking.take(PARIS, handed(token)) is not None, "the one that was"


def test_every_token_is_another() -> None:
    taking = handovers()
    tokens = [taking.make_token("r") for _ in range(1_000)]
    assert len(set(tokens)) == 1_000
    taking._number = (tokens[0] >> 39) - 1
    assert taking.take(PARIS, handed(tokens[0])) is not None
    assert taking.make_token("r") != tokens[0], "it was taken already"


def test_parts_come_in_any_order_but_from_one_broker() -> None:
    taking = handovers()
    token = taking.make_token("r")
    halves = WHOLE[:5], WHOLE[5:]
    assert taking.take(PARIS, handed(token, 1, 2, data=halves[1])) is None
    assert taking.take(SYDNEY, handed(token, 0, 2, data=b"?")) is None
    assert taking.take(PARIS, handed(token, 1, 2, data=halves[1])) is None
    assert taking.take(PARIS, handed(token, 0, 2, data=halves[0])) is not None


@pytest.mark.parametrize(("part", "parts"), [(-1, 1), (1, 1), (0, 0), (0, 257)])
def test_parts_that_cannot_be_are_dropped(part: int, parts: int) -> None:
    taking = handovers()
    assert taking.take(PARIS, handed(taking.make_token("r"), part, parts)) is None
    assert not taking._under_way


def test_parts_that_disagree_about_their_number_do_no_harm() -> None:
    taking = handovers()
    token = taking.make_token("r")
    assert taking.take(PARIS, handed(token, 5, 9)) is None
    assert taking.take(PARIS, handed(token, 0, 2)) is None
    assert taking.take(PARIS, handed(token, 0, 1)) is not None


def test_a_session_that_cannot_be_read_is_dropped() -> None:
    taking = handovers()
    assert taking.take(PARIS, handed(taking.make_token("r"), data=b"?")) is None


def test_only_so_many_are_under_way() -> None:
    taking = handovers()
    for number in range(UNDER_WAY_MAX):
        assert taking.take(PARIS, handed(taking.make_token(str(number)), 0, 2, client=str(number))) is None
    assert taking.take(PARIS, handed(taking.make_token("r"))) is None
    assert len(taking._under_way) == UNDER_WAY_MAX


async def test_what_was_asked_for_before_a_restart_is_taken_after_it(tmp_path: Path) -> None:
    tokens: list[int] = []
    for start in range(3):
        store = open_store(tmp_path, sync=False)
        notes = store.load().notes
        committer = Committer(store, lambda _: None)
        taking = HandOvers(store, Quiet())
        taking.load(notes)
        if start == 0:
            on_disk = store._writes
            assert not on_disk, "the secret is on disk before it is used"
            tokens = [taking.make_token("r"), taking.make_token("s")]
            store.put_note(PART, bytes(12), b"of a version that is gone")
        elif start == 1:
            assert taking.take(PARIS, handed(tokens[0], 0, 2, data=WHOLE[:5])) is None
            assert taking.take(PARIS, handed(tokens[1], client="s")) is not None
        else:
            assert len(notes[SECRET][b""]) == 32
            assert [key[12:] for key in notes[PART]] == [b"paris"]
            assert taking.take(PARIS, handed(tokens[1], client="s")) is None
            assert taking.take(PARIS, handed(tokens[0], 1, 2, data=WHOLE[5:])) is not None
        await committer.close()
        store.close()
