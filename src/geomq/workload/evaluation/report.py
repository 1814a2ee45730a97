"""Tables from results: for the terminal, as Markdown, as CSV, as plain data.

Owns which numbers a table shows and in what words. Figures and the HTML page are `figures`.
"""

import csv
import io
from typing import Any, NamedTuple

from geomq.errors import DataError
from geomq.workload.evaluation.results import statistics_of

Rows = list[dict[str, Any]]
KINDS = ("event", "subscription", "delivery", "location", "control")
HEADERS = (
    "strategy",
    *KINDS,
    "total",
    "redundant",
    "deliveries",
    "latency mean",
    "latency std",
    "p50",
    "p75",
    "p99",
    "delay mean",
)


CHECKED = ("broker", "correct", "redundant", "required", "possible", "received", "lost", "duplicated", "unexpected")


class RunTable(NamedTuple):
    """One run in words and its rows: a strategy each, or a broker each."""

    title: str
    caption: str
    rows: list[tuple[Any, ...]]


def run_tables(results: dict[str, Rows]) -> list[RunTable]:
    """A table per run of a result directory."""
    if not results["runs"]:
        raise DataError("the results hold no runs")
    return [_run_table(results, run) for run in results["runs"]]


def run_title(run: dict[str, Any]) -> str:
    fences = ""
    if run["event_fence_deg"] is not None and run["subscription_fence_deg"] is not None:
        fences = f", fences {run['event_fence_deg']:g} and {run['subscription_fence_deg']:g} degrees"
    return (
        f"{run['preset']} ({run['variant']}): {run['brokers']} brokers, {run['clients']:,} clients, "
        f"{run['topics']:,} topics, {run['seconds']} s{fences}"
    )


def _run_table(results: dict[str, Rows], run: dict[str, Any]) -> RunTable:
    rows = []
    mine = [row for row in results["results"] if row["run"] == run["run"]]
    for row in mine:
        counts = [row[f"{kind}_messages"] for kind in KINDS]
        latency = statistics_of(results["histograms"], run["run"], row["strategy"], "latency")
        delay = statistics_of(results["histograms"], run["run"], row["strategy"], "delay")
        rows.append(
            (
                row["strategy"],
                *counts,
                sum(counts),
                row["redundant_messages"],
                row["deliveries"],
                *(latency[name] for name in ("mean", "std", "p50", "p75", "p99")),
                delay["mean"],
            )
        )
    caption = f"{mine[0]['events']:,} events, {mine[0]['subscriptions']:,} subscription updates" if mine else ""
    return RunTable(run_title(run), caption, rows)


def check_tables(results: dict[str, Rows]) -> list[RunTable]:
    """What live runs say of brokers and clients: a table per run; none for evaluations."""
    tables = []
    rows = results.get("checks", [])
    for number in dict.fromkeys(row["run"] for row in rows):
        mine = [row for row in rows if row["run"] == number]
        shown = [tuple(row[name] for name in CHECKED) for row in mine]
        total = [sum(row[name] for row in mine) for name in CHECKED[1:]]
        correct, redundant = total[0], total[1]
        share = redundant / (correct + redundant) if correct + redundant else 0.0
        title = f"{mine[0]['workload']}, {mine[0]['strategy']}: what really happened"
        tables.append(RunTable(title, f"{share:.0%} excess data", [*shown, ("all", *total)]))
    return tables


def as_data(results: dict[str, Rows]) -> dict[str, Any]:
    """All tables as plain data, exact numbers under the names of their columns."""
    tables = zip(results["runs"], run_tables(results), strict=True)
    runs = [run | {"strategies": [dict(zip(HEADERS, row, strict=True)) for row in table.rows]} for run, table in tables]
    return {"runs": runs, "checks": results.get("checks", [])}


def cell(value: Any) -> str:
    """A number as people read it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def markdown(tables: list[RunTable], checks: list[RunTable] | None = None) -> str:
    """All tables as one Markdown text."""
    parts = [f"## {each.title}\n\n{each.caption}. Times in milliseconds.\n\n{_rows(HEADERS, each)}" for each in tables]
    parts += [f"## {each.title}\n\n{each.caption}.\n\n{_rows(CHECKED, each)}" for each in checks or []]
    return "\n".join(["# Evaluation\n", *parts])


def _rows(headers: tuple[str, ...], table: RunTable) -> str:
    lines = ["| " + " | ".join(headers) + " |", "|---|" + "---:|" * (len(headers) - 1)]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in table.rows]
    return "\n".join(lines) + "\n"


def comma_separated(results: dict[str, Rows]) -> str:
    """All runs as one CSV text, exact numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    run_columns = list(results["runs"][0]) if results["runs"] else []
    writer.writerow([*run_columns, *HEADERS])
    for run, table in zip(results["runs"], run_tables(results), strict=True):
        for row in table.rows:
            writer.writerow([*(run[name] for name in run_columns), *row])
    return text.getvalue()
