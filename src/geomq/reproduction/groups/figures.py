"""Figures 2 and 3 of the broadcast groups paper, drawn from a formation study. Draws with matplotlib, without a
display, and decides nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from geomq.reproduction.figures import COLOURS, new_figure, save_figure
from geomq.reproduction.groups.published import PUBLISHED, REMEDIES, formed, moves_per_broker
from geomq.reproduction.groups.study import FormationRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figures(rows: Sequence[FormationRow], directory: Path) -> list[Path]:
    """All figures the rows are enough for."""
    paths = []
    if formed(rows):
        paths.append(save_figure(_groups(rows), directory / "groups-thresholds.svg"))
        paths.append(save_figure(_joins(rows), directory / "groups-joins.svg"))
    if any(row.kind == "watch" for row in rows):
        paths.append(save_figure(_oscillation(rows), directory / "groups-oscillation.svg"))
    return paths


def _groups(rows: Sequence[FormationRow]) -> "Figure":
    figure, (axes,) = new_figure()
    mine = formed(rows)
    counts = sorted({row.brokers for row in mine})
    for colour, count in zip(COLOURS, counts[:: max(1, len(counts) // 5)], strict=False):
        points = [(row.join_ms, row.groups) for row in mine if row.brokers == count]
        axes.plot(*zip(*points, strict=True), marker=".", color=colour, label=f"{count:,} brokers")
    shown = [(ms, run.groups) for (ms, count), run in PUBLISHED.items() if count == 12000]
    axes.plot(*zip(*shown, strict=True), "kx", label="published, 12,000")
    axes.set(xscale="log", yscale="log", xlabel="latency threshold in ms", ylabel="broadcast groups")
    axes.legend(fontsize=8, loc="upper right")
    return figure


def _joins(rows: Sequence[FormationRow]) -> "Figure":
    figure, both = new_figure(2)
    mine = formed(rows)
    thresholds = [ms for ms in (10, 30, 70, 100, 200, 400) if any(row.join_ms == ms for row in mine)]
    for axes, name in zip(both, ("leader_joins", "member_joins"), strict=True):
        for colour, threshold in zip(COLOURS, thresholds, strict=False):
            points = [(row.brokers, getattr(row, name)) for row in mine if row.join_ms == threshold]
            axes.plot(*zip(*points, strict=True), marker=".", color=colour, label=f"{threshold} ms")
            shown = [(n, getattr(run, name)) for (ms, n), run in PUBLISHED.items() if ms == threshold and run.ticks]
            if shown:
                axes.plot(*zip(*shown, strict=True), "x", color=colour, label=f"{threshold} ms, published")
        axes.set(xlabel="brokers", ylabel=name.replace("_", " "))
        axes.legend(fontsize=7, loc="upper left")
    return figure


def _oscillation(rows: Sequence[FormationRow]) -> "Figure":
    figure, (axes,) = new_figure()
    mine = [row for row in rows if row.kind == "watch"]
    threshold = sorted({row.join_ms for row in mine})[len({row.join_ms for row in mine}) // 2]
    for number, name in enumerate(REMEDIES):
        chosen = [
            row
            for row in mine
            if row.join_ms == threshold and (row.leave_ms > row.join_ms) + 2 * (row.probes > 1) == number
        ]
        points = sorted((100 * row.noise, moves_per_broker(row)) for row in chosen)
        axes.plot(*zip(*points, strict=True), marker="o", color=COLOURS[number], label=name)
    axes.set(xlabel="noise of a probe in percent", ylabel="changes of leader per broker in 100 ticks")
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set_title(f"threshold {threshold:g} ms", fontsize=9)
    axes.legend(fontsize=8, loc="upper left")
    return figure
