"""`geomq analyse`: what really happened in live runs, from the records of brokers and clients."""

import json
from pathlib import Path

import click


@click.command(short_help="Analyse live runs on Spark.")
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Directory for the results.")
@click.option("--master", help="A Spark master; local[*] if not given.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def analyse(runs: tuple[Path, ...], out: Path, master: str | None, as_json: bool) -> None:
    """Join the traces and client records of RUNS, directories of `geomq testbed`, and write results.

    \b
    geomq testbed hiking.toml --out run
    geomq analyse run --out results
    geomq report results
    """
    from geomq.cli.evaluate import as_data
    from geomq.pipeline.analyse_results import analyse as run_analysis
    from geomq.workload.files import check_new

    check_new(out)
    analysis = run_analysis(runs, master=master, out=out)
    if as_json:
        click.echo(
            json.dumps(as_data(analysis.outcomes) | {"checks": [c._asdict() for c in analysis.checks]}, indent=1)
        )
        return
    lost, doubled = sum(check.lost for check in analysis.checks), sum(check.duplicated for check in analysis.checks)
    unexpected = sum(check.unexpected for check in analysis.checks)
    received = sum(check.received for check in analysis.checks)
    click.echo(f"{received:,} deliveries: {lost:,} lost, {doubled:,} doubled, {unexpected:,} unexpected")
    click.echo(f"{out}: see geomq report {out}")
