"""`geomq reproduce`: a paper's published numbers, computed again and put beside the originals."""

import json
import time
from pathlib import Path

import click

from geomq.cli.output import check_file, overwrite_option, write_text
from geomq.cli.reproduce_groups import groups
from geomq.cli.reproduce_live import live
from geomq.cli.reproduce_mesh import mesh
from geomq.cli.reproduce_rendezvous import rendezvous
from geomq.cli.workload import engine_options
from geomq.errors import UsageError


@click.group(short_help="Reproduce a paper's published numbers.")
def reproduce() -> None:
    """Compute a paper's published numbers again and show them beside the originals."""


reproduce.add_command(groups)
reproduce.add_command(live)
reproduce.add_command(mesh)
reproduce.add_command(rendezvous)


@reproduce.command(short_help="The DisGB simulation: Table III, Figures 9 to 12.")
@click.option("--rounds", default="1,2,3", show_default=True, help="Published rounds to run.")
@click.option("--scale", default=1.0, show_default=True, help="Use only this share of the clients, for a quick look.")
@click.option("--seed", default=1, show_default=True, help="Seed; the same seed gives the same numbers.")
@engine_options
@click.option("--out", type=click.Path(path_type=Path), help="Also write the comparison to this Markdown file.")
@overwrite_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable comparison.")
def disgb(
    rounds: str,
    scale: float,
    seed: int,
    engine: str,
    master: str | None,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Run the three published rounds and compare: 25 brokers with 100 k and 1 M clients, 256 with 100 k.

    \b
    geomq reproduce disgb
    geomq reproduce disgb --rounds 1 --scale 0.1
    """
    from geomq.cli.evaluate import run_requests
    from geomq.reproduction.disgb.published import claims, compare, markdown, own_markdown, own_rows, requests

    numbers = _rounds(rounds)
    if not 0 < scale <= 1:
        raise UsageError("the scale must be above 0 and at most 1")
    if out is not None:
        check_file(out, overwrite=overwrite)
    started = time.monotonic()
    found = run_requests(requests(numbers, seed=seed, scale=scale), data=None, engine=engine, master=master)
    outcomes = dict(zip(numbers, found[: len(numbers)], strict=True))
    own = dict(zip(numbers, found[len(numbers) :], strict=True))
    wall_s = round(time.monotonic() - started, 1)
    text = markdown(outcomes) + "\n" + own_markdown(own)
    if as_json:
        tables = {f"round {number + 1}": compare(outcome, number) for number, outcome in outcomes.items()}
        data = {
            "table_iii": tables,
            "claims": [claim._asdict() for claim in claims(outcomes)],
            "as_geomq_runs_them": {f"round {number + 1}": own_rows(outcome) for number, outcome in own.items()},
            "wall_s": wall_s,
        }
        click.echo(json.dumps(data, indent=2, default=str))
    else:
        click.echo(text + f"\n{wall_s} s")
    if out is not None:
        write_text(out, text)


def _rounds(text: str) -> list[int]:
    try:
        numbers = [int(part) - 1 for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if not all(number in (0, 1, 2) for number in numbers) or len(set(numbers)) != len(numbers):
        raise UsageError(f"--rounds {text!r}: name rounds 1, 2 and 3, such as 1,3")
    return sorted(numbers)
