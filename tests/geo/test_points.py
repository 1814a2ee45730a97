from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.geo.shapes import ACROSS, ARCTIC, FENCES, LOCATIONS

from geomq.geo import HALF_CIRCUMFERENCE_M, Circle, Fence, Location, PointIndex, destination, parse_fence

KEYS = st.integers(0, 15)


class PointIndexMachine(RuleBasedStateMachine):
    """Any sequence of moves and removals, checked against a plain dict."""

    def __init__(self) -> None:
        super().__init__()
        self.index: PointIndex[int] = PointIndex()
        self.model: dict[int, Location] = {}

    @rule(key=KEYS, location=LOCATIONS)
    def move(self, key: int, location: Location) -> None:
        self.index.move(key, location)
        self.model[key] = location

    @rule(key=KEYS)
    def remove(self, key: int) -> None:
        self.index.remove(key)
        self.model.pop(key, None)

    @precondition(lambda self: self.model)
    @rule(fence=FENCES)
    def query(self, fence: Fence) -> None:
        expected = [key for key, location in self.model.items() if fence.contains(location)]
        assert sorted(self.index.inside(fence)) == sorted(expected)
        assert self.index.count_bound(fence) >= len(expected)

    @invariant()
    def knows_the_same_keys(self) -> None:
        assert len(self.index) == len(self.model)
        assert all(self.index.location(key) == location for key, location in self.model.items())


TestPointIndexMachine = PointIndexMachine.TestCase
TestPointIndexMachine.settings = settings(max_examples=60, stateful_step_count=30)


def filled(count: int) -> tuple[PointIndex[int], list[Location]]:
    """Points in a dense spiral round one city and thinner all over the world."""
    index: PointIndex[int] = PointIndex()
    places = []
    for key in range(count):
        metres = (key % 400) ** 2.9 if key % 2 else key * 37.0
        places.append(destination(Location(48.0, 11.0), key * 137.5, min(metres, HALF_CIRCUMFERENCE_M)))
        index.move(key, places[-1])
    return index, places


CROWD, CROWD_PLACES = filled(4_000)


@settings(max_examples=60)
@given(FENCES)
def test_a_crowd_is_searched_right_at_every_grain(fence: Fence) -> None:
    expected = fence.contains_many(*zip(*CROWD_PLACES, strict=True)).nonzero()[0].tolist()
    assert sorted(CROWD.inside(fence)) == expected
    assert CROWD.count_bound(fence) >= len(expected)


@given(st.integers(0, 3_999), st.floats(1, 7.2))
def test_circles_round_members_of_a_crowd(member: int, exponent: float) -> None:
    circle = Circle(CROWD_PLACES[member], 10**exponent)
    found = CROWD.inside(circle)
    assert member in found
    assert sorted(found) == circle.contains_many(*zip(*CROWD_PLACES, strict=True)).nonzero()[0].tolist()


def test_the_bound_of_a_small_fence_is_small() -> None:
    assert CROWD.count_bound(Circle(Location(48.0, 11.0), 100)) < 400
    assert CROWD.count_bound(Circle(Location(-48.0, 11.0), 100)) < 50


def test_the_same_calls_give_the_same_order() -> None:
    again, _ = filled(4_000)
    for fence in (Circle(Location(48, 11), 3_000), Circle(Location(48, 11), 3e6), ARCTIC, ACROSS):
        assert again.inside(fence) == CROWD.inside(fence)


def test_the_poles_and_the_antimeridian_are_one_place_each() -> None:
    index: PointIndex[str] = PointIndex()
    for name, place in {"n": (90, 33), "s": (-90, -7), "e": (5, 180), "w": (5, -180)}.items():
        index.move(name, Location(*place))
    assert index.inside(Circle(Location(90, -100), 1)) == ["n"]
    assert index.inside(Circle(Location(-89.9999, 100), 20)) == ["s"]
    assert sorted(index.inside(Circle(Location(5, 179.9999), 50))) == ["e", "w"]
    assert sorted(index.inside(Circle(Location(5, -180), 0))) == ["e", "w"]
    assert sorted(index.inside(parse_fence("POLYGON ((179 0, 180 0, 180 9, 179 9, 179 0))"))) == ["e", "w"]
    assert index.inside(ARCTIC) == ["n"]


def test_an_empty_index_finds_nothing() -> None:
    index: PointIndex[int] = PointIndex()
    for fence in (Circle(Location(0, 0), 1e7), Circle(Location(0, 0), 10), ARCTIC):
        assert index.inside(fence) == []
        assert index.count_bound(fence) == 0
    assert index.location(3) is None
    index.remove(3)
    assert 3 not in index
