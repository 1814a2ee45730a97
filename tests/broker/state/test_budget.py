"""The memory budget: what counts as in use, and what is shed from which share on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.state.budget import BUFFER_BYTES, DISTRUST, FEW_SUBSCRIPTIONS, PERCENT, Budget, Shed

LIMIT = 10_000


def test_without_a_limit_nothing_is_shed() -> None:
    budget = Budget()
    assert not budget.look(resident=1 << 50, held=1 << 50)
    assert budget.sheds is Shed.NOTHING


@pytest.mark.parametrize(("level", "percent"), PERCENT.items())
def test_each_level_begins_at_its_share_and_ends_somewhat_below(level: Shed, percent: int) -> None:
    budget = Budget(LIMIT)
    at = LIMIT * percent // 100
    assert budget.look(resident=at, held=0)
    assert budget.sheds is level
    assert not budget.look(resident=at - LIMIT // 100, held=0)
    budget.look(resident=at - LIMIT // 25, held=0)
    assert budget.sheds < level


def test_what_is_let_go_counts_no_more_although_the_process_keeps_it() -> None:
    budget: Any = Budget(LIMIT)
    budget.look(resident=1_000, held=0)
    budget.look(resident=9_000, held=8_000)
    assert budget.sheds == Shed.GROWTH
    budget.look(resident=9_000, held=2_000)
    assert budget.used == 3_000
    assert budget.sheds == Shed.NOTHING
    budget.look(resident=9_000, held=7_500)
    assert budget.used == 8_500
    assert budget.sheds == Shed.SLOW_READERS


def test_what_goes_back_to_the_system_is_not_free_any_more() -> None:
    budget = Budget(LIMIT)
    budget.look(resident=9_000, held=8_000)
    budget.look(resident=9_000, held=0)
    budget.look(resident=2_000, held=0)
    assert budget.free == 1_000


def test_growth_that_nothing_held_explains_counts_at_once() -> None:
    budget = Budget(LIMIT)
    budget.look(resident=1_000, held=0)
    budget.look(resident=9_600, held=0)
    assert budget.sheds is Shed.PUBLISHERS


def test_a_process_that_grows_beyond_all_it_occupied_has_nothing_free_whatever_the_estimates_say() -> None:
    budget = Budget(LIMIT)
    budget.look(resident=9_500, held=1_000_000)
    budget.look(resident=9_500, held=0)
    assert budget.used == 0
    budget.look(resident=9_500 + 9_500 // DISTRUST + 1, held=0)
    assert budget.sheds is Shed.PUBLISHERS


@given(st.lists(st.tuples(st.integers(0, 2 * LIMIT), st.integers(0, 4 * LIMIT)), max_size=50))
def test_what_is_in_use_is_never_less_than_nothing_nor_more_than_what_the_process_occupies(
    looks: list[tuple[int, int]],
) -> None:
    budget = Budget(LIMIT)
    for resident, held in looks:
        budget.look(resident=resident, held=held)
        assert 0 <= budget.used <= (resident or held)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=60))
def test_with_good_estimates_and_a_process_that_keeps_everything_the_use_is_exact(steps: list[tuple[int, int]]) -> None:
    """Memory of which a process keeps what it freed, and takes from that first."""
    budget, live, resident = Budget(1 << 40), 0, 1_000
    budget.look(resident=resident, held=live)
    for added, gone in steps:
        live = max(0, live + added - gone)
        resident = max(resident, 1_000 + live)
        budget.look(resident=resident, held=live)
        assert budget.used == 1_000 + live


def test_where_the_system_does_not_say_the_estimates_count() -> None:
    budget = Budget(LIMIT)
    budget.look(resident=0, held=9_000)
    assert budget.sheds is Shed.GROWTH


def test_buffers_are_short_while_slow_readers_are_shed() -> None:
    budget = Budget(LIMIT)
    budget.look(resident=8_000, held=0)
    assert budget.buffer_bytes(1 << 20) == 1 << 20
    budget.look(resident=8_500, held=0)
    assert budget.buffer_bytes(1 << 20) == BUFFER_BYTES
    assert budget.buffer_bytes(1_024) == 1_024


def test_those_with_few_subscriptions_may_subscribe_for_longest() -> None:
    budget: Any = Budget(LIMIT)
    budget.look(resident=8_900, held=0)
    assert budget.may_subscribe(5_000)
    budget.look(resident=9_000, held=0)
    assert not budget.may_subscribe(FEW_SUBSCRIPTIONS)
    assert budget.may_subscribe(FEW_SUBSCRIPTIONS - 1)
    budget.look(resident=9_500, held=0)
    assert not budget.may_subscribe(0)
