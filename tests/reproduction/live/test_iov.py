"""The Internet-of-Vehicles workload: as often and as large as published."""

from pathlib import Path

import numpy as np

from geomq.reproduction.live.iov import CARS, HOMES, MONITOR, iov_spec, iov_world, write_iov
from geomq.workload.dataset import DatasetSpec
from geomq.workload.model import Kind, generate


def test_cars_speak_twenty_times_a_second_and_the_monitor_once() -> None:
    actions = iov_spec(10).workload.actions
    events = actions.take(actions.kind == Kind.EVENT)
    for car in CARS:
        assert np.count_nonzero(events.client == car) == 200
    assert np.count_nonzero(events.client == MONITOR) == 10
    assert set(events.payload_bytes[events.client == MONITOR].tolist()) == {1000}
    assert set(events.payload_bytes[events.client != MONITOR].tolist()) == {20}


def test_everybody_subscribes_before_anybody_publishes() -> None:
    actions = iov_spec(3).workload.actions
    assert actions.t_ms[actions.kind == Kind.SUBSCRIPTION].max() < actions.t_ms[actions.kind == Kind.EVENT].min()


def test_the_dataset_reads_back_as_it_was(tmp_path: Path) -> None:
    write_iov(tmp_path / "iov", 2)
    spec = DatasetSpec(tmp_path / "iov")
    workload = generate(spec.world, spec, 0)
    assert len(spec.world) == len(iov_world())
    assert workload.clients.home.tolist() == list(HOMES)
    assert len(workload.actions) == len(iov_spec(2).workload.actions)
