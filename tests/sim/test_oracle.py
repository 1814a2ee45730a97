"""Who should have received what, by the definition of "delivered"."""

import pytest
from tests.routing.stage import circle, moved, published, subscribed, unsubscribed

from geomq.geo import Circle, Location
from geomq.routing.core.events import ClientGone, ClientMoved, ClientPublished
from geomq.routing.core.model import ClientId
from geomq.sim.oracle import Oracle, inside

HERE, THERE = circle(5, 5, 10), circle(50, 50, 10)


def oracle_with(fence: Circle | None, at: tuple[float, float] | None, topic_filter: str = "a/+") -> Oracle:
    oracle = Oracle()
    if at is not None:
        oracle.observe(moved("s", *at))
    oracle.observe(subscribed("s", topic_filter, fence))
    return oracle


@pytest.mark.parametrize(
    ("subscription_fence", "subscriber_at", "event_fence", "publisher_at", "reached"),
    [
        (None, None, None, None, True),
        (HERE, None, None, (5, 5), True),
        (HERE, None, None, (6, 6), False),
        (HERE, None, None, None, False),
        (None, (5, 5), HERE, None, True),
        (None, (6, 6), HERE, None, False),
        (None, None, HERE, None, False),
        (HERE, (50, 50), THERE, (5, 5), True),
        (HERE, (50, 50), HERE, (5, 5), False),
        (THERE, (50, 50), THERE, (5, 5), False),
    ],
)
def test_both_checks_have_to_pass(
    subscription_fence: Circle | None,
    subscriber_at: tuple[float, float] | None,
    event_fence: Circle | None,
    publisher_at: tuple[float, float] | None,
    reached: bool,
) -> None:
    oracle = oracle_with(subscription_fence, subscriber_at)
    if publisher_at is not None:
        oracle.observe(moved("p", *publisher_at))
    assert oracle.observe(published("p", "a/b", event_fence)) == (frozenset({"s"}) if reached else frozenset())


@pytest.mark.parametrize(
    ("topic_filter", "topic", "reached"),
    [("a/+", "a/b", True), ("a/+", "a/b/c", False), ("#", "a/b", True), ("#", "$a/b", False), ("$a/#", "$a/b", True)],
)
def test_topics_match_as_in_mqtt(topic_filter: str, topic: str, reached: bool) -> None:
    assert bool(oracle_with(None, None, topic_filter).observe(published("p", topic))) == reached


def test_a_publish_that_carries_a_place_moves_the_publisher_first() -> None:
    oracle = oracle_with(HERE, None)
    assert oracle.observe(ClientPublished(ClientId("p"), "a/b", location=Location(5, 5))) == frozenset({"s"})
    assert oracle.observe(published("p", "a/b")) == frozenset({"s"})


def test_one_of_several_filters_is_enough_and_counts_once() -> None:
    oracle = oracle_with(HERE, None)
    oracle.observe(subscribed("s", "#"))
    assert oracle.observe(published("p", "a/b")) == frozenset({"s"})


def test_what_ended_is_not_expected() -> None:
    for end in (unsubscribed("s", "a/+"), ClientGone(ClientId("s"))):
        oracle = oracle_with(None, None)
        assert oracle.observe(end) is None
        assert oracle.observe(published("p", "a/b")) == frozenset()


def test_a_withdrawn_place_is_no_place() -> None:
    oracle = oracle_with(None, (5, 5))
    oracle.observe(ClientMoved(ClientId("s"), None))
    assert oracle.observe(published("p", "a/b", HERE)) == frozenset()


def test_a_border_is_inside() -> None:
    fence = Circle(Location(0, 0), 0.0)
    assert inside(fence, Location(0, 0))
    assert inside(None, None)
    assert not inside(fence, None)
