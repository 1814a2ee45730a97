"""Digests: what brokers tell each other, when they do, and that nothing wanted is ever left out."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.stage import Stage, circle, moved, published, row_of_squares, subscribed, unsubscribed

from geomq.geo import Circle, Fence, Location, Polygon, distance_m
from geomq.mqtt.codec.topics import topic_matches
from geomq.routing.core.events import ClientGone, FederationChanged, PeerSaid, PeerUp
from geomq.routing.core.messages import CoverageChanged, ForwardEvent, SyncBegin
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.strategies.digests import outlook as outlooks
from geomq.routing.strategies.digests import strategy as digests
from geomq.routing.strategies.digests.digest import (
    UNITS_MAX,
    Around,
    Entry,
    Interest,
    KnownEntry,
    Unit,
    around,
    key_of,
    keys_of,
)
from geomq.routing.strategies.digests.outlook import LOOSE, MARGIN, RENEWING, SLACKS_M, WIDENING, Outlook
from geomq.routing.strategies.digests.strategy import (
    REFUSED_AFTER,
    Digests,
    DropDigest,
    EntryUnits,
    PutDigest,
    RefuseDigest,
)
from geomq.routing.strategies.digests.units import ANY, LEVELS, apart_m, cell_at, cell_lat, cell_lon, cell_reach_m

B1, B2 = BrokerId("b1"), BrokerId("b2")
ALL_OVER = Around(0.0, 0.0, 15_000_000.0)
FAR = circle(5, 12, 50)
"""A fence in b2's area where nobody is."""
locations = st.builds(Location, st.floats(-90, 90), st.floats(-180, 180))
radii = st.one_of(st.floats(0, 2_000_000), st.just(0.0), st.just(20_015_000.0))
levels = st.integers(0, LEVELS - 1)


def stage_of(brokers: int = 2, **options: Any) -> Stage:
    """b1's client p publishes, b2's client s listens for what comes from next to the border."""
    stage = Stage(row_of_squares(brokers), "digests", options)
    stage.do("b1", moved("p", 5, 5))
    stage.do("b2", moved("s", 5, 15))
    stage.do("b2", subscribed("s", "air/o3", circle(5, 10, 100)))
    stage.forget()
    return stage


def told(stage: Stage) -> bool:
    """Whether b1 knows what b2 wants."""
    strategy = stage.strategy("b1")
    assert isinstance(strategy, Digests)
    return B2 in strategy._known


def tell(stage: Stage) -> None:
    """Let b1 refuse, then let so much come in vain that b2 tells b1 again what it wants."""
    stage.feed("b2", PeerSaid(B1, RefuseDigest(10**6)))
    stage.feed("b1", PeerSaid(B2, DropDigest()))
    assert not told(stage)
    for _ in range(2 * outlooks.BACKOFF_MAX):
        if told(stage):
            break
        stage.do("b1", published("p", "noise", FAR))
    assert told(stage)
    stage.do("b1", published("p", "noise", FAR))
    stage.forget()


def test_it_tells_what_is_wanted_and_anew_when_too_much_came_in_vain(check_golden: Callable[[str, str], None]) -> None:
    stage = Stage(row_of_squares(2), "digests")
    stage.do("b1", moved("p", 5, 5))
    stage.do("b2", moved("s", 5, 15))
    stage.forget()
    stage.say("When their link came up b2 told b1 that nothing is wanted. Events stay at b1.")
    stage.do("b1", published("p", "air/o3"))
    stage.say("A subscriber of b2 wants what happens near the border, another the sea level. b1 is told of both.")
    stage.do("b2", subscribed("s", "air/o3", circle(5, 10, 100)))
    stage.do("b2", subscribed("s2", "sea/level", circle(5, 10, 900)))
    stage.say("An event goes to b2 only if its publisher may be where somebody wants to hear of it.")
    stage.do("b1", published("p", "air/o3"))
    stage.do("b1", moved("p", 5, 9.9))
    stage.do("b1", published("p", "air/o3"))
    stage.say(
        "s2 leaves. That is told with what b1 has to be told next, or when two events came in vain because of it."
    )
    stage.do("b2", unsubscribed("s2", "sea/level"))
    for _ in range(RENEWING + 1):
        stage.do("b1", published("p", "sea/level"))
    check_golden("digests", stage.text())


