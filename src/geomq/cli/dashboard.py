"""`geomq dashboard`: the page for brokers that run elsewhere, and for recorded things."""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geomq.errors import UsageError

if TYPE_CHECKING:
    from geomq.dashboard.feed import Feed
    from geomq.dashboard.page_clients import Credentials
    from geomq.dashboard.recorded import View
    from geomq.dashboard.server import Doors
    from geomq.pipeline.simulation import Scenario


@click.command(short_help="Show a running federation or a recording on a map.")
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
@click.option("--admin", multiple=True, metavar="URL", help="Admin API of a broker to show; may be repeated.")
@click.option("--admin-token-file", type=click.Path(path_type=Path), help="File with the token of the admin APIs.")
@click.option("--setup", multiple=True, metavar="BROKERS,CLIENTS", help="Show the set-up of geomq simulate.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to bind; off loopback a login is required."
)
@click.option(
    "--port",
    "-p",
    default=9884,
    show_default=True,
    type=click.IntRange(0, 65_535),
    help="Port to bind; 0 picks a free one.",
)
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the login token.")
@click.option(
    "--admin-rights", is_flag=True, help="Allow publishing, moving clients and changing the strategy from the page."
)
@click.option("--certfile", type=click.Path(path_type=Path), help="PEM certificate, to serve HTTPS.")
@click.option("--keyfile", type=click.Path(path_type=Path), help="PEM private key for certfile.")
@click.option("--username", "-u", help="User name of the page's MQTT clients.")
@click.option("--password", envvar="GEOMQ_PASSWORD", help="Their password; better in GEOMQ_PASSWORD.")
def dashboard(
    directories: tuple[Path, ...],
    admin: tuple[str, ...],
    admin_token_file: Path | None,
    setup: tuple[str, ...],
    host: str,
    port: int,
    token_file: Path | None,
    admin_rights: bool,
    certfile: Path | None,
    keyfile: Path | None,
    username: str | None,
    password: str | None,
) -> None:
    """Serve the page for brokers that run elsewhere, by their admin APIs, and for recorded DIRECTORIES.

    A directory is what `geomq workload`, `geomq evaluate --out` or a trace wrote. Off loopback people log in with the
    token of --token-file; without one a token is made and printed, once. The page only shows, unless --admin-rights.

    \b
    geomq dashboard --admin http://127.0.0.1:9883
    geomq dashboard results
    geomq dashboard --setup 256,2000
    """
    from geomq.broker.operations.admin_server import read_token
    from geomq.broker.operations.http_server import Certificate
    from geomq.dashboard.page_clients import Credentials
    from geomq.dashboard.server import Doors

    if not (directories or admin or setup):
        raise UsageError("nothing to show: name a directory, --admin or --setup")
    if keyfile is not None and certfile is None:
        raise UsageError("--keyfile needs --certfile")
    doors = Doors(
        host=host,
        port=port,
        token=None if token_file is None else read_token(token_file),
        admin=admin_rights,
        certificate=None if certfile is None else Certificate(certfile, keyfile),
    )
    admin_token = None if admin_token_file is None else read_token(admin_token_file)
    views = read_all_views(directories, setup)
    asyncio.run(_serve(admin, admin_token, views, doors, Credentials(username, password)))


async def _serve(
    urls: tuple[str, ...], token: str | None, views: "list[View]", doors: "Doors", credentials: "Credentials"
) -> None:
    from geomq.broker.config.settings import is_loopback
    from geomq.dashboard.remote_feed import RemoteFeed
    from geomq.dashboard.server import Dashboard

    feeds: list[Feed] = [await RemoteFeed.connect(url, token) for url in urls]
    async with Dashboard(feeds, doors, views=views, credentials=credentials) as page:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        click.echo(f"Dashboard: {page.url}")
        if page.token is not None and doors.token is None:
            click.echo(f"Log in with this token; it is not shown again: {page.token}")
        if page.token is not None and doors.certificate is None and not is_loopback(doors.host):
            click.echo("The page is served without encryption; give --certfile, or put a TLS proxy in front of it.")
        click.echo("Ctrl-C stops it.")
        await stop.wait()


def read_all_views(directories: tuple[Path, ...], setups: tuple[str, ...]) -> "list[View]":
    """The views of directories and set-ups, each with an id of its own."""
    from geomq.dashboard.recorded_files import read_views, workload_view

    views = [view for directory in directories for view in read_views(directory)]
    for text in setups:
        scenario = _scenario(text)
        title = f"Set-up: {scenario.brokers} brokers, {scenario.clients:,} clients"
        view_id = f"setup-{scenario.brokers}-{scenario.clients}"
        views.append(workload_view(view_id, title, scenario.world(), scenario.workload()))
    if len({view.id for view in views}) != len(views):
        raise UsageError("two of the directories have the same name")
    return views


def _scenario(text: str) -> "Scenario":
    from geomq.pipeline.simulation import Scenario

    brokers, _, clients = text.partition(",")
    if not (brokers.isdecimal() and clients.isdecimal()):
        raise UsageError(f"--setup must be BROKERS,CLIENTS, such as 25,500, not {text!r}")
    return Scenario(brokers=int(brokers), clients=int(clients), seconds=60, topics=1000, preset="steady", seed=1)
