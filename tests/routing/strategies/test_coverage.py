"""Clients outside their broker's area: nothing is missed while the coverage grows, nothing lingers once it shrinks."""

from collections.abc import Callable

import pytest
from hypothesis import given
from tests.routing.stage import LINK_MS, Stage, circle, moved, published, row_of_squares, subscribed, unsubscribed
from tests.routing.worlds import locations

from geomq.geo import Location
from geomq.routing.core.events import ClientGone, ClientMoved, ClientSubscribed, FederationChanged, PeerUp
from geomq.routing.core.messages import CoverageChanged, CoverageConfirmed, ForwardEvent
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.strategies.coverage import CELLS_MAX, DropGuest, PutGuest, cell_box, cell_of
from geomq.sim.script import Step

HERE = circle(5, 15, 50)
"""A fence in b2's area, where the roamer goes."""


def test_coverage_grows_is_confirmed_and_shrinks(check_golden: Callable[[str, str], None]) -> None:
    stage = Stage(row_of_squares(2), "disgb_events")
    stage.do("b1", moved("s", 5, 5))
    stage.do("b1", subscribed("s", "t"))
    stage.forget()
    stage.say("s stays with b1 but goes to b2's area: b1 announces the cell; until that is confirmed b2 helps.")
    stage.do("b1", moved("s", 5, 15))
    stage.say("Now b2 knows: what is for that place goes to b1 too.")
    stage.do("b2", published("p", "t", HERE))
    stage.say("s comes back: the coverage shrinks, and events for that place stay at b2.")
    stage.do("b1", moved("s", 5, 5))
    stage.do("b2", published("p", "t", HERE))
    check_golden("coverage", stage.text())


@pytest.mark.parametrize("strategy", ["disgb_events", "disgb_subscriptions", "adaptive", "digests"])
@pytest.mark.parametrize("delay_ms", range(0, 4 * LINK_MS, 3))
def test_a_subscriber_that_roams_misses_nothing_the_area_knows_of(strategy: str, delay_ms: int) -> None:
    """From the moment b2 holds the guest, an event at b2 for that place is delivered, and once."""
    stage = Stage(row_of_squares(3), strategy)
    stage.do("b1", moved("s", 5, 5))
    stage.do("b1", subscribed("s", "t"))
    stage.forget()
    now = stage.simulation.now_ms
    steps = [Step(now, BrokerId("b1"), moved("s", 5, 15))]
    steps.append(Step(now + LINK_MS + 1 + delay_ms, BrokerId("b2"), published("p", "t", HERE)))
    stage.simulation.run(steps)
    assert stage.wire.receivers() == {"s": 1}


@pytest.mark.parametrize("strategy", ["disgb_events", "disgb_subscriptions", "adaptive", "digests"])
@pytest.mark.parametrize("delay_ms", range(0, 4 * LINK_MS, 3))
def test_the_events_of_a_publisher_that_roams_reach_who_wants_that_place(strategy: str, delay_ms: int) -> None:
    stage = Stage(row_of_squares(3), strategy)
    stage.do("b3", moved("s", 5, 25))
    stage.do("b3", subscribed("s", "t", HERE))
    stage.do("b1", moved("p", 5, 5))
    stage.forget()
    now = stage.simulation.now_ms
    steps = [Step(now, BrokerId("b1"), moved("p", 5, 15)), Step(now + delay_ms, BrokerId("b1"), published("p", "t"))]
    stage.simulation.run(steps)
    assert stage.wire.receivers() == {"s": 1}


def roaming(strategy: str = "disgb_events") -> Stage:
    """The client s of b1 is in b2's area, and everybody knows."""
    stage = Stage(row_of_squares(3), strategy)
    stage.do("b1", moved("s", 5, 5))
    stage.do("b1", subscribed("s", "t"))
    stage.do("b1", moved("s", 5, 15))
    return stage


def test_the_host_helps_only_until_every_peer_has_confirmed() -> None:
    stage = Stage(row_of_squares(3), "disgb_events")
    stage.do("b1", moved("s", 5, 5))
    stage.do("b1", subscribed("s", "t"))
    stage.do("b1", moved("s", 5, 15))
    assert stage.wire.of(CoverageChanged) == [("b1", "b2"), ("b1", "b3")]
    assert sorted(stage.wire.of(CoverageConfirmed)) == [("b2", "b1"), ("b3", "b1")]
    assert stage.wire.of(PutGuest) == [("b1", "b2")]
    assert stage.wire.of(DropGuest) == [("b1", "b2")]
    assert len(stage.strategy("b2").guests) == 0


def test_a_peer_that_does_not_confirm_keeps_the_host_helping() -> None:
    stage = Stage(row_of_squares(3), "disgb_events")
    stage.do("b1", subscribed("s", "t"))
    actions = stage.node("b1").handle(moved("s", 5, 15), now=2000)
    assert any(isinstance(getattr(action, "message", None), PutGuest) for action in actions)
    stage.strategy("b1").said(BrokerId("b2"), CoverageConfirmed(1), now=2010)
    assert stage.strategy("b1").guest_host(ClientId("s")) == "b2"
    stage.strategy("b1").said(BrokerId("b3"), CoverageConfirmed(1), now=2020)
    assert stage.strategy("b1").guest_host(ClientId("s")) is None


def test_a_confirmation_of_an_older_announcement_does_not_count() -> None:
    stage = Stage(row_of_squares(2), "disgb_events")
    node = stage.node("b1")
    node.handle(moved("s", 5, 15), now=2000)
    node.handle(moved("s", 5, 17), now=2001)
    stage.strategy("b1").said(BrokerId("b2"), CoverageConfirmed(1), now=2010)
    assert stage.strategy("b1").guest_host(ClientId("s")) == "b2"


