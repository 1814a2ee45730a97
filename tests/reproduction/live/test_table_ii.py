"""Rows of Table II, and what the published prototype tells other brokers of clients."""

import numpy as np
from tests.workload.evaluation.test_kernel import actions_from

from geomq.reproduction.live.table_ii import TABLE_II, Characteristics, Told, characteristics, told
from geomq.workload.generation.presets import Request, build
from geomq.workload.generation.scenarios import scenario_world
from geomq.workload.model import NO_FENCE, Kind, generate
from geomq.workload.traffic.script import recorded

FRANKFURT, PARIS = 1, 2
BETWEEN = (491_000_000, 55_000_000)
"""Nearer to Paris, with Frankfurt's area some ten kilometres away."""


def test_characteristics_count_fences_that_meet_two_areas() -> None:
    world, spec = build(Request("hiking", clients=600, seconds=60))
    found = characteristics(world, generate(world, spec, 1).actions)
    assert found.subscription_overlaps is not None
    assert 0 < found.subscription_overlaps < found.subscriptions
    world, spec = build(Request("open", clients=30, seconds=60))
    assert characteristics(world, generate(world, spec, 1).actions).event_overlaps is None


def test_the_published_seeds_are_like_table_ii() -> None:
    row = Characteristics(69_379, 5_470, None, 62_860, 226)
    assert row.is_like(TABLE_II["context"], 0.025)
    assert not row.is_like(TABLE_II["context"], 0.01)
    assert not row.is_like(TABLE_II["hiking"], 0.05)


def test_the_prototype_tells_whom_a_client_concerns() -> None:
    near, far = 10**5, 10**7
    rows = [
        (1, 0, Kind.LOCATION, 0, BETWEEN, NO_FENCE),  # nobody knows the client
        (2, 0, Kind.SUBSCRIPTION, 0, BETWEEN, far),  # Frankfurt hears of both
        (3, 0, Kind.SUBSCRIPTION, 1, BETWEEN, NO_FENCE),  # so does Columbus, and Frankfurt of the subscription
        (4, 0, Kind.LOCATION, 0, BETWEEN, NO_FENCE),  # the same place again, for both
        (5, 0, Kind.SUBSCRIPTION, 1, BETWEEN, near),  # taken back at both
        (6, 0, Kind.LOCATION, 0, BETWEEN, NO_FENCE),  # Frankfurt still has the first
        (7, 0, Kind.EVENT, 0, BETWEEN, far),
    ]
    workload = recorded(["a", "b"], np.array([PARIS], np.int32), actions_from(rows)).workload
    assert told(scenario_world(), workload) == Told(locations=1 + 1 + 2 + 1, subscriptions=1 + 2, removals=2)
