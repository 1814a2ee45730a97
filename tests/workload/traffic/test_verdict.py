"""Why an event reached a client or not: told by hand-written records, and by simulated runs of every strategy."""

import random
from typing import Any

import pytest
from tests.routing.stage import moved, published, row_of_squares, subscribed

from geomq.geo import Circle, Location
from geomq.routing.core.events import ClientPublished, ClientSubscribed, ClientUnsubscribed
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.routing.strategies.registry import STRATEGIES
from geomq.routing.trace.records import STEPS, TraceRecord
from geomq.sim.engine import Simulation
from geomq.sim.network import Latencies
from geomq.sim.oracle import Oracle
from geomq.sim.script import Step
from geomq.sim.tracing import Trace
from geomq.workload.traffic.verdict import Answer, Case, clients_at

A, B = BrokerId("a"), BrokerId("b")
E = EventId(A, 1, 1)
FENCE = "geo:0.0,0.0;u=1000.0"
PUBLISHED = TraceRecord(100, A, "published", "event", E, client=ClientId("p"), topic="t", lat=0.0, lon=0.0, qos=1)


def record(t_ms: float, broker: BrokerId, step: Any, **fields: Any) -> TraceRecord:
    fields = {"kind": "event"} | fields
    return TraceRecord(t_ms, broker, step, **fields)


def of_event(t_ms: float, broker: BrokerId, step: Any, **fields: Any) -> TraceRecord:
    return record(t_ms, broker, step, event_id=E, **fields)


SUBSCRIBED = record(10, B, "subscribed", kind="subscription", client="s", topic="t", qos=1)
LOCATED = record(20, B, "moved", kind="location", client="s", lat=0.0, lon=0.0)
MATCHED = of_event(101, A, "matched", client="s", topic="t", peer=B)
SENT = of_event(101, A, "sent", peer=B, kind="delivery", reason="DeliverEvent")
RECEIVED = of_event(110, B, "received", peer=A, kind="delivery", reason="DeliverEvent")


def without(*steps: str) -> set[str]:
    return {str(step) for step in STEPS} - set(steps)


def answer(*records: TraceRecord, brokers: tuple[BrokerId, ...] = (A, B)) -> Answer:
    return Case(E, sorted(records, key=lambda one: one.t_ms), brokers).answer("s")


def test_what_was_delivered_is_delivered() -> None:
    delivered = of_event(112, B, "delivered", client="s")
    found = answer(PUBLISHED, SUBSCRIBED, MATCHED, SENT, RECEIVED, delivered)
    assert found == ("delivered", "delivered by b 12.0 ms after it was published")
    assert found.reached


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ((RECEIVED, of_event(111, B, "dropped", client="s", reason="queue full")), "dropped by b: queue full"),
        (
            (RECEIVED, of_event(111, B, "dropped", reason="no longer subscribed")),
            "it matched 't' at a, but b dropped it: no longer subscribed",
        ),
        (
            (of_event(101, A, "dropped", peer=B, reason="link down"),),
            "it matched 't' at a, but a could not send it to b: link down",
        ),
    ],
)
def test_a_drop_is_given_as_the_reason(more: tuple[TraceRecord, ...], expected: str) -> None:
    assert answer(PUBLISHED, SUBSCRIBED, MATCHED, SENT, *more) == ("dropped", expected)


@pytest.mark.parametrize(
    ("missing", "records", "text"),
    [
        ("subscribed", (), "cannot tell: the trace holds no subscription"),
        ("moved", (SUBSCRIBED,), "cannot tell: client locations were not recorded ([trace] steps)"),
        ("delivered", (SUBSCRIBED, MATCHED), "it matched 't' at a; the trace holds no delivery"),
        ("received", (SUBSCRIBED, MATCHED, SENT), "it matched 't' at a; the trace holds no delivery"),
        ("delivered", (SUBSCRIBED, LOCATED), "it should have been delivered; the trace holds no delivery"),
    ],
)
def test_what_was_not_recorded_proves_nothing(missing: str, records: tuple[TraceRecord, ...], text: str) -> None:
    fenced = PUBLISHED._replace(fence=FENCE)
    recorded = without(missing, "connected", "delivered")
    found = Case(E, [*records, fenced], (A, B), recorded).answer("s")
    assert found.verdict == "unexplained"
    assert found.text.startswith(text)


def test_what_is_under_way_has_not_arrived() -> None:
    assert answer(PUBLISHED, SUBSCRIBED, MATCHED, SENT) == (
        "not arrived",
        "it matched 't' at a, but a sent it to b, where it has not arrived",
    )


