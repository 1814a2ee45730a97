"""The kernel against the slow reference, on small worlds full of ties and border cases."""

import sys
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.geo import Location, distance_m
from geomq.workload.cities import PUBLISHED
from geomq.workload.disgb import preset
from geomq.workload.evaluate import Evaluator, evaluate
from geomq.workload.model import DEGREE, NO_FENCE, Actions, Kind, Workload, generate
from geomq.workload.script import RecordedSpec, recorded
from geomq.workload.summary import NAMES, StrategyResult, summarise
from geomq.workload.views import view_table
from geomq.workload.world import World

sys.path.append(str(Path(__file__).parent))
from reference import Reference, Result

# Near enough for short latencies, far enough for several broadcast groups.
CHOICES = {3: (0, 12, 13), 4: (2, 8, 17, 22), 5: (0, 1, 2, 20, 22), 9: (0, 1, 2, 3, 4, 8, 17, 20, 22)}


@cache
def world_of(brokers: int) -> World:
    return World.of_places([PUBLISHED[i] for i in CHOICES[brokers]], 6)


def results_of(world: World, spec: RecordedSpec, *, paper: bool) -> dict[str, StrategyResult]:
    return summarise(evaluate(world, spec, 0, paper=paper), view_table(world))


def assert_equal(result: StrategyResult, expected: Result) -> None:
    assert {k: v for k, v in result.messages.items() if v} == dict(expected.messages)
    assert histogram(result.latency) == dict(expected.latency)
    assert histogram(result.delay) == dict(expected.delay)
    links = {(int(a), int(b)): int(result.links[a, b]) for a, b in np.argwhere(result.links)}
    assert links == dict(expected.links)


def histogram(counts: np.ndarray) -> dict[int, int]:
    return {int(ms): int(counts[ms]) for ms in np.flatnonzero(counts)}


def reference(world: World, spec: RecordedSpec, strategy: str, *, paper: bool) -> Result:
    homes = spec.workload.clients.home.tolist()
    return Reference(world, homes, spec.topic_names(), strategy, paper=paper).run(spec.workload.actions)


def check_all(world: World, spec: RecordedSpec, *, paper: bool) -> Counter[str]:
    results = results_of(world, spec, paper=paper)
    delivered: Counter[str] = Counter()
    for name in NAMES:
        if name == "grid_quorum" and world.grid_side is None:
            assert name not in results
            continue
        expected = reference(world, spec, name, paper=paper)
        assert_equal(results[name], expected)
        delivered[name] = sum(expected.latency.values())
    return delivered


@st.composite
def scripts(draw: st.DrawFn) -> tuple[World, RecordedSpec]:
    """A handful of clients on a few places, acting within a few link latencies of each other."""
    world = world_of(draw(st.sampled_from(sorted(CHOICES))))
    latencies = sorted({int(ms) for ms in world.latency_ms.ravel()})
    homes = np.sort(np.array(draw(st.lists(st.integers(0, len(world) - 1), min_size=1, max_size=6)), np.int32))
    places = draw(st.lists(st.tuples(st.integers(-900, 900), st.integers(-1800, 1799)), min_size=1, max_size=4))
    spots = [(int(a) * DEGREE // 10, int(b) * DEGREE // 10) for a, b in places]
    exact = [round(distance_m(degrees(a), degrees(b)) * 100) for a in spots for b in spots]
    radii = st.one_of(
        st.just(NO_FENCE), st.sampled_from(exact), st.sampled_from(exact).map(lambda cm: max(cm - 1, 0)), st.just(10**9)
    )
    base = st.sampled_from([1, 1000, 1001])
    times = st.builds(lambda t, ms, off: max(t + ms + off, 1), base, st.sampled_from(latencies), st.integers(-1, 1))
    row = st.tuples(
        times,
        st.integers(0, len(homes) - 1),
        st.sampled_from(list(Kind)),
        st.integers(0, 1),
        st.sampled_from(spots),
        radii,
    )
    rows = draw(st.lists(row, min_size=1, max_size=24))
    return world, recorded(["a", "b"], homes, actions_from(rows))


def degrees(spot: tuple[int, int]) -> Location:
    return Location(spot[0] / DEGREE, spot[1] / DEGREE)


def actions_from(rows: list[tuple[int, int, Kind, int, tuple[int, int], int]]) -> Actions:
    def column(values: list[int], dtype: type = np.int32) -> np.ndarray:
        return np.array(values, dtype)

    return Actions(
        column([row[0] for row in rows]),
        column([row[1] for row in rows]),
        column([row[2] for row in rows], np.uint8),
        column([-1 if row[2] == Kind.LOCATION else row[3] for row in rows]),
        column([row[4][0] for row in rows]),
        column([row[4][1] for row in rows]),
        column([-1 if row[2] == Kind.LOCATION else row[5] for row in rows]),
        column([0 for _ in rows]),
    )


@settings(max_examples=150, deadline=None)
@given(scripts(), st.booleans())
def test_kernel_equals_the_reference_on_any_small_script(script: tuple[World, RecordedSpec], paper: bool) -> None:
    world, spec = script
    check_all(world, spec, paper=paper)


@pytest.mark.parametrize("brokers", sorted(CHOICES))
def test_kernel_equals_the_reference_on_the_published_workload(brokers: int) -> None:
    world = world_of(brokers)
    spec = preset("steady", clients=60, topics=6, seconds=120, event_fence_deg=25.0, subscription_fence_deg=40.0)
    workload = generate(world, spec, seed=brokers)
    delivered = check_all(world, RecordedSpec(workload), paper=True)
    assert delivered["flood_events"] > 100


def test_an_update_that_arrives_with_a_forwarded_event_is_seen_only_if_it_was_forwarded_too() -> None:
    world = world_of(3)
    ms = int(world.latency_ms[0, 1])
    spot = (0, 0)
    rows = [
        (1, 0, Kind.LOCATION, 0, spot, NO_FENCE),
        (1, 1, Kind.LOCATION, 0, spot, NO_FENCE),
        (2000, 0, Kind.EVENT, 0, spot, NO_FENCE),
        (2000 + ms, 1, Kind.SUBSCRIPTION, 0, spot, NO_FENCE),
        (4000, 0, Kind.EVENT, 1, spot, NO_FENCE),
        (4000 - ms, 1, Kind.SUBSCRIPTION, 1, spot, NO_FENCE),
    ]
    spec = recorded(["a", "b"], np.array([0, 1], np.int32), actions_from(rows))
    results = results_of(world, spec, paper=True)
    # On topic a the subscription reaches its own home in the tick of the forwarded event, and comes after it.
    # On topic b it reaches the publisher's home in the tick of the event, and comes before it.
    assert int(results["flood_events"].latency.sum()) == 1
    assert int(results["flood_subscriptions"].latency.sum()) == 1
    check_all(world, spec, paper=True)


def test_evaluation_does_not_depend_on_how_topics_are_split() -> None:
    world = World.published()
    spec = preset("paper", clients=6000, topics=20, seconds=300)
    workload: Workload = generate(world, spec, seed=3)
    whole = evaluate(world, spec, 3, paper=True)
    again = evaluate(world, RecordedSpec(workload), 0, paper=True)
    for a, b in zip(whole, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert isinstance(Evaluator(world, spec, paper=True).tally.delays, np.ndarray)
