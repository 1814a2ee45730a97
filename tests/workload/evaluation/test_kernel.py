"""The kernel against the slow reference, on small worlds full of ties and border cases."""

from collections import Counter
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workload.evaluation.reference import Reference, Result

from geomq.geo import Location, distance_m
from geomq.routing.strategies.ring import HashRing
from geomq.workload.cities import PUBLISHED
from geomq.workload.evaluation.evaluate import Evaluator, evaluate
from geomq.workload.evaluation.summary import NAMES, StrategyResult, summarise
from geomq.workload.evaluation.views import VIEWS, ViewTable, view_table, with_topic_broker
from geomq.workload.generation.disgb import preset
from geomq.workload.model import DEGREE, NO_FENCE, Actions, Kind, Workload, generate
from geomq.workload.traffic.script import RecordedSpec, recorded
from geomq.workload.world import World

# Near enough for short latencies, far enough for several broadcast groups.
Row = tuple[int, int, Kind, int, tuple[int, int], int]
CHOICES = {3: (0, 12, 13), 4: (2, 8, 17, 22), 5: (0, 1, 2, 20, 22), 9: (0, 1, 2, 3, 4, 8, 17, 20, 22)}


@cache
def world_of(brokers: int) -> World:
    return World.of_places([PUBLISHED[i] for i in CHOICES[brokers]], 6)


def results_of(world: World, spec: RecordedSpec) -> dict[str, StrategyResult]:
    return summarise(evaluate(world, spec, 0, paper=True), view_table(world, paper=True))


def assert_equal(result: StrategyResult, expected: Result) -> None:
    assert {k: v for k, v in result.messages.items() if v} == dict(expected.messages)
    assert histogram(result.latency) == dict(expected.latency)
    assert histogram(result.delay) == dict(expected.delay)
    links = {(int(a), int(b)): int(result.links[a, b]) for a, b in np.argwhere(result.links)}
    assert links == dict(expected.links)


def histogram(counts: np.ndarray) -> dict[int, int]:
    return {int(ms): int(counts[ms]) for ms in np.flatnonzero(counts)}


def reference(world: World, spec: RecordedSpec, strategy: str) -> Result:
    homes = spec.workload.clients.home.tolist()
    return Reference(world, homes, spec.topic_names(), strategy).run(spec.workload.actions)


def check_all(world: World, spec: RecordedSpec) -> Counter[str]:
    results = results_of(world, spec)
    delivered: Counter[str] = Counter()
    for name in NAMES:
        expected = reference(world, spec, name)
        assert_equal(results[name], expected)
        delivered[name] = sum(expected.latency.values())
    return delivered


@cache
def tables_of(brokers: int) -> list[ViewTable]:
    """The view table of each of the two topics."""
    world = world_of(brokers)
    ring = HashRing([place.name for place in world.places])
    return [with_topic_broker(view_table(world, paper=True), ring.owner(topic)) for topic in ("a", "b")]


