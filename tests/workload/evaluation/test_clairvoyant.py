"""The clairvoyant bound against trying everything, and against a slow reading of small scripts."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workload.evaluation.learning import busy_script
from tests.workload.evaluation.test_kernel import CHOICES, world_of

from geomq.geo import Circle, Location
from geomq.workload.evaluation.clairvoyant import run_clairvoyant
from geomq.workload.evaluation.evaluate import empty_tally, evaluate
from geomq.workload.evaluation.pair_traffic import PairEvents
from geomq.workload.evaluation.sent import CLAIRVOYANT, EVENT, SUBSCRIPTION
from geomq.workload.evaluation.summary import ORACLE, summarise
from geomq.workload.evaluation.views import view_table
from geomq.workload.generation.disgb import preset
from geomq.workload.model import DEGREE, NO_FENCE, Kind
from geomq.workload.traffic.script import RecordedSpec
from geomq.workload.world import World


class Happened(NamedTuple):
    """An event: when, whether it serves somebody, and since when the longest known of those is as he is."""

    t: int
    serves: bool
    since: int


def cheapest(events: Sequence[Happened]) -> int:
    """The least beyond events that serve, by trying everything: when all was told last, or that it counts no more."""

    @cache
    def least(first: int, told: int | None) -> int:
        if first == len(events):
            return 0
        event = events[first]
        ways = [int(not event.serves) + least(first + 1, None)]
        for last, cost in ((told, 0), (event.t, 1)):
            if last is not None and (not event.serves or min(event.since, event.t) <= last):
                ways.append(cost + least(first + 1, last))
        return min(ways)

    return least(0, -1)


def bound(events: Sequence[Happened]) -> int:
    """What the kernel says for one pair of two brokers."""
    t, serves, since = (np.array(column, np.int32) for column in zip(*events, strict=True))
    start = np.array([0, 0, len(t), len(t), len(t)])
    tally = empty_tally(2, 1, 1)
    run_clairvoyant(PairEvents(start, t, serves, serves, since), tally)
    assert not tally.sent[CLAIRVOYANT, EVENT, 1].any()
    assert not tally.sent[CLAIRVOYANT, SUBSCRIPTION, 0].any()
    return int(tally.sent[CLAIRVOYANT].sum())


@settings(max_examples=400)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(-2, 12)), min_size=1, max_size=8))
def test_the_bound_is_the_cheapest_of_all_ways(steps: list[tuple[int, bool, int]]) -> None:
    times = np.cumsum([gap for gap, _, _ in steps]).tolist()
    events = [Happened(t, serves, max(t - ago, 0)) for t, (_, serves, ago) in zip(times, steps, strict=True)]
    assert bound(events) == cheapest(events)


def test_what_telling_saves_and_what_it_takes() -> None:
    vain = [Happened(t, False, 0) for t in range(5)]
    assert bound(vain) == 0  # nobody wants anything: that is agreed
    assert bound([Happened(0, True, 0), *vain[1:]]) == 1  # told with the event that somebody wants
    assert bound([*vain[:1], Happened(1, True, 1), Happened(2, False, 0), Happened(3, True, 3)]) == 1
    assert bound([Happened(t, t % 2 == 0, t) for t in range(10)]) == 5  # interest is always new: all is sent


def read_slowly(world: World, spec: RecordedSpec) -> dict[tuple[int, int, int], list[Happened]]:
    """By publisher's broker, home and topic the events that concern the home."""
    actions, homes = spec.workload.actions, spec.workload.clients.home.tolist()
    rows = sorted(
        zip(*(getattr(actions, name).tolist() for name in ("t_ms", "kind", "client")), range(len(actions)), strict=True)
    )
    found = defaultdict(list)
    for t, kind, client, row in rows:
        if kind != Kind.EVENT:
            continue
        home, topic = homes[client], int(actions.topic[row])
        fence = fence_of(actions, row)
        place = latest([r for r in rows if r[1] == Kind.LOCATION and r[2] == client and r[0] <= t])
        at = None if place is None else place_of(actions, place)
        touched = {world.federation.position[name] for name in world.federation.touched(fence)}
        for other in sorted(touched - {home}):
            until = t + int(world.latency_ms[home, other]) - 1
            served = [
                since
                for each in range(len(homes))
                if homes[each] == other
                and (since := serves(actions, [r for r in rows if r[0] <= until], each, topic, at, fence)) is not None
            ]
            found[home, other, topic].append(Happened(t, bool(served), min(served, default=0)))
    return found


def serves(actions, rows, client, topic, publisher, fence):  # type: ignore[no-untyped-def]
    """Since when the subscriber, to whom the event goes, has been as he is; None if it does not go to him."""
    subs = [r for r in rows if r[1] == Kind.SUBSCRIPTION and r[2] == client and actions.topic[r[3]] == topic]
    places = [r for r in rows if r[1] == Kind.LOCATION and r[2] == client]
    if not subs:
        return None
    wanted = fence_of(actions, subs[-1][3])
    if wanted is not None and (publisher is None or not wanted.contains(publisher)):
        return None
    if fence is None:
        return same_since(actions, subs)
    if not places or not fence.contains(place_of(actions, places[-1][3])):
        return None
    return max(same_since(actions, subs), same_since(actions, places))


def same_since(actions, rows):  # type: ignore[no-untyped-def]
    since = rows[-1]
    for row in reversed(rows):
        if any(getattr(actions, name)[row[3]] != getattr(actions, name)[rows[-1][3]] for name in SAYS):
            break
        since = row
    return since[0]


SAYS = ("lat_e7", "lon_e7", "radius_cm")


def latest(rows):  # type: ignore[no-untyped-def]
    return rows[-1][3] if rows else None


def place_of(actions, row):  # type: ignore[no-untyped-def]
    return Location(actions.lat_e7[row] / DEGREE, actions.lon_e7[row] / DEGREE)


def fence_of(actions, row):  # type: ignore[no-untyped-def]
    radius_cm = int(actions.radius_cm[row])
    return None if radius_cm == NO_FENCE else Circle(place_of(actions, row), radius_cm / 100)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(CHOICES)), st.integers(0, 2**32), st.sampled_from([4, 40, 300]))
def test_the_bound_of_a_script_is_that_of_what_happened_in_it(brokers: int, seed: int, gap_ms: int) -> None:
    world, spec = busy_script(brokers, seed, actions=40, gap_ms=gap_ms)
    tally = evaluate(world, spec, 0, paper=False)
    expected = np.zeros((brokers, brokers), np.int64)
    for (publisher, home, _), events in read_slowly(world, spec).items():
        expected[publisher, home] += cheapest(events)
    beyond = tally.sent[CLAIRVOYANT, EVENT] + tally.sent[CLAIRVOYANT, SUBSCRIPTION].T
    assert np.array_equal(beyond, expected)


@pytest.mark.parametrize("preset_name", ["steady", "paper"])
def test_no_strategy_sends_less_and_it_sends_no_less_than_what_serves(preset_name: str) -> None:
    world = world_of(9)
    spec = preset(preset_name, clients=400, topics=20, seconds=300)
    results = summarise(evaluate(world, spec, 1, paper=False), view_table(world, paper=False), learned=["adaptive"])
    total = {name: sum(result.messages.values()) for name, result in results.items()}
    assert total[ORACLE] <= total["clairvoyant"] < min(total["disgb_events"], total["adaptive"])
    assert np.array_equal(results["clairvoyant"].latency, results["disgb_events"].latency)
