"""The cheaper of two ways, per peer and topic group: how it switches, and what it costs in the end."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.scenarios import SCENARIOS, Script
from tests.routing.stage import Stage, Wire, circle, moved, published, row_of_squares, subscribed, unsubscribed

from geomq.errors import ConfigError
from geomq.geo import Circle
from geomq.routing.core.events import PeerUp, RoutingEvent
from geomq.routing.core.messages import DeliverEvent, ForwardEvent, PutSubscription
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.adaptive import Adaptive, PreferMatchedHere, UseMode
from geomq.sim.engine import Simulation
from geomq.sim.script import Step

BOTH = circle(5, 10, 100)
"""A fence that meets both areas."""


def stage_of(brokers: int = 2, **options: Any) -> Stage:
    stage = Stage(row_of_squares(brokers), "adaptive", options)
    stage.do("b1", moved("p", 5, 5))
    stage.do("b2", moved("s", 5, 15))
    stage.forget()
    return stage


def advertised(stage: Stage) -> bool:
    """Whether b2's subscriptions on `air` are advertised to b1."""
    return (BrokerId("b2"), "air") in stage.strategy("b1")._advertised


def test_it_switches_to_advertising_and_back(check_golden: Callable[[str, str], None]) -> None:
    stage = stage_of(patience=2)
    stage.say("b2 has a subscriber that wants nothing from b1's area. Matched here: events go to b2, in vain.")
    stage.do("b2", subscribed("s", "air/o3", circle(5, 15, 100)))
    stage.do("b1", published("p", "air/o3"))
    stage.do("b1", published("p", "air/o3"))
    stage.say("Two in vain are enough: b2 advertised (it had nothing to send). Events stay at b1.")
    stage.do("b1", published("p", "air/o3"))
    stage.say("A subscription that meets b1's area goes there; an event comes on a match.")
    stage.do("b2", subscribed("s", "air/o3", BOTH))
    stage.do("b1", moved("p", 5, 9.9))
    stage.do("b1", published("p", "air/o3"))
    stage.say("A busy subscriber: updates cost more than they save, and b1 says so.")
    for lon in (15.1, 15.2, 15.3, 15.4, 15.5):
        stage.do("b2", moved("s", 5, lon))
    stage.say("b2 withdraws; events come to it again.")
    stage.do("b1", published("p", "air/o3"))
    check_golden("adaptive-switch", stage.text())


def test_a_mode_is_left_only_after_it_lost_more_than_the_switch_costs() -> None:
    stage = stage_of(patience=3)
    for number in range(5):
        stage.do("b2", subscribed(f"s{number}", "air", BOTH))
    stage.forget()
    for _ in range(3 + 5 - 1):
        stage.do("b1", published("p", "air", circle(5, 12, 50)))
    assert not advertised(stage)
    assert stage.wire.of(PutSubscription, UseMode) == []
    stage.do("b1", published("p", "air", circle(5, 12, 50)))
    assert advertised(stage)
    kinds = [type(message) for source, _, message in stage.wire.messages if source == "b2"]
    assert kinds == [PutSubscription] * 5 + [UseMode]


def test_an_event_that_matched_is_not_held_against_a_mode() -> None:
    stage = stage_of(patience=1)
    stage.do("b2", subscribed("s", "air"))
    for _ in range(20):
        stage.do("b1", published("p", "air"))
    assert not advertised(stage)
    assert stage.wire.receivers() == {"s": 20}


def test_updates_that_would_have_been_sent_speak_for_staying() -> None:
    stage = stage_of(patience=2)
    stage.do("b2", subscribed("s", "air", BOTH))
    for number in range(20):
        stage.do("b1", published("p", "air", circle(5, 12, 50)))
        stage.do("b2", moved("s", 5, 15 + number / 100))
    assert not advertised(stage)


def test_events_saved_pay_for_updates() -> None:
    stage = stage_of(patience=2)
    for _ in range(4):
        stage.do("b1", published("p", "air"))
    assert advertised(stage)
    stage.do("b2", subscribed("s", "air", BOTH))
    for number in range(20):
        stage.do("b1", published("p", "air"))
        stage.do("b2", moved("s", 5, 15 + number / 100))
    assert advertised(stage)
    assert stage.wire.of(PreferMatchedHere) == []


def test_events_that_came_before_the_updates_pay_for_none_of_them() -> None:
    """So a broker that hears of updates late, and of all at once, leaves the mode sooner."""
    stage = stage_of(patience=2)
    for _ in range(4):
        stage.do("b1", published("p", "air"))
    stage.do("b2", subscribed("s", "air", BOTH))
    for _ in range(20):
        stage.do("b1", published("p", "air"))
    for number in range(1, 6):
        assert advertised(stage)
        stage.do("b2", moved("s", 5, 15 + number / 100))
    assert not advertised(stage)
    assert stage.wire.of(PreferMatchedHere) == [("b1", "b2")]


