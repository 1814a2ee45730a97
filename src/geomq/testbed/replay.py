"""Replay a workload against live brokers: thousands of real MQTT connections in a few processes.

Owns the processes, their common start, and the report. The records land beside each other as Parquet:

    manifest.json                 what was replayed, how fast, how late     (written last)
    sent/part-00000.parquet       every action that was said, when, and when it should have been
    received/part-00000.parquet   every event that reached a client

Refuses a workload whose brokers it was not given.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from geomq.errors import UsageError
from geomq.testbed.replay_worker import BrokerAddress, Task, WorkerReport, work
from geomq.workload.dataset import DatasetSpec, part_name, write_manifest
from geomq.workload.files import new_directory, read_table
from geomq.workload.model import Kind

START_DELAY_S = 0.5
LOOK_S = 0.5
PROCESSES_MAX = 64
SPEED_MAX = 1000.0


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """How to replay: times faster than the workload says, in how many processes, with which QoS, for how long."""

    speed: float = 1.0
    processes: int = 2
    qos: int = 0
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.speed <= SPEED_MAX:
            raise UsageError(f"the speed must be above 0 and at most {SPEED_MAX:g}, not {self.speed:g}")
        if not 1 <= self.processes <= PROCESSES_MAX:
            raise UsageError(f"processes must be between 1 and {PROCESSES_MAX}, not {self.processes}")
        if self.qos not in (0, 1):
            raise UsageError("a replay uses QoS 0 or 1")
        if self.seconds is not None and not self.seconds > 0:
            raise UsageError("the seconds to replay must be above 0")


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay did. Times in milliseconds; `lateness` is the replayer's own: sent minus due.

    At `ended_ms` all was quiet; what brokers do afterwards is because clients leave.
    """

    clients: int
    locations: int
    subscriptions: int
    events: int
    received: int
    unsent: int
    refused: int
    connections_lost: int
    lateness: dict[str, float]
    latency: dict[str, float]
    ended_ms: float
    wall_s: float
    cpu_s: float
    complaints: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def replay(
    workload: Path,
    brokers: Sequence[BrokerAddress],
    settings: ReplaySettings,
    out: Path,
    *,
    settled: Callable[[], None] = lambda: None,
    stopped: Callable[[], bool] = lambda: False,
) -> ReplayReport:
    """Act out the workload dataset against the brokers, which come in the order of the dataset's.

    When clients hear nothing more, `settled` may wait for whatever else has to come to rest before they leave. Once
    `stopped` says so, everything is given up.
    """
    names = [place.name for place in DatasetSpec(workload).world.places]
    if len(brokers) != len(names):
        raise UsageError(f"the workload has {len(names)} brokers ({', '.join(names)}), {len(brokers)} are given")
    with new_directory(out) as partial:
        began = time.monotonic()
        with _workers(_tasks(workload, tuple(brokers), settings, partial)) as workers:
            ended_ms, reports = _run(workers, settled, stopped)
        report = _report(ended_ms, reports, partial, settings, time.monotonic() - began)
        facts = {"workload": workload.name, "speed": settings.speed, "qos": settings.qos, "report": report.as_json()}
        write_manifest(partial, {"kind": "replay", "parts": settings.processes, "brokers": names, **facts})
    return report


def _tasks(workload: Path, brokers: tuple[BrokerAddress, ...], settings: ReplaySettings, out: Path) -> list[Task]:
    """One for each process."""
    clock_ms = time.time() * 1000.0 - time.monotonic() * 1000.0
    until_ms = float("inf") if settings.seconds is None else settings.seconds * 1000.0
    return [
        Task(workload, brokers, out, part, settings.processes, settings.speed, settings.qos, until_ms, clock_ms)
        for part in range(settings.processes)
    ]


def _run(
    workers: "list[tuple[BaseProcess, Connection]]", settled: Callable[[], None], stopped: Callable[[], bool]
) -> tuple[float, list[WorkerReport]]:
    """When all was quiet, and what each worker found."""
    for process, connection in workers:
        _answer(process, connection, stopped)
    start_s = time.monotonic() + START_DELAY_S
    for _, connection in workers:
        connection.send(start_s)
    for process, connection in workers:
        _answer(process, connection, stopped)
    settled()
    ended_ms = time.time() * 1000.0
    for _, connection in workers:
        connection.send("leave")
    return ended_ms, [_answer(process, connection, stopped) for process, connection in workers]


@contextmanager
def _workers(tasks: list[Task]) -> Iterator[list[tuple[BaseProcess, Connection]]]:
    """A fresh process for each task; none is left behind."""
    context = multiprocessing.get_context("spawn")
    workers: list[tuple[BaseProcess, Connection]] = []
    try:
        for task in tasks:
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(target=work, args=(task, theirs), daemon=True)
            process.start()
            theirs.close()
            workers.append((process, ours))
        yield workers
    finally:
        for each, connection in workers:
            connection.close()
            each.join(LOOK_S)
            if each.is_alive():
                each.kill()
                each.join()


def _answer(process: BaseProcess, connection: Connection, stopped: Callable[[], bool]) -> Any:
    """The next word of a worker; its error is ours."""
    while not wait([connection, process.sentinel], LOOK_S):
        if stopped():
            raise UsageError("the replay was stopped")
    try:
        said = connection.recv()
    except EOFError:
        raise UsageError(f"a replayer process ended with code {process.exitcode} before its work was done") from None
    if isinstance(said, str) and said not in ("ready", "quiet"):
        raise UsageError(said)
    return said


def _report(
    ended_ms: float, reports: list[WorkerReport], out: Path, settings: ReplaySettings, wall_s: float
) -> ReplayReport:
    lateness, latency = [], []
    for part in range(settings.processes):
        sent = read_table(out / part_name("sent", part), "sent")
        lateness.append(sent.column("t_ms").to_numpy() - sent.column("due_ms").to_numpy())
        received = read_table(out / part_name("received", part), "received")
        latency.append(received.column("t_ms").to_numpy() - received.column("sent_ms").to_numpy())
    kinds = {kind: sum(report.sent.get(kind, 0) for report in reports) for kind in Kind}
    return ReplayReport(
        clients=sum(report.clients for report in reports),
        locations=kinds[Kind.LOCATION],
        subscriptions=kinds[Kind.SUBSCRIPTION],
        events=kinds[Kind.EVENT],
        received=sum(report.received for report in reports),
        unsent=sum(report.unsent for report in reports),
        refused=sum(report.refused for report in reports),
        connections_lost=sum(report.lost for report in reports),
        lateness=spread(np.concatenate(lateness)),
        latency=spread(np.concatenate(latency)),
        ended_ms=ended_ms,
        wall_s=round(wall_s, 1),
        cpu_s=round(sum(report.cpu_s for report in reports), 1),
        complaints=[text for report in reports for text in report.complaints],
    )


def spread(values: "np.ndarray[Any, np.dtype[np.float64]]") -> dict[str, float]:
    """Percentiles of some times, rounded to the microsecond."""
    if not len(values):
        return {}
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    found = {"mean": values.mean(), "p50": p50, "p95": p95, "p99": p99, "max": values.max()}
    return {name: round(float(value), 3) for name, value in found.items()}
