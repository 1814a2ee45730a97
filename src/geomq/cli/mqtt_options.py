"""What `pub` and `sub` share: how to reach a broker, who is asking, and places on the command line."""

import asyncio
import re
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from geomq.cli.numbers import NumberRange
from geomq.errors import GeometryError, UsageError

if TYPE_CHECKING:
    from geomq.client import Client

FOREVER_S = 4_294_967_295
F = TypeVar("F", bound=Callable[..., Any])

FENCE_HELP = "A fence: 'lat,lon,5km', WKT, GeoJSON, 'geo:lat,lon;u=metres', or @FILE with one of these."
_ROUND = re.compile(r"\s*([^,\s]+)\s*,\s*([^,\s]+)\s*,\s*([0-9.eE+-]+)\s*(m|km)?\s*")


class Reach(TypedDict):
    """The shared options, as click passes them."""

    host: str
    port: int | None
    client_id: str | None
    username: str | None
    password: str | None
    at: str | None
    tls: bool
    cafile: str | None
    cert: str | None
    key: str | None
    insecure: bool
    websocket: bool
    path: str
    keep_alive: int
    timeout: float
    keep_session: bool
    session_expiry: int | None


def reach_options(command: F) -> F:
    """Add the shared options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option("--host", "-H", "-h", default="localhost", show_default=True, help="The broker."),
    click.option("--port", "-p", type=click.IntRange(1, 65_535), help="Its port; 1883, or 8883 with TLS."),
    click.option("--id", "-i", "client_id", help="Client id; assigned by the broker when not given."),
    click.option("--user", "-u", "username", help="User name."),
    click.option("--password", "-P", envvar="GEOMQ_PASSWORD", help="Password; better in GEOMQ_PASSWORD."),
    click.option("--at", metavar="LAT,LON", help="Location of this client."),
    click.option("--tls", is_flag=True, help="Connect with TLS; implied by --cafile and --cert."),
    click.option("--cafile", help="PEM authorities to trust instead of the system's."),
    click.option("--cert", help="PEM client certificate."),
    click.option("--key", help="PEM private key of --cert."),
    click.option("--insecure", is_flag=True, help="With TLS, trust any certificate. For tests only."),
    click.option("--websocket", is_flag=True, help="Connect by WebSocket."),
    click.option("--path", default="/mqtt", show_default=True, help="Path of the WebSocket."),
    click.option("--keep-alive", "-k", type=click.IntRange(1, 65_535), default=60, show_default=True, help="Seconds."),
    click.option("--timeout", type=NumberRange(0.1, 3_600), default=10.0, show_default=True, help="Seconds."),
    click.option("--keep-session", "-c", is_flag=True, help="Go on with the session of --id, and leave it behind."),
    click.option(
        "--session-expiry",
        "-x",
        type=click.IntRange(0, FOREVER_S),
        help="Seconds that the broker keeps the session; with --keep-session forever when not given.",
    ),
)


class ReachCommand(click.Command):
    """A command that reaches a broker: -h is its host where a name follows, and help where none does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        followed = zip(args, [*args, "-"][1:], strict=True)
        plain = ["--help" if one == "-h" and after.startswith("-") else one for one, after in followed]
        return super().parse_args(ctx, plain)


def make_client(reach: Reach, **more: Any) -> "Client":
    """The client these options describe."""
    from geomq.client import Client

    expiry_s, keeps = reach["session_expiry"], reach["keep_session"]
    if keeps and not reach["client_id"]:
        raise UsageError("--keep-session needs --id")
    if expiry_s is None:
        expiry_s = FOREVER_S if keeps else 0
    return Client(
        reach["host"],
        reach["port"],
        at=reach["at"],
        client_id=reach["client_id"],
        username=reach["username"],
        password=reach["password"],
        tls=_tls(reach) or False,
        websocket=reach["websocket"],
        path=reach["path"],
        keep_alive_s=reach["keep_alive"],
        timeout_s=reach["timeout"],
        clean_start=not keeps,
        session_expiry_s=expiry_s,
        end_session=not expiry_s,
        **more,
    )


def _tls(reach: Reach) -> ssl.SSLContext | None:
    cafile, cert = reach["cafile"], reach["cert"]
    if reach["key"] and not cert:
        raise UsageError("--key needs --cert")
    if not (reach["tls"] or cafile or cert or reach["insecure"]):
        return None
    try:
        context = ssl.create_default_context(cafile=cafile)
        if cert:
            context.load_cert_chain(cert, reach["key"])
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"cannot use {cert if cert else cafile}: {error}") from None
    if reach["insecure"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def fence_argument(text: str | None) -> str | None:
    """Fence text from the command line: a file's, the short circle, or as it is."""
    if text is None:
        return None
    if text.startswith("@"):
        try:
            with Path(text[1:]).open("rb") as file:
                text = file.read(1_048_576).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the fence from {text[1:]}: {error}") from None
    match = _ROUND.fullmatch(text)
    if match is None:
        return _checked_fence(text)
    try:
        radius_m = float(match[3]) * (1_000.0 if match[4] == "km" else 1.0)
    except ValueError:
        raise UsageError(f"{match[3]!r} is not a radius") from None
    return f"geo:{match[1]},{match[2]};u={radius_m:.3f}"


def _checked_fence(text: str) -> str:
    from geomq.geo import parse_fence

    try:
        parse_fence(text)
    except GeometryError as error:
        raise UsageError(f"{error}; a circle is written lat,lon,radius, such as 52.52,13.4,5km") from None
    return text


def run_client(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run to the end; an interrupt ends it quietly."""
    try:
        return asyncio.run(main())
    except KeyboardInterrupt:
        return 130
