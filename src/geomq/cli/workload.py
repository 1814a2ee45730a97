"""`geomq workload`: generate a workload and write it as Parquet files."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from geomq.errors import UsageError
from geomq.extras import need

F = TypeVar("F", bound=Callable[..., Any])

_PRESET_HELP = (
    "paper: the published DisGB simulation, in which pauses grow with time; steady: the same with pauses of up to a "
    "minute; open, hiking, context, validation, mixed: scenarios of three brokers."
)


def workload_options(command: F) -> F:
    """The options that say which workload is meant; shared by the commands that generate one."""
    options = (
        click.option("--preset", default="paper", show_default=True, help=_PRESET_HELP),
        click.option(
            "--brokers", type=int, help="Number of brokers; 25 are the published places, other numbers large cities."
        ),
        click.option("--clients", type=int, help="Number of clients in all; 100,000 if not given, 3,600 in scenarios."),
        click.option("--topics", type=int, help="Number of topics; 1,000 if not given."),
        click.option("--seconds", type=int, help="Seconds that clients are active; 900 if not given."),
        click.option(
            "--event-fence", "event_fence_deg", type=float, help="Radius of event fences in degrees; 5 if not given."
        ),
        click.option(
            "--subscription-fence",
            "subscription_fence_deg",
            type=float,
            help="Radius of subscription fences in degrees; 10 if not given.",
        ),
        click.option(
            "--field",
            "field_deg",
            type=int,
            help="Side of the grid squares in degrees; 6 if not given, or less if the brokers do not fit.",
        ),
        click.option(
            "--places",
            type=click.Path(path_type=Path),
            help="CSV file of brokers with the columns name, latitude, longitude and population.",
        ),
        click.option("--cities", is_flag=True, help="Use large cities even for 25 brokers."),
        click.option("--seed", type=int, default=1, show_default=True, help="Seed; the same seed gives the same data."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def engine_options(command: F) -> F:
    """Where it runs; without Spark only in one process."""
    command = click.option("--master", help="A Spark master such as spark://host:7077; local[*] if not given.")(command)
    return click.option(
        "--engine",
        type=click.Choice(["spark", "local"]),
        default="spark",
        show_default=True,
        callback=_installed,
        help="Run on Spark, or in one process, for which geomq[data] is enough.",
    )(command)


def _installed(_context: click.Context, _option: click.Parameter, engine: str) -> str:
    if engine == "spark":
        need("pyspark")
    return engine


@click.command(short_help="Generate workload datasets.")
@workload_options
@engine_options
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The directory to write.")
@click.option("--overwrite", is_flag=True, help="Replace an existing workload, and nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable summary.")
def workload(engine: str, master: str | None, out: Path, overwrite: bool, as_json: bool, **numbers: Any) -> None:
    """Generate a workload and write it to a directory of Parquet files.

    \b
    geomq workload --preset paper --clients 100000 --out hikers
    geomq evaluate --data hikers
    """
    from geomq.workload.generation.presets import Request, build

    if engine == "local" and master is not None:
        raise UsageError("--master needs --engine spark")
    request = Request(**numbers)
    world, spec = build(request)
    started = time.monotonic()
    from geomq.workload.generation.generate import write_workload

    if engine == "local":
        written = write_workload(out, world, spec, request, overwrite=overwrite)
    else:
        from geomq.pipeline.generate import write_workload_on_spark

        written = write_workload_on_spark(out, world, spec, request, master=master, overwrite=overwrite)
    summary = {"directory": str(out), **written, "wall_s": round(time.monotonic() - started, 2)}
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        click.echo(f"{out}: {written['clients']:,} clients, {written['actions']:,} actions, {summary['wall_s']} s")