@st.composite
def scripts(draw: st.DrawFn) -> tuple[World, RecordedSpec]:
    """Clients that are where the events are, or not, and change their minds just when it matters."""
    brokers = draw(st.sampled_from(sorted(CHOICES)))
    world = world_of(brokers)
    homes = np.sort(np.array(draw(st.lists(st.integers(0, brokers - 1), min_size=2, max_size=5)), np.int32))
    here = (draw(st.integers(-900, 900)) * DEGREE // 10, draw(st.integers(-1800, 1799)) * DEGREE // 10)
    there = (draw(st.integers(-900, 900)) * DEGREE // 10, draw(st.integers(-1800, 1799)) * DEGREE // 10)
    border = round(distance_m(degrees(here), degrees(there)) * 100)
    places = st.sampled_from([here, here, here, there])
    radii = st.sampled_from([NO_FENCE, 0, border, max(border - 1, 0), 10**9])
    topics = st.sampled_from([0, 0, 0, 1])
    start = [
        (t, client, kind, topic, draw(places), draw(radii))
        for client in range(len(homes))
        for t, kind, topic in ((1, Kind.LOCATION, 0), (2, Kind.SUBSCRIPTION, 0), (3, Kind.SUBSCRIPTION, 1))
        if draw(st.integers(0, 9)) > 0
    ]
    clients = st.integers(0, len(homes) - 1)
    event = st.tuples(st.sampled_from([5000, 5000, 5001]), clients, st.just(Kind.EVENT), topics, places, radii)
    events = draw(st.lists(event, min_size=1, max_size=3))
    updates = []
    for _ in range(draw(st.integers(1, 8))):
        t, publisher, _, topic, _, _ = draw(st.sampled_from(events))
        client, view, table = draw(clients), draw(st.integers(0, VIEWS - 1)), tables_of(brokers)[topic]
        kind, offset = draw(st.sampled_from([(Kind.LOCATION, table.loc_offset), (Kind.SUBSCRIPTION, table.sub_offset)]))
        when = t + int(offset[view, homes[publisher], homes[client]]) + draw(st.sampled_from([0, 1, -1]))
        updates.append((when, client, kind, topic, draw(places), draw(radii)))
    return world, recorded(["a", "b"], homes, actions_from(start + events + updates))


def degrees(spot: tuple[int, int]) -> Location:
    return Location(spot[0] / DEGREE, spot[1] / DEGREE)


def actions_from(rows: list[Row]) -> Actions:
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


@settings(max_examples=300)
@given(scripts())
def test_kernel_equals_the_reference_on_any_small_script(script: tuple[World, RecordedSpec]) -> None:
    world, spec = script
    check_all(world, spec)


@pytest.mark.parametrize("brokers", [4, 5])
def test_every_view_changes_its_mind_in_the_right_tick(brokers: int) -> None:
    """For each pair of homes and each view: an update that comes just in time, or one tick too late."""
    world = world_of(brokers)
    names = [f"t{i}" for i in range(24)]
    ring = HashRing([place.name for place in world.places])
    tables = [with_topic_broker(view_table(world, paper=True), ring.owner(name)) for name in names]
    here, there, wide = (0, 0), (0, 90 * DEGREE), 10**8
    rows: list[Row] = []
    homes: list[int] = []
    episode = 0
    for publisher, subscriber, view, kind, off, leaves in product(
        range(brokers), range(brokers), range(VIEWS), (Kind.LOCATION, Kind.SUBSCRIPTION), (0, 1), (False, True)
    ):
        topic, t = episode % len(names), 10_000 * (episode + 1)
        offset = tables[topic].loc_offset if kind == Kind.LOCATION else tables[topic].sub_offset
        before, after = (here, there) if leaves else (there, here)
        place, fence = (before, here) if kind == Kind.LOCATION else (here, before)
        a, b = 2 * episode, 2 * episode + 1
        homes += [publisher, subscriber]
        rows += [
            (t - 5000, a, Kind.LOCATION, 0, here, NO_FENCE),
            (t - 5000, b, Kind.LOCATION, 0, place, NO_FENCE),
            (t - 5000, b, Kind.SUBSCRIPTION, topic, fence, wide),
            (t, a, Kind.EVENT, topic, here, wide),
            (t + int(offset[view, publisher, subscriber]) + off, b, kind, topic, after, wide),
            (t + 4000, b, Kind.SUBSCRIPTION, topic, there, wide),
        ]
        episode += 1
    order = np.argsort(homes, kind="stable")
    number = np.argsort(order)
    rows = [(row[0], int(number[row[1]]), row[2], row[3], row[4], row[5]) for row in rows]
    spec = recorded(names, np.array(homes, np.int32)[order], actions_from(rows))
    delivered = check_all(world, spec)
    assert all(0 < delivered[name] < episode for name in delivered)


@pytest.mark.parametrize("brokers", sorted(CHOICES))
def test_kernel_equals_the_reference_on_the_published_workload(brokers: int) -> None:
    world = world_of(brokers)
    spec = preset("steady", clients=60, topics=6, seconds=120, event_fence_deg=25.0, subscription_fence_deg=40.0)
    workload = generate(world, spec, seed=brokers)
    delivered = check_all(world, RecordedSpec(workload))
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
    results = results_of(world, spec)
    # On topic a the subscription reaches its own home in the tick of the forwarded event, and comes after it.
    # On topic b it reaches the publisher's home in the tick of the event, and comes before it.
    assert int(results["flood_events"].latency.sum()) == 1
    assert int(results["flood_subscriptions"].latency.sum()) == 1
    check_all(world, spec)


def test_evaluation_does_not_depend_on_how_topics_are_split() -> None:
    world = World.published()
    spec = preset("paper", clients=6000, topics=20, seconds=300)
    workload: Workload = generate(world, spec, seed=3)
    whole = evaluate(world, spec, 3, paper=True)
    again = evaluate(world, RecordedSpec(workload), 0, paper=True)
    for a, b in zip(whole, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert isinstance(Evaluator(world, spec, paper=True).tally.delays, np.ndarray)
