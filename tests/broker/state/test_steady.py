"""The clock that expiry counts in does not jump, and a restart takes off no more than its bound."""

import pytest

from geomq.broker.state.steady import PAUSE_S, SteadyClock

DAY_S = 86_400.0


class Clocks:
    def __init__(self) -> None:
        self.monotonic_s, self.unix_s = 50.0, 1_000_000.0

    def pass_(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.unix_s += seconds

    def start(self, note: bytes | None = None, *, away_s_max: float = 3_600.0) -> SteadyClock:
        self.monotonic_s = 7.0
        notes = {} if note is None else {b"": note}
        return SteadyClock(lambda: self.monotonic_s, lambda: self.unix_s, notes, away_s_max=away_s_max)


def test_it_begins_with_unix_time_and_no_jump_moves_it() -> None:
    clocks = Clocks()
    clock = clocks.start()
    assert clock() == 1_000_000.0
    clocks.pass_(3)
    clocks.unix_s += DAY_S
    assert clock() == 1_000_003.0
    assert clock.unix_s(clock() + 60) == clocks.unix_s + 60


@pytest.mark.parametrize(
    ("away_s", "jump_s", "counts_s"),
    [(100, 0, 100), (0, DAY_S, 3_600), (100, -DAY_S, 0), (2 * DAY_S, 0, 3_600), (10, 5, 15)],
)
def test_what_passes_while_the_broker_is_away_is_bounded(away_s: float, jump_s: float, counts_s: float) -> None:
    clocks = Clocks()
    clock = clocks.start()
    clocks.pass_(1_000)
    note, shown = clock.note(finally_=True), clock()
    clocks.pass_(away_s)
    clocks.unix_s += jump_s
    assert clocks.start(note)() == shown + counts_s


def test_a_clock_that_was_wrong_at_one_start_does_no_harm_at_the_next() -> None:
    clocks = Clocks()
    first = clocks.start()
    note = first.note()
    clocks.unix_s += DAY_S
    second = clocks.start(note, away_s_max=60)
    note, shown = second.note(), second()
    clocks.unix_s -= DAY_S
    assert clocks.start(note, away_s_max=60)() == shown
    assert shown == 1_000_060.0


def test_it_is_written_down_now_and_then_and_damage_is_as_if_it_was_not() -> None:
    clocks = Clocks()
    clock = clocks.start()
    assert clock.note() is not None
    assert clock.note() is None
    clocks.pass_(PAUSE_S)
    assert clock.note() is not None
    assert clocks.start(b"\xc1")() == clocks.unix_s
