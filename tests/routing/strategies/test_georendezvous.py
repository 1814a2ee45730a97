"""Rendezvous at hashed places: who is responsible, which paths are cut, when rendezvous come and go."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.stage import Stage, circle, nearest_of, published, subscribed, unsubscribed

from geomq.errors import ConfigError
from geomq.geo import Location, PolygonAreas, destination, distance_m
from geomq.mqtt.codec.topics import topic_matches
from geomq.routing.core.actions import DeliverToClients
from geomq.routing.core.events import ClientGone, FederationChanged, PeerSaid, PeerUp
from geomq.routing.core.messages import DeliverEvent, ForwardEvent, PutSubscription, SyncBegin, SyncEnd
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.routing.strategies.georendezvous import (
    GeoRendezvous,
    GraftRendezvous,
    PrunePath,
    PruneRendezvous,
    Refresh,
    place_of,
)

KEY = "cars"
NEAR, FAR = place_of(KEY, 0), place_of(KEY, 1)


def between(a: Location, b: Location, share: float) -> Location:
    """A point on the way from a to b."""
    (ax, ay, az), (bx, by, bz) = _vector(a), _vector(b)
    x, y, z = (p + (q - p) * share for p, q in ((ax, bx), (ay, by), (az, bz)))
    return Location(math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x)))


def _vector(place: Location) -> tuple[float, float, float]:
    lat, lon = math.radians(place.lat), math.radians(place.lon)
    return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)


def two_rendezvous(**more: Location) -> Federation:
    """Brokers `near` and `far` on the two places of the key, a subscriber's home near the first, a publisher's
    home close to the second, so that the way by `far` is the shorter one."""
    places = {
        "pub": destination(FAR, 0.0, 300_000.0),
        "sub": between(NEAR, FAR, 0.4),
        "near": NEAR,
        "far": FAR,
    }
    return nearest_of(places | more)


def stage_of(nearest: int = 2, rendezvous: int = 2, **options: Any) -> Stage:
    return Stage(two_rendezvous(), "georendezvous", {"rendezvous": rendezvous, "nearest": nearest, **options})


def test_the_longer_path_is_cut_and_a_rendezvous_nobody_needs_prunes_itself(
    check_golden: Callable[[str, str], None],
) -> None:
    stage = stage_of()
    stage.say("The topic has two places, owned by near and far. A subscription goes to both.")
    stage.do("sub", subscribed("s", KEY))
    stage.say("So does an event. The home hears of it twice; the way by near is longer and is cut.")
    stage.do("pub", published("p", KEY))
    stage.say("Now near has no broker to forward to: it prunes itself.")
    stage.do("pub", published("p", KEY))
    stage.say("From here on one path is left.")
    stage.do("pub", published("p", KEY))
    stage.say("A subscriber at near needs no other: near grafts itself back.")
    stage.do("near", subscribed("n", KEY))
    stage.do("pub", published("p", KEY))
    check_golden("georendezvous-prune", stage.text())


def test_the_two_paths_differ_as_the_tests_assume() -> None:
    federation = two_rendezvous()
    by_near, by_far = (path_m(federation, via) for via in ("near", "far"))
    assert by_far < by_near
    assert Stage(federation, "georendezvous", {"rendezvous": 2}).strategy("sub").rendezvous(KEY) == ("near", "far")


def path_m(federation: Federation, via: str) -> float:
    a, b = (federation.distance_m(BrokerId(x), BrokerId(via)) for x in ("pub", "sub"))
    return a + b


def test_an_event_that_came_by_two_rendezvous_cuts_the_longer_path() -> None:
    stage = stage_of()
    stage.do("sub", subscribed("s", KEY))
    stage.do("pub", published("p", KEY))
    assert sorted(stage.wire.of(DeliverEvent)) == [("far", "sub"), ("near", "sub")]
    assert stage.wire.of(PrunePath) == [("sub", "near")]
    assert stage.wire.receivers() == {"s": 1}


def test_once_pruned_an_event_takes_one_path_only() -> None:
    stage = stage_of()
    stage.do("sub", subscribed("s", KEY))
    stage.do("pub", published("p", KEY))
    stage.do("pub", published("p", KEY))
    assert stage.wire.of(PruneRendezvous) == [("near", "pub")]
    stage.forget()
    stage.do("pub", published("p", KEY))
    assert [(a, b) for a, b, _ in stage.wire.messages] == [("pub", "far"), ("far", "sub")]
    assert stage.wire.receivers() == {"s": 1}


def test_a_cut_holds_for_one_publisher_one_home_and_one_key() -> None:
    stage = stage_of()
    stage.do("sub", subscribed("s", KEY))
    stage.do("pub", published("p", KEY))
    stage.forget()
    stage.do("near", published("q", KEY))
    assert ("near", "sub") in stage.wire.of(DeliverEvent)
    stage.do("far", subscribed("f", KEY))
    stage.forget()
    stage.do("pub", published("p", KEY))
    assert stage.wire.receivers() == {"s": 1, "f": 1}


def test_a_rendezvous_without_subscribers_prunes_itself_at_the_first_event() -> None:
    stage = stage_of()
    stage.do("pub", published("p", KEY))
    assert sorted(stage.wire.of(PruneRendezvous)) == [("far", "pub"), ("near", "pub")]
    stage.forget()
    stage.do("pub", published("p", KEY))
    assert not stage.wire.messages


def test_a_new_subscription_grafts_what_was_pruned() -> None:
    stage = stage_of()
    stage.do("pub", published("p", KEY))
    stage.do("sub", subscribed("s", KEY))
    assert sorted(stage.wire.of(GraftRendezvous)) == [("far", "pub"), ("near", "pub")]
    stage.do("pub", published("p", KEY))
    assert stage.wire.receivers() == {"s": 1}


def test_a_leading_wildcard_grafts_every_key() -> None:
    stage = stage_of()
    for topic in (KEY, "boats"):
        stage.do("pub", published("p", topic))
    stage.do("sub", subscribed("s", "#"))
    for topic in (KEY, "boats"):
        stage.do("pub", published("p", topic))
    assert stage.wire.receivers() == {"s": 2}


def test_a_rendezvous_that_holds_only_wildcards_never_replaces_one_that_holds_all() -> None:
    """The home's filters on the key are at `near` alone; `far`, on the shorter way, knows only its wildcard."""
    stage = stage_of(nearest=1)
    stage.do("sub", subscribed("all", "#"))
    stage.do("sub", subscribed("one", KEY))
    for _ in range(4):
        stage.do("pub", published("p", KEY))
    assert stage.wire.receivers() == {"all": 4, "one": 4}
    assert ("sub", "near") not in stage.wire.of(PrunePath)


