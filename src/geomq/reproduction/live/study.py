"""The published live experiments, run again: workloads, brokers and clients for real, traces through Spark.

    workloads/<scenario>/          the datasets
    runs/<scenario>-<strategy>/    what happened, one directory per experiment
    results/                       what Spark made of it, for `geomq report`

Owns the order of the work. A run that is there already is not repeated, so an interrupted study goes on where it was;
one of another study is refused.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from geomq.errors import UsageError
from geomq.pipeline.analyse import LiveRun, excess, journeys, latencies, live_run, read_frames
from geomq.pipeline.analyse_results import Analysis, analyse_runs
from geomq.pipeline.session import spark_session
from geomq.reproduction.live.experiments import SCENARIOS, STRATEGIES, Experiment, iov_experiments, scenario_experiments
from geomq.reproduction.live.iov import AUTHORITY, CAR_1, CAR_2, CAR_3, MONITOR, iov_spec, write_iov
from geomq.reproduction.live.table_ii import Characteristics, Told, characteristics, told
from geomq.testbed.plan import TestbedPlan
from geomq.testbed.processes import mosquitto_path
from geomq.testbed.runner import run_testbed
from geomq.workload.dataset import MANIFEST, DatasetSpec, read_manifest
from geomq.workload.evaluation.evaluate import evaluate_locally
from geomq.workload.evaluation.results import Outcome
from geomq.workload.generation.generate import write_workload
from geomq.workload.generation.presets import Request, build, describe
from geomq.workload.model import generate

Say = Callable[[str], None]
STEP_MS = 0.1
RELATIONS = {
    "same edge broker": {(CAR_2, CAR_3), (CAR_3, CAR_2)},
    "edge 2 and edge 3": {(CAR_1, CAR_2), (CAR_1, CAR_3), (CAR_2, CAR_1), (CAR_3, CAR_1)},
    "monitoring to authority": {(AUTHORITY, MONITOR)},
}
"""Who hears whom, as (client, publisher)."""
SEEDS = {"open": 29, "hiking": 58, "context": 20}
"""The first of each scenario with which all figures of its row of Table II are within 2.5 % of the published: what is
compared is then the same workload as far as it is known. `geomq reproduce live --dice` looks at them all."""


@dataclass(frozen=True, slots=True)
class StudySize:
    """How much of it: the full experiments, or enough of them to see that they work."""

    scenarios: tuple[str, ...] = SCENARIOS
    strategies: tuple[str, ...] = STRATEGIES
    clients: int | None = None
    seconds: int | None = None
    speed: float = 10.0
    ways: tuple[str, ...] = ("global flooding", "cloud relay", "broadcast groups")
    iov_seconds: int = 900
    iov_speed: float = 10.0
    probes: int = 20
    seeds: int = 10


FULL = StudySize()
QUICK = StudySize(
    strategies=("disgb_events", "disgb_subscriptions", "adaptive"),
    clients=360,
    seconds=30,
    iov_seconds=6,
    iov_speed=1.0,
    probes=3,
    seeds=0,
)


@dataclass(slots=True)
class Study:
    """Everything that came out; keys are scenarios, then strategies (ways, for the cars)."""

    speed: float
    characteristics: dict[str, Characteristics] = field(default_factory=dict)
    spread: dict[str, list[Characteristics]] = field(default_factory=dict)
    told: dict[str, Told] = field(default_factory=dict)
    live: dict[str, Outcome] = field(default_factory=dict)
    evaluated: dict[str, Outcome] = field(default_factory=dict)
    checks: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    replays: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    excess: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    latency: dict[str, dict[str, "np.ndarray[Any, np.dtype[np.int64]]"]] = field(default_factory=dict)
    conditions: str = ""


def run_study(out: Path, size: StudySize, *, seed: int | None, master: str | None, say: Say = lambda _: None) -> Study:
    """Run what is not there yet, then analyse all of it."""
    experiments = _experiments(out, size, seed)
    for number, experiment in enumerate(experiments, 1):
        directory = directory_of(out, experiment)
        if (directory / MANIFEST).exists():
            _check_plan(directory, experiment.plan)
        else:
            say(f"{number}/{len(experiments)} {experiment.group}: {experiment.name}")
            shutil.rmtree(directory, ignore_errors=True)
            run_testbed(experiment.plan, directory)
    runs = [live_run(number, directory_of(out, each)) for number, each in enumerate(experiments)]
    say("analysing and evaluating")
    study = Study(size.speed, conditions=f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the end")
    with ThreadPoolExecutor(1) as beside:
        evaluated = beside.submit(_evaluate, out, study, size, seed)
        _analyse(out, study, experiments, runs, master)
        evaluated.result()
    return study


def directory_of(out: Path, experiment: Experiment) -> Path:
    return out / "runs" / f"{experiment.group}-{experiment.name.replace(' ', '-')}"


def _experiments(out: Path, size: StudySize, seed: int | None) -> list[Experiment]:
    """All experiments, their workloads written."""
    datasets = {}
    for scenario in size.scenarios:
        datasets[scenario] = directory = out / "workloads" / scenario
        request = _request(scenario, size, seed)
        world, spec = build(request)
        if directory.exists():
            facts = {"seed": request.seed, "seconds": spec.end_ms / 1000, "clients": int(spec.homes(world).sum())}
            _check_workload(directory, facts)
        else:
            write_workload(directory, world, spec, request, overwrite=False)
    found = scenario_experiments(datasets, speed=size.speed, strategies=size.strategies)
    if size.ways:
        if mosquitto_path() is None:
            raise UsageError("the cars' experiment needs mosquitto as cloud; install it")
        cars = out / "workloads" / "iov"
        if cars.exists():
            _check_workload(cars, {"seconds": iov_spec(size.iov_seconds).end_ms / 1000})
        else:
            write_iov(cars, size.iov_seconds)
        every = iov_experiments(cars, speed=size.iov_speed, probes=size.probes)
        found += [each for each in every if each.name in size.ways]
    return found


def _check_workload(directory: Path, wanted: dict[str, float]) -> None:
    found = read_manifest(directory, "workload")
    for name, value in wanted.items():
        if found.get(name) != value:
            raise UsageError(f"{directory} holds another workload ({name} {found.get(name)}, not {value})")


def _check_plan(directory: Path, plan: TestbedPlan) -> None:
    """The dataset's path may be written in another way; that it is the right one was looked at before."""
    wanted = msgspec.to_builtins(plan)
    found = read_manifest(directory, "testbed").get("plan", {})
    for section, settings in wanted.items():
        before = found.get(section)
        if section == "workload" and isinstance(before, dict):
            before = before | {"dataset": settings["dataset"]}
        if json.loads(json.dumps(settings)) != before:
            raise UsageError(f"{directory} holds a run of another plan (its {section} differs)")