def test_what_matched_waits_for_a_client_that_is_offline() -> None:
    gone = record(50, B, "disconnected", kind="client", client="s", reason="session kept")
    found = answer(PUBLISHED, SUBSCRIBED, gone, MATCHED, SENT, RECEIVED)
    assert found == ("waiting", "it matched 't' at a; the client was offline, so it is queued in its session at b")
    assert answer(PUBLISHED, SUBSCRIBED, MATCHED, SENT, RECEIVED).verdict == "waiting"


def test_one_member_of_a_share_group_gets_it() -> None:
    both = [of_event(101, B, "matched", client=name, topic="$share/g/t") for name in ("s", "r")]
    assert answer(PUBLISHED, *both, of_event(102, B, "delivered", client="r")) == (
        "shared",
        "it matched '$share/g/t' at b, and r of the same share group received it",
    )


@pytest.mark.parametrize(
    ("state", "event", "verdict", "words"),
    [
        ([], {}, "unknown client", "no client of that name"),
        ([("connected", {})], {}, "no subscription", "no subscription at b"),
        ([("subscribed", {"topic": "u/#"})], {}, "no such topic", "none of its subscriptions matches 't' ('u/#')"),
        ([("subscribed", {"topic": "t"}), ("unsubscribed", {"topic": "t"})], {}, "no subscription", "at b"),
        (
            [("subscribed", {"topic": "t"}), ("disconnected", {"reason": "session ended"})],
            {},
            "no subscription",
            "at b",
        ),
        (
            [("subscribed", {"topic": "$share/g/t", "fence": FENCE}), ("subscribed", {"topic": "#", "fence": FENCE})],
            {"lat": 1.0},
            "outside the subscription's fence",
            "'$share/g/t': the publisher was 111.2 km from the centre of a fence of 1.0 km",
        ),
        (
            [("subscribed", {"topic": "$geo/from/home/+", "fence": FENCE})],
            {"lat": None, "lon": None},
            "outside the subscription's fence",
            "the publisher had no location",
        ),
        (
            [("subscribed", {"topic": "t"}), ("moved", {"lat": 0.0, "lon": 1.0})],
            {"fence": FENCE},
            "outside the event's fence",
            "the client was 111.2 km from",
        ),
        (
            [("connected", {"lat": 5.0, "lon": 5.0}), ("subscribed", {"topic": "t"})],
            {"fence": "POLYGON ((0 0, 1 0, 1 1, 0 0))"},
            "outside the event's fence",
            "the client was at 5,5, outside POLYGON",
        ),
        ([("subscribed", {"topic": "t"})], {"fence": FENCE}, "outside the event's fence", "client had no location"),
        (
            [("subscribed", {"topic": "t"}), ("moved", {"lat": 0.0, "lon": 1.0})],
            {"fence": "junk"},
            "outside the event's fence",
            "cannot be compared",
        ),
        (
            [("subscribed", {"topic": "t"}), ("disconnected", {"reason": "session kept"})],
            {"qos": 0},
            "dropped",
            "offline",
        ),
        ([("subscribed", {"topic": "t"})], {}, "unexplained", "the trace does not show"),
    ],
)
def test_where_records_are_silent_the_rule_answers(
    state: list[tuple[Any, dict[str, Any]]], event: dict[str, Any], verdict: str, words: str
) -> None:
    records = [record(n, B, step, client="s", **fields) for n, (step, fields) in enumerate(state)]
    found = answer(*records, PUBLISHED._replace(**event))
    assert found.verdict == verdict
    assert words in found.text


def test_what_came_too_late_is_named() -> None:
    put = record(120, A, "received", kind="subscription", client="s", topic="t", peer=B)
    assert answer(PUBLISHED, SUBSCRIBED, put) == ("too late", "its subscription reached a 20.0 ms after the event")
    moved_there = record(20, B, "moved", kind="location", client="s", lat=0.0, lon=0.0)
    told = record(130, A, "received", kind="location", client="s", lat=0.0, lon=0.0, peer=B)
    fenced = PUBLISHED._replace(fence=FENCE)
    assert answer(fenced, SUBSCRIBED, moved_there, told).text == "its location reached a 30.0 ms after the event"
    later = SUBSCRIBED._replace(t_ms=150)
    assert answer(PUBLISHED, later).text == "it had no subscription at b; it subscribed to 't' 50.0 ms later"


def test_brokers_without_a_trace_are_named_and_prove_nothing() -> None:
    assert answer(PUBLISHED, SUBSCRIBED, MATCHED, SENT, brokers=(A,)).verdict == "waiting"
    case = Case(E, [PUBLISHED, SUBSCRIBED, SENT], (A,))
    assert case.unread == [B]
    assert case.answer("s").text == "it should have been delivered; no trace was given for b"
    assert Case(E, [SUBSCRIBED], (B,)).answer("s").text == "the trace does not say when a:1:1 was published"


