"""`geomq reproduce groups`: the formation of broadcast groups at world scale, beside the published runs."""

import json
import time
from dataclasses import asdict
from pathlib import Path

import click

from geomq.cli.output import check_files, overwrite_option, write_text
from geomq.extras import need

FILES = ("groups.md", "groups.json", "groups-thresholds.svg", "groups-joins.svg", "groups-oscillation.svg")


@click.command(short_help="Broadcast group formation: Figures 2 and 3.")
@click.option("--quick", is_flag=True, help="Fewer thresholds, at most 6,000 brokers, a smaller rest.")
@click.option(
    "--cities", default="regions", show_default=True, help="A city list, or a CSV file (lat, lng, population)."
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=1,
    show_default=True,
    help="Seed; the same seed gives the same numbers.",
)
@click.option("--master", help="A Spark master; local[*] if not given.")
@click.option("--out", type=click.Path(path_type=Path), help="Write tables, figures and rows to this directory.")
@overwrite_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable comparison.")
def groups(
    quick: bool, cities: str, seed: int, master: str | None, out: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Form groups for every published threshold and number of brokers, disturb them, and compare.

    \b
    geomq reproduce groups --quick
    geomq reproduce groups --cities worldcities.csv --out results
    """
    started = time.monotonic()
    if out is not None:
        check_files(out, FILES, overwrite=overwrite)
    need("pyspark")
    from geomq.reproduction.groups.cities import broker_cities
    from geomq.reproduction.groups.figures import write_figures
    from geomq.reproduction.groups.on_spark import formation_on_spark
    from geomq.reproduction.groups.published import claims, compare, markdown
    from geomq.reproduction.groups.study import change_runs, list_runs, sweep, watch_runs

    runs = sweep(cities=cities, seed=seed, quick=quick)
    broker_cities(cities, max(run.brokers for run in runs), seed=seed)
    runs += list_runs(quick=quick)
    runs += change_runs(cities=cities, seed=seed, quick=quick) + watch_runs(cities=cities, seed=seed, quick=quick)
    rows = formation_on_spark(runs, master=master)
    wall_s = round(time.monotonic() - started, 1)
    text = markdown(rows)
    if as_json:
        found = [claim._asdict() for claim in claims(rows)]
        document = {"published": compare(rows), "claims": found, "runs": [asdict(row) for row in rows]}
        click.echo(json.dumps(document | {"wall_s": wall_s}, indent=1))
    else:
        click.echo(f"{text}\n{len(rows)} runs in {wall_s} s")
    if out is not None:
        write_text(out / "groups.md", text)
        write_text(out / "groups.json", json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        write_figures(rows, out)