def test_all_filters_of_a_client_count_whichever_rendezvous_answers_first() -> None:
    """`far` knows only the wildcard of the client."""
    stage = stage_of(nearest=1)
    stage.do("sub", subscribed("c", "+"))
    stage.do("sub", subscribed("c", KEY))
    event = Event(EventId(BrokerId("pub"), 1, 1), KEY, ClientId("p"), None, None, qos=1)
    wildcard, whole = (Match(ClientId("c"), "+"),), {Match(ClientId("c"), "+"), Match(ClientId("c"), KEY)}
    said = PeerSaid(BrokerId("far"), DeliverEvent(event, wildcard))
    actions = stage.node("sub").handle(said, now=stage.simulation.now_ms)
    (delivered,) = [action for action in actions if isinstance(action, DeliverToClients)]
    assert set(delivered.matches) == whole


def test_the_first_subscription_on_a_key_resets_the_cuts_made_for_a_wildcard() -> None:
    """While the home has only a wildcard, `far` serves it and `near` is cut; then `near` alone gets its filter."""
    stage = stage_of(nearest=1)
    stage.do("sub", subscribed("all", "#"))
    for _ in range(3):
        stage.do("pub", published("p", KEY))
    assert stage.wire.of(PrunePath) == [("sub", "near")]
    stage.do("sub", subscribed("one", KEY))
    stage.forget()
    for _ in range(4):
        stage.do("pub", published("p", KEY))
    assert stage.wire.receivers() == {"all": 4, "one": 4}


WIDE = {f"b{i}": place_of("spread", i) for i in range(11)}


@settings(max_examples=25)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("sub"), st.integers(0, 10), st.sampled_from([KEY, f"{KEY}/+", f"{KEY}/x", "#", "+"])),
            st.tuples(st.just("unsub"), st.integers(0, 10), st.sampled_from([KEY, f"{KEY}/+", f"{KEY}/x", "#", "+"])),
            st.tuples(st.just("pub"), st.integers(0, 10), st.sampled_from([KEY, f"{KEY}/x"])),
            st.tuples(st.just("pub"), st.integers(0, 2), st.sampled_from([KEY, f"{KEY}/x"])),
        ),
        min_size=10,
        max_size=40,
    ),
    st.integers(1, 3),
)
def test_eleven_brokers_prune_and_graft_and_lose_nothing(steps: list[tuple[str, int, str]], nearest: int) -> None:
    stage = Stage(nearest_of(WIDE), "georendezvous", {"rendezvous": 6, "nearest": nearest})
    filters: dict[str, set[str]] = {}
    for what, number, text in steps:
        home, client = f"b{number}", f"c{number}-{text}"
        stage.forget()
        match what:
            case "sub":
                filters.setdefault(client, set()).add(text)
                stage.do(home, subscribed(client, text))
            case "unsub":
                filters.pop(client, None)
                stage.do(home, unsubscribed(client, text))
            case _:
                stage.do(home, published("p", text))
                expected = {c: 1 for c, own in filters.items() if any(topic_matches(f, text) for f in own)}
                assert stage.wire.receivers() == expected


def test_a_subscription_goes_only_to_the_nearest_places_of_its_home() -> None:
    stage = Stage(nearest_of(WIDE), "georendezvous", {"rendezvous": 8, "nearest": 2})
    stage.do("b0", subscribed("s", "spread"))
    here = WIDE["b0"]
    owners = sorted((f"b{i}" for i in range(8)), key=lambda broker: distance_m(here, WIDE[broker]))
    assert owners[0] == "b0"
    assert stage.wire.of(PutSubscription) == [("b0", owners[1])]
    stage.do("b9", published("p", "spread"))
    assert sorted(target for _, target in stage.wire.of(ForwardEvent)) == [f"b{i}" for i in range(8)]


