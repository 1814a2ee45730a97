"""Running totals of subscriptions."""

from geomq.broker.state.filters import Filters


def test_totals_are_of_all_that_came_and_did_not_go() -> None:
    filters = Filters()
    filters.add(1, 3)
    filters.add(1, 5)
    filters.add(-1, -3)
    assert (filters.count, filters.levels) == (1, 5)