# Geometry.


@given(locations, levels)
def test_a_place_is_within_reach_of_the_centre_of_its_cell(place: Location, level: int) -> None:
    cell = cell_at(*place, level)
    assert distance_m(Location(cell_lat(cell, level), cell_lon(cell, level)), place) <= cell_reach_m(level)


@given(locations, locations)
def test_distances_are_those_of_the_sphere(a: Location, b: Location) -> None:
    assert apart_m(*a, *b) == pytest.approx(distance_m(a, b), abs=1e-3)


interests = st.builds(
    Interest,
    st.just("t"),
    st.one_of(st.none(), st.just(ANY), locations),
    st.one_of(st.none(), st.builds(Around, st.floats(-90, 90), st.floats(-180, 180), radii)),
)


def known(entry: Entry, slack_m: float) -> KnownEntry:
    return KnownEntry(entry.level, [Unit(at, of, radius) for (at, of), radius in entry.units.items()], slack_m)


def event_of(place: Location | None, fence: Fence | None, topic: str = "t") -> Event:
    return Event(EventId(B1, 0, 1), topic, ClientId("p"), place, fence)


@settings(max_examples=400)
@given(
    st.lists(interests, min_size=1, max_size=6),
    interests,
    st.sampled_from(SLACKS_M),
    st.one_of(st.none(), locations),
    st.one_of(st.none(), st.builds(Circle, locations, radii)),
    st.booleans(),
)
def test_what_a_digest_covers_it_never_leaves_out(
    wanted: list[Interest],
    other: Interest,
    slack_m: float,
    publisher: Location | None,
    fence: Circle | None,
    near: bool,
) -> None:
    """An event that matches an interest which is covered concerns the digest: those it was made of, and any other."""
    entry = Entry.of(wanted)
    assert all(entry.short_of(interest, 0.0) == 0.0 for interest in wanted)
    known_entry = known(entry, slack_m)
    for interest in (*wanted, other):
        if entry.short_of(interest, slack_m) > 0.0:
            continue
        at = interest.place if near and isinstance(interest.place, Location) else publisher
        if matches(interest, at, fence):
            assert known_entry.concerns(event_of(at, fence), around(fence))


def matches(interest: Interest, publisher: Location | None, fence: Circle | None) -> bool:
    if interest.around is not None:
        wanted = Circle(Location(interest.around.lat, interest.around.lon), interest.around.radius_m)
        if publisher is None or not wanted.contains(publisher):
            return False
    if fence is None or interest.place == ANY:
        return True
    return isinstance(interest.place, Location) and fence.contains(interest.place)


def test_many_places_make_coarser_cells_and_never_too_many_units() -> None:
    levels_used = []
    for count in (1, UNITS_MAX, 4 * UNITS_MAX, 40 * UNITS_MAX):
        spots = [Interest("t", Location(i * 0.01, (i * 7 % 1000) * 0.1), None) for i in range(count)]
        entry = Entry.of(spots)
        assert 1 <= len(entry.units) <= UNITS_MAX
        assert all(entry.short_of(spot, 0.0) == 0.0 for spot in spots)
        levels_used.append(entry.level)
    assert levels_used == sorted(levels_used)
    assert levels_used[0] == 0 < levels_used[-1]


def test_interests_that_no_cells_can_hold_are_everything() -> None:
    everywhere = [
        Interest("t", Location(lat, lon), Around(-lat, lon, 1.0))
        for lat in range(-88, 89, 8)
        for lon in range(-176, 177, 16)
    ]
    entry = Entry.of(everywhere)
    assert entry.units == {(ANY, ANY): 0.0}
    assert entry.short_of(Interest("t", Location(1, 1), None), 0.0) == 0.0


