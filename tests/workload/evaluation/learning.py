"""What the parity tests of strategies that learn share: busy little scripts, and the simulator with all it counts."""

from collections import Counter
from typing import Any

import numpy as np
from tests.workload.evaluation.test_kernel import Row, actions_from, world_of
from tests.workload.evaluation.test_parity import histogram, spots_of

from geomq.geo import Location, distance_m
from geomq.pipeline.simulation import steps_of
from geomq.sim.engine import Observer, Simulation
from geomq.sim.statistics import Statistics
from geomq.workload.evaluation.evaluate import evaluate
from geomq.workload.evaluation.summary import StrategyResult, summarise
from geomq.workload.evaluation.views import view_table
from geomq.workload.model import DEGREE, NO_FENCE, Kind
from geomq.workload.traffic.script import RecordedSpec, recorded
from geomq.workload.world import World


def busy_script(brokers: int, seed: int, *, actions: int = 400, gap_ms: int = 40) -> tuple[World, RecordedSpec]:
    """A few clients inside their areas who do a lot at nearly the same time; every few scripts in whole steps."""
    random = np.random.default_rng(seed)
    spots = spots_of(brokers)
    homes = np.sort(random.integers(0, brokers, random.integers(2, 7))).astype(np.int32)
    anywhere = [spot for home in homes for spot in spots[home]]
    a, b = (anywhere[i] for i in random.integers(0, len(anywhere), 2))
    border = round(distance_m(Location(a[0] / DEGREE, a[1] / DEGREE), Location(b[0] / DEGREE, b[1] / DEGREE)) * 100)
    radii = [NO_FENCE, border, max(border - 1, 0), 2 * 10**8, 10**8]
    weights = random.dirichlet([1, 1, 3])
    step = int(random.choice([1, 1, 7, 50]))
    rows: list[Row] = []
    t = 1
    for _ in range(actions):
        t += int(random.integers(0, gap_ms)) // step * step
        client = int(random.integers(0, len(homes)))
        kind = Kind(int(random.choice(3, p=weights)))
        inside = spots[homes[client]]
        choice = inside if kind == Kind.LOCATION else anywhere
        place = choice[int(random.integers(0, len(choice)))]
        radius = NO_FENCE if kind == Kind.LOCATION else radii[int(random.integers(0, len(radii)))]
        rows.append((t, client, kind, int(random.integers(0, 2)), place, radius))
    return world_of(brokers), recorded(["a", "b"], homes, actions_from(rows))


def crowd_script(brokers: int, seed: int, *, far: int) -> tuple[World, RecordedSpec]:
    """Many clients who subscribe at nearly the same time, one in `far` beyond its home; later all do anything."""
    random = np.random.default_rng(seed)
    spots = spots_of(brokers)
    homes = np.sort(random.integers(0, min(brokers, 3), 90)).astype(np.int32)
    rows: list[Row] = []
    for client, home in enumerate(homes.tolist()):
        for topic in range(2):
            wide = far > 0 and random.integers(0, far) == 0
            rows.append((int(random.integers(1, 200)), client, Kind.SUBSCRIPTION, topic, spots[home][0], 10**8 * wide))
    weights, t = random.dirichlet([2, 2, 2]), int(random.choice([100, 210]))
    for _ in range(250):
        t += int(random.integers(0, 20))
        client = int(random.integers(0, len(homes)))
        kind, inside = Kind(int(random.choice(3, p=weights))), spots[homes[client]]
        radius = NO_FENCE if kind == Kind.LOCATION else int(random.choice([0, 0, 10**8, NO_FENCE]))
        rows.append((t, client, kind, int(random.integers(0, 2)), inside[int(random.integers(0, len(inside)))], radius))
    return world_of(brokers), recorded(["a", "b"], homes, actions_from(rows))


def learned(world: World, spec: RecordedSpec, strategy: str) -> StrategyResult:
    tally = evaluate(world, spec, 0, paper=False)
    return summarise(tally, view_table(world, paper=False), learned=[strategy])[strategy]


def simulated(
    world: World, spec: RecordedSpec, strategy: str, *observers: Observer, settle_ms: int = 10_000, **options: Any
) -> Statistics:
    federation, statistics = world.federation, Statistics()
    simulation = Simulation(federation, strategy, options=options, order="published")
    simulation.connect_all()
    simulation.advance(None)
    simulation.observers += [statistics, *observers]
    simulation.run(steps_of(spec.workload, federation))
    simulation.advance(spec.end_ms + settle_ms)
    return statistics


def assert_equal(world: World, result: StrategyResult, statistics: Statistics) -> None:
    assert {kind: count for kind, count in result.messages.items() if count} == dict(+statistics.messages)
    assert histogram(result.latency) == dict(statistics.latency_ms)
    assert histogram(result.delay) == dict(statistics.subscription_delay_ms)
    names = [place.name for place in world.places]
    links = {(names[a], names[b]): int(result.links[a, b]) for a, b in np.argwhere(result.links)}
    assert links == dict(Counter(statistics.links))