def _request(scenario: str, size: StudySize, seed: int | None) -> Request:
    seed = SEEDS[scenario] if seed is None else seed
    return Request(scenario, clients=size.clients, seconds=size.seconds, seed=seed)


def _analyse(
    out: Path, study: Study, experiments: Sequence[Experiment], runs: list[LiveRun], master: str | None
) -> None:
    results = out / "results"
    shutil.rmtree(results, ignore_errors=True)
    with spark_session(master) as spark:
        spark.conf.set("spark.sql.shuffle.partitions", str(2 * spark.sparkContext.defaultParallelism))
        scenarios = [run for run, each in zip(runs, experiments, strict=True) if each.group != "iov"]
        cars = [run for run, each in zip(runs, experiments, strict=True) if each.group == "iov"]
        if scenarios:
            _keep_scenarios(study, analyse_runs(spark, scenarios, results), experiments)
        if cars:
            _keep_cars(study, spark, cars, experiments)
    for run, each in zip(runs, experiments, strict=True):
        study.replays.setdefault(each.group, {})[each.name] = run.manifest["replay"]


def _keep_cars(study: Study, spark: SparkSession, cars: Sequence[LiveRun], experiments: Sequence[Experiment]) -> None:
    _keep_checks(study, analyse_runs(spark, cars, None), experiments)
    frames = read_frames(spark, cars)
    flows = excess(journeys(frames)).groupBy("run", "flow").agg(F.sum("correct"), F.sum("redundant"))
    for row in flows.collect():
        study.excess.setdefault(experiments[row.run].name, {})[row.flow] = (row[2], row[3])
    for row in latencies(frames.received, "client", "publisher", step_ms=STEP_MS).collect():
        _add_latency(study.latency.setdefault(experiments[row.run].name, {}), row)


