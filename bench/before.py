"""`python -m bench.before TREE`: what a change costs. Quick measurements of GeoMQ from two trees, taken in turn.

TREE is a work tree of the code before, made with `git worktree add TREE REVISION`.
"""

import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from bench.brokers import ROOT, GeoMQ
from geomq.cli.tables import Table, show

SECTIONS = "qos0,pingpong,qos1,geo,link"

Load = tuple[str, str, str, str]
"""Section, load, which figure, unit."""


@click.command()
@click.argument("tree", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", default=SECTIONS, show_default=True, help="Sections of the benchmark.")
@click.option("--repeats", default=5, show_default=True, help="How often each tree is measured.")
def main(tree: Path, only: str, repeats: int) -> None:
    """Measure what was before and what is now, interleaved; the ratio of the medians for each load."""
    trees = {"before": tree.resolve(), "now": ROOT}
    found: dict[Load, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for section in only.split(","):
        for turn in range(repeats):
            for name in list(trees) if turn % 2 == 0 else list(reversed(trees)):
                for load, value in _figures(_measured(section, trees[name])):
                    found[load][name].append(value)
    show(_table(found))


def _measured(section: str, tree: Path) -> list[dict[str, Any]]:
    """The rows of one quick run of one section with the brokers of a tree."""
    command = [sys.executable, "-m", "bench", "--quick", "--json", "--brokers", GeoMQ.name, "--only", section]
    done = subprocess.run([*command, "--tree", str(tree)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{section} of {tree}: {done.stderr.strip()}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def _figures(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[Load, float]]:
    for row in rows:
        for name, figure in row["figures"].items():
            yield (row["section"], row["load"], name, row["unit"]), figure["median"]


def _table(found: Mapping[Load, Mapping[str, list[float]]]) -> Table:
    rows = []
    for (section, load, name, unit), values in found.items():
        before, now = statistics.median(values["before"]), statistics.median(values["now"])
        ratio = f"{now / before:.2f}" if before else "-"
        rows.append([f"{section}: {load}", name, unit, f"{before:.3g}", f"{now:.3g}", ratio])
    return Table(("load", "figure", "unit", "before", "now", "now / before"), rows, left=("load", "figure", "unit"))


if __name__ == "__main__":
    main()
