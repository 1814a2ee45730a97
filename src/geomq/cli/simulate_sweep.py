"""`geomq simulate --sweep`: many runs of the simulator, a row for each, as a table, CSV, JSON and Parquet."""

import csv
import io
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeVar

import click

from geomq.cli.interrupt import quiet_interrupt
from geomq.errors import UsageError
from geomq.extras import need
from geomq.pipeline.simulation import Scenario
from geomq.pipeline.sweep import SimulationRow, SimulationRun, runs_of, sweep_locally

WRONG = 1
"""The exit code when a strategy did not deliver what the oracle says."""
SHOWN_MAX = 5

F = TypeVar("F", bound=Callable[..., Any])


class Sweep(NamedTuple):
    """What to sweep, where, and where the rows go; the options below by their names."""

    terms: tuple[str, ...]
    engine: str | None
    master: str | None
    out: Path | None
    overwrite: bool
    as_csv: bool

    def refuse_without_terms(self) -> None:
        for name, given in self._asdict().items():
            if given:
                raise UsageError(f"--{name.removeprefix('as_')} goes with --sweep")


def sweep_options(command: F) -> F:
    """The options that make `simulate` a sweep."""
    options = (
        click.option(
            "--sweep",
            "terms",
            multiple=True,
            metavar="NAME=A,B,...",
            help="Run all combinations with values of seed, brokers, clients, seconds, topics or option.NAME; A..B is "
            "each number from A to B; may be repeated.",
        ),
        click.option(
            "--engine",
            type=click.Choice(["spark", "local"]),
            help="With --sweep: run on Spark (the default) or in processes of this machine.",
        ),
        click.option("--master", help="With --sweep: a Spark master such as spark://host:7077; local[*] if not given."),
        click.option("--out", type=click.Path(path_type=Path), help="With --sweep: write Parquet to this directory."),
        click.option("--overwrite", is_flag=True, help="Replace an existing sweep, and nothing else."),
        click.option("--csv", "as_csv", is_flag=True, help="With --sweep: print a row for each run as CSV."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def run_sweep(
    scenario: Scenario, strategies: list[str] | None, options: Sequence[str], sweep: Sweep, *, as_json: bool
) -> None:
    """Run all combinations and print their rows; exit with 1 if a strategy was wrong in any."""
    from geomq.workload.files import check_new

    if sweep.engine == "local" and sweep.master is not None:
        raise UsageError("--master needs --engine spark")
    if sweep.as_csv and as_json:
        raise UsageError("give either --csv or --json")
    if sweep.out is not None:
        need("pyarrow")
        check_new(sweep.out, kind="sweep", overwrite=sweep.overwrite)
    runs = runs_of(scenario, strategies, sweep.terms, options)
    started = time.monotonic()
    with quiet_interrupt():
        rows = _locally(runs) if sweep.engine == "local" else _on_spark(runs, sweep.master)
    wall_s = round(time.monotonic() - started, 2)
    if as_json:
        click.echo(json.dumps({"runs": [asdict(row) for row in rows], "wall_s": wall_s}, indent=1))
    elif sweep.as_csv:
        click.echo(_csv(rows), nl=False)
    else:
        _print_table(rows, wall_s)
    if sweep.out is not None:
        write_sweep(sweep.out, rows, overwrite=sweep.overwrite)
    _exit_if_wrong(runs, rows)


def _exit_if_wrong(runs: Sequence[SimulationRun], rows: Sequence[SimulationRow]) -> None:
    wrong = [row for row in rows if row.is_wrong]
    for row in wrong[:SHOWN_MAX]:
        again = runs[row.run].command()
        click.echo(f"geomq: {row.strategy} is wrong: {row.error or row.first}; again: {again}", err=True)
    if len(wrong) > SHOWN_MAX:
        click.echo(f"geomq: and {len(wrong) - SHOWN_MAX:,} more runs", err=True)
    if wrong:
        sys.exit(WRONG)


def _locally(runs: list[SimulationRun]) -> list[SimulationRow]:
    def progress(done: int) -> None:
        click.echo(f"\r{done}/{len(runs)} runs", err=True, nl=done == len(runs))

    return sweep_locally(runs, progress=progress if sys.stderr.isatty() else None)


def _on_spark(runs: list[SimulationRun], master: str | None) -> list[SimulationRow]:
    from geomq.pipeline.sweep_on_spark import sweep_on_spark

    return sweep_on_spark(runs, master=master)


def write_sweep(directory: Path, rows: Sequence[SimulationRow], *, overwrite: bool) -> None:
    """A directory with the rows; it appears when it is complete."""
    import pyarrow as pa

    from geomq.workload.dataset import write_manifest
    from geomq.workload.files import new_directory, write_table
    from geomq.workload.schema import arrow_schema

    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=arrow_schema("simulations"))
    with new_directory(directory, kind="sweep", overwrite=overwrite) as partial:
        write_table(table, partial / "simulations.parquet")
        write_manifest(partial, {"kind": "sweep"})


def _csv(rows: Sequence[SimulationRow]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(SimulationRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()


def _print_table(rows: Sequence[SimulationRow], wall_s: float) -> None:
    """What differs between the runs, seeds brought together."""
    from geomq.cli.tables import Table, show

    given = ("strategy", "options", "brokers", "clients", "seconds", "topics")
    swept = [name for name in given if name == "strategy" or len({getattr(row, name) for row in rows}) > 1]
    groups: dict[tuple[str, ...], list[SimulationRow]] = {}
    for row in rows:
        groups.setdefault(tuple(str(getattr(row, name)) for name in swept), []).append(row)
    shown = []
    for key, group in groups.items():
        measured = [_spread(group, name) for name in ("total_messages", "deliveries", "latency_mean_ms")]
        shown.append([*key, str(len(group)), *measured, _verdict(group)])
    show(
        Table(
            (*swept, "runs", "messages", "deliveries", "latency ms", "verdict"),
            shown,
            left=("strategy", "options", "verdict"),
            spare=("deliveries", "runs", "latency ms"),
            caption=f"inter-broker messages; means over the seeds and their spread; {wall_s} s of real time",
        )
    )


def _spread(rows: list[SimulationRow], name: str) -> str:
    values = [float(value) for row in rows if (value := getattr(row, name)) is not None]
    if not values:
        return "-"
    return f"{fmean(values):,.1f}" + (f" ± {stdev(values):,.1f}" if len(values) > 1 else "")


def _verdict(rows: list[SimulationRow]) -> str:
    sums = {name: sum(getattr(row, name) or 0 for row in rows) for name in ("missed", "unexpected", "doubled")}
    failed = sum(row.error is not None for row in rows)
    said = [f"{failed:,} failed"] * bool(failed) + [f"{count:,} {name}" for name, count in sums.items() if count]
    return ", ".join(said) or ("right" if any(row.expected for row in rows) else "-")
