"""`geomq archive`: land events as Parquet, compact them, and answer the usual questions about them."""

import datetime
import json
import sys
from pathlib import Path
from typing import Any

import click

from geomq.cli.numbers import NumberRange
from geomq.errors import UsageError

JOBS = ("rates", "density", "latency")


@click.group(short_help="Archive events as Parquet, by day and place.")
def archive() -> None:
    """Keep events as Parquet files, partitioned by date and cell, and ask about them.

    \b
    geomq archive land --brokers 127.0.0.1:1883 --topic 'sensors/#' archive
    geomq archive compact archive
    geomq archive report rates archive
    """


@archive.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--brokers", required=True, help="host:port, several separated by commas; mqtts://... for TLS.")
@click.option("--topic", default="#", show_default=True, help="Topic filter.")
@click.option("--fence", help="Only events published inside this fence: WKT, GeoJSON or a geo URI.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another option of the Spark source; may be repeated.",
)
@click.option("--every", default="10 seconds", show_default=True, help="Time between writes.")
@click.option("--admin", "admins", multiple=True, metavar="ADDRESS", help="Admin API of a broker, for snapshots.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the token of the admin APIs.")
@click.option(
    "--snapshot-every",
    default=600.0,
    type=NumberRange(1),
    metavar="SECONDS",
    show_default=True,
    help="Seconds between snapshots of clients, locations and subscriptions.",
)
@click.option("--once", is_flag=True, help="Land the events now queued at the brokers, then stop.")
@click.option("--master", help="A Spark master such as spark://host:7077; local[*] if not given.")
def land(
    directory: Path,
    brokers: str,
    topic: str,
    fence: str | None,
    options: tuple[str, ...],
    every: str,
    admins: tuple[str, ...],
    token_file: Path | None,
    snapshot_every: float,
    once: bool,
    master: str | None,
) -> None:
    """Subscribe and land events in DIRECTORY until stopped. Started again it goes on where it was; nothing that was
    acknowledged is lost. With --admin the archive also keeps who subscribed where, which geomq advise needs."""
    given = _source(directory, brokers, topic, fence, options)
    from geomq.pipeline.recent import Admin, read_token
    from geomq.pipeline.session import spark_session
    from geomq.pipeline.snapshots import Snapshots, take_snapshot
    from geomq.pipeline.streaming.archived import prepare_archive
    from geomq.pipeline.streaming.landing import check_time, land_events
    from geomq.pipeline.streaming.options import source_options

    source_options(given)
    check_time(every)
    asked = [Admin(address, read_token(token_file)) for address in admins]
    prepare_archive(directory)
    if asked:
        take_snapshot(directory, asked)
    snapshots = Snapshots(directory, asked, every_s=snapshot_every, complain=lambda text: click.echo(text, err=True))
    with spark_session(master) as spark:
        if sys.stderr.isatty():
            click.echo(f"landing events in {directory}; Ctrl-C stops", err=True)
        query = land_events(spark, given, directory, every=None if once else every)
        if asked and not once:
            snapshots.start()
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
        finally:
            snapshots.stop()


def _source(directory: Path, brokers: str, topic: str, fence: str | None, options: tuple[str, ...]) -> dict[str, str]:
    """The options of the Spark source."""
    given = {"brokers": brokers, "topic": topic, "spool": str(directory.absolute() / "_spool")}
    if fence is not None:
        given["fence"] = fence
    for text in options:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--option {text!r} is not of the form NAME=VALUE")
        given[name] = value
    return given


@archive.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--date", help="Only this day, such as 2026-05-04.")
@click.option("--master", help="A Spark master such as spark://host:7077; local[*] if not given.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def compact(directory: Path, date: str | None, master: str | None, as_json: bool) -> None:
    """Make one file of each day and cell of the archive in DIRECTORY, and remove repeats. Not while it is landing on
    the same day: the day that is over is the one to compact."""
    from geomq.pipeline.session import spark_session
    from geomq.pipeline.streaming.archived import check_archive
    from geomq.pipeline.streaming.archived import compact as run

    check_archive(directory)
    try:
        date = None if date is None else datetime.date.fromisoformat(date).isoformat()
    except ValueError:
        raise UsageError(f"--date {date!r} is not a day such as 2026-05-04") from None
    with spark_session(master) as spark:
        before, after = run(spark, directory.absolute(), date=date)
    if as_json:
        click.echo(json.dumps({"files_before": before, "files_after": after}))
    else:
        click.echo(f"{before} files compacted to {after}" if before else "nothing to compact")


@archive.command()
@click.argument("job", type=click.Choice(JOBS))
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--window", default="1 minute", show_default=True, help="Length of the windows of event time.")
@click.option("--out", type=click.Path(path_type=Path), help="Write Parquet here instead of printing JSON lines.")
@click.option("--master", help="A Spark master such as spark://host:7077; local[*] if not given.")
def report(job: str, directory: Path, window: str, out: Path | None, master: str | None) -> None:
    """Compute rates, density or delivery latency from the archive in DIRECTORY."""
    if out is not None and out.exists():
        raise UsageError(f"{out} already exists; choose another directory")
    from pyspark.sql.functions import struct, to_json

    from geomq.pipeline.session import spark_session
    from geomq.pipeline.streaming import jobs
    from geomq.pipeline.streaming.archived import check_archive
    from geomq.pipeline.streaming.landing import check_time

    check_archive(directory)
    check_time(window)
    with spark_session(master) as spark:
        events = spark.read.format("geomq").load(str(directory.absolute()))
        found: Any = getattr(jobs, job)(events, window=window).orderBy("start")
        if out is not None:
            found.write.parquet(str(out))
        else:
            for row in found.select(to_json(struct("*"))).toLocalIterator():
                click.echo(row[0])
