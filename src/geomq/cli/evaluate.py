"""`geomq evaluate`: what every strategy would cost on a workload, exactly and at any size."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geomq.cli.interrupt import quiet_interrupt
from geomq.cli.workload import engine_options, workload_options
from geomq.errors import UsageError
from geomq.extras import need

if TYPE_CHECKING:
    from geomq.workload.evaluation.results import Outcome

KINDS = ("event", "subscription", "delivery", "location", "control", "total")


@click.command(short_help="Evaluate all strategies exactly, at scale, on Spark.")
@workload_options
@click.option(
    "--variant",
    type=click.Choice(["default", "paper"]),
    default="default",
    show_default=True,
    help="Strategies as GeoMQ runs them, or exactly as in the published simulation.",
)
@click.option("--data", type=click.Path(path_type=Path), help="Evaluate a dataset made by `geomq workload` instead.")
@click.option("--sweep", multiple=True, metavar="NAME=A,B,...", help="Evaluate all combinations; may be repeated.")
@engine_options
@click.option("--out", type=click.Path(path_type=Path), help="Write the results to this directory as Parquet files.")
@click.option("--overwrite", is_flag=True, help="Replace existing results, and nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def evaluate(
    engine: str,
    master: str | None,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
    sweep: tuple[str, ...],
    data: Path | None,
    **numbers: Any,
) -> None:
    """Evaluate all strategies at once on a generated workload: messages, latencies, load.

    \b
    geomq evaluate --preset paper --clients 100000
    geomq evaluate --variant paper --brokers 25 --clients 1000000 --json
    geomq evaluate --sweep clients=1000,10000 --sweep fence=1,5 --out results
    """
    started = time.monotonic()
    from geomq.workload.evaluation.memory import peak_memory
    from geomq.workload.files import check_new
    from geomq.workload.generation.presets import Request
    from geomq.workload.generation.presets import sweep as spread

    if engine == "local" and master is not None:
        raise UsageError("--master needs --engine spark")
    if out is not None:
        check_new(out, kind="results", overwrite=overwrite)
    request = Request(**numbers)
    if data is not None and sweep:
        raise UsageError("--data is one workload and cannot be swept")
    requests = spread(request, [term for given in sweep for term in given.split()])
    with quiet_interrupt(), peak_memory() as peak:
        outcomes = run_requests(requests, data=data, engine=engine, master=master)
    facts = {"wall_s": round(time.monotonic() - started, 2), "peak_rss_mb": round(peak.mb, 1), "engine": engine}
    if as_json:
        click.echo(json.dumps(as_data(outcomes) | facts, indent=2))
    else:
        print_outcomes(outcomes, facts)
    if out is not None:
        from geomq.workload.evaluation.results import write_results

        write_results(out, outcomes, facts, overwrite=overwrite)


def run_requests(requests: "list[Any]", *, data: Path | None, engine: str, master: str | None) -> "list[Outcome]":
    """Evaluate requests with either engine."""
    from geomq.workload.dataset import DatasetSpec
    from geomq.workload.generation.presets import build, describe
    from geomq.workload.world import World

    jobs = []
    for number, request in enumerate(requests):
        if data is not None:
            spec: Any = DatasetSpec(data)
            world: World = spec.world
        else:
            world, spec = build(request)
        jobs.append((describe(request, world, spec, number), world, spec, request.seed, request.variant == "paper"))
    need("numba")
    _say_what_is_left_out(jobs)
    if engine == "spark":
        from geomq.pipeline.evaluate import evaluate_on_spark

        return evaluate_on_spark(jobs, master=master, mesh=True)
    from geomq.pipeline.mesh_timeline import timeline_for
    from geomq.workload.evaluation.evaluate import evaluate_locally

    return [evaluate_locally(*job, timeline_for(*job[1:])) for job in jobs]


def _say_what_is_left_out(jobs: "list[Any]") -> None:
    from geomq.pipeline.mesh_timeline import obstacle

    reasons = dict.fromkeys(obstacle(world, spec) for _, world, spec, _, paper in jobs if not paper)
    for reason in filter(None, reasons):
        click.echo(f"geomq: mesh is skipped: {reason}", err=True)


def as_data(outcomes: "list[Outcome]") -> dict[str, Any]:
    """One run as itself, several as a list."""
    runs = [outcome.as_json() for outcome in outcomes]
    return runs[0] if len(runs) == 1 else {"runs": runs}


def print_outcomes(outcomes: "list[Outcome]", facts: dict[str, Any]) -> None:
    """A table per run."""
    from geomq.cli.tables import Table, show

    for outcome in outcomes:
        run = outcome.run
        strategies = outcome.as_json()["strategies"].items()
        show(
            Table(
                ("strategy", *KINDS, "redundant", "deliveries", "latency ms", "p99", "delay ms"),
                [_row(name, result) for name, result in strategies],
                left=("strategy",),
                spare=("delay ms", "redundant", "p99", *reversed(KINDS[:-1])),
                title=f"{run.preset} ({run.variant}): {run.brokers} brokers, {run.clients:,} clients, {run.seconds} s",
                caption=f"{outcome.events:,} events, {outcome.subscriptions:,} subscription updates",
            )
        )
    click.echo(f"{facts['wall_s']} s, {facts['peak_rss_mb']:,.0f} MB at most")


def _row(name: str, result: dict[str, Any]) -> list[str]:
    latency, delay = result["latency_ms"], result["subscription_delay_ms"]
    return [
        name,
        *(f"{result['messages'][kind]:,}" for kind in KINDS),
        f"{result['redundant']:,}",
        f"{result['deliveries']:,}",
        f"{latency['mean']:.1f} ± {latency['std']:.1f}" if latency["count"] else "-",
        f"{latency['p99']}" if latency["count"] else "-",
        f"{delay['mean']:.0f}" if delay["count"] else "-",
    ]