def test_what_ends_an_event_elsewhere_is_named() -> None:
    ended = of_event(105, A, "dropped", reason="hop limit")
    again = of_event(106, A, "dropped", reason="duplicate")
    assert answer(PUBLISHED, SUBSCRIBED, ended, again) == ("dropped", "a dropped it: hop limit")


def test_a_client_keeps_its_place_while_its_session_lasts() -> None:
    steps = [
        record(1, B, "connected", client="s", lat=1.0, lon=2.0),
        record(2, B, "disconnected", client="s", reason="session kept"),
        record(3, B, "connected", client="s"),
        record(4, B, "moved", client="s"),
        record(5, A, "connected", client="s"),
    ]
    (at,) = clients_at(steps, "s", 3)[:1]
    assert (at.location, at.online) == (Location(1.0, 2.0), True)
    assert [(at.home, at.location) for at in clients_at(steps, "s", 9)] == [(B, None), (A, None)]
    assert [at.online for at in clients_at(steps, "s", 2)] == [False, True]


def options_of(strategy: str) -> dict[str, Any]:
    return {"announce_ms": 200} if strategy == "mesh" else {}


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "single"])
def test_in_a_quiet_network_every_answer_agrees_with_the_oracle(strategy: str) -> None:
    """Every event of a simulated run and every client: reached if and only if due, and if not, the rule says why."""
    records: list[TraceRecord] = []
    simulation = Simulation(
        row_of_squares(4), strategy, options=options_of(strategy), latencies=_quick(), observers=[Trace(records.append)]
    )
    simulation.connect_all()
    simulation.measure_all()
    simulation.advance(5_000)
    oracle, dice = Oracle(), random.Random(3)
    names = [f"c{number}" for number in range(12)]
    due: dict[EventId, set[str]] = {}
    t_ms = 10_000
    for number in range(150):
        t_ms += 1_000
        name = dice.choice(names)
        spot = Location(dice.uniform(1.0, 9.0), dice.uniform(1.0, 39.0))
        fence = dice.choice([None, Circle(spot, 500_000.0), Circle(spot, 1_500_000.0)])
        topic = dice.choice(["a", "b/c"])
        act = dice.choice(["move", "subscribe", "unsubscribe", *["publish"] * 3]) if number > 40 else "prepare"
        if act == "publish":
            event: Any = ClientPublished(ClientId(name), topic, fence)
        elif act == "unsubscribe":
            event = ClientUnsubscribed(ClientId(name), topic)
        elif act == "move" or number % 2:
            event = moved(name, spot.lat, spot.lon)
        else:
            event = ClientSubscribed(ClientId(name), dice.choice([topic, "#", "b/+"]), fence)
        home = BrokerId(f"b{1 + int(name[1:]) % 4}")
        simulation.run([Step(t_ms, home, event)], until_ms=t_ms + 900)
        receivers = oracle.observe(event)
        if receivers is not None:
            latest = next(one for one in reversed(records) if one.step == "published")
            assert latest.event_id is not None
            due[latest.event_id] = set(map(str, receivers))
    brokers = {one.broker for one in records}
    verdicts: set[str] = set()
    assert len(due) > 40
    records = sorted((one for one in records if one.kind != "control"), key=lambda one: one.t_ms)
    for event_id, expected in due.items():
        case = Case(event_id, records, brokers)
        assert set(case.reached) == expected
        for name in names:
            found = case.answer(name)
            assert found.reached == (name in expected), found
            assert found.verdict != "unexplained", found
            verdicts.add(found.verdict)
    assert {"delivered", "no such topic", "outside the event's fence", "outside the subscription's fence"} <= verdicts


def _quick() -> Latencies:
    federation = row_of_squares(4)
    pairs = {(a, b): 10 for a in federation.ids for b in federation.ids if a != b}
    return Latencies(federation, given_ms=pairs)


def test_a_publication_right_before_the_subscription_arrives_is_explained() -> None:
    records: list[TraceRecord] = []
    federation = row_of_squares(2)
    b1, b2 = federation.ids
    latencies = Latencies(federation, given_ms={(b1, b2): 50, (b2, b1): 50})
    steps = [Step(0, b1, subscribed("s", "t")), Step(20, b2, published("p", "t"))]
    Simulation(federation, "flood_subscriptions", latencies=latencies, observers=[Trace(records.append)]).run(steps)
    case = Case(EventId(b2, 0, 1), sorted(records, key=lambda one: one.t_ms), federation.ids)
    assert case.answer("s") == ("too late", f"its subscription reached {b2} 35.0 ms after the event")