def test_a_polygon_counts_as_the_circle_around_it() -> None:
    corners = (Location(0, 0), Location(0, 4), Location(4, 4), Location(4, 0), Location(0, 0))
    found = around(Polygon((corners,)))
    assert found is not None
    for corner in corners:
        assert distance_m(Location(found.lat, found.lon), corner) <= found.radius_m


# Topics.

words = st.sampled_from(["a", "b", "", "+"])


@given(
    st.lists(words, min_size=1, max_size=5).map("/".join),
    st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=5).map("/".join),
    st.booleans(),
)
def test_the_key_of_a_filter_is_among_those_of_every_topic_it_matches(base: str, topic: str, rest: bool) -> None:
    topic_filter = f"{base}/#" if rest else base
    if topic_matches(topic_filter, topic):
        assert key_of(topic_filter) in keys_of(topic)


def test_keys_end_where_wildcards_begin_or_after_a_few_levels() -> None:
    assert [key_of(each) for each in ("a/b/c/d/e", "a/+/c", "#", "+/b", "a/b/#", "a")] == [
        "a/b/c",
        "a",
        "",
        "",
        "a/b",
        "a",
    ]
    assert keys_of("a/b/c/d/e") == ("", "a", "a/b", "a/b/c")


# When it tells.


def outlook_of(*places: Location, patience: int = 4) -> Outlook[int]:
    found: Outlook[int] = Outlook(patience)
    for number, place in enumerate(places):
        interest = Interest("t", place, ALL_OVER)
        found.put(number, interest)
        found.renew({number: interest})
    return found


def vain(topic: str = "nobody's", fence: Fence | None = None) -> Event:
    """An event that nobody wanted."""
    return event_of(Location(0, 0), fence, topic)


def test_what_the_digest_would_have_to_be_told_speaks_against_telling() -> None:
    found = outlook_of(patience=2)
    found.refused()
    assert not found.came_in_vain(vain())
    for number in range(5):
        found.put(number, Interest(f"t{number}", None, ALL_OVER))
        assert found.renew({number: Interest(f"t{number}", None, ALL_OVER)})
        assert not found.came_in_vain(vain())
    assert found.came_in_vain(vain())


def test_events_that_a_digest_would_not_have_spared_do_not_count() -> None:
    found = outlook_of(Location(0, 0), patience=1)
    near = vain("t", fence=Circle(Location(0, 0.01), 1_500.0))
    assert not found.came_in_vain(near)
    assert found.came_in_vain(vain("t", fence=Circle(Location(0, 9), 1_500.0)))
    assert not any(found.came_in_vain(near) for _ in range(100))


def test_what_was_under_way_when_all_was_told_does_not_count() -> None:
    found = outlook_of(Location(0, 0), patience=1)
    assert found.came_in_vain(vain())
    assert not any(found.came_in_vain(vain()) for _ in range(100))


def test_all_is_told_anew_when_events_come_because_of_what_has_ended() -> None:
    found = outlook_of(Location(0, 0), patience=1)
    assert found.came_in_vain(vain())
    found.drop(0, "t")
    assert [found.came_in_vain(vain("t")) for _ in range(RENEWING)] == [*[False] * (RENEWING - 1), True]
    assert found.entries == {}


def test_slack_follows_growth_by_little_and_goes_when_events_come_because_of_it() -> None:
    found = outlook_of(Location(0, 0), patience=1)
    assert found.came_in_vain(vain())
    for step in range(1, WIDENING + 1):
        interest = Interest("t", Location(0, 0.02 * step), ALL_OVER)
        found.put(0, interest)
        grown = found.renew({0: interest})
        assert (grown is None) == (step == WIDENING)
    assert found.slack_m == 4_000.0
    here = 0.02 * WIDENING
    interest = Interest("t", Location(0, here + 0.6 * MARGIN * 0.036), ALL_OVER)
    found.put(0, interest)
    assert found.renew({0: interest}) == {}
    found._loose = 0
    loose = vain("t", fence=Circle(Location(0, here + 0.04), 500.0))
    assert [found.came_in_vain(loose) for _ in range(LOOSE)] == [*[False] * (LOOSE - 1), True]
    assert found.slack_m == 1_000.0
    widened = []
    for step in range(2 * WIDENING):
        interest = Interest("t", Location(0, here + 0.03 * (step + 2)), ALL_OVER)
        found.put(0, interest)
        widened.append(found.renew({0: interest}) is None)
    assert widened == [*[False] * (2 * WIDENING - 1), True]


