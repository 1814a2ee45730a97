"""Results of evaluations on disk and as plain data.

    manifest.json                     written last: a directory without it is not a result
    runs.parquet, results.parquet, histograms.parquet, links.parquet, places.parquet
    checks.parquet                    of live runs: what brokers and clients really did

Owns what a result directory holds and how it is read back. A sweep is several runs in one directory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from geomq.errors import DataError
from geomq.workload.dataset import read_manifest, write_manifest
from geomq.workload.evaluation.summary import StrategyResult, statistics
from geomq.workload.files import new_directory, read_table, write_table
from geomq.workload.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

CLOUD_NAME = "cloud"
MS_MAX = 10_000_000
FILES = ("runs", "results", "histograms", "links", "places")


class Run(NamedTuple):
    """What was evaluated."""

    number: int
    preset: str
    variant: str
    brokers: int
    clients: int
    topics: int
    seconds: int
    event_fence_deg: float | None
    subscription_fence_deg: float | None
    seed: int


class Check(NamedTuple):
    """What one broker dealt with in a live run, and what its clients received; the columns of `checks`."""

    run: int
    workload: str
    strategy: str
    broker: str
    correct: int
    redundant: int
    required: int
    possible: int
    received: int
    lost: int
    duplicated: int
    unexpected: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run, its brokers with their places, and what each strategy did."""

    run: Run
    places: list[tuple[str, float, float]]
    events: int
    subscriptions: int
    strategies: dict[str, StrategyResult]

    def as_json(self) -> dict[str, Any]:
        names = [*(place[0] for place in self.places), CLOUD_NAME]
        return {
            "run": dict(zip(Run._fields, self.run, strict=True)),
            "events": self.events,
            "subscriptions": self.subscriptions,
            "strategies": {name: result.as_json(names) for name, result in self.strategies.items()},
        }


def write_results(
    directory: Path,
    outcomes: list[Outcome],
    facts: dict[str, Any],
    *,
    overwrite: bool,
    checks: Sequence[Check] = (),
) -> None:
    """Write all outcomes; the directory appears when it is complete."""
    with new_directory(directory, kind="results", overwrite=overwrite) as partial:
        write_table(_table("runs", [tuple(outcome.run) for outcome in outcomes]), partial / "runs.parquet")
        write_table(_table("results", _result_rows(outcomes)), partial / "results.parquet")
        write_table(_table("histograms", _histogram_rows(outcomes)), partial / "histograms.parquet")
        write_table(_table("links", _link_rows(outcomes)), partial / "links.parquet")
        places = [(outcome.run.number, *place) for outcome in outcomes for place in outcome.places]
        write_table(_table("places", places), partial / "places.parquet")
        if checks:
            write_table(_table("checks", [tuple(check) for check in checks]), partial / "checks.parquet")
        write_manifest(partial, {"kind": "results", **facts})


def read_results(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """All tables of a result directory as rows."""
    read_manifest(directory, "results")
    names = [*FILES, *(["checks"] if (directory / "checks.parquet").exists() else [])]
    return {name: read_table(directory / f"{name}.parquet", name).to_pylist() for name in names}


def statistics_of(rows: list[dict[str, Any]], run: int, strategy: str, measure: str) -> dict[str, Any]:
    """The statistics of one histogram among the rows of `histograms`."""
    mine = [row for row in rows if (row["run"], row["strategy"], row["measure"]) == (run, strategy, measure)]
    if any(not 0 <= row["ms"] <= MS_MAX or not 0 <= row["count"] < 1 << 53 for row in mine):
        raise DataError(f"the histogram of {strategy} has times or counts out of range")
    counts = np.zeros(max((row["ms"] for row in mine), default=0) + 1, np.int64)
    for row in mine:
        counts[row["ms"]] = row["count"]
    return statistics(counts)


def _result_rows(outcomes: list[Outcome]) -> list[tuple[Any, ...]]:
    return [
        (
            outcome.run.number,
            name,
            outcome.events,
            outcome.subscriptions,
            *(result.messages.get(kind, 0) for kind in ("event", "subscription", "delivery", "location", "control")),
            result.redundant,
            int(result.latency.sum()),
        )
        for outcome in outcomes
        for name, result in outcome.strategies.items()
    ]


def _histogram_rows(outcomes: list[Outcome]) -> list[tuple[Any, ...]]:
    return [
        (outcome.run.number, name, measure, int(ms), int(counts[ms]))
        for outcome in outcomes
        for name, result in outcome.strategies.items()
        for measure, counts in (("latency", result.latency), ("delay", result.delay))
        for ms in np.flatnonzero(counts)
    ]


def _link_rows(outcomes: list[Outcome]) -> list[tuple[Any, ...]]:
    rows = []
    for outcome in outcomes:
        names = [*(place[0] for place in outcome.places), CLOUD_NAME]
        for name, result in outcome.strategies.items():
            links = result.links
            rows += [
                (outcome.run.number, name, names[a], names[b], int(links[a, b])) for a, b in np.argwhere(links).tolist()
            ]
    return rows


def _table(dataset: str, rows: list[tuple[Any, ...]]) -> "pa.Table":
    import pyarrow as pa

    schema = arrow_schema(dataset)
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
