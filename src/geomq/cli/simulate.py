"""`geomq simulate`: play a workload under one strategy, or all, in the deterministic simulator."""

import json
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import click

from geomq.cli.interrupt import quiet_interrupt
from geomq.cli.simulation import Scenario, explain, simulate_one
from geomq.errors import UsageError
from geomq.routing.registry import STRATEGIES, strategy_class
from geomq.workload.generation.disgb import FIRST_UPDATE_MS

KIND_COLUMNS = ("event", "delivery", "subscription", "location", "control", "total")


@click.command(short_help="Run strategies in the deterministic simulator.")
@click.option(
    "--strategy", "-s", default="all", show_default=True, help=f"One of {', '.join(STRATEGIES)}; module:Class, or all."
)
@click.option("--brokers", "-b", default=25, show_default=True, help="How many brokers, in large cities.")
@click.option("--clients", "-c", default=500, show_default=True, help="How many clients, by population, rounded down.")
@click.option("--seconds", "-t", default=120, show_default=True, help="Simulated seconds of activity.")
@click.option("--topics", default=1000, show_default=True, help="How many topics there are.")
@click.option(
    "--preset",
    default="steady",
    type=click.Choice(["paper", "steady"]),
    show_default=True,
    help="steady: pauses of up to a minute; paper: pauses that grow with time, as published.",
)
@click.option("--seed", default=1, show_default=True, help="Same seed, same trace.")
@click.option(
    "--explain",
    "explained",
    is_flag=True,
    help="Print a transcript of one strategy, message by message, and stop early.",
)
@click.option(
    "--steps",
    default=60,
    type=click.IntRange(min=1),
    show_default=True,
    help="With --explain: how many steps to print.",
)
@click.option(
    "--trace",
    "trace",
    type=click.Path(path_type=Path),
    help="Write what happened to Parquet files in this directory, for geomq why; of all, each strategy in its own.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def simulate(
    strategy: str,
    brokers: int,
    clients: int,
    seconds: int,
    topics: int,
    preset: str,
    seed: int,
    explained: bool,
    steps: int,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Run the real routing core in virtual time and say what each strategy costs.

    Brokers stand in large cities. Their clients start anywhere in the broker's area, the part of the earth that is its
    own, and travel at 50 to 100 km/h. After 50 to 100 seconds each begins to subscribe with fences of 10 degrees and to
    publish with fences of 5, as in the published DisGB simulation. Then everybody stands still and each client
    publishes once more: in this quiet tail every strategy must deliver exactly the same.

    \b
    geomq simulate --strategy all --brokers 25 --clients 500
    geomq simulate --strategy disgb_events --brokers 9 --clients 100 --topics 5 --explain
    geomq simulate --strategy dht --topics 50 --trace trace && geomq why --topic topic-1 trace
    """
    scenario = Scenario(brokers=brokers, clients=clients, seconds=seconds, topics=topics, preset=preset, seed=seed)
    names = scenario.strategies() if strategy == "all" else [strategy]
    for name in names:
        strategy_class(name).check(scenario.federation())
    if explained:
        if len(names) > 1:
            raise UsageError("--explain follows one strategy; name it with --strategy")
        if as_json or trace is not None:
            raise UsageError("--explain prints a transcript; it goes with neither --json nor --trace")
        _warn_if(scenario.seconds * 1000 <= FIRST_UPDATE_MS)
        explain(scenario, names[0], write=click.echo, steps_max=steps)
        return
    traces = _traces(trace, names)
    started = time.monotonic()
    with quiet_interrupt():
        results = _run_all(scenario, names, traces, progress=sys.stderr.isatty())
    wall_s = round(time.monotonic() - started, 2)
    _warn_if(not any(result["deliveries"] for result in results.values()))
    if as_json:
        click.echo(json.dumps({"scenario": scenario.describe(), "strategies": results, "wall_s": wall_s}, indent=2))
    else:
        _print_table(scenario, results, wall_s)


def _warn_if(idle: bool) -> None:
    if idle:
        begin_s = FIRST_UPDATE_MS // 1000
        click.echo(f"geomq: nobody subscribed: clients begin after {begin_s} s or later; give more --seconds", err=True)


def _traces(directory: Path | None, names: list[str]) -> dict[str, Path | None]:
    """Where the trace of each strategy goes; a directory with traces is left alone."""
    if directory is None:
        return dict.fromkeys(names)
    places = {names[0]: directory} if len(names) == 1 else {name: directory / name for name in names}
    for place in places.values():
        if place.is_dir() and any(place.glob("*.parquet")):
            raise UsageError(f"{place} holds Parquet files already; choose another directory")
    return dict(places)


def _run_all(scenario: Scenario, names: list[str], traces: dict[str, Path | None], *, progress: bool) -> dict[str, Any]:
    """One process a strategy, as many at once as there are cores."""
    if len(names) == 1:
        return {names[0]: simulate_one(scenario, names[0], traces[names[0]])}
    results: dict[str, Any] = {}
    with ProcessPoolExecutor(initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        futures = {name: pool.submit(simulate_one, scenario, name, traces[name]) for name in names}
        try:
            for done, (name, future) in enumerate(futures.items(), start=1):
                results[name] = future.result()
                if progress:
                    click.echo(f"\r{done}/{len(names)} strategies", err=True, nl=done == len(names))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():
                worker.terminate()
            raise
    return results


def _print_table(scenario: Scenario, results: dict[str, Any], wall_s: float) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=scenario.title(), caption=f"inter-broker messages by kind; {wall_s} s of real time")
    for column in ("strategy", *KIND_COLUMNS, "deliveries", "quiet tail", "latency ms"):
        table.add_column(column, justify="left" if column == "strategy" else "right")
    for name, result in results.items():
        latency = result["latency_ms"]
        spread = f"{latency['mean']:.1f} ± {latency['std']:.1f}" if latency["count"] else "-"
        counts = [f"{result['messages'][kind]:,}" for kind in KIND_COLUMNS]
        table.add_row(name, *counts, f"{result['deliveries']:,}", f"{result['quiet_tail_deliveries']:,}", spread)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
