"""`geomq peers`: see and change the federation of a running broker, through its admin API."""

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from geomq.broker.operations.admin_address import check_address
from geomq.cli.tables import Table
from geomq.cli.tables import show as show_table
from geomq.errors import UsageError

ANSWER_S_MAX = 30.0
POLL_S = 0.2
SILENT_S = 3.0


class Admin:
    """The admin API of one broker."""

    def __init__(self, url: str, token_file: Path | None) -> None:
        self._headers = {"Content-Type": "application/json"}
        token = _read(token_file)
        self._root = check_address(url, token).rstrip("/") + "/api/v1/federation"
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(self, method: str, path: str = "", body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self._root + path, data, self._headers, method=method)
            with urllib.request.urlopen(request, timeout=ANSWER_S_MAX) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            raise UsageError(_reason(error)) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise UsageError(
                f"cannot reach an admin API at {self._root.removesuffix('/api/v1/federation')}: {reason}"
            ) from None


def _read(token_file: Path | None) -> str | None:
    try:
        return None if token_file is None else token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {token_file}: {error}") from None


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"])
    except (ValueError, KeyError, TypeError):
        return f"the broker answered {error.code}"


@click.group(short_help="See and change the federation of a running broker.")
@click.option(
    "--admin", default="http://127.0.0.1:9883", show_default=True, help="Admin API of any broker of the federation."
)
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the admin API's bearer token.")
@click.pass_context
def peers(context: click.Context, admin: str, token_file: Path | None) -> None:
    """Brokers, areas and strategy of a federation, while it runs. Every change reaches all brokers.

    \b
    geomq peers list
    geomq peers add rome rome.example:1884 41.9,12.5 --dry-run
    geomq peers remove rome
    geomq peers areas grid --degrees 6
    geomq peers strategy dht
    """
    context.obj = Admin(admin, token_file)


def _changing(command: Callable[..., None]) -> Callable[..., None]:
    """The options that all changes have in common."""
    command = click.option("--dry-run", is_flag=True, help="Only print what would change.")(command)
    command = click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until all brokers follow.")(
        command
    )
    return click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")(command)


@peers.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.pass_obj
def show(admin: Admin, as_json: bool) -> None:
    """Print the brokers, their areas and the strategy."""
    found = admin.ask("GET")
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    edition = found["edition"]
    made = f"edition {edition['number']} by {edition['origin']}" if edition["number"] else "as configured"
    click.echo(f"{_brokers(found)}, strategy {found['strategy']}, areas {found['areas']['kind']}; {made}.")
    headers = ("broker", "address", "location", "state")
    rows = [_row(broker, found["me"]) for broker in found["brokers"]]
    show_table(Table(headers, rows, headers, spare=("location",)))
    if found["change"] is not None:
        click.echo(_under_way(found["change"]))


def _brokers(found: dict[str, Any]) -> str:
    count = len(found["brokers"])
    return f"{count} broker{'' if count == 1 else 's'}"


def _row(broker: dict[str, Any], me: str) -> list[str]:
    place = "nowhere" if broker["location"] is None else "{:g},{:g}".format(*broker["location"])
    if broker["name"] == me:
        state = "this one"
    elif broker["latency_ms"] is not None:
        state = f"connected, {broker['latency_ms']:.1f} ms"
    else:
        state = "connected" if broker["connected"] else "not connected"
    return [broker["name"], broker["address"] or "-", place, state]


def _under_way(change: dict[str, Any]) -> str:
    waiting = ", ".join(change["waiting_for"]) or "no broker; the old routing ends soon"
    problems = "".join(f"; {name}: {reason}" for name, reason in change["problems"].items())
    return f"A change is in progress ({change['phase']}), waiting for {waiting}{problems}."


