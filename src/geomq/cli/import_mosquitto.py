"""`geomq import-mosquitto`: turn a mosquitto.conf into a geomq.toml."""

import sys
from pathlib import Path

import click

from geomq.errors import UsageError

NOT_WRITTEN = 1


@click.command("import-mosquitto", short_help="Convert a mosquitto.conf to a geomq.toml.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--output", "-o", default="geomq.toml", show_default=True, help="File to write; - is standard output.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--lossy", is_flag=True, help="Write the file even if it may give somebody more access than FILE does.")
def import_mosquitto(file: Path, output: str, force: bool, lossy: bool) -> None:
    """Write a geomq.toml that does what FILE, a mosquitto.conf, does.

    What could not be carried over is listed on the standard error, a line each. If any of it decides who may come in or
    what they may do, nothing is written and the exit code is 1, unless --lossy is given.

    \b
    geomq import-mosquitto /etc/mosquitto/mosquitto.conf
    geomq broker -c geomq.toml
    """
    from geomq.broker.config.mosquitto_conf import import_mosquitto as translate

    imported = translate(file)
    for line in imported.opening:
        click.echo(line, err=True)
    if imported.opening and not lossy:
        told = "nothing is written: without these, access might not be the same; --lossy writes it all the same"
        click.echo(told, err=True)
        sys.exit(NOT_WRITTEN)
    if output == "-":
        click.echo(imported.toml, nl=False)
    else:
        _write(Path(output), imported.toml, force=force)
    for note in imported.notes:
        click.echo(note, err=True)


def _write(target: Path, text: str, *, force: bool) -> None:
    if target.exists() and not force:
        raise UsageError(f"{target} already exists; give --force to replace it or -o for another name")
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{target}: cannot write it: {error.strerror}") from None
    click.echo(f"wrote {target}", err=True)
