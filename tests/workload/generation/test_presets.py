"""From what a user types to worlds and recipes; and recorded workloads."""

from pathlib import Path

import numpy as np
import pytest

from geomq.errors import DataError, UsageError
from geomq.workload.generation.disgb import DisgbSpec, preset
from geomq.workload.generation.presets import PRESETS, Request, build, describe, sweep
from geomq.workload.model import Actions, Clients, Kind, Workload, generate
from geomq.workload.traffic.script import RecordedSpec, actions_of
from geomq.workload.world import World


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds(name: str) -> None:
    world, spec = build(Request(preset=name))
    run = describe(Request(preset=name), world, spec, 3)
    assert (run.number, run.preset, run.brokers) == (3, name, len(world))
    assert spec.block_count(world) > 0


def test_twenty_five_brokers_are_the_published_ones_unless_cities_are_wanted() -> None:
    assert build(Request())[0] == World.published()
    assert build(Request(brokers=25, cities=True))[0] != World.published()


def test_places_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_text("name,latitude,longitude,population\nRome,41.9,12.5,28\nOslo,59.9,10.7,7\nLima,-12,-77,9\n")
    world, _ = build(Request(places=path, brokers=2))
    assert [place.name for place in world.places] == ["Rome", "Oslo"]
    with pytest.raises(UsageError, match="names 3 brokers"):
        build(Request(places=path, brokers=4))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"preset": "nope"}, "unknown preset"),
        ({"seed": -1}, "seed"),
        ({"preset": "open", "topics": 5}, "its own topics"),
        ({"preset": "open", "brokers": 25}, "its own 3 brokers"),
        ({"field_deg": 7}, "divides 90"),
        ({"brokers": 100_000}, "number of brokers"),
    ],
)
def test_impossible_requests_are_refused(numbers: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        build(Request(**numbers))  # type: ignore[arg-type]


def test_a_sweep_is_all_combinations() -> None:
    requests = sweep(Request(), ["clients=10,20", "fence=1,2.5", "brokers=9"])
    assert [(r.clients, r.event_fence_deg, r.brokers) for r in requests] == [
        (10, 1.0, 9),
        (10, 2.5, 9),
        (20, 1.0, 9),
        (20, 2.5, 9),
    ]


@pytest.mark.parametrize("term", ["clients", "clients=", "speed=3", "clients=a", "clients=1.5"])
def test_a_strange_sweep_is_refused(term: str) -> None:
    with pytest.raises(UsageError):
        sweep(Request(), [term])


def test_a_huge_sweep_is_refused() -> None:
    with pytest.raises(UsageError, match="at most"):
        sweep(Request(), ["clients=" + ",".join(["1"] * 100)])


def test_actions_can_be_walked_one_by_one() -> None:
    world = World.published()
    workload = generate(world, preset("paper", clients=200, topics=5, seconds=120), seed=1)
    actions = list(actions_of(workload))
    assert len(actions) == len(workload.actions)
    assert all((action.topic is None) == (action.kind is Kind.LOCATION) for action in actions)
    assert all((action.fence is None) == (action.kind is Kind.LOCATION) for action in actions)
    assert all(action.home == workload.clients.home[action.client] for action in actions)


def small(homes: list[int], clients: list[int], topic: int = 0) -> Workload:
    n = len(homes)
    zeros = np.zeros(len(clients), np.int32)
    who = Clients(
        np.arange(n, dtype=np.int32),
        np.array(homes, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros((n, 1), np.int32),
    )
    kinds = np.full(len(clients), Kind.EVENT, np.uint8)
    what = Actions(
        zeros, np.array(clients, np.int32), kinds, zeros + np.int32(topic), zeros, zeros, zeros - np.int32(1), zeros
    )
    return Workload(["a"], who, what)


def test_recorded_workloads_are_checked() -> None:
    world = World.published()
    assert RecordedSpec(small([0, 1, 1], [2])).homes(world)[1] == 2
    with pytest.raises(DataError, match="broker by broker"):
        RecordedSpec(small([1, 0], [0]))
    with pytest.raises(DataError, match="not in the list of clients"):
        RecordedSpec(small([0], [1]))
    with pytest.raises(DataError, match="not in the list of topics"):
        RecordedSpec(small([0], [0], topic=1))
    with pytest.raises(DataError, match="there are only 25"):
        RecordedSpec(small([30], [0])).homes(world)
    assert isinstance(build(Request())[1], DisgbSpec)