def test_a_jump_does_not_widen() -> None:
    found = outlook_of(Location(0, 0))
    for step in range(1, 10):
        interest = Interest("t", Location(0, 10.0 * step), ALL_OVER)
        found.put(0, interest)
        assert found.renew({0: interest})
    assert found.slack_m == 0.0


def test_after_each_refusal_telling_takes_twice_as_many() -> None:
    found = outlook_of(Location(0, 0), patience=1)
    waits = []
    for _ in range(9):
        found.refused()
        waits.append(next(count for count in range(1, 100) if found.came_in_vain(vain())))
    assert waits == [1, 2, 4, 8, 16, 32, 64, 64, 64]


def test_an_entry_of_very_many_interests_grows_without_being_made_anew() -> None:
    found = outlook_of(*(Location(0, 0) for _ in range(outlooks.REBUILT_MAX + 2)))
    found.drop(0, "t")
    there = Interest("t", Location(5, 5), ALL_OVER)
    found.put(1, there)
    found.renew({1: there})
    gone = Interest("t", Location(7, 7), ALL_OVER)
    found.put(1, gone)
    found.renew({1: gone})
    assert found.entries["t"].short_of(there, 0.0) == 0.0
    found.rebuild()
    assert found.entries["t"].short_of(there, 0.0) > 0.0


def test_who_subscribes_without_a_fence_wants_all_until_too_much_comes_in_vain() -> None:
    found = outlook_of(patience=2)
    found.told(is_told=True)
    for number in range(3):
        found.put(number, Interest("t", Location(0, number), None))
        grown = found.renew({number: Interest("t", Location(0, number), None)})
        assert bool(grown) == (number == 0)
    assert found.entries["t"].units == {(ANY, ANY): 0.0}
    near, far = (vain("t", fence=Circle(Location(0, lon), 1_000.0)) for lon in (1.001, 30))
    assert not any(found.came_in_vain(near) for _ in range(9))
    assert [found.came_in_vain(far) for _ in range(2)] == [False, True]
    assert len(found.entries["t"].units) == 3
    found.put(3, Interest("t", Location(0, 3), None))
    assert len(found.renew({3: Interest("t", Location(0, 3), None)})["t"].units) == 4  # type: ignore[index]


def test_a_peer_that_publishes_nothing_is_told_so_much_and_then_refuses() -> None:
    stage = stage_of()
    for number in range(2 * digests.SILENT_MAX):
        stage.do("b2", subscribed("s", f"t{number}", circle(5, 10, 100)))
    assert stage.wire.of(RefuseDigest) == [("b1", "b2")]
    assert len(stage.wire.of(PutDigest)) == digests.SILENT_MAX


def test_several_changes_of_a_turn_are_one_message() -> None:
    stage = stage_of()
    for number in range(5):
        stage.do("b2", subscribed("s", f"t{number}", circle(5, 10, 100)))
    tell(stage)
    stage.do("b2", moved("s", 5, 19))
    assert stage.wire.of(PutDigest) == [("b2", "b1")]
    (message,) = [message for _, _, message in stage.wire.messages if isinstance(message, PutDigest)]
    assert sorted(entry.key for entry in message.entries) == ["air/o3", "t0", "t1", "t2", "t3", "t4"]


def test_what_costs_more_than_it_saves_is_refused_and_everything_comes_again() -> None:
    stage = stage_of(patience=1)
    tell(stage)
    for number in range(REFUSED_AFTER + 1):
        stage.do("b2", subscribed("s", f"new/{number}"))
    assert stage.wire.of(RefuseDigest) == [("b1", "b2")]
    assert not told(stage)
    stage.forget()
    stage.do("b2", subscribed("s", "new/one more"))
    assert stage.wire.messages == []
    stage.do("b1", published("p", "new/one more"))
    assert stage.wire.receivers() == {"s": 1}


