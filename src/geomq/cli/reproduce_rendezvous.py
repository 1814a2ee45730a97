"""`geomq reproduce rendezvous`: the GeoRendezvous evaluation, computed again and put beside the paper."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geomq.cli.output import check_files, overwrite_option, write_text
from geomq.cli.workload import engine_options
from geomq.errors import UsageError
from geomq.extras import missing

if TYPE_CHECKING:
    from geomq.reproduction.rendezvous.findings import Findings
    from geomq.reproduction.rendezvous.study import Sample, StudyPlan

NETWORKS, PAIRS = 200, 20
# As many pairs in all as published, in fewer networks.
QUICK_NETWORKS, QUICK_PAIRS = 40, 100
NETWORKS_MAX = 10_000
FILES = ("rendezvous.md", "rendezvous.json", "rendezvous.png")


@click.command(short_help="The GeoRendezvous evaluation: Figure 3, signalling, Theorem 3.1.")
@click.option("--quick", is_flag=True, help=f"{QUICK_NETWORKS} networks of each size with more pairs in each.")
@click.option("--networks", type=int, help=f"Number of networks of each size; {NETWORKS}, as published, if not given.")
@click.option("--seed", default=1, show_default=True, help="Seed; the same seed gives the same numbers.")
@engine_options
@click.option("--out", type=click.Path(path_type=Path), help="Also write tables and figure to this directory.")
@overwrite_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable comparison.")
def rendezvous(
    quick: bool,
    networks: int | None,
    seed: int,
    engine: str,
    master: str | None,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Route through rendezvous cells in wireless networks of 80 to 3,000 nodes and compare with the paper.

    \b
    geomq reproduce rendezvous
    geomq reproduce rendezvous --quick --json
    """
    started = time.monotonic()
    plan = _plan(quick, networks, seed)
    if engine == "local" and master is not None:
        raise UsageError("--master needs --engine spark")
    if out is not None:
        check_files(out, FILES, overwrite=overwrite)
    from geomq.reproduction.rendezvous.findings import as_json as as_data
    from geomq.reproduction.rendezvous.findings import find, markdown

    if engine == "spark":
        from geomq.reproduction.rendezvous.on_spark import study_on_spark

        found = find(plan, study_on_spark(plan, master=master))
    else:
        found = find(plan, _study_locally(plan))
    data = as_data(found) | {"wall_s": round(time.monotonic() - started, 1), "engine": engine}
    if as_json:
        click.echo(json.dumps(data, indent=2))
    else:
        click.echo(markdown(found) + f"\n{data['wall_s']} s")
    if out is not None:
        _write(out, found, markdown(found), json.dumps(data, indent=2))


def _plan(quick: bool, networks: int | None, seed: int) -> "StudyPlan":
    if quick and networks is not None:
        raise UsageError("--quick chooses the number of networks; leave --networks out")
    count = QUICK_NETWORKS if quick else NETWORKS if networks is None else networks
    if not 1 <= count <= NETWORKS_MAX:
        raise UsageError(f"--networks must be 1 to {NETWORKS_MAX:,}, not {count:,}")
    if seed < 0:
        raise UsageError("--seed must not be negative")
    try:
        from geomq.reproduction.rendezvous.study import SIZES, StudyPlan
    except ImportError:
        raise missing("numba") from None
    return StudyPlan(sizes=SIZES, networks=count, pairs=QUICK_PAIRS if quick else PAIRS, seed=seed)


def _study_locally(plan: "StudyPlan") -> "dict[int, list[Sample]]":
    from geomq.reproduction.rendezvous.study import measure

    samples: dict[int, list[Sample]] = {}
    tasks = list(plan.tasks())
    for done, (nodes, number) in enumerate(tasks, 1):
        samples.setdefault(nodes, []).append(measure(nodes, number, plan))
        if sys.stderr.isatty():
            click.echo(f"\r{done:,}/{len(tasks):,} networks", err=True, nl=done == len(tasks))
    return samples


def _write(out: Path, found: "Findings", tables: str, data: str) -> None:
    from geomq.reproduction.rendezvous.figures import write_figure

    write_text(out / "rendezvous.md", tables)
    write_text(out / "rendezvous.json", data + "\n")
    write_figure(found, out / "rendezvous.png")