@peers.command()
@click.argument("name")
@click.argument("address")
@click.argument("location")
@click.option("--area", help="Its area as a fence, when areas are given.")
@click.option("--strategy", help="The new strategy; required if the broker has no peers yet.")
@_changing
@click.pass_obj
def add(
    admin: Admin, /, name: str, address: str, location: str, area: str | None, strategy: str | None, **how: Any
) -> None:
    """Add the broker NAME, which other brokers reach at ADDRESS (host:port), at LOCATION (lat,lon)."""
    if not re.fullmatch(r".+:\d{1,5}", address):
        raise UsageError(f"ADDRESS {address!r} is not of the form host:port")
    body = {"name": name, "address": address, "location": location, "area": area, "strategy": strategy}
    _change(admin, "POST", "/peers", body, **how)


@peers.command()
@click.argument("name")
@_changing
@click.pass_obj
def remove(admin: Admin, /, name: str, **how: Any) -> None:
    """Remove the broker NAME. Its clients' acknowledged events are delivered first, if it can be reached."""
    _change(admin, "DELETE", f"/peers/{quote(name, safe='')}", None, **how)


@peers.command()
@click.argument("kind", type=click.Choice(["nearest", "grid", "given"]))
@click.option("--degrees", type=int, help="Width of the squares of a grid, in degrees.")
@click.option("--file", type=click.Path(path_type=Path), help="JSON file with the fence of every broker, by name.")
@_changing
@click.pass_obj
def areas(admin: Admin, /, kind: str, degrees: int | None, file: Path | None, **how: Any) -> None:
    """Redraw all areas: by the nearest broker, as squares of a grid, or as given fences."""
    for option, given, needed_by in (("--degrees", degrees, "grid"), ("--file", file, "given")):
        if (given is not None) != (kind == needed_by):
            raise UsageError(f"{option} is required by 'areas {needed_by}' and not allowed otherwise")
    body: dict[str, Any] = {"kind": kind}
    if degrees is not None:
        body["grid_deg"] = degrees
    if file is not None:
        try:
            body["areas"] = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"{file}: {error}") from None
    _change(admin, "PUT", "/areas", body, **how)


@peers.command()
@click.argument("name")
@click.option(
    "--option", "-o", "options", multiple=True, metavar="KEY=VALUE", help="An option of the strategy, as JSON."
)
@_changing
@click.pass_obj
def strategy(admin: Admin, /, name: str, options: tuple[str, ...], **how: Any) -> None:
    """Switch all brokers to the strategy NAME."""
    _change(admin, "POST", "/strategy", {"strategy": name, "options": dict(map(_option, options))}, **how)


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"an option must be KEY=VALUE, not {text!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _wait(admin: Admin) -> None:
    """Until all brokers follow; if that takes long, say whom it waits for."""
    said, speak_at = "", time.monotonic() + SILENT_S
    while (change := admin.ask("GET")["change"]) is not None and change["phase"] != "drained":
        line = _under_way(change)
        if line != said and time.monotonic() > speak_at:
            click.echo(f"{line} Ctrl-C stops waiting, not the change.", err=True)
            said = line
        time.sleep(POLL_S)


def _change(admin: Admin, method: str, path: str, body: object, *, dry_run: bool, wait: bool, as_json: bool) -> None:
    found = admin.ask(method, f"{path}?dry_run={int(dry_run)}", body)
    if wait and not dry_run:
        _wait(admin)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if not found["changed"]:
        click.echo("Nothing changes.")
        return
    state = "would be in force" if dry_run else "is in force" if wait else "is in progress"
    click.echo(f"Edition {found['edition']['number']} {state}: {_brokers(found)}, {found['strategy']}.")
    for move in found["moves"]:
        click.echo(f"  {move['km2']:,.0f} km2 from {move['from'] or 'nobody'} to {move['to'] or 'nobody'}")
    if found["clients_outside"]:
        click.echo(
            f"  {found['clients_outside']} clients of this broker {'would be' if dry_run else 'are'} outside its area"
        )