def test_events_saved_make_up_for_what_is_told() -> None:
    stage = stage_of(patience=1)
    tell(stage)
    for number in range(3 * REFUSED_AFTER):
        stage.do("b2", subscribed("s", f"new/{number}"))
        stage.do("b1", published("p", "noise", FAR))
    assert told(stage)
    assert stage.wire.of(RefuseDigest, ForwardEvent) == []


def test_a_refusal_of_what_has_been_replaced_is_not_heeded() -> None:
    stage = stage_of(patience=1)
    tell(stage)
    strategy = stage.strategy("b2")
    assert isinstance(strategy, Digests)
    version = strategy._outlooks[B1].whole_version
    stage.feed("b2", PeerSaid(B1, RefuseDigest(version - 1)))
    assert strategy._outlooks[B1].is_told
    stage.feed("b2", PeerSaid(B1, RefuseDigest(version)))
    assert not strategy._outlooks[B1].is_told


# Who has to hear what.


@pytest.mark.parametrize("delay_ms", range(0, 40, 3))
def test_a_subscriber_that_roams_is_told_of_in_time(delay_ms: int) -> None:
    """All know what b1 wants; s of b1 goes to b2's area, and an event of b3 is for that place."""
    stage = Stage(row_of_squares(3), "digests", {"patience": 1})
    for home, client, lon in (("b1", "s", 5), ("b2", "q", 15), ("b3", "p", 25)):
        stage.do(home, moved(client, 5, lon))
    stage.do("b1", subscribed("s", "t"))
    for _ in range(10):
        stage.do("b3", published("p", "noise"))
        stage.do("b2", published("q", "noise"))
    assert {B1, B2} <= stage.strategy("b3")._known.keys()
    stage.forget()
    now = stage.simulation.now_ms
    stage.at_once(("b1", moved("s", 5, 15)))
    assert stage.wire.of(CoverageChanged) == [("b1", "b2"), ("b1", "b3")]
    stage.forget()
    stage.simulation.advance(now + 2_000 + delay_ms)
    stage.do("b3", published("p", "t", circle(5, 15, 50)))
    assert stage.wire.receivers() == {"s": 1}


def test_while_a_publisher_roams_unconfirmed_no_digest_counts() -> None:
    stage = Stage(row_of_squares(3), "digests", {"patience": 1})
    stage.do("b3", moved("s", 5, 25))
    stage.do("b3", subscribed("s", "t", circle(5, 15, 50)))
    stage.do("b1", moved("p", 5, 5))
    for _ in range(5):
        stage.do("b1", published("p", "t"))
    assert BrokerId("b3") in stage.strategy("b1")._known
    stage.forget()
    stage.at_once(("b1", moved("p", 5, 15)), ("b1", published("p", "t")))
    assert stage.wire.receivers() == {"s": 1}


def test_all_is_told_again_to_a_peer_that_comes_back() -> None:
    stage = stage_of(patience=1)
    tell(stage)
    stage.feed("b1", PeerSaid(B2, SyncBegin()))
    assert not told(stage)
    stage.feed("b2", PeerUp(B1))
    assert told(stage)


def test_a_broker_that_forgot_what_it_was_told_sends_everything() -> None:
    stage = stage_of(patience=1)
    tell(stage)
    before = stage.node("b1")
    after = stage.simulation.make_node(B1, epoch=1)
    after.inherit(before, now=float(stage.simulation.now_ms))
    assert not after.strategy._known  # type: ignore[attr-defined]


def test_nothing_stays_when_all_subscriptions_have_ended() -> None:
    stage = stage_of(patience=1)
    tell(stage)
    stage.do("b2", ClientGone(ClientId("s")))
    assert stage.strategy("b1").state_size() == stage.strategy("b2").state_size() == 0
    assert told(stage)
    stage.do("b1", published("p", "air/o3"))
    assert stage.wire.of(ForwardEvent) == []


