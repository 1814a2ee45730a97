"""`geomq reproduce mesh`: the evaluation the federation mesh paper asks for."""

import json
import time
from dataclasses import asdict
from pathlib import Path

import click

from geomq.cli.output import check_files, overwrite_option, write_text
from geomq.extras import need

FILES = ("mesh.md", "mesh.json", "mesh-overlays.svg", "mesh-losses.svg")


@click.command(short_help="Federation mesh: theorems, overlays, losses.")
@click.option("--quick", is_flag=True, help="Two small sizes, one seed.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=1,
    show_default=True,
    help="Seed; the same seed gives the same numbers.",
)
@click.option("--master", help="A Spark master; local[*] if not given.")
@click.option("--out", type=click.Path(path_type=Path), help="Write tables, figures and rows to this directory.")
@overwrite_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable result.")
def mesh(quick: bool, seed: int, master: str | None, out: Path | None, overwrite: bool, as_json: bool) -> None:
    """Simulate federation meshes on five overlays: announcements, convergence, ways, and what survives losses.

    \b
    geomq reproduce mesh --quick
    geomq reproduce mesh --out results
    """
    started = time.monotonic()
    if out is not None:
        check_files(out, FILES, overwrite=overwrite)
    need("pyspark")
    from geomq.reproduction.mesh.on_spark import mesh_on_spark, mesh_runs
    from geomq.reproduction.mesh.report import claims, markdown, write_figures

    rows = mesh_on_spark(mesh_runs(seed=seed, quick=quick), master=master)
    wall_s = round(time.monotonic() - started, 1)
    text = markdown(rows)
    if as_json:
        document = {"claims": [claim._asdict() for claim in claims(rows)], "runs": [asdict(row) for row in rows]}
        click.echo(json.dumps(document | {"wall_s": wall_s}, indent=1))
    else:
        click.echo(f"{text}\n{len(rows)} runs in {wall_s} s")
    if out is not None:
        write_text(out / "mesh.md", text)
        write_text(out / "mesh.json", json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        write_figures(rows, out)