def test_steps_inside_one_cell_are_not_announced() -> None:
    stage = roaming()
    stage.forget()
    stage.do("b1", moved("s", 5.2, 15.2))
    stage.do("b1", moved("s", 5.4, 15.9))
    assert not stage.wire.messages


def test_a_cell_is_covered_until_the_last_roamer_leaves() -> None:
    stage = roaming()
    stage.do("b1", moved("other", 5.5, 15.5))
    stage.forget()
    stage.do("b1", moved("other", 5, 5))
    assert stage.wire.of(CoverageChanged) == []
    stage.do("b1", ClientGone(ClientId("s")))
    assert stage.wire.of(CoverageChanged) == [("b1", "b2"), ("b1", "b3")]
    stage.forget()
    stage.do("b2", published("p", "t", HERE))
    assert stage.wire.of(ForwardEvent) == []


def test_with_subscriptions_at_publishers_a_grown_coverage_draws_subscriptions() -> None:
    stage = Stage(row_of_squares(2), "disgb_subscriptions")
    stage.do("b2", moved("s", 5, 18))
    stage.do("b2", subscribed("s", "t", HERE))
    assert len(stage.strategy("b1").table) == 0
    stage.do("b1", moved("p", 5, 15))
    assert len(stage.strategy("b1").table) == 1
    stage.do("b1", published("p", "t"))
    assert stage.wire.receivers() == {"s": 1}
    stage.do("b1", moved("p", 5, 5))
    assert len(stage.strategy("b1").table) == 0


def test_a_guest_that_unsubscribes_meanwhile_is_not_served() -> None:
    stage = Stage(row_of_squares(2), "disgb_events")
    stage.do("b1", subscribed("s", "t"))
    stage.at_once(("b1", moved("s", 5, 15)), ("b1", unsubscribed("s", "t")), ("b2", published("p", "t", HERE)))
    stage.do("b2", published("p", "t", HERE))
    assert stage.wire.receivers() == {}
    assert len(stage.strategy("b2").guests) == 0


def test_too_many_cells_are_announced_as_everywhere() -> None:
    stage = Stage(row_of_squares(2), "disgb_events")
    node = stage.node("b1")
    for number in range(CELLS_MAX + 1):
        place = Location(20.5 + number // 100, -90.5 + number % 100)
        actions = node.handle(ClientMoved(ClientId(f"c{number}"), place), now=2000)
    announced = [action.message for action in actions]  # type: ignore[attr-defined]
    assert announced[0] == CoverageChanged(CELLS_MAX + 1, None)
    stage.strategy("b2").said(BrokerId("b1"), announced[0], now=2010)
    assert stage.strategy("b2").meeting(HERE) == ("b1", "b2")


def test_a_peer_that_comes_back_is_told_and_has_to_confirm_again() -> None:
    stage = roaming()
    stage.forget()
    stage.feed("b1", PeerUp(BrokerId("b2")))
    assert stage.wire.of(CoverageChanged) == [("b1", "b2")]
    assert stage.wire.of(CoverageConfirmed) == [("b2", "b1")]


def test_a_broker_that_leaves_takes_its_guests_and_cells_along() -> None:
    stage = roaming()
    stage.strategy("b2").said(BrokerId("b1"), PutGuest(ClientId("x"), "t", None, None), now=9000)
    smaller = row_of_squares(3)
    fewer = type(smaller)(smaller.brokers[1:], type(smaller.areas)(smaller.areas.fences[1:]))  # type: ignore[attr-defined, call-arg]
    stage.feed("b2", FederationChanged(fewer))
    assert len(stage.strategy("b2").guests) == 0
    assert stage.strategy("b2").meeting(HERE) == ("b2",)


def test_redrawn_areas_make_roamers_of_clients_that_stand_still() -> None:
    stage = Stage(row_of_squares(2), "disgb_events")
    stage.do("b1", moved("s", 5, 9))
    stage.do("b1", subscribed("s", "t"))
    stage.forget()
    swapped = row_of_squares(2)
    areas = type(swapped.areas)(swapped.areas.fences[::-1])  # type: ignore[attr-defined, call-arg]
    changed = FederationChanged(type(swapped)(swapped.brokers, areas))
    for broker in ("b1", "b2"):
        stage.feed(broker, changed)
    assert ("b1", "b2") in stage.wire.of(CoverageChanged)
    stage.do("b2", published("p", "t", circle(5, 9, 10)))
    assert stage.wire.receivers() == {"s": 1}


@given(locations)
def test_a_location_is_inside_the_box_of_its_cell(place: Location) -> None:
    box = cell_box(cell_of(place))
    assert box.lat_min <= place.lat <= box.lat_max
    assert box.lon_min <= place.lon <= box.lon_max


@pytest.mark.parametrize("place", [(90, 180), (-90, -180), (90, -180), (-90, 180)])
def test_the_corners_of_the_map_have_cells(place: tuple[float, float]) -> None:
    assert 0 <= cell_of(Location(*place)) < 180 * 360


def test_a_roamer_that_subscribes_later_is_a_guest_at_once() -> None:
    stage = Stage(row_of_squares(2), "disgb_events")
    node = stage.node("b1")
    node.handle(moved("s", 5, 15), now=2000)
    actions = node.handle(ClientSubscribed(ClientId("s"), "t"), now=2001)
    assert [type(action.message) for action in actions] == [PutGuest]  # type: ignore[attr-defined]