def test_places_are_spread_evenly_over_the_sphere() -> None:
    places = [place_of(f"topic-{i}", number) for i in range(500) for number in range(8)]
    north = sum(place.lat > 0 for place in places) / len(places)
    polar = sum(abs(place.lat) > 30 for place in places) / len(places)
    east = sum(place.lon > 0 for place in places) / len(places)
    assert (north, polar, east) == pytest.approx((0.5, 0.5, 0.5), abs=0.03)


def test_interest_is_repeated_and_what_falls_silent_is_forgotten(check_golden: Callable[[str, str], None]) -> None:
    stage = stage_of(refresh_ms=10_000, expire_ms=25_000)
    stage.do("sub", subscribed("s", KEY))
    stage.do("near", subscribed("n", KEY))
    stage.forget()
    stage.say("Homes repeat their interest.")
    stage.simulation.advance(13_000)
    stage.say("sub is silent from now on; after 25 seconds its subscriptions are forgotten.")
    stage.strategy("sub")._refresh_at = None
    stage.simulation.advance(45_000)
    check_golden("georendezvous-refresh", stage.text())
    for rendezvous in ("near", "far"):
        assert stage.strategy(rendezvous).table.homes(KEY) == ("near",)


def test_who_keeps_repeating_is_not_forgotten() -> None:
    stage = stage_of(refresh_ms=10_000, expire_ms=25_000)
    stage.do("sub", subscribed("s", KEY))
    stage.simulation.advance(200_000)
    assert len(stage.wire.of(Refresh)) >= 2 * 18
    stage.do("pub", published("p", KEY))
    assert stage.wire.receivers() == {"s": 1}


def test_without_subscriptions_there_is_nothing_to_repeat() -> None:
    stage = stage_of(refresh_ms=10_000)
    stage.do("sub", subscribed("s", KEY))
    stage.do("sub", ClientGone(ClientId("s")))
    stage.simulation.advance(60_000)
    stage.forget()
    stage.simulation.advance(600_000)
    assert not stage.wire.messages
    assert all(stage.node(broker).next_deadline() is None for broker in ("sub", "near", "far", "pub"))


def test_a_peer_that_starts_anew_has_forgotten_the_prunes() -> None:
    stage = stage_of()
    stage.do("pub", published("p", KEY))
    stage.feed("near", PeerUp(BrokerId("pub")))
    stage.feed("pub", PeerUp(BrokerId("near")))
    stage.forget()
    stage.do("pub", published("p", KEY))
    assert stage.wire.of(ForwardEvent) == [("pub", "near")]


def test_a_prune_said_before_the_repetition_comes_is_grafted_back() -> None:
    """Events that waited for a link come over it before what the strategy repeats."""
    stage = stage_of()
    stage.do("pub", published("p", KEY))
    for rendezvous in ("near", "far"):
        for repeated in (SyncBegin(), SyncEnd()):
            stage.feed(rendezvous, PeerSaid(BrokerId("pub"), repeated))
    stage.do("sub", subscribed("s", KEY))
    stage.do("pub", published("p", KEY))
    assert stage.wire.receivers() == {"s": 1}


def test_when_places_change_hands_every_prune_is_forgotten() -> None:
    stage = stage_of()
    stage.do("sub", subscribed("s", KEY))
    stage.do("pub", published("p", KEY))
    stage.do("pub", published("p", KEY))
    wider = nearest_of({broker.id: broker.location for broker in two_rendezvous().brokers})
    for broker in ("pub", "sub", "near", "far"):
        stage.feed(broker, FederationChanged(wider))
    stage.forget()
    stage.do("pub", published("p", KEY))
    assert sorted(stage.wire.of(ForwardEvent)) == [("pub", "far"), ("pub", "near")]
    assert stage.wire.receivers() == {"s": 1}


def test_a_place_in_no_area_belongs_to_the_nearest_broker() -> None:
    brokers = [BrokerSite(BrokerId("a"), Location(0.5, 0.5)), BrokerSite(BrokerId("b"), Location(0.5, 5.5))]
    small = Federation(brokers, PolygonAreas([circle(0.5, 0.5, 50), circle(0.5, 5.5, 50)]))
    stage = Stage(small, "georendezvous")
    nearest = [min(brokers, key=lambda broker: distance_m(broker.location, place_of(KEY, i))).id for i in range(8)]
    assert set(stage.strategy("a").rendezvous(KEY)) == set(nearest)
    stage.do("a", subscribed("s", KEY))
    stage.do("b", published("p", KEY))
    assert stage.wire.receivers() == {"s": 1}


@pytest.mark.parametrize("options", [{"rendezvous": 0}, {"nearest": 65}, {"refresh_ms": 1}, {"replicas": 3}])
def test_impossible_options_are_refused_in_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        GeoRendezvous.parse_options(options)
    assert "\n" not in str(refused.value)
