"""`geomq pub`: publish an event, to a fence if asked."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Unpack

import click

from geomq.cli.mqtt_options import (
    FENCE_HELP,
    Reach,
    ReachCommand,
    fence_argument,
    make_client,
    reach_options,
    run_client,
)
from geomq.errors import UsageError


@click.command(cls=ReachCommand, short_help="Publish an event, optionally to a fence.")
@click.option("--topic", "-t", required=True, help="Topic to publish to.")
@click.option("--message", "-m", help="The payload.")
@click.option(
    "--file", "-f", type=click.Path(path_type=Path), help="Read the payload from a file; - is standard input."
)
@click.option("--lines", "-l", is_flag=True, help="Publish each line of standard input.")
@click.option("--stdin", "-s", "whole", is_flag=True, help="Publish all of standard input as one payload.")
@click.option(
    "--null", "-n", "empty", is_flag=True, help="Send an empty payload; with --retain this deletes the retained event."
)
@click.option("--to", "--within", "to", metavar="FENCE", help=f"Only to subscribers inside. {FENCE_HELP}")
@click.option("--from", "place", metavar="LAT,LON", help="Publish from this location, which receivers can see.")
@click.option("--qos", "-q", type=click.IntRange(0, 2), default=0, show_default=True)
@click.option("--retain", "-r", is_flag=True, help="Retain the event for later subscribers.")
@click.option("--expiry", type=click.IntRange(0, 4_294_967_295), help="Seconds until the event expires.")
@click.option("--property", "properties", multiple=True, metavar="KEY=VALUE", help="A user property; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print what was published as JSON.")
@reach_options
def pub(
    topic: str,
    message: str | None,
    file: Path | None,
    lines: bool,
    whole: bool,
    empty: bool,
    to: str | None,
    place: str | None,
    qos: int,
    retain: bool,
    expiry: int | None,
    properties: tuple[str, ...],
    as_json: bool,
    **reach: Unpack[Reach],
) -> None:
    """Publish one event, or one for each line of the input.

    \b
    geomq pub -t alarm/flood -m "leave now" --at 52.52,13.40 --to 52.52,13.40,5km -q 1
    geomq pub -t weather -f today.json --to @berlin.geojson --retain
    """
    if sum((message is not None, file is not None, lines, whole, empty)) != 1:
        raise UsageError("give one of --message, --file, --lines, --stdin or --null")
    source = Path("-") if whole else file
    user = tuple(_pair(text) for text in properties)
    fence = fence_argument(to)

    async def main() -> int:
        count = size = 0
        async with make_client(reach) as client:
            for payload in _payloads(message, source, lines):
                await client.publish(
                    topic, payload, to=fence, at=place, qos=qos, retain=retain, user=user, expiry_s=expiry
                )
                count, size = count + 1, size + len(payload)
        if as_json:
            click.echo(json.dumps({"topic": topic, "events": count, "bytes": size, "qos": qos, "fence": fence}))
        return 0

    sys.exit(run_client(main))


def _payloads(message: str | None, file: Path | None, lines: bool) -> Iterator[bytes]:
    if message is not None:
        yield message.encode("utf-8", "surrogateescape")
    elif lines:
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")
    elif file is not None:
        try:
            yield sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        except OSError as error:
            raise UsageError(f"{file}: cannot read it: {error.strerror}") from None
    else:
        yield b""


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--property {text!r} is not of the form KEY=VALUE")
    return key, value
