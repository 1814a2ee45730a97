"""How a run is shown: tables for people, JSON for programs. Judges nothing itself."""

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench.measure import Figure
from bench.results import Row, Verdict

TITLES = {
    "qos0": "QoS 0",
    "pingpong": "Ping-pong: one client publishes to itself",
    "qos1": "QoS 1, one publish per client on its way",
    "geo": "One topic, fences, as many moves as events",
    "durable": "Durable QoS 1",
    "idle": "Idle clients",
    "stalled": "A subscriber that never reads",
    "link": "Events that cross the link between two brokers",
    "trace": "A broker that writes its trace",
    "start": "Start and end",
    "attacks": "What another client notices of attacks",
    "workers": "Two workers, beside a broker that carries its clients itself",
}


def conditions(versions: Mapping[str, str], pinned: tuple[int, int] | None, *, quick: bool) -> dict[str, str]:
    """Under which circumstances the figures came about."""
    where = "not pinned" if pinned is None else f"broker on core {pinned[0]}, load generator on core {pinned[1]}"
    return {
        "brokers": ", ".join(versions.values()),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": f"{os.cpu_count()}; {where}",
        "load average": f"{os.getloadavg()[0]:.1f} at the start",
        "run": "quick" if quick else "full",
    }


def as_json(rows: Sequence[Row], about: Mapping[str, str], missing: Sequence[str], failures: Sequence[str]) -> str:
    found = {
        "conditions": about,
        "missing": missing,
        "failures": failures,
        "rows": [row.as_dict() for row in rows],
    }
    return json.dumps(found, indent=2)


WIDTH_MIN = 110


def show(rows: Sequence[Row], about: Mapping[str, str], console: Console) -> None:
    """A table per section, then how many targets are met."""
    console.width = max(console.width, WIDTH_MIN)
    for name, text in about.items():
        console.print(f"[dim]{name}:[/] {text}", highlight=False)
    for section, title in TITLES.items():
        mine = [row for row in rows if row.section == section]
        if mine:
            console.print(_table(title, mine))
    verdicts = [verdict for row in rows for verdict in row.verdicts]
    if verdicts:
        met = sum(verdict.passed for verdict in verdicts)
        console.print(f"{met} of {len(verdicts)} targets met", highlight=False)


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    names = list(dict.fromkeys(name for row in rows for name in row.figures))
    table.add_column("load")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("unit")
    table.add_column("against the targets")
    for row in rows:
        figures = [figure_text(row.figures.get(name)) for name in names]
        table.add_row(row.load, *figures, row.unit, "\n".join(_remarks(row)))
    return table


def _remarks(row: Row) -> Iterable[str]:
    yield from map(_verdict_text, row.verdicts)
    for name, value in row.notes.items():
        yield f"[dim]{number_text(value)} {name}[/]"


def _verdict_text(verdict: Verdict) -> str:
    word = "[green]pass[/]" if verdict.passed else "[red]fail[/]"
    return f"{word} {number_text(verdict.value)} {verdict.what} ({verdict.wanted})"


def figure_text(figure: Figure | None) -> str:
    """The median, and how far the repeats lie apart."""
    if figure is None:
        return "-"
    return number_text(figure.median) + (f" ±{figure.spread:.0%}" if figure.repeats > 1 else "")


def number_text(value: float) -> str:
    """Three significant digits, without exponents."""
    if value == int(value) and abs(value) < 1_000:
        return str(int(value))
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
