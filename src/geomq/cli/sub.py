"""`geomq sub`: subscribe and print what arrives."""

import asyncio
import base64
import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Unpack

import click

from geomq.broker.operations.logs import printable
from geomq.cli.mqtt_options import (
    FENCE_HELP,
    Reach,
    ReachCommand,
    fence_argument,
    make_client,
    reach_options,
    run_client,
)
from geomq.cli.numbers import NumberRange
from geomq.errors import TopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from geomq.client import Client, Message

    Show = Callable[[Message], bytes]

TIMED_OUT = 27


@click.command(cls=ReachCommand, short_help="Subscribe and print the events received.")
@click.option("--topic", "-t", "topics", multiple=True, required=True, help="A topic filter; repeatable.")
@click.option("--within", "--from", "within", metavar="FENCE", help=f"Only events from inside. {FENCE_HELP}")
@click.option("--qos", "-q", type=click.IntRange(0, 2), default=0, show_default=True)
@click.option("--count", "-C", type=click.IntRange(min=1), help="Stop after this many events.")
@click.option("--wait", "-W", type=NumberRange(min=0, min_open=True), help="Stop after this many seconds.")
@click.option("--no-retained", "-R", is_flag=True, help="Leave out retained events.")
@click.option("--retained-only", is_flag=True, help="Only retained events.")
@click.option("--filter-out", "-T", "leave_out", multiple=True, help="Leave out topics of this filter; repeatable.")
@click.option("--subscribed", "-E", is_flag=True, help="Stop as soon as the broker has the subscriptions.")
@click.option("--format", "-F", "text", help="Print events so; the formats of mosquitto_sub.")
@click.option("--no-newline", "-N", is_flag=True, help="Print nothing after each event.")
@click.option("--verbose", "-v", is_flag=True, help="Print the topic before the payload.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@reach_options
def sub(
    topics: tuple[str, ...],
    within: str | None,
    qos: int,
    count: int | None,
    wait: float | None,
    no_retained: bool,
    retained_only: bool,
    leave_out: tuple[str, ...],
    subscribed: bool,
    text: str | None,
    no_newline: bool,
    verbose: bool,
    as_json: bool,
    **reach: Unpack[Reach],
) -> None:
    """Print every event that arrives, a line each, until interrupted. A terminal shows control characters spelt out,
    such as \\x1b; a pipe or a file gets the payload as it is.

    Connects again when the connection is lost, with growing pauses, and misses nothing of QoS 1 and 2 meanwhile. With
    --keep-session and --id this goes on from one run to the next.

    Stops with exit code 27 if --wait ends it before --count does.

    \b
    geomq sub -t 'alarm/#' --at 52.52,13.40
    geomq sub -t temperature --within 52.52,13.40,50km --json -q 1
    geomq sub -t '#' -F '%I %t %p' -T '$SYS/#'
    """
    fence = fence_argument(within)
    show = _printer(text, verbose=verbose, as_json=as_json)
    end = b"" if no_newline else b"\n"
    wanted = _wanted(leave_out, no_retained=no_retained, retained_only=retained_only)

    async def main() -> int:
        async with make_client(reach, reconnect=True) as client:
            for topic in topics:
                await client.subscribe(topic, within=fence, qos=qos, retain_handling=2 if no_retained else 0)
            if subscribed:
                return 0
            try:
                async with asyncio.timeout(wait):
                    await _print(client, count, wanted, lambda message: show(message) + end)
            except TimeoutError:
                return TIMED_OUT if count is not None else 0
        return 0

    sys.exit(run_client(main))


async def _print(client: "Client", count: int | None, wanted: "Callable[[Message], bool]", show: "Show") -> None:
    out = sys.stdout.buffer
    seen = 0
    async for message in client:
        if not wanted(message):
            continue
        out.write(show(message))
        out.flush()
        seen += 1
        if seen == count:
            return


def _wanted(leave_out: tuple[str, ...], *, no_retained: bool, retained_only: bool) -> "Callable[[Message], bool]":
    """Which events are printed."""
    from geomq.mqtt.codec.topics import check_filter, topic_matches

    for each in leave_out:
        try:
            check_filter(each)
        except TopicError as error:
            raise UsageError(f"--filter-out: {error}") from None

    def wanted(message: "Message") -> bool:
        if (message.retain and no_retained) or (retained_only and not message.retain):
            return False
        return not any(topic_matches(each, message.topic) for each in leave_out)

    return wanted


def _printer(text: str | None, *, verbose: bool, as_json: bool) -> "Show":
    """How an event is printed."""
    if text is not None:
        from geomq.cli.message_format import Arrival, read_format

        filled = read_format(text)
        return lambda message: filled(Arrival(message, time.time_ns()))
    if as_json:
        return lambda message: json.dumps(as_dict(message), ensure_ascii=False).encode()
    return lambda message: _plain(message, verbose=verbose)


def _plain(message: "Message", *, verbose: bool) -> bytes:
    topic = printable(message.topic).encode() + b" " if verbose else b""
    return topic + (_shown(message.payload) if sys.stdout.isatty() else message.payload)


def _shown(payload: bytes) -> bytes:
    """A payload as one line that cannot steer the terminal."""
    return printable(payload.decode(errors="backslashreplace")).encode()


def as_dict(message: "Message") -> dict[str, Any]:
    """The event as plain data; a binary payload is given in base64."""
    found: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "topic": message.topic,
        "qos": message.qos,
        "retain": message.retain,
    }
    try:
        found["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        found["payload_base64"] = base64.b64encode(message.payload).decode()
    if message.location is not None:
        found["location"] = list(message.location)
    if message.user:
        found["user"] = [list(pair) for pair in message.user]
    for name in ("content_type", "response_topic", "expiry_s"):
        if getattr(message, name) is not None:
            found[name] = getattr(message, name)
    if message.correlation_data is not None:
        found["correlation_data_base64"] = base64.b64encode(message.correlation_data).decode()
    return found
