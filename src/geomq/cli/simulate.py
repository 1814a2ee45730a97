"""`geomq simulate`: play a workload under strategies in the deterministic simulator, and judge what they deliver."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from geomq.cli.interrupt import quiet_interrupt
from geomq.cli.own_strategies import look_here
from geomq.cli.simulate_sweep import WRONG, Sweep, run_sweep, sweep_options
from geomq.errors import UsageError
from geomq.pipeline.pool import in_processes
from geomq.pipeline.simulation import Scenario, explain, is_wrong, simulate_one
from geomq.routing.strategies.choice import names_of, options_for
from geomq.routing.strategies.registry import STRATEGIES, strategy_class
from geomq.workload.generation.disgb import FIRST_UPDATE_MS

KIND_COLUMNS = ("event", "delivery", "subscription", "location", "control", "total")


@click.command(short_help="Run strategies in the deterministic simulator.")
@click.option(
    "--strategy",
    "-s",
    default="all",
    show_default=True,
    help=f"Strategies, separated by commas: {', '.join(STRATEGIES)}; module:Class for your own; or all.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option for the strategies that have it, as text or JSON; may be repeated.",
)
@click.option("--brokers", "-b", default=25, show_default=True, help="Number of brokers, in large cities.")
@click.option(
    "--clients",
    "-c",
    default=500,
    show_default=True,
    help="Number of clients, distributed by population, rounded down.",
)
@click.option("--seconds", "-t", default=120, show_default=True, help="Simulated seconds of activity.")
@click.option("--topics", default=1000, show_default=True, help="Number of topics.")
@click.option(
    "--preset",
    default="steady",
    type=click.Choice(["paper", "steady"]),
    show_default=True,
    help="steady: pauses of up to a minute; paper: pauses that grow with time, as published.",
)
@click.option("--seed", default=1, show_default=True, help="Seed; the same seed gives the same trace.")
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
    help="With --explain: number of steps to print.",
)
@click.option(
    "--trace",
    "trace",
    type=click.Path(path_type=Path),
    help="Write traces for geomq why to this directory, as Parquet; several strategies each get a subdirectory.",
)
@sweep_options
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def simulate(
    strategy: str,
    options: tuple[str, ...],
    explained: bool,
    steps: int,
    trace: Path | None,
    as_json: bool,
    **more: Any,
) -> None:
    """Run the real routing core in virtual time and say what each strategy costs, and whether it is right.

    Brokers stand in large cities. Their clients start anywhere in the broker's area, the part of the earth that is its
    own, and travel at 50 to 100 km/h. After 50 to 100 seconds each begins to subscribe with fences of 10 degrees and to
    publish with fences of 5, as in the published DisGB simulation. Then everybody stands still and each client
    publishes once more: in this quiet tail every strategy must deliver exactly the same.

    The verdict is the oracle's, which asks every subscription: deliveries missed or unexpected in the quiet tail, and
    events that came to a client twice at any time. If there are any, the exit code is 1.

    \b
    geomq simulate --strategy all --brokers 25 --clients 500
    geomq simulate --strategy mesh,hubs:Hubs --option redundancy=3
    geomq simulate --strategy disgb_events --brokers 9 --clients 100 --topics 5 --explain
    geomq simulate --strategy dht --topics 50 --trace trace && geomq why --topic topic-1 trace
    geomq simulate --strategy dht,mesh --sweep seed=0..9 --sweep brokers=9,25 --sweep option.redundancy=1,2 --out sweep
    """
    sweep = Sweep(**{name: more.pop(name) for name in Sweep._fields})
    scenario = Scenario(**more)
    names = None if strategy == "all" else names_of(strategy)
    look_here(names or ())
    if sweep.terms:
        if explained or trace is not None:
            raise UsageError("--sweep gives a row for each run; it cannot be combined with --explain or --trace")
        run_sweep(scenario, names, options, sweep, as_json=as_json)
        return
    sweep.refuse_without_terms()
    chosen = options_for(names or scenario.strategies(), options)
    for name in chosen:
        strategy_class(name).check(scenario.federation())
    if explained:
        if as_json or trace is not None:
            raise UsageError("--explain prints a transcript; it cannot be combined with --json or --trace")
        _explain(scenario, chosen, steps)
    else:
        _compare(scenario, chosen, trace, as_json=as_json)


def _explain(scenario: Scenario, chosen: dict[str, dict[str, Any]], steps: int) -> None:
    if len(chosen) > 1:
        raise UsageError("--explain follows one strategy; name it with --strategy")
    _warn_if(scenario.seconds * 1000 <= FIRST_UPDATE_MS)
    ((name, given),) = chosen.items()
    explain(scenario, name, given, write=click.echo, steps_max=steps)


Task = tuple[Scenario, str, dict[str, Any], Path | None]


def _simulate(task: Task) -> dict[str, Any]:
    return simulate_one(*task)


def _compare(scenario: Scenario, chosen: dict[str, dict[str, Any]], trace: Path | None, *, as_json: bool) -> None:
    """One process a strategy, as many at once as there are cores."""
    traces = _traces(trace, list(chosen))
    tasks: list[Task] = [(scenario, name, given, traces[name]) for name, given in chosen.items()]
    started = time.monotonic()
    results: dict[str, Any] = {}
    with quiet_interrupt():
        for name, result in zip(chosen, in_processes(_simulate, tasks), strict=True):
            results[name] = result
            if sys.stderr.isatty() and len(tasks) > 1:
                click.echo(f"\r{len(results)}/{len(tasks)} strategies", err=True, nl=len(results) == len(tasks))
    wall_s = round(time.monotonic() - started, 2)
    verdicts = {name: result["verdict"] for name, result in results.items()}
    _warn_if(not any(verdict["expected"] for verdict in verdicts.values()))
    if as_json:
        click.echo(json.dumps({"scenario": scenario.describe(), "strategies": results, "wall_s": wall_s}, indent=2))
    else:
        _print_table(scenario, results, wall_s)
    wrong = [name for name, verdict in verdicts.items() if is_wrong(verdict)]
    for name in wrong:
        counts = f"{in_words(verdicts[name])} of {verdicts[name]['expected']:,}"
        click.echo(f"geomq: {name} is wrong: {counts}; {verdicts[name]['first']}", err=True)
    if wrong:
        sys.exit(WRONG)


def in_words(verdict: dict[str, Any]) -> str:
    """What the oracle says, for people."""
    counts = [f"{verdict[name]:,} {name}" for name in ("missed", "unexpected", "doubled") if verdict[name]]
    return ", ".join(counts) or ("right" if verdict["expected"] else "-")


def _warn_if(idle: bool) -> None:
    if idle:
        begin_s = FIRST_UPDATE_MS // 1000
        click.echo(
            f"geomq: no client subscribed: clients begin after {begin_s} s or later; give more --seconds", err=True
        )


def _traces(directory: Path | None, names: list[str]) -> dict[str, Path | None]:
    """Where the trace of each strategy goes; a directory with traces is left alone."""
    if directory is None:
        return dict.fromkeys(names)
    places = {names[0]: directory} if len(names) == 1 else {name: directory / name for name in names}
    for place in places.values():
        if place.is_dir() and any(place.glob("*.parquet")):
            raise UsageError(f"{place} already contains Parquet files; choose another directory")
    return dict(places)


def _print_table(scenario: Scenario, results: dict[str, Any], wall_s: float) -> None:
    from geomq.cli.tables import Table, show

    rows = []
    for name, result in results.items():
        latency = result["latency_ms"]
        spread = f"{latency['mean']:.1f} ± {latency['std']:.1f}" if latency["count"] else "-"
        counts = [f"{result['messages'][kind]:,}" for kind in KIND_COLUMNS]
        delivered = (f"{result['deliveries']:,}", f"{result['quiet_tail_deliveries']:,}")
        rows.append([name, *counts, *delivered, spread, in_words(result["verdict"])])
    show(
        Table(
            ("strategy", *KIND_COLUMNS, "deliveries", "quiet tail", "latency ms", "verdict"),
            rows,
            left=("strategy", "verdict"),
            spare=("quiet tail", *reversed(KIND_COLUMNS[:-1])),
            title=scenario.title(),
            caption=f"inter-broker messages by kind; {wall_s} s of real time",
        )
    )
