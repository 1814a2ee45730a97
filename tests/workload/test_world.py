"""Brokers, areas, latencies and the groups that follow from them."""

from collections import Counter

import numpy as np
import pytest

from geomq.errors import UsageError
from geomq.workload.cities import PUBLISHED, Place
from geomq.workload.evaluation.groups import form_groups
from geomq.workload.generation.scenarios import scenario_world
from geomq.workload.world import World


def test_published_groups_are_found_again() -> None:
    groups = form_groups(World.published())
    sizes = Counter(PUBLISHED[leader].name for leader in groups.leader.tolist())
    assert sizes == {"Athens": 6, "Haora": 6, "Denver": 5, "Guayaquil": 4, "Natal": 3, "Luanda": 1}
    assert all(groups.group_leader[group] == leader for group, leader in zip(groups.group, groups.leader, strict=True))


def test_latencies_are_whole_symmetric_and_zero_only_at_home() -> None:
    latency = World.published().latency_ms
    assert latency.shape == (26, 26)
    assert np.array_equal(latency, latency.T)
    assert np.array_equal(latency == 0, np.eye(26, dtype=bool))


def test_two_brokers_in_one_place_are_a_tick_apart() -> None:
    world = World((Place("a", 1.0, 1.0, 5), Place("b", 1.0, 1.0, 5)), 6)
    assert world.latency_ms[0, 1] == 1


def test_clients_follow_population_rounded_down() -> None:
    world = World((Place("a", 0.0, 0.0, 2), Place("b", 0.0, 90.0, 1)), 6)
    assert world.clients_per_broker(100).tolist() == [66, 33]


def test_the_field_shrinks_until_everybody_fits() -> None:
    assert World.of_cities(25, seed=1).field_deg == 6
    assert World.of_cities(256, seed=1).field_deg == 2


def test_a_broker_without_a_square_is_refused() -> None:
    places = [Place("a", 0.5, 0.5, 1), Place("b", 0.5, 0.5, 1)]
    with pytest.raises(UsageError, match="owns no square"):
        World.of_places(places, 6)
    with pytest.raises(UsageError, match="owns no square"):
        World.of_places(places)


def test_a_world_of_circles_has_no_squares() -> None:
    world = scenario_world()
    assert world.areas.owners([39.9, 48.9, 0.0], [-83.0, 2.3, 0.0]).tolist() == [0, 2, -1]
    with pytest.raises(UsageError, match="grid squares"):
        _ = world.squares
