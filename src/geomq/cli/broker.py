"""`geomq broker`: run one MQTT broker."""

import sys
from pathlib import Path

import click


@click.command(short_help="Run one MQTT broker.")
@click.option(
    "--config", "-c", "file", type=click.Path(path_type=Path), help="A geomq.toml; defaults apply without one."
)
@click.option("--port", "-p", type=click.IntRange(0, 65_535), help="Port of the plain listener; 0 picks a free one.")
@click.option("--print-config", is_flag=True, help="Print every setting in effect, as TOML with comments, and stop.")
def broker(file: Path | None, port: int | None, print_config: bool) -> None:
    """Run a broker until SIGTERM; SIGHUP reads the config file again.

    Without a file it listens on localhost, port 1883, lets everybody on this machine in, and keeps its data in
    ./geomq-data.

    \b
    geomq broker
    geomq broker -c geomq.toml
    geomq broker --print-config > geomq.toml
    """
    from geomq.broker.config import Config
    from geomq.broker.config_load import default_config, load_config, with_port

    def load() -> Config:
        config = default_config() if file is None else load_config(file)
        return config if port is None else with_port(config, port)

    config = load()
    if print_config:
        from geomq.broker.config_text import config_text

        click.echo(config_text(config), nl=False)
        return
    from geomq.broker.server import run

    sys.exit(run(config, reload=load))
