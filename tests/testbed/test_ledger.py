"""The ledger finds what is missing, too much or doubled, and nothing else."""

from pathlib import Path

import pytest

from geomq.errors import DataError
from geomq.testbed.ledger import (
    Acknowledged,
    Connected,
    Entry,
    Healed,
    Received,
    Subscribed,
    judge,
    read_entries,
    write_entries,
)

PARIS, BERLIN = "48.9,2.4", "52.5,13.4"
NEAR_PARIS = "geo:48.9,2.4;u=10000"


def acknowledged(event: str, *, fence: str | None = None, qos: int = 1) -> Acknowledged:
    return Acknowledged(event, "t/x", BERLIN, fence, qos, 1.0)


def received(event: str, receiver: str, t_ms: float = 2.0) -> Received:
    return Received(event, receiver, "t/x", 1, t_ms)


WANTS = Subscribed("p", "t/#", PARIS, None, 2)


def test_a_kept_promise_is_clean() -> None:
    verdict = judge([WANTS, acknowledged("a"), received("a", "p")])
    assert verdict.clean
    assert (verdict.promised, verdict.kept) == (1, 1)


def test_an_acknowledged_event_that_never_came_is_lost() -> None:
    verdict = judge([WANTS, acknowledged("a"), acknowledged("b"), received("b", "p")])
    assert verdict.lost == 1
    assert verdict.examples["lost"] == ["a at p"]
    assert not verdict.clean


def test_fences_decide_who_is_promised_an_event() -> None:
    far = Subscribed("b", "t/#", BERLIN, None, 1)
    picky = Subscribed("q", "t/#", PARIS, NEAR_PARIS, 1)
    verdict = judge([WANTS, far, picky, acknowledged("a", fence=NEAR_PARIS), received("a", "p"), received("a", "b")])
    assert (verdict.promised, verdict.lost, verdict.unexpected) == (1, 0, 1)
    assert verdict.examples["unexpected"] == ["a at b"]


def test_an_event_nobody_published_is_unexpected() -> None:
    assert judge([WANTS, received("forged", "p")]).unexpected == 1


def test_a_repeat_counts_as_a_duplicate_only_with_qos_2() -> None:
    twice = [received("a", "p"), received("a", "p")]
    assert judge([WANTS, acknowledged("a", qos=2), *twice]).duplicated == 1
    verdict = judge([WANTS, acknowledged("a", qos=1), *twice])
    assert (verdict.duplicated, verdict.repeated, verdict.clean) == (0, 1, True)


def got(event: str, t_ms: float, *, dup: bool = False) -> Received:
    return Received(event, "p", "t/x", 2, t_ms, dup)


def let_in(broker: str, t_ms: float, *, anew: bool = False) -> Connected:
    return Connected("p", broker, not anew, t_ms)


@pytest.mark.parametrize(
    ("happened", "excused"),
    [
        ([let_in("a", 1, anew=True), got("e:1", 2), let_in("b", 3), got("e:1", 4)], False),
        ([let_in("a", 1, anew=True), got("e:1", 2), let_in("b", 3), got("e:1", 4, dup=True)], False),
        ([let_in("a", 1, anew=True), got("e:1", 2), let_in("b", 3, anew=True), got("e:1", 4)], False),
        ([let_in("a", 1, anew=True), got("e:1", 2), let_in("b", 3, anew=True), got("e:1", 4, dup=True)], True),
        (
            [let_in("a", 1), let_in("b", 2, anew=True), got("e:1", 3), let_in("c", 4), got("e:1", 5)],
            False,
        ),
        (
            [let_in("a", 1), let_in("b", 2, anew=True), got("e:1", 3), let_in("a", 4), got("e:1", 5)],
            True,
        ),
        (
            [let_in("a", 1), let_in("b", 2, anew=True), let_in("a", 3), got("e:1", 4), got("e:1", 5)],
            False,
        ),
    ],
    ids=[
        "moved with its session",
        "sent again after a move",
        "a new packet in a new session",
        "unanswered in a session that could not be found",
        "the new session moved",
        "the old session goes on where it was",
        "twice in the old session",
    ],
)
def test_with_qos_2_an_event_may_come_again_only_because_of_a_session_that_could_not_be_found(
    happened: list[Entry], excused: bool
) -> None:
    verdict = judge([WANTS, acknowledged("e:1", qos=2), *happened])
    assert (verdict.started_anew, verdict.duplicated) == (int(excused), int(not excused))
    assert verdict.clean == excused


def test_events_that_come_after_later_ones_of_their_sender_are_out_of_order() -> None:
    events = ["s:1", "s:3", "o:1", "s:2", "s:3", "s:1", "s:4", "o:2"]
    promised = [acknowledged(event) for event in dict.fromkeys(events)]
    verdict = judge([WANTS, *promised, *(received(event, "p") for event in events)])
    assert (verdict.out_of_order, verdict.repeated, verdict.clean) == (1, 2, True)
    assert verdict.examples["out_of_order"] == ["s:2 at p after 3"]
    other = Subscribed("q", "t/#", PARIS, None, 2)
    parted = [received("s:2", "p"), received("s:1", "q"), received("s:2", "q")]
    assert judge([WANTS, other, *promised, *parted]).out_of_order == 0


def test_what_came_after_healing_is_recovered_and_timed() -> None:
    verdict = judge([WANTS, acknowledged("a"), Healed(1_000.0), received("a", "p", 3_500.0)])
    assert (verdict.recovered, verdict.converged_s) == (1, 2.5)


def test_records_survive_the_disk(tmp_path: Path) -> None:
    entries: list[Entry] = [WANTS, acknowledged("a"), received("a", "p"), Healed(5.0)]
    path = tmp_path / "records.jsonl"
    write_entries(path, entries)
    assert list(read_entries(path)) == entries
    path.write_text('{"kind": "Nonsense"}\n')
    with pytest.raises(DataError, match="line 1 is not a record"):
        list(read_entries(path))


def test_what_took_long_is_counted_from_when_all_was_healed_first_after_it_was_acknowledged() -> None:
    times = [Healed(1_000.0), Healed(5_000.0), Healed(9_000.0)]
    early, late = Acknowledged("a", "t/x", BERLIN, None, 1, 2_000.0), Acknowledged("b", "t/x", BERLIN, None, 1, 9_500.0)
    verdict = judge([WANTS, early, late, *times, received("a", "p", 8_000.0), received("b", "p", 9_700.0)])
    assert verdict.recovered == 2
    assert verdict.converged_s == 3.0
    in_time = judge([WANTS, early, *times, received("a", "p", 4_000.0)])
    assert (in_time.recovered, in_time.converged_s) == (0, 0.0)
