"""Rendezvous close to the publishers: Figure 4 and the right column of Table I, sentence by sentence."""

from collections.abc import Callable

import pytest
from tests.routing.stage import Stage, circle, moved, published, row_of_squares, subscribed, unsubscribed

from geomq.geo import Circle
from geomq.routing.core.events import ClientGone
from geomq.routing.core.messages import DeliverEvent, DropClient, DropSubscription, PutLocation, PutSubscription
from geomq.routing.core.model import ClientId, Subscriber

SG1, SG2, SG3 = circle(5, 4, 150), circle(5, 10, 300), circle(5, 16, 150)
WIDTHS = {1: circle(5, 25, 200), 2: circle(5, 30, 200), 3: circle(5, 25, 700), 5: None}
"""Fences by how many of five areas they meet."""


def test_figure_4_is_what_happens(check_golden: Callable[[str, str], None]) -> None:
    stage = Stage(row_of_squares(2), "disgb_subscriptions")
    stage.say("B1 has the square from 0 to 10 degrees east, B2 the next. S is at B1, P1 at B1, P2 at B2.")
    for client, lon, home in (("s", 5.0, "b1"), ("p1", 4.0, "b1"), ("p2", 16.0, "b2")):
        stage.do(home, moved(client, 5.0, lon))
    stage.say("SG1 and the area of B2 do not intersect: the subscription stays at B1.")
    stage.do("b1", subscribed("s", "one", SG1))
    stage.say("SG2 intersects with both areas: the subscription is kept at B1 and forwarded to B2.")
    stage.do("b1", subscribed("s", "two", SG2))
    stage.say("SG3 only intersects with the area of B2: it is forwarded there and discarded at B1.")
    stage.do("b1", subscribed("s", "three", SG3))
    stage.say("A location update goes wherever any of the subscriptions is.")
    stage.do("b1", moved("s", 5.0, 6.0))
    stage.say("Events are matched at home; only a match leaves it.")
    stage.do("b1", published("p1", "one"))
    stage.do("b2", published("p2", "one"))
    stage.do("b2", published("p2", "three"))
    check_golden("disgb-figure-4", stage.text())


@pytest.mark.parametrize(
    ("fence", "held_by"),
    [(SG1, ["b1"]), (SG2, ["b1", "b2"]), (SG3, ["b2"])],
    ids=["SG1", "SG2", "SG3"],
)
def test_a_subscription_is_held_where_its_fence_meets_the_area(fence: Circle, held_by: list[str]) -> None:
    stage = Stage(row_of_squares(2), "disgb_subscriptions")
    stage.do("b1", moved("s", 5, 5))
    stage.do("b1", subscribed("s", "t", fence))
    assert [broker for broker in ("b1", "b2") if len(stage.strategy(broker).table)] == held_by
    assert stage.wire.of(PutSubscription) == [("b1", broker) for broker in held_by if broker != "b1"]


def test_a_changed_fence_takes_the_subscription_from_where_it_no_longer_belongs() -> None:
    stage = Stage(row_of_squares(2), "disgb_subscriptions")
    stage.do("b1", subscribed("s", "t", SG3))
    stage.forget()
    stage.do("b1", subscribed("s", "t", SG1))
    assert stage.wire.of(DropSubscription) == [("b1", "b2")]
    assert [len(stage.strategy(broker).table) for broker in ("b1", "b2")] == [1, 0]


def holding(*fences: Circle | None) -> Stage:
    """A subscriber at b3 of five, with one subscription for each fence."""
    stage = Stage(row_of_squares(5), "disgb_subscriptions")
    stage.do("b3", moved("c", 5, 25))
    for number, fence in enumerate(fences):
        stage.do("b3", subscribed("c", f"t{number}", fence))
    stage.forget()
    return stage


def holders(stage: Stage) -> list[str]:
    return [f"b{i}" for i in range(1, 6) if len(stage.strategy(f"b{i}").table)]


@pytest.mark.parametrize(
    ("fences", "union"),
    [
        ([WIDTHS[1]], ["b3"]),
        ([circle(5, 5, 200), circle(5, 45, 200)], ["b1", "b5"]),
        ([WIDTHS[2], WIDTHS[3]], ["b2", "b3", "b4"]),
        ([WIDTHS[1], None], ["b1", "b2", "b3", "b4", "b5"]),
    ],
    ids=["one at home", "two elsewhere", "overlapping", "everywhere"],
)
def test_a_subscriber_location_update_has_the_union_of_rendezvous(
    fences: list[Circle | None], union: list[str]
) -> None:
    """Events might be matched at any broker whose area intersects with any of the subscriber's fences."""
    stage = holding(*fences)
    assert holders(stage) == union
    stage.do("b3", moved("c", 6, 26))
    assert sorted(target for _, target in stage.wire.of(PutLocation)) == [b for b in union if b != "b3"]
    assert len(stage.wire.messages) == len(union) - ("b3" in union)
    for broker in union:
        point = stage.strategy(broker).table._points.location(Subscriber(stage.node("b3").me, ClientId("c")))
        assert (point.lat, point.lon) == (6, 26)


@pytest.mark.parametrize(("rendezvous", "fence"), WIDTHS.items(), ids=lambda x: str(x) if isinstance(x, int) else "")
def test_a_subscription_update_has_a_rendezvous_for_each_area_its_fence_meets(
    rendezvous: int, fence: Circle | None
) -> None:
    """Events might be matched at any broker whose area intersects with the fence of s_i: the number of RPs is |S_i|."""
    stage = holding(fence)
    assert len(holders(stage)) == rendezvous
    stage.do("b3", subscribed("c", "t0", fence))
    assert len(stage.wire.of(PutSubscription)) == len(stage.wire.messages) == rendezvous - 1
    stage.forget()
    stage.do("b3", unsubscribed("c", "t0"))
    assert len(stage.wire.of(DropSubscription)) == len(stage.wire.messages) == rendezvous - 1
    assert holders(stage) == []


def test_a_publisher_location_update_has_one_rendezvous() -> None:
    """Events are only matched at the LB of the publisher, so the number of RPs is 1."""
    stage = holding(None)
    stage.do("b1", moved("p", 5, 5))
    assert not stage.wire.messages


@pytest.mark.parametrize("fence", WIDTHS.values(), ids=str)
def test_an_event_has_one_rendezvous(fence: Circle | None) -> None:
    stage = holding()
    stage.do("b3", published("c", "t", fence))
    assert not stage.wire.messages


def test_an_event_is_sent_once_to_each_home_with_a_match_whatever_the_number_of_subscribers() -> None:
    stage = Stage(row_of_squares(5), "disgb_subscriptions")
    for client, home in (("x", "b1"), ("y", "b1"), ("z", "b2")):
        stage.do(home, moved(client, 5, 10 * int(home[1:]) - 5))
        stage.do(home, subscribed(client, "t"))
    stage.forget()
    stage.do("b5", published("p", "t"))
    assert stage.wire.of(DeliverEvent) == [("b5", "b1"), ("b5", "b2")]
    assert stage.wire.receivers() == {"x": 1, "y": 1, "z": 1}


def test_a_client_that_is_gone_is_forgotten_wherever_it_was_held() -> None:
    stage = holding(None, WIDTHS[2])
    stage.do("b3", ClientGone(ClientId("c")))
    assert len(stage.wire.of(DropClient)) == len(stage.wire.messages) == 4
    assert holders(stage) == []
