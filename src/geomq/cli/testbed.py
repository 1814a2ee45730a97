"""`geomq testbed`: brokers, links, clients and a workload from one file."""

import json
import sys
from pathlib import Path

import click


@click.command(short_help="Run a workload on real brokers with emulated links.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Directory for traces, logs and client records."
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable report.")
def testbed(file: Path, out: Path, as_json: bool) -> None:
    """Start the brokers of FILE on this machine, link them as it says, run its workload, stop and collect everything.

    \b
    geomq testbed hiking.toml --out run
    geomq analyse run --out results
    """
    from geomq.cli.replay import describe
    from geomq.testbed.plan_load import load_plan
    from geomq.testbed.runner import run_testbed

    def say(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"{text} ...", err=True)

    report = run_testbed(load_plan(file), out, say=say)
    if as_json:
        document = {"directory": str(out), "replay": report.replay.as_json(), "brokers": report.brokers}
        click.echo(json.dumps(document, indent=1))
    else:
        click.echo(describe(report.replay))
        click.echo(f"{out}: traces, logs and client records")
