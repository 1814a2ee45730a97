"""From live runs to results: the same tables that an evaluation gives, so that the same reports show them.

    runs, results, histograms, links, places     as of `geomq evaluate`, one run per workload, one row per strategy
    checks.parquet                               by broker: correct and redundant messages, lost and doubled deliveries
    journeys/                                    every event at every broker, the table all of it is told from

Owns that step and its order: everything is collected in one Spark session.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from geomq.errors import DataError, UsageError
from geomq.pipeline.analyse import (
    CLOUD,
    LiveRun,
    excess,
    journeys,
    latencies,
    links,
    live_run,
    read_frames,
    useful_messages,
    verdicts,
)
from geomq.pipeline.progress import spark_progress
from geomq.pipeline.session import spark_session
from geomq.workload.evaluation.results import Check, Outcome, Run, write_results
from geomq.workload.evaluation.summary import StrategyResult
from geomq.workload.traffic.expected import Comparison

KINDS = ("event", "subscription", "delivery", "location", "control")


class Analysis(NamedTuple):
    """What live runs gave: outcomes by workload, checks by run and broker."""

    outcomes: list[Outcome]
    checks: list[Check]


def analyse(directories: Sequence[Path], *, master: str | None = None, out: Path | None = None) -> Analysis:
    """Analyse finished runs of `geomq testbed`; with `out` also write the results there."""
    runs = [live_run(number, directory) for number, directory in enumerate(directories)]
    _check_apart(runs)
    with spark_session(master) as spark, spark_progress(spark, "Analysing"):
        # A handful of tables on a handful of cores: the usual 200 partitions would be all overhead.
        spark.conf.set("spark.sql.shuffle.partitions", str(2 * spark.sparkContext.defaultParallelism))
        return analyse_runs(spark, runs, out)


def analyse_runs(spark: SparkSession, runs: Sequence[LiveRun], out: Path | None) -> Analysis:
    """The same in a session that is there."""
    frames = read_frames(spark, runs)
    table = journeys(frames).persist()
    sent = links(frames.trace).collect()
    took = latencies(frames.received).collect()
    useful = {row.run: row.useful for row in useful_messages(table).collect()}
    counts = excess(table).groupBy("run", "broker").agg(F.sum("correct"), F.sum("redundant")).collect()
    judged = (
        verdicts(frames, runs)
        .groupBy("run", "home")
        .agg(*(F.sum(n).alias(n) for n in Comparison._fields[1:]))
        .collect()
    )
    results = {run.number: strategy_result(run, sent, took, useful.get(run.number, 0)) for run in runs}
    analysis = Analysis(_outcomes(runs, results), _checks(runs, counts, judged))
    if out is not None:
        facts = {"engine": "live", "directories": [str(run.directory) for run in runs]}
        write_results(out, analysis.outcomes, facts, overwrite=False, checks=analysis.checks)
        table.coalesce(1).write.parquet(str(out / "journeys"))
    table.unpersist()
    return analysis


def _check_apart(runs: Sequence[LiveRun]) -> None:
    """A result has one row for a strategy on a workload: of two such runs one would be left out."""
    known: dict[tuple[Path, str], LiveRun] = {}
    for run in runs:
        other = known.setdefault((run.workload.directory.resolve(), run.strategy), run)
        if other is not run:
            raise UsageError(
                f"{other.directory} and {run.directory} are runs of {run.strategy} on one workload;"
                " analyse them separately"
            )


def strategy_result(run: LiveRun, sent: Sequence[Any], took: Sequence[Any], useful: int) -> StrategyResult:
    """One run in the form of an evaluation's result."""
    names = [name for name in run.names if name != CLOUD]
    position = {name: number for number, name in enumerate([*names, CLOUD])}
    by_kind = {kind: np.zeros((len(position), len(position)), np.int64) for kind in KINDS}
    for row in sent:
        if row.run == run.number:
            if row.kind not in by_kind or not {row.sender, row.receiver} <= position.keys():
                raise DataError(
                    f"the trace of {run.directory} records messages from {row.sender} to {row.receiver}, which are"
                    " not both brokers of this run; does it contain files of another run?"
                )
            by_kind[row.kind][position[row.sender], position[row.receiver]] += row.messages
    mine = [row for row in took if row.run == run.number]
    latency = np.zeros(max((max(row.steps, 0) for row in mine), default=0) + 1, np.int64)
    for row in mine:
        latency[max(row.steps, 0)] += row.count_
    sent_by_kind = {f"{kind}_links": count for kind, count in by_kind.items()}
    delay = np.zeros(1, np.int64)
    return StrategyResult(name=run.strategy, **sent_by_kind, useful=useful, latency=latency, delay=delay)


def _outcomes(runs: Sequence[LiveRun], results: dict[int, StrategyResult]) -> list[Outcome]:
    """One outcome per workload; its strategies are the runs on it."""
    grouped: dict[Path, list[LiveRun]] = {}
    for run in runs:
        grouped.setdefault(run.workload.directory.resolve(), []).append(run)
    outcomes = []
    for number, group in enumerate(grouped.values()):
        first = group[0]
        spec, report = first.workload, first.manifest["replay"]
        what = Run(
            number,
            str(spec.manifest.get("preset", spec.directory.name)),
            f"live, {first.manifest['plan']['workload']['speed']:g} x speed",
            len(spec.world),
            int(report["clients"]),
            len(spec.topic_names()),
            spec.end_ms // 1000,
            None,
            None,
            int(spec.manifest.get("seed", 0)),
        )
        places = [(place.name, place.lat, place.lon) for place in spec.world.places]
        strategies = {run.strategy: results[run.number] for run in group}
        outcomes.append(Outcome(what, places, int(report["events"]), int(report["subscriptions"]), strategies))
    return outcomes


def _checks(runs: Sequence[LiveRun], counts: Sequence[Any], judged: Sequence[Any]) -> list[Check]:
    processed = {(row.run, row.broker): (row[2], row[3]) for row in counts}
    verdict_of = {(row.run, row.home): row for row in judged}
    found = []
    for run in runs:
        for home, name in enumerate(run.names):
            correct, redundant = processed.get((run.number, name), (0, 0))
            row = verdict_of.get((run.number, home))
            verdict = (
                [0] * len(Comparison._fields[1:]) if row is None else [int(row[n]) for n in Comparison._fields[1:]]
            )
            workload = run.workload.directory.name
            found.append(Check(run.number, workload, run.strategy, name, int(correct), int(redundant), *verdict))
    return found
