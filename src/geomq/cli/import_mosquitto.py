"""`geomq import-mosquitto`: turn a mosquitto.conf into a geomq.toml."""

from pathlib import Path

import click

from geomq.errors import UsageError


@click.command("import-mosquitto", short_help="Convert a mosquitto.conf to a geomq.toml.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--output", "-o", default="geomq.toml", show_default=True, help="File to write; - is standard output.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def import_mosquitto(file: Path, output: str, force: bool) -> None:
    """Write a geomq.toml that does what FILE, a mosquitto.conf, does.

    What could not be carried over is listed on the standard error, a line each.

    \b
    geomq import-mosquitto /etc/mosquitto/mosquitto.conf
    geomq broker -c geomq.toml
    """
    from geomq.broker.config.mosquitto_conf import import_mosquitto as translate

    imported = translate(file)
    if output == "-":
        click.echo(imported.toml, nl=False)
    else:
        target = Path(output)
        if target.exists() and not force:
            raise UsageError(f"{target} already exists; give --force to replace it or -o for another name")
        try:
            target.write_text(imported.toml, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{target}: cannot write it: {error.strerror}") from None
        click.echo(f"wrote {target}", err=True)
    for note in imported.notes:
        click.echo(note, err=True)
