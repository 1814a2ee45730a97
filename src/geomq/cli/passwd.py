"""`geomq passwd`: add, change or remove a user of a password file."""

import sys
from pathlib import Path

import click

from geomq.broker.security.passwords import ITERATIONS_DEFAULT, ITERATIONS_MAX, delete_user, set_password
from geomq.errors import UsageError


@click.command(short_help="Add, change or remove a user of a password file.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("user")
@click.option("--delete", "-D", is_flag=True, help="Remove the user.")
@click.option(
    "--iterations",
    type=click.IntRange(1, ITERATIONS_MAX),
    default=ITERATIONS_DEFAULT,
    show_default=True,
    help="Iterations of the hash; more make guessing, and a client's first connect, slower.",
)
def passwd(file: Path, user: str, delete: bool, iterations: int) -> None:
    """Set the password of USER in FILE, or remove USER.

    The file is made if missing; Mosquitto reads it too. The password is asked for, or read from the first line of
    the standard input when that is not a terminal.

    \b
    geomq passwd users alice
    geomq passwd users alice < secret.txt
    geomq passwd --delete users alice
    """
    if delete:
        delete_user(file, user)
        click.echo(f"removed {user} from {file}", err=True)
        return
    password = _ask()
    if not password:
        raise UsageError("the password is empty")
    set_password(file, user, password.encode(), iterations=iterations)
    click.echo(f"set the password of {user} in {file}", err=True)


def _ask() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")
