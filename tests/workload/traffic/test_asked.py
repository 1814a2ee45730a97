"""Why brokers were asked with an event or not, told by simulated runs of every strategy."""

from typing import Any

import pytest
from tests.routing.stage import circle, moved, published, row_of_squares, subscribed

from geomq.routing.core.model import BrokerId, EventId
from geomq.routing.strategies.registry import STRATEGIES
from geomq.routing.trace.records import TraceRecord
from geomq.sim.engine import Simulation
from geomq.sim.network import Latencies
from geomq.sim.script import Step
from geomq.sim.tracing import Trace
from geomq.workload.traffic.asked import Reasons, who_got_it
from geomq.workload.traffic.verdict import Case

FEDERATION = row_of_squares(4)
B1, B2, B3, B4 = FEDERATION.ids
NEAR_B2 = circle(5.0, 15.0, 100.0)
OUTSIDE = "its area does not meet the event's fence"
SUBSCRIBERS = ["inside", "outside", "narrow"]
Told = dict[str, tuple[bool, str]]


def played(strategy: str, **options: Any) -> Case:
    """A client of b1 publishes to a fence in the area of b2: one subscriber is inside it, one outside, one wants
    events from elsewhere."""
    records: list[TraceRecord] = []
    pairs = {(a, b): 10 for a in FEDERATION.ids for b in FEDERATION.ids if a != b}
    simulation = Simulation(
        FEDERATION,
        strategy,
        options=options,
        latencies=Latencies(FEDERATION, given_ms=pairs),
        observers=[Trace(records.append)],
    )
    simulation.connect_all()
    simulation.measure_all()
    simulation.advance(5_000)
    acts = [
        (B2, moved("inside", 5.0, 15.0)),
        (B2, subscribed("inside", "news/#")),
        (B4, moved("outside", 5.0, 35.0)),
        (B4, subscribed("outside", "news/#")),
        (B2, moved("narrow", 5.0, 15.0)),
        (B2, subscribed("narrow", "news/#", circle(5.0, 35.0, 100.0))),
        (B1, moved("publisher", 5.0, 5.0)),
        (B1, published("publisher", "news/here", NEAR_B2)),
    ]
    for number, (home, act) in enumerate(acts):
        t_ms = 10_000 + 2_000 * number
        simulation.run([Step(t_ms, home, act)], until_ms=t_ms + 1_900)
    told = sorted((one for one in records if one.kind != "control"), key=lambda one: one.t_ms)
    return Case(EventId(B1, 0, 1), told, FEDERATION.ids)


def reasons_of(case: Case, strategy: str) -> Told:
    return {one.broker: (one.asked, one.text) for one in Reasons(case, FEDERATION, strategy).brokers()}


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "single"])
def test_every_broker_has_a_reason_and_those_asked_are_those_that_were_sent_it(strategy: str) -> None:
    case = played(strategy, **({"announce_ms": 200} if strategy == "mesh" else {}))
    told = reasons_of(case, strategy)
    sent = {one.peer for one in case.steps if one.step == "sent"}
    assert [broker for broker, (asked, _) in told.items() if asked] == [
        broker for broker in FEDERATION.ids if broker == B1 or broker in sent
    ]
    assert told[B1] == (True, "its client published the event")
    assert not any("do not show" in text for _, text in told.values())
    assert case.reached == ["inside"]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("flood_events", dict.fromkeys((B2, B3, B4), (True, "flooding asks every broker"))),
        ("disgb_events", {B2: (True, "its area meets the event's fence"), B3: (False, OUTSIDE), B4: (False, OUTSIDE)}),
        ("adaptive", {B3: (False, OUTSIDE), B4: (False, OUTSIDE)}),
        (
            "disgb_subscriptions",
            {
                B2: (True, "b1 knows of subscriptions there that match: news/# of inside"),
                B3: (False, "no subscription there matched"),
                B4: (False, "no subscription there matched"),
            },
        ),
        ("grid_quorum", {B2: (True, "it is in the row of b1"), B3: (True, "it is in the column of b1")}),
    ],
)
def test_the_reason_is_the_rule_of_the_strategy(strategy: str, expected: Told) -> None:
    assert expected.items() <= reasons_of(played(strategy), strategy).items()


def test_topics_belong_to_a_broker_under_dht() -> None:
    case = played("dht")
    owners = [text for asked, text in reasons_of(case, "dht").values() if asked and "belong" in text]
    assert owners in ([], ["topics under 'news' belong to it"])
    first = next(one for one in case.steps if one.step == "sent")
    assert Reasons(case, FEDERATION, "dht").because(first)


def test_an_event_without_a_fence_concerns_every_area() -> None:
    event = TraceRecord(0.0, B1, "published", "event", EventId(B1, 0, 9), topic="t")
    sent = event._replace(step="sent", peer=B3, reason="ForwardEvent")
    told = reasons_of(Case(EventId(B1, 0, 9), [event, sent], FEDERATION.ids), "disgb_events")
    assert told[B3] == (True, "the event has no fence, so it concerns every area")
    assert told[B2][0] is False
    assert "do not show" in told[B2][1]


def test_an_own_strategy_is_told_by_the_records_alone() -> None:
    told = reasons_of(played("disgb_events"), "mine:Mine")
    assert told[B2] == (True, "b1 sent it the event")
    assert told[B3] == (False, "the records do not show that it was sent the event")


def test_what_became_of_it_for_all_who_subscribe_to_its_topic() -> None:
    case = played("flood_events")
    assert who_got_it(case, SUBSCRIBERS) == (
        "1 of 3 who subscribe to its topic got it; 1 outside the event's fence, "
        "1 with a fence that the publisher was outside of."
    )
    assert who_got_it(case, SUBSCRIBERS[1:2]) == (
        "Nobody got it. Of those who subscribe to its topic: 1 outside the event's fence."
    )
    assert who_got_it(case, []) == "Nobody got it: nobody is known to subscribe to its topic."
    bare = Case(case.event_id, case.records, case.brokers, ["published"])
    assert who_got_it(bare, []).startswith("Who should have got it cannot be told")


def test_an_event_whose_publication_was_not_recorded_has_no_reasons() -> None:
    case = Case(EventId(BrokerId("gone"), 0, 1), [], FEDERATION.ids)
    assert Reasons(case, FEDERATION, "flood_events").brokers() == []
