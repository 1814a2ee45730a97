"""Rows and columns: what meets where, and who tells the subscriber's home."""

from collections.abc import Callable

import pytest
from tests.routing.stage import Stage, grid_of, moved, published, row_of_squares, subscribed, unsubscribed

from geomq.routing.core.messages import DeliverEvent, DropSubscription, ForwardEvent, PutLocation, PutSubscription


def test_events_and_subscriptions_meet_where_rows_cross_columns(check_golden: Callable[[str, str], None]) -> None:
    stage = Stage(grid_of(3), "grid_quorum")
    stage.say("A subscription at r2c2 goes to its row and its column.")
    stage.do("r2c2", subscribed("s", "t"))
    stage.say("So does an event at r0c0. They meet at r0c2 and at r2c0; r0c2, reached along the row, notifies r2c2.")
    stage.do("r0c0", published("p", "t"))
    check_golden("grid-quorum", stage.text())


def test_with_notify_twice_both_crossings_tell_and_the_second_is_dropped(
    check_golden: Callable[[str, str], None],
) -> None:
    stage = Stage(grid_of(2), "grid_quorum", {"notify_twice": True})
    stage.do("r1c1", subscribed("s", "t"))
    stage.forget()
    stage.say("An event at r0c0 meets the subscription of r1c1 at r0c1 and at r1c0; both notify r1c1.")
    stage.do("r0c0", published("p", "t"))
    check_golden("grid-quorum-twice", stage.text())
    assert stage.wire.of(DeliverEvent) == [("r0c1", "r1c1"), ("r1c0", "r1c1")]
    assert stage.wire.receivers() == {"s": 1}


@pytest.mark.parametrize("side", [2, 3, 5])
def test_an_event_costs_the_row_and_the_column(side: int) -> None:
    stage = Stage(grid_of(side), "grid_quorum")
    stage.do("r1c1", published("p", "t"))
    assert len(stage.wire.of(ForwardEvent)) == len(stage.wire.messages) == 2 * (side - 1)


@pytest.mark.parametrize("side", [2, 3, 5])
def test_a_subscription_its_moves_and_its_end_cost_the_row_and_the_column(side: int) -> None:
    stage = Stage(grid_of(side), "grid_quorum")
    stage.do("r1c1", subscribed("s", "t"))
    stage.do("r1c1", moved("s", 10, 10))
    stage.do("r1c1", unsubscribed("s", "t"))
    for kind in (PutSubscription, PutLocation, DropSubscription):
        assert len(stage.wire.of(kind)) == 2 * (side - 1)
    assert len(stage.wire.messages) == 6 * (side - 1)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("home", [f"r{row}c{column}" for row in range(3) for column in range(3)])
def test_every_home_hears_of_an_event_once_or_twice_as_asked(home: str, twice: bool) -> None:
    stage = Stage(grid_of(3), "grid_quorum", {"notify_twice": twice})
    stage.do(home, subscribed("s", "t"))
    stage.forget()
    stage.do("r1c1", published("p", "t"))
    in_quorum = home[1] == "1" or home[3] == "1"
    assert len(stage.wire.of(DeliverEvent)) == (0 if in_quorum else 1 + twice)
    assert stage.wire.receivers() == {"s": 1}


def test_a_broker_of_the_publishers_row_or_column_is_not_told_again() -> None:
    stage = Stage(grid_of(3), "grid_quorum", {"notify_twice": True})
    stage.do("r0c2", subscribed("s", "t"))
    stage.forget()
    stage.do("r0c0", published("p", "t"))
    assert stage.wire.of(DeliverEvent) == []


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("count", [2, 3, 5, 7, 8, 11])
def test_a_square_with_holes_serves_everybody_once(count: int, twice: bool) -> None:
    brokers = [f"b{i}" for i in range(1, count + 1)]
    stage = Stage(row_of_squares(count), "grid_quorum", {"notify_twice": twice})
    for home in brokers:
        stage.do(home, subscribed(f"s-{home}", "t"))
    for home in brokers:
        stage.forget()
        stage.do(home, published(f"p-{home}", "t"))
        assert stage.wire.receivers() == {f"s-{other}": 1 for other in brokers}
        assert twice or len(stage.wire.of(DeliverEvent)) <= count - 1


@pytest.mark.parametrize("side", [1, 2, 4])
def test_a_square_is_served(side: int) -> None:
    stage = Stage(grid_of(side), "grid_quorum")
    stage.do("r0c0", subscribed("s", "t"))
    last = f"r{side - 1}c{side - 1}"
    stage.do(last, published("p", "t"))
    assert stage.wire.receivers() == {"s": 1}
