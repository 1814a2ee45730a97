"""`geomq replay`: act out a workload against live brokers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geomq.cli.numbers import NumberRange
from geomq.errors import UsageError

if TYPE_CHECKING:
    from geomq.testbed.replay import ReplayReport
    from geomq.testbed.replay_worker import BrokerAddress


@click.command(short_help="Replay a workload against live brokers.")
@click.argument("workload", type=click.Path(path_type=Path))
@click.option(
    "--brokers", required=True, help="host:port of each broker of the workload, in its order, separated by commas."
)
@click.option("--speed", type=float, default=1.0, show_default=True, help="Speed, as a multiple of the workload's.")
@click.option("--processes", type=int, default=2, show_default=True, help="Number of processes that run the clients.")
@click.option("--qos", type=click.IntRange(0, 1), default=0, show_default=True, help="QoS of events and subscriptions.")
@click.option("--seconds", type=NumberRange(min=0, min_open=True), help="Only the first seconds of the workload.")
@click.option("--plain", is_flag=True, help="Plain MQTT 3.1.1 without locations and fences, for other brokers.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Directory for the records of what was sent and received.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable report.")
def replay(
    workload: Path,
    brokers: str,
    speed: float,
    processes: int,
    qos: int,
    seconds: float | None,
    plain: bool,
    out: Path,
    as_json: bool,
) -> None:
    """Connect every client of a workload dataset, let them move, subscribe and publish, and record it all.

    \b
    geomq workload --preset hiking --out hiking
    geomq replay hiking --brokers localhost:1883,localhost:1884,localhost:1885 --speed 10 --out run
    """
    from geomq.testbed.replay import ReplaySettings
    from geomq.testbed.replay import replay as run

    settings = ReplaySettings(speed=speed, processes=processes, qos=qos, seconds=seconds)
    report = run(workload, read_addresses(brokers, plain=plain), settings, out)
    click.echo(json.dumps(report.as_json(), indent=1) if as_json else describe(report))


def read_addresses(text: str, *, plain: bool) -> "list[BrokerAddress]":
    """The brokers of `host:port,host:port`."""
    from geomq.testbed.replay_worker import BrokerAddress

    found = []
    for entry in text.split(","):
        host, colon, port = entry.strip().rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
            raise UsageError(f"--brokers: {entry.strip()!r} is not host:port")
        found.append(BrokerAddress(entry.strip(), host.strip("[]"), int(port), plain))
    return found


def describe(report: "ReplayReport") -> str:
    """A report in a few lines."""
    late, took = report.lateness, report.latency
    lines = [
        f"{report.clients:,} clients sent {report.locations:,} location updates, {report.subscriptions:,} subscription "
        f"updates and {report.events:,} events in {report.wall_s:g} s; {report.received:,} events were received",
    ]
    if late:
        lines.append(
            f"lateness of the replayer: p50 {late['p50']:.2f}, p99 {late['p99']:.2f}, max {late['max']:.1f} ms"
        )
    if took:
        lines.append(f"delivery latency: p50 {took['p50']:.2f}, p99 {took['p99']:.2f}, max {took['max']:.1f} ms")
    if report.unsent or report.refused or report.connections_lost:
        lines.append(
            f"PROBLEMS: {report.unsent:,} actions not sent, {report.refused:,} refused, "
            f"{report.connections_lost:,} connections lost; {'; '.join(report.complaints[:3])}"
        )
    return "\n".join(lines)