def test_groups_of_topics_switch_each_for_itself() -> None:
    stage = stage_of(patience=2)
    for _ in range(4):
        stage.do("b1", published("p", "air/o3"))
        stage.do("b2", subscribed("s", "traffic/a1"))
    stage.forget()
    stage.do("b1", published("p", "air/no2"))
    stage.do("b1", published("p", "traffic/a1"))
    assert stage.wire.of(ForwardEvent) == [("b1", "b2")]
    assert stage.wire.receivers() == {"s": 1}


def test_wildcards_are_advertised_with_every_group() -> None:
    stage = stage_of(patience=1)
    stage.do("b1", published("p", "air"))
    stage.do("b1", published("p", "air"))
    assert advertised(stage)
    stage.do("b2", subscribed("s", "#"))
    stage.do("b1", published("p", "air"))
    stage.do("b1", published("p", "traffic"))
    assert stage.wire.receivers() == {"s": 2}


@pytest.mark.parametrize("gap_ms", [1, 7, 10, 13, 25])
def test_nothing_is_lost_or_doubled_while_modes_switch(gap_ms: int) -> None:
    """Events flow all the time; the subscriber moves in bursts, so that the mode changes in both directions."""
    stage = Stage(row_of_squares(2), "adaptive", {"patience": 1})
    steps: list[tuple[str, RoutingEvent]] = [("b1", moved("p", 5, 9.9)), ("b2", moved("s", 5, 15))]
    steps += [("b2", subscribed("s", "air", BOTH)), ("b2", moved("s", 5, 15))]
    for burst in range(6):
        steps += [("b1", published("p", "air")), ("b1", published("p", "air", circle(5, 18, 10)))] * 8
        steps += [("b2", moved("s", 5, 15 + burst / 10 + number / 100)) for number in range(8)]
    start, wanted = stage.simulation.now_ms, 6 * 8
    script = [Step(start + n * gap_ms, BrokerId(home), event) for n, (home, event) in enumerate(steps)]
    stage.simulation.run(script)
    switches = [message.advertised for _, _, message in stage.wire.messages if isinstance(message, UseMode)]
    assert switches.count(True) >= 2
    assert switches.count(False) >= 1
    assert stage.wire.receivers() == {"s": wanted}
    assert stage.wire.doubled() == []


places = {1: 5.0, 2: 15.0, 3: 25.0, 4: 35.0}
fences = st.one_of(
    st.none(), st.builds(circle, st.just(5.0), st.sampled_from([5.0, 10.0, 15.0, 30.0]), st.sampled_from([50, 900]))
)


def busy_step(number: int, kind: str, fence: Circle | None, dlon: float) -> tuple[str, RoutingEvent]:
    home, client = f"b{number}", f"c{number}"
    match kind:
        case "move":
            return home, moved(client, 5.0, places[number] + dlon)
        case "publish":
            return home, published(client, "air", fence)
        case "subscribe":
            return home, subscribed(client, "air", fence)
        case "wild":
            return home, subscribed(client, "#", fence)
    return home, unsubscribed(client, "air")


busy = st.builds(
    busy_step,
    st.sampled_from(sorted(places)),
    st.sampled_from(["publish"] * 6 + ["move", "move", "subscribe", "subscribe", "wild", "unsubscribe"]),
    fences,
    st.sampled_from([-4.0, 0.0, 4.0]),
)


@settings(max_examples=30)
@given(st.lists(busy, min_size=30, max_size=120), st.sampled_from([0, 1, 9, 40]))
def test_no_broker_is_sent_an_event_in_both_forms(steps: list[tuple[str, RoutingEvent]], gap_ms: int) -> None:
    stage = Stage(row_of_squares(4), "adaptive", {"patience": 1})
    for number, lon in places.items():
        stage.do(f"b{number}", moved(f"c{number}", 5.0, lon))
    start = stage.simulation.now_ms
    stage.simulation.run([Step(start + n * gap_ms, BrokerId(home), event) for n, (home, event) in enumerate(steps)])
    assert stage.wire.doubled() == []


def test_only_the_publishers_home_tells_of_a_match() -> None:
    """b3 advertises to b2, which is sent an event of b1 to match: b1 tells b3, b2 does not."""
    stage = Stage(row_of_squares(3), "adaptive", {"patience": 1})
    stage.do("b2", moved("s2", 5, 15))
    stage.do("b2", subscribed("s2", "air"))
    for home in ("b1", "b2"):
        stage.do(home, published(f"p{home}", "air"))
        stage.do(home, published(f"p{home}", "air"))
    stage.do("b3", moved("s3", 5, 25))
    stage.do("b3", subscribed("s3", "air"))
    stage.forget()
    stage.do("b1", published("pb1", "air"))
    assert stage.wire.of(DeliverEvent) == [("b1", "b3")]
    assert stage.wire.of(ForwardEvent) == [("b1", "b2")]
    assert stage.wire.receivers() == {"s2": 1, "s3": 1}


