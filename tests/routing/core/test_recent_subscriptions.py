"""Recent subscriptions: found for a while, by the one matching rule, as long as the client has them."""

import pytest
from tests.routing.stage import Stage, circle, moved, row_of_squares, subscribed, unsubscribed

from geomq.geo import Location
from geomq.routing.core.actions import DeliverToClients
from geomq.routing.core.events import ClientGone, PeerSaid, RetainedStored
from geomq.routing.core.messages import ForwardEvent
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.recent_subscriptions import RECENT_MS, RecentSubscriptions
from geomq.routing.core.strategy import ClientState

ME, C = BrokerId("b1"), ClientId("c")


def event(topic: str = "t/1", **more: object) -> Event:
    given = {"publisher": ClientId("p"), "location": None, "fence": None, "qos": 1, "retain": True, **more}
    return Event(EventId(BrokerId("b3"), 1, 1), topic, **given)  # type: ignore[arg-type]


def news() -> RetainedStored:
    return RetainedStored(event(), event().id)


def test_a_subscription_is_recent_for_a_while() -> None:
    recent = RecentSubscriptions(ME, {C: ClientState(None, {"t/+": None})})
    recent.put(C, "t/+", now=0.0)
    assert recent.match(event(), now=RECENT_MS) == (Match(C, "t/+"),)
    assert recent.match(event("u"), now=RECENT_MS) == ()
    assert recent.match(event(), now=RECENT_MS + 1) == ()
    assert len(recent) == 0


def test_one_that_was_renewed_is_recent_again() -> None:
    recent = RecentSubscriptions(ME, {C: ClientState(None, {"t/+": None})})
    recent.put(C, "t/+", now=0.0)
    recent.put(C, "t/+", now=9_000.0)
    assert recent.match(event(), now=15_000.0) == (Match(C, "t/+"),)


def test_there_are_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.routing.core.recent_subscriptions.RECENT_MAX", 2)
    recent = RecentSubscriptions(ME, {C: ClientState(None, {"t/1": None, "t/+": None, "#": None})})
    for topic_filter in ("t/1", "t/+", "#"):
        recent.put(C, topic_filter, now=0.0)
    assert set(recent.match(event(), now=1.0)) == {Match(C, "t/+"), Match(C, "#")}
    assert len(recent) == 2


def test_places_and_fences_count() -> None:
    here, there = Location(5.0, 5.0), Location(50.0, 5.0)
    recent = RecentSubscriptions(ME, {C: ClientState(here, {"t/1": circle(5, 5, 10)})})
    recent.put(C, "t/1", now=0.0)
    assert recent.match(event(location=here), now=1.0)
    assert not recent.match(event(location=there), now=1.0)
    assert not recent.match(event(), now=1.0)
    assert not recent.match(event(location=here, fence=circle(50, 5, 10)), now=1.0)


@pytest.mark.parametrize("strategy", ["flood_events", "flood_subscriptions", "disgb_subscriptions", "dht", "mesh"])
def test_what_a_peer_retained_reaches_who_has_just_subscribed_and_had_it_not_yet(strategy: str) -> None:
    stage = Stage(row_of_squares(3), strategy)
    stage.node("b1").retained.load({}, ())
    stage.do("b1", moved("c", 5, 5))
    stage.do("b1", subscribed("c", "t/1"))
    node, now = stage.node("b1"), stage.simulation.now_ms
    first, *_ = node.handle(news(), now=now)
    assert first == DeliverToClients(event(), (Match(C, "t/1"),))
    assert node.handle(news(), now=now) == []
    if strategy == "flood_events":
        came = node.handle(PeerSaid(BrokerId("b3"), ForwardEvent(event())), now=now)
        assert not [action for action in came if isinstance(action, DeliverToClients)]


def test_who_no_longer_subscribes_gets_nothing() -> None:
    stage = Stage(row_of_squares(3), "flood_events")
    stage.do("b1", subscribed("c", "t/1"))
    stage.do("b1", unsubscribed("c", "t/1"))
    stage.do("b1", subscribed("d", "t/1"))
    stage.feed("b1", ClientGone(ClientId("d")))
    actions = stage.node("b1").handle(news(), now=stage.simulation.now_ms)
    assert not [action for action in actions if isinstance(action, DeliverToClients)]
