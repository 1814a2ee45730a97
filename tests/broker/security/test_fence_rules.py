"""Area rules against sampled places: never more is allowed than the file says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.broker.security.acl import parse_acl
from geomq.broker.security.fence_rules import fences_may_meet, surely_within
from geomq.geo import Circle, Fence, Location, Polygon, destinations, parse_fence

BERLIN = Location(52.52, 13.405)
POTSDAM = Location(52.4, 13.06)
PARIS = Location(48.86, 2.35)
FILE = """
fence from geo:48.86,2.35;u=1000
user alice
topic #
fence into POLYGON((13 52.3,13.8 52.3,13.8 52.7,13 52.7,13 52.3))
fence deny into geo:52.4,13.06;u=2000
fence from on alarm/# geo:52.52,13.405;u=30000
user bob
topic #
pattern fence deny from on own/%u geo:48.86,2.35;u=1000
"""


def test_events_stay_inside_the_fences_a_user_may_publish_into() -> None:
    alice = parse_acl(FILE, name="acl").rights(user="alice", client_id="a")
    assert alice.fenced
    assert alice.may_publish_into("x", Circle(BERLIN, 5_000))
    assert alice.may_publish_into("x", parse_fence("POLYGON((13.3 52.4,13.4 52.4,13.4 52.5,13.3 52.4))"))
    assert not alice.may_publish_into("x", None)
    assert not alice.may_publish_into("x", Circle(BERLIN, 50_000))
    assert not alice.may_publish_into("x", Circle(POTSDAM, 100))
    assert not alice.may_publish_into("x", parse_fence("POLYGON((0 0,1 0,1 1,0 0))"))


def test_events_come_only_from_the_fences_a_user_may_publish_from() -> None:
    acl = parse_acl(FILE, name="acl")
    alice = acl.rights(user="alice", client_id="a")
    assert alice.may_publish_from("x", None)
    assert alice.may_publish_from("alarm/1", POTSDAM)
    assert not alice.may_publish_from("alarm/1", PARIS)
    assert not alice.may_publish_from("alarm/1", None)
    anonymous = acl.rights(user=None, client_id="a")
    assert anonymous.may_publish_from("x", PARIS)
    assert not anonymous.may_publish_from("x", BERLIN)


def test_pattern_fences_hold_for_everybody() -> None:
    acl = parse_acl(FILE, name="acl")
    bob = acl.rights(user="bob", client_id="b")
    assert not bob.may_publish_from("own/bob", PARIS)
    assert bob.may_publish_from("own/bob", BERLIN)
    assert bob.may_publish_from("own/alice", PARIS)
    assert bob.may_publish_into("own/bob", None)
    assert not acl.rights(user="a/b", client_id="b").may_publish_from("own/a/b", PARIS)


lats, lons = st.floats(-88, 88), st.floats(-180, 180)
circles = st.builds(lambda lat, lon, radius: Circle(Location(lat, lon), radius), lats, lons, st.floats(1, 3_000_000))


@st.composite
def boxes(draw: st.DrawFn) -> Polygon:
    south = draw(st.floats(-89, 80))
    west = draw(st.floats(-180, 140))
    north, east = south + draw(st.floats(0.01, 9)), west + draw(st.floats(0.01, 39))
    return Polygon([[(south, west), (south, east), (north, east), (north, west), (south, west)]])


fences: st.SearchStrategy[Fence] = circles | boxes()


def sample(fence: Fence, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of the fence, its border included."""
    random = np.random.default_rng(seed)
    if isinstance(fence, Circle):
        size = 400
        bearings, share = random.uniform(0, 360, size), np.sqrt(random.uniform(0, 1, size))
        share[: size // 2] = 1.0
        lat, lon = np.full(size, fence.center.lat), np.full(size, fence.center.lon)
        return destinations(lat, lon, bearings, share * fence.radius_m * (1 - 1e-9))
    south, north, west, east = fence.bounds()[0]
    lats, lons = random.uniform(south, north, 400), random.uniform(west, east, 400)
    lats[:100], lats[100:200], lons[200:300], lons[300:] = south, north, west, east
    return lats, lons


@settings(max_examples=300)
@given(fences, fences, st.integers(0, 9))
def test_a_fence_is_called_inside_only_if_all_its_places_are(inner: Fence, outer: Fence, seed: int) -> None:
    if surely_within(inner, outer):
        assert outer.contains_many(*sample(inner, seed)).all()


@settings(max_examples=300)
@given(fences, fences, st.integers(0, 9))
def test_fences_are_called_apart_only_if_they_share_no_place(one: Fence, other: Fence, seed: int) -> None:
    if not fences_may_meet(one, other):
        assert not other.contains_many(*sample(one, seed)).any()
        assert not one.contains_many(*sample(other, seed)).any()


@given(circles, st.floats(0.05, 0.9))
def test_a_clearly_smaller_circle_around_the_same_place_is_inside(outer: Circle, share: float) -> None:
    assert surely_within(Circle(outer.center, outer.radius_m * share), outer)


@pytest.mark.parametrize(
    ("circle", "inside"), [(Circle(Location(0.5, 0.5), 40_000), True), (Circle(Location(0.5, 0.5), 60_000), False)]
)
def test_a_circle_in_a_square_is_judged_by_its_rim_not_its_box(circle: Circle, inside: bool) -> None:
    diamond = Polygon([[(0.5, 0.0), (0.0, 0.5), (0.5, 1.0), (1.0, 0.5), (0.5, 0.0)]])
    square = Polygon([[(0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0), (0.0, 0.0)]])
    assert surely_within(circle, square) == inside
    assert surely_within(Circle(circle.center, 37_000), diamond)
    assert not surely_within(Circle(circle.center, 42_000), diamond)