def _keep_scenarios(study: Study, analysis: Analysis, experiments: Sequence[Experiment]) -> None:
    for outcome in analysis.outcomes:
        study.live[outcome.run.preset] = outcome
    _keep_checks(study, analysis, experiments)


def _keep_checks(study: Study, analysis: Analysis, experiments: Sequence[Experiment]) -> None:
    for check in analysis.checks:
        each = experiments[check.run]
        kept = study.checks.setdefault(each.group, {}).setdefault(each.name, {})
        for name, value in check._asdict().items():
            if isinstance(value, int) and name != "run":
                kept[name] = kept.get(name, 0) + value


def _add_latency(histograms: dict[str, Any], row: Any) -> None:
    for relation, pairs in RELATIONS.items():
        if (row.client, row.publisher) in pairs:
            counts = histograms.setdefault(relation, np.zeros(row.steps + 1, np.int64))
            if row.steps >= len(counts):
                counts = histograms[relation] = np.pad(counts, (0, row.steps + 1 - len(counts)))
            counts[max(row.steps, 0)] += row.count_


def _evaluate(out: Path, study: Study, size: StudySize, seed: int | None) -> None:
    """The same workloads through the columnar evaluation, and their characteristics."""
    jobs = []
    for number, scenario in enumerate(size.scenarios):
        spec = DatasetSpec(out / "workloads" / scenario)
        jobs.append((describe(_request(scenario, size, seed), spec.world, spec, number), spec.world, spec, 0, False))
        workload = generate(spec.world, spec, 0)
        study.characteristics[scenario] = characteristics(spec.world, workload.actions)
        study.told[scenario] = told(spec.world, workload)
        study.spread[scenario] = [_with_seed(scenario, size, other) for other in range(1, size.seeds + 1)]
    outcomes = [evaluate_locally(*job) for job in jobs]
    study.evaluated |= dict(zip(size.scenarios, outcomes, strict=True))


def _with_seed(scenario: str, size: StudySize, seed: int) -> Characteristics:
    """What clients of the same scenario would do with other dice."""
    world, spec = build(_request(scenario, size, seed))
    return characteristics(world, generate(world, spec, seed).actions)


def chosen(
    size: StudySize, *, only: str | None, strategies: str | None, speed: float | None, seconds: int | None = None
) -> StudySize:
    """A part of a study; `seconds` are the scenarios', the cars have their own."""
    parts = (*SCENARIOS, "groups") if only is None else _named(only, (*SCENARIOS, "groups"))
    ways = size.ways if "groups" in parts else ()
    used = size.strategies if strategies is None else _named(strategies, STRATEGIES)
    scenarios = tuple(part for part in parts if part != "groups")
    speed, seconds = speed or size.speed, seconds or size.seconds
    return replace(size, scenarios=scenarios, ways=ways, strategies=used, speed=speed, seconds=seconds)


def _named(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in known:
            raise UsageError(f"{name!r} is unknown; choose one of {', '.join(known)}")
    return names
