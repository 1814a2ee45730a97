"""The baselines: everything everywhere, on one side or the other."""

from collections.abc import Callable

import pytest
from tests.routing.stage import Stage, circle, moved, published, row_of_squares, subscribed, unsubscribed

from geomq.errors import ConfigError
from geomq.routing.core.messages import DeliverEvent, ForwardEvent, PutLocation, PutSubscription
from geomq.routing.strategies.flooding import Single


def test_both_ways_of_flooding_are_what_they_say(check_golden: Callable[[str, str], None]) -> None:
    lines = []
    for strategy in ("flood_events", "flood_subscriptions"):
        stage = Stage(row_of_squares(3), strategy)
        stage.say(f"{strategy}: a subscription at b1, an event at b2")
        stage.do("b1", subscribed("s", "t"))
        stage.do("b2", published("p", "t"))
        lines.append(stage.text())
    check_golden("flooding", "\n".join(lines))


@pytest.mark.parametrize("count", [2, 5])
def test_flooded_events_cost_one_message_to_each_other_broker_whatever_their_fence(count: int) -> None:
    stage = Stage(row_of_squares(count), "flood_events")
    stage.do("b1", moved("s", 5, 5))
    stage.do("b1", subscribed("s", "t"))
    stage.do("b1", published("s", "t", circle(5, 5, 1)))
    assert len(stage.wire.of(ForwardEvent)) == len(stage.wire.messages) == count - 1
    assert stage.wire.receivers() == {"s": 1}


@pytest.mark.parametrize("count", [2, 5])
def test_flooded_subscriptions_and_moves_cost_one_message_to_each_other_broker(count: int) -> None:
    stage = Stage(row_of_squares(count), "flood_subscriptions")
    stage.do("b1", subscribed("s", "t", circle(5, 5, 1)))
    stage.do("b1", moved("s", 5, 5))
    assert len(stage.wire.of(PutSubscription)) == len(stage.wire.of(PutLocation)) == count - 1
    stage.do("b1", unsubscribed("s", "t"))
    assert len(stage.wire.messages) == 3 * (count - 1)


def test_with_flooded_subscriptions_an_event_goes_once_to_each_home_with_a_match() -> None:
    stage = Stage(row_of_squares(4), "flood_subscriptions")
    for client, home in (("x", "b1"), ("y", "b1"), ("z", "b3")):
        stage.do(home, subscribed(client, "t"))
    stage.forget()
    stage.do("b2", published("p", "t"))
    assert stage.wire.of(DeliverEvent) == [("b2", "b1"), ("b2", "b3")]
    assert stage.wire.receivers() == {"x": 1, "y": 1, "z": 1}


def test_a_move_before_any_subscription_is_nobodys_business() -> None:
    stage = Stage(row_of_squares(3), "flood_subscriptions")
    stage.do("b1", moved("s", 5, 5))
    assert not stage.wire.messages


def test_one_broker_needs_no_messages() -> None:
    stage = Stage(row_of_squares(1), "single")
    stage.do("b1", subscribed("s", "#"))
    stage.do("b1", published("p", "t"))
    assert not stage.wire.messages
    assert stage.wire.receivers() == {"s": 1}


def test_single_refuses_a_federation() -> None:
    with pytest.raises(ConfigError, match="serves one broker; this federation has 2"):
        Single.check(row_of_squares(2))