def test_a_broker_that_leaves_is_forgotten() -> None:
    stage = stage_of(3, patience=1)
    tell(stage)
    stage.feed("b1", FederationChanged(row_of_squares(1)))
    strategy = stage.strategy("b1")
    assert isinstance(strategy, Digests)
    assert not strategy._known
    assert not strategy._outlooks


# What peers should not say.


def test_parts_of_a_digest_count_when_the_last_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MESSAGE_UNITS", 2)
    stage = stage_of(patience=1)
    for number in range(7):
        stage.do("b2", moved(f"m{number}", 5, 15 + number / 4))
        stage.do("b2", subscribed(f"m{number}", "t", circle(5, 10, 100)))
    tell(stage)
    stage.do("b1", published("p", "noise", FAR))
    strategy = stage.strategy("b1")
    assert isinstance(strategy, Digests)
    assert len(strategy._known[B2].entries["t"].tests) == 7
    part = PutDigest(99, True, True, 0.0, ())
    stage.feed("b1", PeerSaid(B2, part))
    assert len(strategy._known[B2].entries["t"].tests) == 7
    stage.feed("b1", PeerSaid(B2, PutDigest(99, True, False, 0.0, ())))
    assert strategy._known[B2].entries == {}


def test_a_peer_that_wants_too_much_is_sent_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "KEYS_MAX", 3)
    monkeypatch.setattr(outlooks, "KEYS_MAX", 3)
    stage = stage_of(patience=1)
    tell(stage)
    for number in range(5):
        stage.do("b2", subscribed("s", f"t{number}"))
    assert stage.wire.of(DropDigest) == [("b2", "b1")]
    assert not told(stage)
    many = tuple(EntryUnits(f"k{number}", 0, (Unit(ANY, ANY, 0.0),)) for number in range(4))
    stage.feed("b1", PeerSaid(B2, PutDigest(1, True, False, 0.0, many)))
    assert not told(stage)
    for number in range(9):
        stage.feed("b1", PeerSaid(B2, PutDigest(1, True, True, 0.0, many)))
        assert len(stage.strategy("b1")._parts.get(B2, ())) <= 2, number


def test_growth_of_a_digest_that_was_refused_is_ignored() -> None:
    stage = stage_of()
    stage.feed("b1", PeerSaid(B2, DropDigest()))
    stage.feed("b1", PeerSaid(B2, PutDigest(5, False, False, 0.0, (EntryUnits("t", 0, ()),))))
    assert not told(stage)


# Plans.


def test_plain_events_have_a_plan_only_where_no_place_matters_and_nothing_is_counted() -> None:
    stage = stage_of(patience=1)
    tell(stage)
    strategy = stage.strategy("b1")
    assert isinstance(strategy, Digests)
    assert strategy.plan("air/o3") is None  # it depends on where the publisher is
    plan = strategy.plan("nobody")
    assert plan is not None
    assert plan.peers == ()
    since = strategy.plans_since()
    stage.do("b2", subscribed("s", "all"))
    assert strategy.plans_since() != since
    plan = strategy.plan("all")
    assert plan is not None
    assert [to.peer for to in plan.peers] == [B2]
    assert strategy.plan_forwarded("all", B2) is None
    assert stage.strategy("b2").plan_forwarded("all", B1) == (("s", "all"),)


def test_deliveries_are_those_of_disgb_events() -> None:
    received = []
    for strategy in ("disgb_events", "digests"):
        stage = Stage(row_of_squares(3), strategy)
        for number in range(60):
            home, lon = f"b{number % 3 + 1}", 5 + 10 * (number % 3) + number % 4
            stage.do(home, moved(f"c{number % 9}", 5, lon))
            stage.do(home, subscribed(f"c{number % 9}", f"t{number % 5}", circle(5, lon, 300 * (number % 4) + 1)))
            for topic in range(5):
                stage.do("b2", published("c1", f"t{topic}", circle(5, 15, 200 * topic + 1)))
        received.append(Counter(client for client, _ in stage.wire.received))
    assert received[0] == received[1]
