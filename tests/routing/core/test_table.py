"""The one matching rule, against the oracle that asks every subscription, with and without indexes."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.worlds import fences, filters, locations, topics

from geomq.geo import Circle, Fence, Location
from geomq.mqtt.codec.topics import topic_matches
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match, Subscriber
from geomq.routing.core.table import INDEX_FROM, SubscriptionTable
from geomq.sim.oracle import inside

HOMES = [BrokerId(name) for name in ("h1", "h2", "h3")]


def subscriber(number: int) -> Subscriber:
    return Subscriber(HOMES[number % len(HOMES)], ClientId(f"c{number}"))


def event(topic: str, fence: Fence | None = None, location: Location | None = None) -> Event:
    return Event(EventId(HOMES[0], 0, 1), topic, ClientId("p"), location, fence)


class Plain:
    """What a table is: a dictionary, asked one by one."""

    def __init__(self) -> None:
        self.subscriptions: dict[Subscriber, dict[str, Fence | None]] = {}
        self.places: dict[Subscriber, Location | None] = {}

    def put(self, who: Subscriber, topic_filter: str, fence: Fence | None, at: Location | None) -> None:
        self.subscriptions.setdefault(who, {})[topic_filter] = fence
        self.places[who] = at

    def drop(self, who: Subscriber, topic_filter: str) -> None:
        self.subscriptions.get(who, {}).pop(topic_filter, None)

    def match(self, happened: Event) -> dict[BrokerId, set[Match]]:
        found: dict[BrokerId, set[Match]] = {}
        for who, own in self.subscriptions.items():
            for topic_filter, fence in own.items():
                if (
                    topic_matches(topic_filter, happened.topic)
                    and inside(fence, happened.location)
                    and inside(happened.fence, self.places[who])
                ):
                    found.setdefault(who.home, set()).add(Match(who.client, topic_filter))
        return found


def check_match(table: SubscriptionTable, plain: Plain, happened: Event) -> None:
    found = table.match(happened)
    assert all(len(matches) == len(set(matches)) for matches in found.values())
    assert {home: set(matches) for home, matches in found.items()} == plain.match(happened)


few = st.integers(0, 11)
steps = st.one_of(
    st.tuples(st.just("put"), few, filters, fences, st.one_of(st.none(), locations)),
    st.tuples(st.just("put"), few, filters, fences, st.one_of(st.none(), locations)),
    st.tuples(st.just("drop"), few, filters, st.none(), st.none()),
    st.tuples(st.just("gone"), few, st.just(""), st.none(), st.none()),
    st.tuples(st.just("move"), few, st.just(""), st.none(), st.one_of(st.none(), locations)),
)
publishes = st.lists(st.builds(event, topics, fences, st.one_of(st.none(), locations)), min_size=1, max_size=5)


@settings(max_examples=120)
@given(st.lists(steps, max_size=60), publishes)
def test_a_table_matches_as_if_every_subscription_were_asked(
    script: list[tuple[str, int, str, Fence | None, Location | None]], events: list[Event]
) -> None:
    table, plain = SubscriptionTable(), Plain()
    for what, number, topic_filter, fence, place in script:
        who = subscriber(number)
        match what:
            case "put":
                table.put(who, topic_filter, fence, place)
                plain.put(who, topic_filter, fence, place)
            case "drop":
                table.drop(who, topic_filter)
                plain.drop(who, topic_filter)
            case "gone":
                table.drop_subscriber(who)
                plain.subscriptions.pop(who, None)
            case "move":
                table.move(who, place)
                if plain.subscriptions.get(who):
                    plain.places[who] = place
    assert len(table) == sum(len(own) for own in plain.subscriptions.values())
    for happened in events:
        check_match(table, plain, happened)


def crowded(seed: int, *, fenced: bool) -> tuple[SubscriptionTable, Plain]:
    """So many subscribers of one filter that both indexes are in use."""
    table, plain = SubscriptionTable(), Plain()
    for number in range(3 * INDEX_FROM):
        lat, lon = (number * 37 + seed) % 160 - 80.0, (number * 61 + 3 * seed) % 358 - 179.0
        fence = Circle(Location(lat, lon), 100_000.0 * (1 + number % 40)) if fenced and number % 5 else None
        place = None if number % 11 == 0 else Location(lat, lon)
        for each in (table, plain):
            each.put(subscriber(number), "a/b", fence, place)
    return table, plain


crowd_changes = st.lists(
    st.tuples(
        st.sampled_from(["put", "drop", "move"]),
        st.integers(0, 3 * INDEX_FROM),
        fences,
        st.one_of(st.none(), locations),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(st.integers(0, 500), st.booleans(), crowd_changes, publishes)
def test_indexes_change_nothing_but_speed(
    seed: int,
    fenced: bool,
    changes: list[tuple[str, int, Fence | None, Location | None]],
    events: list[Event],
) -> None:
    table, plain = crowded(seed, fenced=fenced)
    bucket = table._buckets.get("a/b")
    assert bucket is not None
    assert (bucket.index is not None) == fenced
    for what, number, fence, place in changes:
        who = subscriber(number)
        if what == "put":
            table.put(who, "a/b", fence, place)
            plain.put(who, "a/b", fence, place)
        elif what == "drop":
            table.drop(who, "a/b")
            plain.drop(who, "a/b")
        else:
            table.move(who, place)
            if plain.subscriptions.get(who):
                plain.places[who] = place
    for happened in events:
        check_match(table, plain, event("a/b", happened.fence, happened.location))


def test_a_small_fence_asks_the_points_and_not_the_crowd() -> None:
    table, plain = crowded(0, fenced=True)
    spot = Circle(Location(-6.0, 64.0), 2_000_000.0)
    assert table._points.count_bound(spot) < 3 * INDEX_FROM
    for place in (None, Location(0.0, 0.0), Location(-6.0, 64.0)):
        check_match(table, plain, event("a/b", spot, place))


def test_homes_are_counted_by_first_level() -> None:
    table = SubscriptionTable()
    for number, topic_filter in enumerate(["a/b", "a/+", "b", "#", "+/c"]):
        table.put(subscriber(number), topic_filter, None, None)
    assert (table.homes("a"), table.homes("b"), table.homes("c")) == (("h1", "h2"), ("h3",), ())
    assert table.homes(None) == ("h1", "h2")
    table.drop(subscriber(1), "a/+")
    table.drop_subscriber(subscriber(3))
    assert (table.homes("a"), table.homes(None)) == (("h1",), ("h2",))


def test_nothing_is_left_of_a_subscriber_that_is_dropped() -> None:
    table, _ = crowded(1, fenced=True)
    for who in table.subscribers():
        table.drop_subscriber(who)
    assert (len(table), table.subscribers(), len(table._points)) == (0, (), 0)
    assert table._buckets.get("a/b") is None
    assert table.match(event("a/b")) == {}


def test_a_move_of_somebody_unknown_is_not_remembered() -> None:
    table = SubscriptionTable()
    table.move(subscriber(0), Location(1.0, 1.0))
    assert len(table._points) == 0


def test_a_client_of_two_homes_is_two_subscribers() -> None:
    table = SubscriptionTable()
    for home in HOMES:
        table.put(Subscriber(home, ClientId("c")), "t", None, None)
    assert set(table.match(event("t"))) == set(HOMES)


def test_what_is_remembered_of_a_topic_follows_every_change() -> None:
    table, plain = SubscriptionTable(), Plain()
    here, there = Location(0.0, 0.0), Location(50.0, 50.0)
    around = Circle(here, 1000.0)
    changes = [("put", 0, None), ("put", 1, None), ("put", 1, around), ("put", 1, None), ("drop", 0, None)]
    for change, number, fence in changes:
        for kept in (table, plain):
            if change == "put":
                kept.put(subscriber(number), "a/+", fence, there)
            else:
                kept.drop(subscriber(number), "a/+")
        for asked in (event("a/b"), event("a/b", None, here), event("a/b", None, there), event("a/b", around, here)):
            check_match(table, plain, asked)
            check_match(table, plain, asked)


def test_topics_that_match_the_same_filters_share_what_is_remembered() -> None:
    table = SubscriptionTable()
    for number in range(300):
        table.put(subscriber(number), "#", None, None)
    tracemalloc.start()
    try:
        for number in range(1_000):
            assert len(table.match(event(f"fleet/{number}"))[HOMES[0]]) == 100
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 2_000_000


def test_what_is_remembered_is_bounded_however_many_subscribe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.routing.core.table.MATCHES_MAX", 100)
    table = SubscriptionTable()
    for number in range(30):
        table.put(subscriber(number), "#", None, None)
        table.put(subscriber(number), f"t/{number}", None, None)
    for number in range(30):
        found = table.match(event(f"t/{number}"))
        assert sum(map(len, found.values())) == 31
        assert table.match(event(f"t/{number}")) is found
        assert sum(len(matches) for each in table._together.values() for matches in (each or {}).values()) <= 160
