"""The ledger finds what is missing, too much or doubled, and nothing else."""

from pathlib import Path

import pytest

from geomq.errors import DataError
from geomq.testbed.ledger import Acknowledged, Entry, Healed, Received, Subscribed, judge, read_entries, write_entries

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


def test_what_came_after_healing_is_recovered_and_timed() -> None:
    verdict = judge([WANTS, acknowledged("a"), Healed(1_000.0), received("a", "p", 3_500.0)])
    assert (verdict.recovered, verdict.converged_s) == (1, 2.5)


def test_records_survive_the_disk(tmp_path: Path) -> None:
    entries: list[Entry] = [WANTS, acknowledged("a"), received("a", "p"), Healed(5.0)]
    path = tmp_path / "records.jsonl"
    write_entries(path, entries)
    assert list(read_entries(path)) == entries
    path.write_text('{"kind": "Nonsense"}\n')
    with pytest.raises(DataError, match="line 1 is no record"):
        list(read_entries(path))
