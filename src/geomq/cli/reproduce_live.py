"""`geomq reproduce live`: the papers' live experiments on real brokers on this machine."""

import sys
import tempfile
import time
from pathlib import Path

import click

from geomq.cli.numbers import NumberRange
from geomq.cli.output import write_text
from geomq.extras import need


@click.command(short_help="Live experiments: DisGB scenarios, broadcast groups.")
@click.option("--quick", is_flag=True, help="A tenth of the clients, half a minute of their time, three strategies.")
@click.option("--only", help="Only these of open, hiking, context and groups, separated by commas.")
@click.option("--strategies", help="Only these strategies, separated by commas.")
@click.option("--speed", type=NumberRange(0.1, 100), help="Speed, as a multiple of the published experiments'.")
@click.option(
    "--seconds", type=click.IntRange(10, 900), help="Only this much of the scenarios' time; all of it if not given."
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    help="Seed of the workloads; if not given, one for each that is like Table II.",
)
@click.option("--dice", type=click.IntRange(2, 10_000), help="Run nothing; examine this many seeds instead.")
@click.option("--master", help="A Spark master; local[*] if not given.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Keep everything in this directory; finished runs are reused."
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable comparison.")
def live(
    quick: bool,
    only: str | None,
    strategies: str | None,
    speed: float | None,
    seconds: int | None,
    seed: int | None,
    dice: int | None,
    master: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Start brokers, let thousands of clients act out the published scenarios, and put the numbers beside the papers'.

    Full size takes about 45 minutes on two cores, --quick about four. A run that is in --out already is not
    repeated.

    \b
    geomq reproduce live --quick
    geomq reproduce live --out live
    geomq reproduce live --only hiking --strategies disgb_events --out live
    geomq reproduce live --dice 300
    """
    started = time.monotonic()
    if dice is not None:
        click.echo(_dice(dice))
        return
    need("pyspark")
    from geomq.reproduction.live.report import as_json as to_json
    from geomq.reproduction.live.report import markdown, write_figures
    from geomq.reproduction.live.study import FULL, QUICK, chosen, run_study
    from geomq.workload.files import check_writable

    if out is not None:
        check_writable(out)
    size = chosen(QUICK if quick else FULL, only=only, strategies=strategies, speed=speed, seconds=seconds)
    with tempfile.TemporaryDirectory(prefix="geomq-live-") as scratch:
        directory = Path(scratch) if out is None else out
        study = run_study(directory, size, seed=seed, master=master, say=_say)
    text = markdown(study)
    click.echo(to_json(study) if as_json else f"{text}\n{time.monotonic() - started:.0f} s; {study.conditions}")
    if out is not None:
        write_text(out / "live.md", text)
        write_text(out / "live.json", to_json(study) + "\n")
        write_figures(study, out)


def _say(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"{text} ...", err=True)


def _dice(seeds: int) -> str:
    """How usual the published run is, and what runs like it send."""
    from geomq.reproduction.live.dice import MESSAGES, look_at, markdown

    return markdown({scenario: look_at(scenario, range(1, seeds + 1), _say) for scenario in MESSAGES})
