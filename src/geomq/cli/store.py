"""`geomq store`: look at a broker's store while the broker is stopped, and repair a damaged one."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from geomq.broker.storage.repair import Findings

LINES_MAX = 200
"""So many losses are listed one by one."""

_FOLDER = click.argument("path", type=click.Path(path_type=Path))
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Machine-readable findings.")


@click.group(short_help="Check and repair the store of a broker.")
def store() -> None:
    """Look at the store of a stopped broker, or repair it.

    A broker that finds its store damaged does not start, because it would have lost what it acknowledged.
    The store is the folder `store` in the data directory, unless [persistence] path says otherwise.
    """


@store.command(short_help="Say whether a store is sound, and what is lost.")
@_FOLDER
@_AS_JSON
def check(path: Path, as_json: bool) -> None:
    """Read everything in the store at PATH and say what cannot be read. Changes nothing; needs room for a copy.

    Exit code 0 if the store is sound, 1 if it is damaged.

    \b
    geomq store check geomq-data/store
    """
    from geomq.broker.storage.repair import check_store

    findings = check_store(str(path))
    _tell(path, findings, as_json)
    if findings.problem is not None:
        click.echo(f"save the rest with `geomq store repair {path}`", err=as_json)
        sys.exit(1)


@store.command(short_help="Save what can be read of a damaged store.")
@_FOLDER
@_AS_JSON
def repair(path: Path, as_json: bool) -> None:
    """Replace the damaged store at PATH by a new one with all that can be read, and list what could not be saved.

    The damaged folder is kept beside it. What was changed in lost batches is as it was before them: a message that
    was delivered may come again.

    \b
    geomq store repair geomq-data/store
    """
    from geomq.broker.storage.repair import repair_store

    findings = repair_store(str(path))
    _tell(path, findings, as_json)
    if findings.copy is not None and not as_json:
        click.echo(f"repaired {path}; the damaged folder is now {findings.copy}")


def _tell(path: Path, findings: "Findings", as_json: bool) -> None:
    if as_json:
        found = {"problem": findings.problem, "lost": findings.lost, "readable": findings.kept, "copy": findings.copy}
        click.echo(json.dumps({"store": str(path), **found}, indent=2))
        return
    click.echo(findings.problem or f"store {path} is sound")
    for line in findings.lost[:LINES_MAX]:
        click.echo(f"lost: {line}")
    if len(findings.lost) > LINES_MAX:
        click.echo(f"lost: {len(findings.lost) - LINES_MAX} more")
    held = ", ".join(f"{count} {what}" for what, count in sorted(findings.kept.items()))
    click.echo(f"readable: {held or 'nothing'}")
