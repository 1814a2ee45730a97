"""`geomq report`: tables and figures from a directory of results."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geomq.cli.output import check_files, overwrite_option, write_text

if TYPE_CHECKING:
    from geomq.workload.evaluation.report import RunTable


@click.command(short_help="Make tables and figures from results.")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "style",
    type=click.Choice(["terminal", "markdown", "csv", "json"]),
    default="terminal",
    show_default=True,
    help="How to print the tables.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Also write report.md, .csv, .html and figures.")
@overwrite_option
@click.option("--json", "style", flag_value="json", help="Machine-readable tables, like --format json.")
def report(directory: Path, style: str, out: Path | None, overwrite: bool) -> None:
    """Print what `geomq evaluate` or `geomq analyse` found; with --out also write it down, figures included.

    \b
    geomq evaluate --preset paper --out results
    geomq report results --out report
    """
    from geomq.workload.evaluation.figures import figure_names, page, write_figures
    from geomq.workload.evaluation.report import as_data, check_tables, comma_separated, markdown, run_tables
    from geomq.workload.evaluation.results import read_results

    results = read_results(directory)
    if out is not None:
        check_files(out, ["report.md", "report.csv", "report.html", *figure_names(results)], overwrite=overwrite)
    tables, checks = run_tables(results), check_tables(results)
    if style == "markdown":
        click.echo(markdown(tables, checks), nl=False)
    elif style == "csv":
        click.echo(comma_separated(results), nl=False)
    elif style == "json":
        click.echo(json.dumps(as_data(results), indent=2))
    else:
        _print(tables, checks)
    if out is not None:
        write_text(out / "report.md", markdown(tables, checks))
        write_text(out / "report.csv", comma_separated(results))
        write_text(out / "report.html", page(results))
        paths = write_figures(results, out)
        click.echo(f"{out}: report.md, report.csv, report.html and {len(paths)} figures", err=True)


def _print(tables: "list[RunTable]", checks: "list[RunTable]") -> None:
    from geomq.cli.tables import Table, show
    from geomq.workload.evaluation.report import CHECKED, HEADERS, KINDS, cell

    for shown in tables:
        rows = [[cell(value) for value in row] for row in shown.rows]
        spare = ("p75", "p50", "delay mean", "latency std", "redundant", "p99", *reversed(KINDS))
        show(Table(HEADERS, rows, ("strategy",), spare, shown.title, shown.caption))
    for shown in checks:
        rows = [[cell(value) for value in row] for row in shown.rows]
        spare = ("possible", "required", "redundant")
        show(Table(CHECKED, rows, ("broker",), spare, shown.title, shown.caption))
