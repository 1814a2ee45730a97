"""What the page is told, from what brokers tell."""

from typing import Any

from geomq.dashboard import state as tested
from geomq.dashboard.feed import ClientNow, Look, Subscribed
from geomq.dashboard.state import State
from geomq.geo import Circle, Location
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.routing.trace.records import Step, TraceRecord

PARIS = Location(48.9, 2.4)
FIRST = EventId(BrokerId("a"), 1, 1)


def record(t_ms: float, step: Step, *, broker: str = "a", client: str | None = None, **more: Any) -> TraceRecord:
    kind = more.pop("kind", "event")
    return TraceRecord(t_ms, BrokerId(broker), step, kind, client=None if client is None else ClientId(client), **more)


def look(*records: TraceRecord, **counts: int) -> Look:
    return Look(counts, 1, {"b": 5.0}, records, 0)


def test_clients_come_move_and_go() -> None:
    state = State(["a", "b"])
    state.looked("a", 0.0, look(record(0, "connected", client="x", kind="client", lat=1.0, lon=2.0)))
    assert state.tick(0)["clients"] == {"put": [["x", "a", 1.0, 2.0]], "drop": []}
    state.looked("a", 1.0, look(record(1, "moved", client="x", kind="location", lat=3.0, lon=4.0)))
    assert state.tick(1)["clients"] == {"put": [["x", "a", 3.0, 4.0]], "drop": []}
    state.looked("a", 2.0, look(record(2, "disconnected", client="x", kind="client")))
    assert state.tick(2)["clients"] == {"put": [], "drop": ["x"]}
    assert state.tick(3)["clients"] == {"put": [], "drop": []}


def test_a_client_with_a_new_home_is_not_gone_when_the_old_one_says_so() -> None:
    state = State(["a", "b"])
    state.looked("a", 0.0, look(record(0, "connected", client="x", kind="client")))
    state.looked("b", 0.0, look(record(1, "connected", broker="b", client="x", kind="client", lat=1.0, lon=1.0)))
    state.looked("a", 0.0, look(record(2, "disconnected", client="x", kind="client")))
    told = state.client("x")
    assert told is not None
    assert (told["home"], told["at"]) == ("b", [1.0, 1.0])


def test_subscriptions_come_with_their_fence_and_go_with_their_client() -> None:
    state = State(["a"])
    state.replace("a", [ClientNow("x", None, (Subscribed("t/#", Circle(PARIS, 5.0)),))])
    fence = {"type": "Circle", "center": [48.9, 2.4], "radius_m": 5.0}
    assert state.tick(0)["subscriptions"] == {"put": [["x", "t/#", fence]], "drop": []}
    more = record(1, "subscribed", client="x", kind="subscription", topic="u", fence="geo:48.9,2.4;u=5")
    state.looked("a", 1.0, look(more))
    assert state.tick(1)["subscriptions"]["put"] == [["x", "u", fence]]
    state.replace("a", [])
    tick = state.tick(2)
    assert tick["clients"]["drop"] == ["x"]
    assert sorted(tick["subscriptions"]["drop"]) == [["x", "t/#"], ["x", "u"]]


def test_rates_are_what_totals_grew_by_a_second() -> None:
    state = State(["a"])
    state.looked("a", 0.0, look(events_received=10, events_delivered=0))
    state.looked("a", 500.0, look(events_received=20, events_delivered=50))
    told = state.tick(500)["brokers"]["a"]
    assert (told["published"], told["delivered"]) == (20.0, 100.0)
    state.lost("a")
    assert state.tick(600)["brokers"]["a"]["up"] is False


def test_messages_between_brokers_are_counted_by_kind() -> None:
    state = State(["a", "b"])
    sent = [record(0, "sent", peer="b"), record(0, "sent", peer="b"), record(0, "sent", peer="b", kind="control")]
    state.looked("a", 0.0, look(*sent))
    assert state.tick(0)["flows"] == [["a", "b", "event", 2], ["a", "b", "control", 1]]
    assert state.tick(1)["flows"] == []


def test_an_event_is_told_again_when_it_was_delivered_further() -> None:
    state = State(["a", "b"])
    published = record(
        100, "published", client="x", event_id=FIRST, topic="t", lat=1.0, lon=2.0, fence="geo:48.9,2.4;u=5"
    )
    state.looked("a", 0.0, look(published))
    (event,) = state.tick(0)["events"]
    assert (event["id"], event["topic"], event["client"], event["home"]) == ("a:1:1", "t", "x", "a")
    assert (event["at"], event["fence"]["type"], event["delivered"]) == ([1.0, 2.0], "Circle", 0)
    delivered = [record(100 + ms, "delivered", broker="b", client="y", event_id=FIRST, topic="t") for ms in (4, 6, 20)]
    state.looked("b", 0.0, look(*delivered))
    tick = state.tick(1)
    assert [(event["id"], event["delivered"]) for event in tick["events"]] == [("a:1:1", 3)]
    assert tick["brokers"]["b"]["latency_ms"] == 6.0
    assert state.tick(2)["brokers"]["b"]["latency_ms"] is None


def test_a_tick_is_bounded_and_what_is_left_out_is_counted() -> None:
    state = State(["a"])
    many = tested.CHANGES_MAX + 10
    state.replace("a", [ClientNow(f"c{number}", PARIS, ()) for number in range(many)])
    events = [record(0, "published", event_id=EventId(BrokerId("a"), 1, number), topic="t") for number in range(205)]
    state.looked("a", 0.0, look(*events))
    tick = state.tick(0)
    assert len(tick["clients"]["put"]) == tested.CHANGES_MAX
    assert len(tick["events"]) == tested.EVENTS_MAX
    assert tick["skipped"] == 10 + 5
    assert len(state.tick(1)["clients"]["put"]) == 10
    assert [len(part["clients"]["put"]) for part in state.whole(2)] == [tested.CHANGES_MAX, 10]


def test_the_last_event_of_a_client_is_found_behind_older_ones_of_a_broker_that_tells_later() -> None:
    state = State(["a", "b"])
    state.looked("a", 0.0, look(record(100, "published", client="x", event_id=FIRST, topic="t")))
    older = EventId(BrokerId("b"), 1, 1)
    state.looked("b", 0.0, look(record(90, "published", broker="b", client="y", event_id=older, topic="t")))
    assert state.latest_event("x", since_ms=95.0) == "a:1:1"
    assert state.latest_event("x", since_ms=101.0) is None
    assert state.latest_event("y", since_ms=95.0) is None


def test_a_delivery_may_be_told_before_its_event() -> None:
    state = State(["a", "b"])
    state.looked("b", 0.0, look(record(107, "delivered", broker="b", client="y", event_id=FIRST, topic="t")))
    assert state.tick(0)["events"] == []
    state.looked("a", 0.0, look(record(100, "published", client="x", event_id=FIRST, topic="t")))
    tick = state.tick(1)
    assert [event["delivered"] for event in tick["events"]] == [1]
    assert tick["brokers"]["b"]["latency_ms"] == 7.0


def test_links_are_told_when_they_change_and_now_and_then() -> None:
    state = State(["a", "b"])
    state.looked("a", 0.0, look())
    assert state.tick(0)["links"] == [["a", "b", 5.0]]
    told = [state.tick(number).get("links") for number in range(tested.LINKS_EVERY)]
    assert told == [None] * (tested.LINKS_EVERY - 1) + [[["a", "b", 5.0]]]
    state.lost("a")
    assert state.tick(9)["links"] == []
    assert next(state.whole(10))["links"] == []
