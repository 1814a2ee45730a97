from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.geo.shapes import ACROSS, ARCTIC, FENCES, LOCATIONS, SQUARE

from geomq.geo import Circle, Fence, FenceIndex, Location, PointIndex, degrees_to_m, destination, parse_fence
from geomq.geo.fences import _CELLS_MAX

KEYS = st.integers(0, 15)


class FenceIndexMachine(RuleBasedStateMachine):
    """Any sequence of puts and removals, checked against a plain dict."""

    def __init__(self) -> None:
        super().__init__()
        self.index: FenceIndex[int] = FenceIndex()
        self.model: dict[int, Fence] = {}

    @rule(key=KEYS, fence=FENCES)
    def put(self, key: int, fence: Fence) -> None:
        self.index.put(key, fence)
        self.model[key] = fence

    @rule(key=KEYS)
    def remove(self, key: int) -> None:
        self.index.remove(key)
        self.model.pop(key, None)

    @rule(location=LOCATIONS)
    def query(self, location: Location) -> None:
        expected = [key for key, fence in self.model.items() if fence.contains(location)]
        assert sorted(self.index.holding(location)) == sorted(expected)

    @invariant()
    def knows_the_same_keys(self) -> None:
        assert len(self.index) == len(self.model)
        assert all(self.index.fence(key) == fence for key, fence in self.model.items())

    def teardown(self) -> None:
        for key in list(self.model):
            self.index.remove(key)
        assert not any(self.index._grids.values())
        assert not self.index._wide


TestFenceIndexMachine = FenceIndexMachine.TestCase
TestFenceIndexMachine.settings = settings(max_examples=60, stateful_step_count=30)


@given(FENCES, st.floats(0, 360), st.floats(0, 1))
def test_a_place_inside_a_circle_is_found_near_its_border_too(fence: Fence, bearing: float, share: float) -> None:
    index: FenceIndex[str] = FenceIndex()
    index.put("fence", fence)
    if isinstance(fence, Circle):
        for place in (
            destination(fence.center, bearing, fence.radius_m),
            destination(fence.center, bearing, share * fence.radius_m),
        ):
            assert index.holding(place) == (["fence"] if fence.contains(place) else [])
    else:
        for box in fence.bounds():
            for place in (Location(box.lat_min, box.lon_min), Location(box.lat_max, box.lon_max)):
                assert index.holding(place) == (["fence"] if fence.contains(place) else [])


def test_fences_of_all_sizes_round_one_place() -> None:
    index: FenceIndex[float] = FenceIndex()
    sizes = [0.0001, 0.001, 0.01, 0.1, 1, 5, 20, 60, 120, 180]
    for size in sizes:
        index.put(size, Circle(Location(47, 8), degrees_to_m(size)))
    assert sorted(index.holding(Location(47, 8))) == sizes
    assert sorted(index.holding(Location(50, 8))) == [5, 20, 60, 120, 180]
    assert sorted(index.holding(Location(-46.5, -172))) == [180]


def test_a_fence_is_listed_in_few_cells() -> None:
    index: FenceIndex[int] = FenceIndex()
    for key, degrees in enumerate([0.001, 0.01, 0.1, 1, 10, 90]):
        for lat in (0, 60, 89):
            index.put(key, Circle(Location(lat, 179.99), degrees_to_m(degrees)))
            assert len(index._listings[key].cells) <= _CELLS_MAX


def test_the_same_calls_give_the_same_order() -> None:
    def build() -> list[str]:
        index: FenceIndex[str] = FenceIndex()
        for name, fence in (("a", SQUARE), ("b", ARCTIC), ("c", ACROSS), ("d", Circle(Location(0.5, 0.5), 9e5))):
            index.put(name, fence)
        index.put("a", SQUARE)
        index.put("e", Circle(Location(0.5, 0.5), 2e7))
        return index.holding(Location(0.5, 0.5))

    assert build() == build()
    assert sorted(build()) == ["a", "d", "e"]


def test_an_empty_index_holds_nothing() -> None:
    index: FenceIndex[int] = FenceIndex()
    assert index.holding(Location(0, 0)) == []
    assert index.fence(1) is None
    index.remove(1)
    assert 1 not in index


def test_the_antimeridian_is_found_by_both_its_names_also_where_only_one_side_reaches_it() -> None:
    text = "MULTIPOLYGON (((-180 0, -170 0, -170 10, -180 10, -180 0)), ((170 20, 180 20, 180 30, 170 30, 170 20)))"
    fence = parse_fence(text)
    index: FenceIndex[str] = FenceIndex()
    index.put("fence", fence)
    points: PointIndex[int] = PointIndex()
    for key in range(2_000):
        points.move(key, Location(-60.0 + key / 100.0, key / 100.0))
    for lat in (5.0, 25.0):
        for lon in (180.0, -180.0):
            assert fence.contains(Location(lat, lon))
            assert index.holding(Location(lat, lon)) == ["fence"]
            points.move(-1, Location(lat, lon))
            assert points.inside(fence) == [-1]
