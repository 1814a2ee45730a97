"""`python -m bench`: measure GeoMQ beside Mosquitto and amqtt and hold the figures against the targets."""

import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console

from bench.acked import durable, qos1
from bench.attacks import attacks
from bench.brokers import ROOT, versions
from bench.geo import geo
from bench.linked import link
from bench.loads import ping_pong, qos0
from bench.measure import BenchError, cores, pin
from bench.report import as_json, conditions, show
from bench.results import Row
from bench.stage import KINDS, Stage
from bench.traced import trace
from bench.upkeep import idle, stalled, start
from bench.workers import workers

Section = Callable[[Stage, str | None], Iterator[Row]]

SECTIONS: dict[str, Section] = {
    "start": start,
    "qos0": qos0,
    "pingpong": ping_pong,
    "qos1": qos1,
    "geo": geo,
    "durable": durable,
    "idle": idle,
    "stalled": stalled,
    "link": link,
    "trace": trace,
    "attacks": attacks,
    "workers": workers,
}


@click.command()
@click.option("--only", metavar="NAME", help=f"One of {', '.join(SECTIONS)}; or part of a QoS 0 load's name.")
@click.option("--quick", is_flag=True, help="Short measurements: about three minutes.")
@click.option("--json", "json_wanted", is_flag=True, help="JSON instead of tables.")
@click.option("--brokers", default=",".join(KINDS), show_default=True, help="Which brokers to measure.")
@click.option(
    "--tree",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=ROOT,
    help="Measure the GeoMQ of another work tree; see bench.before.",
)
def main(only: str | None, quick: bool, json_wanted: bool, brokers: str, tree: Path) -> None:
    """Measure GeoMQ, with all features on, beside Mosquitto and amqtt.

    The figures are medians of several repeats; CPU is that of the broker's process. The exit code tells whether
    everything could be measured, not how it went.
    """
    os.environ["PYTHONPATH"] = str(tree.resolve() / "src")
    console = Console(file=sys.stderr if json_wanted else None)
    found = versions()
    wanted = [name for name in KINDS if name in brokers.split(",")]
    missing = [name for name in wanted if name not in found]
    for name in missing:
        Console(stderr=True).print(f"{name} is not there and cannot be installed: left out")
    pinned = cores()
    if pinned is not None:
        pin(0, pinned[1])
    _raise_file_limit()
    about = conditions(found, pinned, quick=quick)
    rows: list[Row] = []
    failures: list[str] = []
    names = [name for name in wanted if name in found]
    core, load_core = pinned or (None, None)
    with (
        console.status("starting") as status,
        Stage(names, core=core, load_core=load_core, quick=quick, say=status.update) as stage,
    ):
        for section, run in _chosen(only):
            try:
                rows.extend(run(stage, None if only in SECTIONS else only))
            except BenchError as error:
                failures.append(f"{section}: {error}")
    if json_wanted:
        click.echo(as_json(rows, about, missing, failures))
    else:
        show(rows, about, console)
    for failure in failures:
        click.echo(f"bench: {failure}", err=True)
    sys.exit(1 if failures else 0)


def _chosen(only: str | None) -> list[tuple[str, Section]]:
    """All sections, the named one, or QoS 0 for part of a load's name."""
    if only is None:
        return list(SECTIONS.items())
    name = only if only in SECTIONS else "qos0"
    return [(name, SECTIONS[name])]


def _raise_file_limit() -> None:
    """Thousands of clients need thousands of sockets; brokers inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
