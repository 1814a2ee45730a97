"""One broker for each topic: where events and subscriptions meet, and what wildcards cost."""

from collections.abc import Callable

import pytest
from tests.routing.stage import Stage, moved, nearest_of, published, row_of_squares, subscribed, unsubscribed

from geomq.geo import Location
from geomq.routing.core.events import FederationChanged
from geomq.routing.core.messages import DeliverEvent, DropSubscription, ForwardEvent, PutLocation, PutSubscription
from geomq.routing.strategies.ring import HashRing

BROKERS = ("b1", "b2", "b3", "b4")


def owner_of(topic: str) -> str:
    return BROKERS[HashRing(BROKERS).owner(topic)]


def topic_of(broker: str) -> str:
    """A topic that belongs to the broker."""
    return next(topic for topic in map(str, range(1000)) if owner_of(topic) == broker)


def test_a_topic_has_one_rendezvous(check_golden: Callable[[str, str], None]) -> None:
    stage, topic = Stage(row_of_squares(4), "dht"), topic_of("b3")
    stage.say(f"Topic {topic} belongs to b3.")
    stage.do("b1", moved("s", 5, 5))
    stage.do("b1", subscribed("s", f"{topic}/+"))
    stage.say("An event goes there even if its publisher and its subscriber are at the same broker.")
    stage.do("b1", published("p", f"{topic}/x"))
    stage.say("The subscriber's moves go there too.")
    stage.do("b1", moved("s", 5, 6))
    stage.say("A filter that starts with a wildcard is held by every broker.")
    stage.do("b1", subscribed("s", "#"))
    check_golden("dht", stage.text())


@pytest.mark.parametrize("home", BROKERS)
def test_an_event_costs_one_message_to_the_topics_broker_and_one_to_each_home(home: str) -> None:
    stage, topic = Stage(row_of_squares(4), "dht"), topic_of("b2")
    stage.do("b1", subscribed("s1", topic))
    stage.do("b4", subscribed("s4", topic))
    stage.forget()
    stage.do(home, published("p", topic))
    assert stage.wire.of(ForwardEvent) == [(home, "b2")] * (home != "b2")
    assert stage.wire.of(DeliverEvent) == [("b2", "b1"), ("b2", "b4")]
    assert stage.wire.receivers() == {"s1": 1, "s4": 1}


def test_a_subscription_and_its_end_cost_one_message() -> None:
    stage, topic = Stage(row_of_squares(4), "dht"), topic_of("b2")
    stage.do("b1", subscribed("s", topic))
    stage.do("b1", moved("s", 5, 6))
    stage.do("b1", unsubscribed("s", topic))
    assert stage.wire.of(PutSubscription, PutLocation, DropSubscription) == [("b1", "b2")] * 3


def test_a_leading_wildcard_meets_every_topic_once() -> None:
    stage = Stage(row_of_squares(4), "dht")
    stage.do("b1", subscribed("s", "#"))
    stage.do("b1", subscribed("s", "+"))
    for home in BROKERS:
        for topic in map(topic_of, BROKERS):
            stage.do(home, published("p", topic))
    assert stage.wire.receivers() == {"s": 16}


def test_topics_move_when_brokers_come_and_their_subscriptions_with_them() -> None:
    places = {f"b{i}": Location(5.0, 10.0 * i) for i in range(1, 5)}
    stage = Stage(nearest_of(places), "dht")
    topic = topic_of("b4")
    stage.do("b1", subscribed("s", topic))
    del places["b4"]
    fewer = nearest_of(places)
    for broker in ("b1", "b2", "b3"):
        stage.feed(broker, FederationChanged(fewer))
    stage.do("b2", published("p", topic))
    assert stage.wire.receivers() == {"s": 1}
