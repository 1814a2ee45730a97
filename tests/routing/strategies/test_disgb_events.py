"""Rendezvous close to the subscribers: Figure 3 and the left column of Table I, sentence by sentence."""

from collections.abc import Callable

import pytest
from tests.routing.stage import Stage, circle, moved, published, row_of_squares, subscribed, unsubscribed

from geomq.geo import Circle
from geomq.routing.core.messages import ForwardEvent
from geomq.routing.core.model import ClientId, Event, EventId

EG1, EG2, EG3 = circle(5, 4, 150), circle(5, 10, 300), circle(5, 16, 150)
WIDTHS = {1: circle(5, 25, 200), 2: circle(5, 30, 200), 3: circle(5, 25, 700), 5: None}
"""Fences by how many of five areas they meet."""


def figure_3() -> Stage:
    stage = Stage(row_of_squares(2), "disgb_events")
    stage.do("b1", moved("p", 5, 5))
    stage.do("b1", moved("s1", 5, 8))
    stage.do("b1", subscribed("s1", "t"))
    stage.do("b2", moved("s2", 5, 12))
    stage.do("b2", subscribed("s2", "t"))
    assert not stage.wire.messages
    stage.forget()
    return stage


def test_figure_3_is_what_happens(check_golden: Callable[[str, str], None]) -> None:
    stage = Stage(row_of_squares(2), "disgb_events")
    stage.say("B1 has the square from 0 to 10 degrees east, B2 the next. P and S1 are at B1, S2 is at B2.")
    for client, lon, home in (("p", 5.0, "b1"), ("s1", 3.0, "b1"), ("s2", 16.0, "b2")):
        stage.do(home, moved(client, 5.0, lon))
    stage.say("Subscriptions stay at home.")
    stage.do("b1", subscribed("s1", "t"))
    stage.do("b2", subscribed("s2", "t"))
    stage.say("EG1 does not intersect with the area of B2: the event is matched at B1 alone.")
    stage.do("b1", published("p", "t", EG1))
    stage.say("EG2 intersects with both areas: the event is matched at B1 and forwarded for matching to B2.")
    stage.do("b1", published("p", "t", circle(5, 10, 1000)))
    stage.say("EG3 only intersects with the area of B2: matching at B1 is omitted.")
    stage.do("b1", published("p", "t", EG3))
    check_golden("disgb-figure-3", stage.text())


@pytest.mark.parametrize(
    ("fence", "forwarded"), [(EG1, []), (EG2, [("b1", "b2")]), (EG3, [("b1", "b2")])], ids=["EG1", "EG2", "EG3"]
)
def test_an_event_goes_to_brokers_whose_area_meets_its_fence(fence: Circle, forwarded: list[tuple[str, str]]) -> None:
    stage = figure_3()
    stage.do("b1", published("p", "t", fence))
    assert stage.wire.of(ForwardEvent) == forwarded == [(a, b) for a, b, _ in stage.wire.messages]


def test_matching_at_the_home_is_omitted_if_its_area_does_not_meet_the_fence() -> None:
    stage = figure_3()
    strategy = stage.strategy("b1")

    def refuse(event: Event) -> None:
        raise AssertionError("matched at b1")

    strategy.match_here = refuse
    stage.do("b1", published("p", "t", EG3))
    with pytest.raises(AssertionError):
        stage.do("b1", published("p", "t", EG1))


def table_one(home: str) -> Stage:
    stage = Stage(row_of_squares(5), "disgb_events")
    stage.do(home, moved("c", 5, 10 * int(home[1:]) - 5))
    stage.do(home, subscribed("c", "t", circle(5, 25, 700)))
    stage.forget()
    return stage


def test_a_subscriber_location_update_has_one_rendezvous() -> None:
    """When selecting RPs close to the subscribers, events are only matched at the LB, so the number of RPs is 1."""
    stage = table_one("b3")
    stage.do("b3", moved("c", 6, 26))
    assert not stage.wire.messages
    assert [len(stage.strategy(f"b{i}").table) for i in range(1, 6)] == [0, 0, 1, 0, 0]


@pytest.mark.parametrize("fence", WIDTHS.values(), ids=str)
def test_a_subscription_update_has_one_rendezvous(fence: Circle | None) -> None:
    stage = table_one("b3")
    stage.do("b3", subscribed("c", "t", fence))
    stage.do("b3", unsubscribed("c", "t"))
    assert not stage.wire.messages


def test_a_publisher_location_update_is_carried_by_its_events() -> None:
    """An LB piggybacks the current publisher location on each event, so the number of RPs is 1."""
    stage = Stage(row_of_squares(5), "disgb_events")
    stage.do("b1", moved("p", 5, 5))
    stage.do("b1", moved("p", 6, 6))
    assert not stage.wire.messages
    stage.do("b1", published("p", "t", WIDTHS[2]))
    places = [message.event.location for _, _, message in stage.wire.messages if isinstance(message, ForwardEvent)]
    assert [(place.lat, place.lon) for place in places if place] == [(6, 6), (6, 6)]


@pytest.mark.parametrize(("rendezvous", "fence"), WIDTHS.items(), ids=lambda x: str(x) if isinstance(x, int) else "")
@pytest.mark.parametrize("home", ["b1", "b3"])
def test_an_event_has_a_rendezvous_for_each_area_its_fence_meets(
    home: str, rendezvous: int, fence: Circle | None
) -> None:
    """Events are matched at any broker whose area intersects with the event's fence, so the number of RPs is |E|."""
    stage = table_one(home)
    event = Event(EventId(stage.node(home).me, 0, 99), "t", ClientId("c"), None, fence)
    targets = stage.strategy(home).event_targets(event)
    assert len(targets) == rendezvous
    stage.do(home, published("c", "t", fence))
    assert len(stage.wire.messages) == rendezvous - (home in targets)