def test_a_peer_that_comes_back_is_told_the_modes_again() -> None:
    stage = stage_of(patience=1)
    stage.do("b1", published("p", "air"))
    stage.do("b1", published("p", "air"))
    stage.do("b2", subscribed("s", "air", BOTH))
    stage.forget()
    stage.feed("b2", PeerUp(BrokerId("b1")))
    sent = [type(message).__name__ for source, _, message in stage.wire.messages if source == "b2"]
    assert sent == ["SyncBegin", "PutSubscription", "UseMode", "SyncEnd"]
    assert advertised(stage)


def crowd(stage: Stage, near: int, far: int) -> None:
    """Subscribers at b2, some of which want what b1's clients publish."""
    for number in range(near + far):
        stage.do("b2", moved(f"s{number}", 5, 15))
        stage.do("b2", subscribed(f"s{number}", "air", BOTH if number < near else circle(5, 15, 100)))


def test_before_the_first_event_many_subscriptions_of_which_few_concern_a_peer_are_advertised() -> None:
    stage = stage_of()
    crowd(stage, near=2, far=29)
    assert not advertised(stage)
    stage.do("b2", subscribed("s31", "air", circle(5, 15, 100)))
    assert advertised(stage)
    kinds = [type(message) for source, _, message in stage.wire.messages if source == "b2"]
    assert kinds == [PutSubscription] * 2 + [UseMode]
    stage.forget()
    for _ in range(9):
        stage.do("b1", published("p", "air"))
    assert stage.wire.of(ForwardEvent, DeliverEvent) == []


def test_nothing_is_assumed_of_a_group_in_which_somebody_published() -> None:
    stage = stage_of(patience=9)
    stage.do("b1", published("p", "air"))
    crowd(stage, near=0, far=40)
    assert not advertised(stage)
    own = stage_of()
    own.do("b2", published("s", "air"))
    crowd(own, near=0, far=40)
    assert not advertised(own)


def test_an_assumption_that_costs_too_much_is_given_up_for_good() -> None:
    stage = stage_of(patience=1)
    crowd(stage, near=1, far=20)
    assert advertised(stage)
    for number in range(9):
        stage.do("b2", moved("s0", 5, 15 + number / 100))
        stage.do("b2", subscribed(f"more{number}", "air", circle(5, 15, 100)))
    assert not advertised(stage)
    assert stage.wire.of(PreferMatchedHere) == [("b1", "b2")]
    assert len(stage.strategy("b1").table) == 0
    stage.forget()
    stage.do("b1", moved("p", 5, 9.9))
    stage.do("b1", published("p", "air"))
    assert stage.wire.of(ForwardEvent) == [("b1", "b2")]
    assert stage.wire.receivers() == {"s0": 1}


def test_who_is_told_of_every_coming_and_going_says_so() -> None:
    """Newcomers are no loss; who leaves has been told in vain."""
    stage = stage_of(patience=1)
    for _ in range(4):
        stage.do("b1", published("p", "air"))
    assert advertised(stage)
    for number in range(9):
        stage.do("b2", subscribed(f"s{number}", "air", BOTH))
    assert advertised(stage)
    for number in range(4):
        stage.do("b2", unsubscribed(f"s{number}", "air"))
    assert not advertised(stage)


def test_patience_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="patience"):
        Adaptive.parse_options({"patience": 0.5})


def cost(scenario: str, strategy: str, *, crowd: int, seconds: float) -> int:
    """All messages between brokers, without the first greeting."""
    script = Script(seconds)
    SCENARIOS[scenario](script, crowd)
    wire = Wire()
    simulation = Simulation(script.federation, strategy, observers=[wire])
    simulation.connect_all()
    simulation.advance(900)
    greeting = len(wire.messages)
    simulation.run(script.steps())
    return len(wire.messages) - greeting


@pytest.mark.parametrize(("scenario", "crowd"), [("open_data", 16), ("context_based", 12), ("hiking", 12)])
def test_it_costs_at_most_a_tenth_more_than_the_better_way(scenario: str, crowd: int) -> None:
    costs = {
        s: cost(scenario, s, crowd=crowd, seconds=600) for s in ("disgb_events", "disgb_subscriptions", "adaptive")
    }
    better = min(costs["disgb_events"], costs["disgb_subscriptions"])
    assert costs["adaptive"] <= 1.1 * better, costs


def test_on_mixed_traffic_it_costs_less_than_both_ways() -> None:
    costs = {s: cost("mixed", s, crowd=8, seconds=300) for s in ("disgb_events", "disgb_subscriptions", "adaptive")}
    assert costs["adaptive"] < 0.7 * min(costs["disgb_events"], costs["disgb_subscriptions"]), costs
