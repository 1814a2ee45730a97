"""`geomq broker`: run one MQTT broker."""

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geomq.cli.own_strategies import look_here

if TYPE_CHECKING:
    from geomq.broker.config.settings import Config


@click.command(short_help="Run one MQTT broker.")
@click.option(
    "--config",
    "-c",
    "file",
    type=click.Path(path_type=Path),
    help="Config file, such as geomq.toml; without one, the defaults apply.",
)
@click.option("--port", "-p", type=click.IntRange(0, 65_535), help="Port of the plain listener; 0 picks a free one.")
@click.option(
    "--print-config",
    is_flag=True,
    help="Check the config, print every setting in effect as TOML with comments, and exit.",
)
def broker(file: Path | None, port: int | None, print_config: bool) -> None:
    """Run a broker until SIGTERM; SIGHUP reads the config file again.

    Without a file it listens on localhost, port 1883, accepts every client on this machine, and keeps its data in
    ./geomq-data.

    \b
    geomq broker
    geomq broker -c geomq.toml
    geomq broker --print-config > geomq.toml
    """
    from geomq.broker.config.load import default_config, load_config, with_port

    def load() -> "Config":
        config = default_config() if file is None else load_config(file)
        look_here([config.routing.strategy])
        return config if port is None else with_port(config, port)

    config = load()
    if print_config:
        from geomq.broker.config.text import config_text

        click.echo(config_text(config), nl=False)
        _check(config)
        return
    from geomq.broker.server import run

    sys.exit(run(config, reload=load))


def _check(config: "Config") -> None:
    """Refuse what starting would, as far as that shows without opening ports and data: files, certificates, areas and
    the strategy."""
    from geomq.broker.peers.federating import credentials_of, description_of, tls_of
    from geomq.broker.server import load_security
    from geomq.broker.sockets.tls import tls_context
    from geomq.routing.core.model import BrokerId
    from geomq.routing.node import Node

    load_security(config)
    for listener in config.listeners:
        if listener.tls:
            tls_context(listener)
    Node(me=BrokerId(config.broker.name), description=description_of(config), rng=random.Random(0))
    if config.peers or config.federation.port is not None or config.federation.seed is not None:
        tls_of(config)
        credentials_of(config)
