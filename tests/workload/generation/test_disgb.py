"""The published workload: its rules, its means, and that it depends on nothing but the seed."""

from itertools import pairwise

import numpy as np
import pytest

from geomq.errors import UsageError
from geomq.workload.generation.disgb import DisgbSpec, distinct_topics, preset
from geomq.workload.model import BLOCK_CLIENTS, DEGREE, Kind, first_subscribers, generate
from geomq.workload.traffic.script import RecordedSpec
from geomq.workload.world import World


def test_the_published_means_are_met() -> None:
    world = World.published()
    workload = generate(world, preset("paper", clients=40_000), seed=1)
    means = np.bincount(workload.actions.kind) / len(workload.clients)
    assert means == pytest.approx([2.50, 7.48, 5.63], rel=0.01)


def test_clients_never_leave_their_area() -> None:
    world = World.published()
    workload = generate(world, preset("steady", clients=3000, seconds=600), seed=2)
    actions = workload.actions
    owners = world.areas.owners(actions.lat_e7 / DEGREE, actions.lon_e7 / DEGREE)
    assert np.array_equal(owners, workload.clients.home[actions.client])


def test_a_block_depends_on_seed_and_number_alone() -> None:
    world, spec = World.published(), preset("paper", clients=2 * BLOCK_CLIENTS + 500)
    again = preset("paper", clients=2 * BLOCK_CLIENTS + 500).block(World.published(), 7, 1)
    block = spec.block(world, 7, 1)
    assert np.array_equal(block.actions.lat_e7, again.actions.lat_e7)
    assert np.array_equal(block.actions.t_ms, again.actions.t_ms)
    assert not np.array_equal(block.actions.t_ms, spec.block(world, 8, 1).actions.t_ms)
    assert block.clients.client[0] == BLOCK_CLIENTS


@pytest.mark.parametrize("seconds", [60, 300])
def test_the_first_subscribers_are_known_without_the_rest(seconds: int) -> None:
    world, spec = World.published(), preset("paper", clients=BLOCK_CLIENTS + 500, seconds=seconds)
    known = first_subscribers(world, spec, 7)
    found = first_subscribers(world, RecordedSpec(generate(world, spec, 7)), 0)
    assert all(np.array_equal(a, b) for a, b in zip(known, found, strict=True))
    assert len(known.home) == len(set(known.home.tolist())) > 20
    assert (np.diff(known.t_ms) >= 0).all()


def test_actions_are_in_order_and_before_the_end() -> None:
    actions = generate(World.published(), preset("steady", clients=2000, seconds=300), seed=1).actions
    order = actions.t_ms.astype(np.int64) * 10**6 + actions.client
    assert np.all(np.diff(order) >= 0)
    assert actions.t_ms.max() < 300_000


def test_a_cycle_is_location_then_subscriptions_then_event() -> None:
    workload = generate(World.published(), preset("paper", clients=2000), seed=1)
    actions = workload.actions
    one = actions.take(np.flatnonzero(actions.client == 1234))
    kinds, t = one.kind.tolist(), one.t_ms.tolist()
    assert kinds[:8] == [Kind.LOCATION, Kind.LOCATION, *[Kind.SUBSCRIPTION] * 5, Kind.EVENT]
    assert t[1] - t[0] == 50_000
    assert [b - a for a, b in pairwise(t[1:8])] == [1000, 1, 1, 1, 1, 1001]
    assert sorted(one.topic[2:7].tolist()) == sorted(workload.clients.topics[1234].tolist())


def test_topics_of_a_client_are_distinct_and_uniform() -> None:
    random = np.random.default_rng(1)
    topics = distinct_topics(random, 20_000, 3, 5)
    assert all(len(set(row)) == 3 for row in topics[:500].tolist())
    assert np.bincount(topics.ravel()) / 20_000 == pytest.approx([0.6] * 5, abs=0.02)
    assert np.bincount(topics[:, 0]) / 20_000 == pytest.approx([0.2] * 5, abs=0.02)


@pytest.mark.parametrize(
    "numbers",
    [
        {"clients": 0},
        {"topics": 0},
        {"topics": 3},
        {"seconds": 0},
        {"event_fence_deg": -1.0},
        {"event_fence_deg": float("nan")},
        {"subscription_fence_deg": 181.0},
    ],
)
def test_impossible_numbers_are_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must be between"):
        DisgbSpec(**numbers)  # type: ignore[arg-type]


def test_too_few_clients_for_the_brokers_are_refused() -> None:
    with pytest.raises(UsageError, match="too few"):
        generate(World.published(), preset("paper", clients=1), seed=1)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown preset"):
        preset("fast")
