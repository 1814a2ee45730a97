"""`geomq advise`: what recorded traffic says about the strategy, the areas and the places of brokers."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geomq.cli.numbers import NumberRange
from geomq.cli.workload import engine_options
from geomq.errors import UsageError
from geomq.extras import need

if TYPE_CHECKING:
    from geomq.workload.traffic.advice import Advice
    from geomq.workload.traffic.recorded_traffic import Traffic


@click.command(short_help="Find out from recorded traffic which strategy would serve it best.")
@click.argument("traces", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--live", multiple=True, metavar="ADDRESS", help="Record live traffic from this admin API instead; may be repeated."
)
@click.option(
    "--seconds",
    default=60.0,
    type=NumberRange(1, 86_400),
    show_default=True,
    help="Seconds to record with --live.",
)
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the token of the admin APIs.")
@click.option("--last", type=NumberRange(1), metavar="SECONDS", help="Only the last seconds of trace or archive.")
@click.option(
    "--prefer",
    type=click.Choice(["messages", "bytes", "latency"]),
    default="messages",
    show_default=True,
    help="What to keep low.",
)
@click.option("--place", type=click.IntRange(2, 256), metavar="N", help="Also propose locations for N brokers.")
@click.option(
    "--samples",
    default=5,
    type=click.IntRange(0, 50),
    show_default=True,
    help="Number of random halves of the clients to check the result with.",
)
@engine_options
@click.option("--json", "as_json", is_flag=True, help="Machine-readable answer.")
def advise(
    traces: tuple[Path, ...],
    live: tuple[str, ...],
    seconds: float,
    token_file: Path | None,
    last: float | None,
    prefer: Any,
    place: int | None,
    samples: int,
    engine: str,
    master: str | None,
    as_json: bool,
) -> None:
    """Replay recorded traffic under every strategy and say which would serve it best, what that would save, and how
    sure that is. TRACES are files or directories that brokers wrote ([trace] in their config), or one archive of
    events (geomq archive).

    \b
    geomq advise trace-berlin trace-paris
    geomq advise --place 5 --json trace
    geomq advise archive
    geomq advise --live 127.0.0.1:9883 --live 127.0.0.1:9884 --seconds 300
    """
    if bool(traces) == bool(live):
        raise UsageError("give traces to read, or --live and the address of an admin API")
    if engine == "local" and master is not None:
        raise UsageError("--master needs --engine spark")
    from geomq.workload.traffic.advice import advise as find

    traffic = _listen(live, seconds, token_file) if live else _read(traces, last)
    if len(traffic.outline.brokers) < 2 and place is None:
        raise UsageError(
            "the traffic is of one broker, which needs no strategy; --place N proposes locations for several"
        )
    advice = find(traffic, _evaluate(engine, master), prefer=prefer, place=place, samples=samples)
    if as_json:
        click.echo(json.dumps(as_data(advice), indent=2))
    else:
        _show(advice)


def _read(traces: tuple[Path, ...], last: float | None) -> "Traffic":

    need("pyarrow")
    from geomq.workload.traffic.archived_traffic import is_archive, read_archived_traffic
    from geomq.workload.traffic.recorded_traffic import read_traffic

    archives = [path for path in traces if is_archive(path)]
    if not archives:
        return read_traffic(traces, last_s=last)
    if len(traces) > 1:
        raise UsageError(f"{archives[0]} is an archive of events; give either one archive or only traces")
    return read_archived_traffic(archives[0], last_s=last)


def _listen(live: tuple[str, ...], seconds: float, token_file: Path | None) -> "Traffic":
    from geomq.pipeline.recent import listen, read_token

    def said(left: float) -> None:
        if sys.stderr.isatty():
            click.echo(f"\rlistening, {left:.0f} s left ", err=True, nl=left <= 0)

    return listen(live, seconds=seconds, token=read_token(token_file), said=said)


def _evaluate(engine: str, master: str | None) -> Any:

    need("numba")

    def run(jobs: Any) -> Any:
        if engine == "spark":
            from geomq.pipeline.evaluate import evaluate_on_spark

            return evaluate_on_spark(jobs, master=master)
        from geomq.workload.evaluation.evaluate import evaluate_locally

        return [evaluate_locally(*job) for job in jobs]

    return run


def as_data(advice: "Advice") -> dict[str, Any]:
    """The advice as plain data."""
    from geomq.workload.traffic.advice import config_lines

    def option(found: Any) -> Any:
        if found is None:
            return None
        brokers = [{"name": broker.name, "location": broker.location} for broker in found.outline.brokers]
        distances = {"km_to_clients": round(found.km, 1), "km_to_clients_now": round(found.km_now, 1)}
        return {"strategy": found.strategy, **found.cost.as_json(), **distances, "brokers": brokers}

    return {
        "strategy": advice.strategy,
        "present": advice.present,
        "saved": None if advice.saved is None else advice.saved.as_json(),
        "confidence": advice.confidence,
        "samples": advice.samples,
        "costs": {name: cost.as_json() for name, cost in advice.costs.items()},
        "oracle": None if advice.oracle is None else advice.oracle.as_json(),
        "outside_area": round(advice.outside, 4),
        "areas": option(advice.areas),
        "places": option(advice.places),
        "config": config_lines(advice),
        "notes": list(advice.notes),
        "traffic": advice.facts,
    }


def _show(advice: "Advice") -> None:
    from geomq.cli.tables import Table, show
    from geomq.workload.traffic.advice import SERVED, config_lines

    facts = advice.facts
    rows = []
    for name, cost in sorted(advice.costs.items(), key=lambda item: item[1].messages):
        mark = "best" if name == advice.strategy else "now" if name == advice.present else ""
        if cost.deliveries < SERVED * advice.served:
            mark = f"leaves {advice.served - cost.deliveries:,} of {advice.served:,} deliveries out"
        numbers = (f"{cost.messages:,}", f"{cost.bytes / 1e6:,.2f}", f"{cost.latency_ms:.1f}", f"{cost.p99_ms:.0f}")
        rows.append([name, *numbers, mark])
    title = (
        f"{facts['brokers']} brokers, {facts['clients']:,} clients, {facts['events']:,} events in "
        f"{facts['seconds']:,} s"
    )
    show(Table(("strategy", "messages", "MB", "latency ms", "p99", ""), rows, ("strategy", ""), ("p99", "MB"), title))
    click.echo(_verdict(advice))
    for note in advice.notes:
        click.echo(f"Note: {note}.")
    click.echo("\nFor the config of every broker:\n")
    for line in config_lines(advice):
        click.echo(f"    {line}")


def _verdict(advice: "Advice") -> str:
    saved = advice.saved
    lines = []
    if advice.present == advice.strategy:
        lines.append(f"Keep {advice.strategy}: no strategy serves this traffic better.")
    elif saved is None:
        lines.append(f"Use {advice.strategy}.")
    else:
        before = advice.costs[advice.present or ""]
        share = saved.messages / before.messages if before.messages else 0.0
        lines.append(
            f"Use {advice.strategy} instead of {advice.present}: {saved.messages:,} messages ({share:.0%}) and "
            f"{saved.bytes / 1e6:,.2f} MB fewer, {saved.latency_ms:+.1f} ms of latency saved."
        )
    if advice.samples:
        lines.append(f"{advice.confidence:.0%} of {advice.samples} samples of half the clients agree.")
    if advice.outside > 0.005:
        lines.append(f"{advice.outside:.1%} of the clients' actions happened in another broker's area.")
    if advice.areas is not None:
        lines.append(f"Areas where each broker is nearest would bring it to {advice.areas.cost.messages:,} messages.")
    if advice.places is not None:
        found = advice.places
        lines.append(
            f"{len(found.outline.brokers)} brokers at other locations, with {found.strategy}: {found.cost.messages:,}"
            f" messages, {found.km:,.0f} km to clients instead of {found.km_now:,.0f}."
        )
    return "\n".join(lines)
