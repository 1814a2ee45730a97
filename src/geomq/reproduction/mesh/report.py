"""What a mesh study found: the paper's theorems checked, tables for choosing an overlay, figures.

Owns which numbers are shown and which statements are made of them. The paper printed no numbers to stand beside.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from geomq.reproduction.claims import Claim, claims_table
from geomq.reproduction.figures import COLOURS, new_figure, save_figure
from geomq.reproduction.mesh.study import MeshRow
from geomq.reproduction.tables import titled_table
from geomq.sim.overlay import TOPOLOGIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[MeshRow]


def claims(rows: Rows) -> list[Claim]:
    """The theorems, and what the paper promises in words."""
    unequal = [row for row in rows if not row.equal_links]
    steady = max(row.steady_announcements / row.bound for row in rows)
    first = max(rows, key=lambda row: row.first_announcements / row.bound)
    slowest = max(rows, key=lambda row: row.rush_convergence_ms)
    lost = [row for row in rows if row.failure != "none"]
    survived = by_redundancy([row for row in lost if row.failure != "core"], lambda row: row.survived_blind)
    used = by_redundancy(unequal, lambda row: row.mesh_links / row.links)
    return [
        Claim("Theorem 1: a renewed announcement costs at most 2 x links", steady <= 1, f"{steady:.2f} of it at most"),
        Claim(
            "Theorem 1: so does the first one, whatever links take",
            first.first_announcements <= first.bound,
            f"{first.first_announcements / first.bound:.2f} of it at most ({first.topology}, {first.brokers} brokers)",
        ),
        Claim(
            "Theorem 2: every mesh converges, even if all subscribers come at once",
            all(row.has_converged for row in rows),
            f"within {slowest.rush_convergence_ms:,} ms ({slowest.topology}, {slowest.brokers} brokers)",
        ),
        Claim(
            "every event reaches every subscriber, once",
            all(row.delivered == 1 and row.repeats == 0 for row in rows),
            f"{sum(row.repeats for row in rows)} repeats in {len(rows):,} runs",
        ),
        Claim(
            "after a loss everything that is still connected arrives again",
            all(row.survived_after == 1 for row in lost),
            f"after {median(row.repair_ms for row in lost):,.0f} ms in the median, "
            f"{max(row.repair_ms for row in lost):,.0f} ms at most",
        ),
        Claim(
            "redundancy keeps events arriving before a loss is noticed",
            survived == sorted(survived),
            ", ".join(f"{share:.3f}" for share in survived) + " of them with 1, 2, 3 parents",
        ),
        Claim(
            "and makes the mesh larger",
            used == sorted(used),
            ", ".join(f"{share:.2f}" for share in used) + " of the links with 1, 2, 3 parents",
        ),
    ]


def by_redundancy(rows: Rows, value: Callable[[MeshRow], float]) -> list[float]:
    """The mean for each redundancy, in order."""
    return [
        mean_of([row for row in rows if row.redundancy == r], value) for r in sorted({row.redundancy for row in rows})
    ]


def mean_of(rows: Rows, value: Callable[[MeshRow], float]) -> float:
    return fmean(value(row) for row in rows) if rows else 0.0


def chosen(rows: Rows, **given: Any) -> list[MeshRow]:
    """The rows with these fields."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in given.items())]


def lossy_size(rows: Rows) -> int:
    """The largest size with losses."""
    return max(row.brokers for row in rows if row.failure != "none")


def markdown(rows: Rows) -> str:
    """Everything as Markdown tables."""
    parts = [_announcement_table(rows), _convergence_table(rows), _path_table(rows), _loss_table(rows)]
    parts += [_share_table(rows), "### What the paper says\n\n" + claims_table(claims(rows))]
    return "\n".join(part for part in parts if part)


def _announcement_table(rows: Rows) -> str:
    body = []
    for topology in TOPOLOGIES:
        for size in sorted({row.brokers for row in rows}):
            mine = chosen(rows, topology=topology, brokers=size, failure="none", redundancy=2)
            equal, unequal = chosen(mine, equal_links=True), chosen(mine, equal_links=False)
            if unequal:
                cells = [
                    f"{mean_of(unequal, lambda r: r.links):.0f}",
                    f"{mean_of(unequal, lambda r: r.diameter):.0f}",
                    f"{mean_of(equal, lambda r: r.first_announcements / r.bound):.2f}" if equal else "",
                    f"{mean_of(unequal, lambda r: r.first_announcements / r.bound):.2f}",
                    f"{mean_of(unequal, lambda r: r.steady_announcements / r.bound):.2f}",
                    f"{mean_of(unequal, lambda r: r.steady_announcements):.0f}",
                ]
                body.append((topology, size, *cells))
    head = ("overlay", "brokers", "links", "diameter", "first, equal links", "first", "renewed", "renewed, messages")
    return titled_table("Announcements as a share of 2 x links", head, body)


def _convergence_table(rows: Rows) -> str:
    quiet = chosen(rows, failure="none", redundancy=2, equal_links=False)
    sizes = sorted({row.brokers for row in quiet})
    body = []
    for topology in TOPOLOGIES:
        cells = []
        for size in sizes:
            mine = chosen(quiet, topology=topology, brokers=size)
            calm, rush = (
                mean_of(mine, lambda r: r.calm_convergence_ms),
                mean_of(mine, lambda r: r.rush_convergence_ms),
            )
            cells.append(f"{calm:,.0f} / {rush:,.0f}")
        body.append((topology, *cells))
    head = ("overlay", *(f"{size} brokers" for size in sizes))
    return titled_table("Convergence in ms: subscribers one after the other / all at once", head, body)


def _path_table(rows: Rows) -> str:
    size = lossy_size(rows)
    body = []
    for topology in TOPOLOGIES:
        for redundancy in sorted({row.redundancy for row in rows}):
            mine = chosen(
                rows, topology=topology, brokers=size, redundancy=redundancy, failure="none", equal_links=False
            )
            if mine:
                cells = (
                    f"{mean_of(mine, lambda r: r.members / r.brokers):.0%}",
                    f"{mean_of(mine, lambda r: r.mesh_links / r.links):.0%}",
                    f"{mean_of(mine, lambda r: r.latency_ms):.0f}",
                    f"{mean_of(mine, lambda r: r.stretch_overlay):.2f}",
                    f"{mean_of(mine, lambda r: r.stretch_direct):.2f}",
                    f"{mean_of(mine, lambda r: r.messages_per_delivery):.2f}",
                )
                body.append((topology, redundancy, *cells))
    head = ("overlay", "redundancy", "members", "links used", "latency ms", "of the fastest way", "of the direct way")
    return titled_table(f"Mesh size and ways, {size} brokers", (*head, "messages a delivery"), body)


def _loss_table(rows: Rows) -> str:
    size = lossy_size(rows)
    body = []
    for topology in TOPOLOGIES:
        for redundancy in sorted({row.redundancy for row in rows}):
            cells: list[str] = []
            for failure in ("links", "brokers", "core"):
                mine = [
                    row
                    for row in chosen(rows, topology=topology, brokers=size, redundancy=redundancy, failure=failure)
                    if row.share in (0.0, 0.1)
                ]
                cells += [
                    f"{mean_of(mine, lambda r: r.survived_blind):.0%}",
                    f"{mean_of(mine, lambda r: r.repair_ms) / 1000:.1f}",
                ]
            cut = [row for row in chosen(rows, topology=topology, brokers=size, share=0.1) if row.failure == "brokers"]
            body.append((topology, redundancy, *cells, f"{mean_of(cut, lambda r: r.cut_off):.0%}"))
    head = ["overlay", "redundancy"]
    for failure in ("10 % links", "10 % brokers", "core"):
        head += [f"{failure}: arrives", "all after s"]
    return titled_table(f"Losses, {size} brokers", (*head, "cut off by brokers"), body)


def _share_table(rows: Rows) -> str:
    size = lossy_size(rows)
    shares = sorted({row.share for row in rows if row.share})
    body = []
    for failure in ("links", "brokers"):
        for topology in TOPOLOGIES:
            cells = []
            for share in shares:
                mine = chosen(rows, topology=topology, brokers=size, failure=failure, share=share)
                by_parents = by_redundancy(mine, lambda r: r.survived_blind)
                cells.append(" / ".join(f"{value:.0%}" for value in by_parents))
            body.append((failure, topology, *cells))
    head = ("lost", "overlay", *(f"{share:.0%}" for share in shares))
    return titled_table(f"What arrives before a loss is noticed, with 1 / 2 / 3 parents, {size} brokers", head, body)


def write_figures(rows: Rows, directory: Path) -> list[Path]:
    """Two figures: what overlays cost and how fast they are, and what survives."""
    return [
        save_figure(_cost_figure(rows), directory / "mesh-overlays.svg"),
        save_figure(_loss_figure(rows), directory / "mesh-losses.svg"),
    ]


def _cost_figure(rows: Rows) -> "Figure":
    figure, both = new_figure(2)
    quiet = chosen(rows, failure="none", redundancy=2, equal_links=False)
    for colour, topology in zip(COLOURS, TOPOLOGIES, strict=False):
        mine = chosen(quiet, topology=topology)
        sizes = sorted({row.brokers for row in mine})
        for axes, value in zip(both, (lambda r: r.latency_ms, lambda r: r.messages_per_delivery), strict=True):
            points = [(size, mean_of(chosen(mine, brokers=size), value)) for size in sizes]
            axes.plot(*zip(*points, strict=True), marker=".", color=colour, label=topology)
    both[0].set(xlabel="brokers", ylabel="latency between homes in ms", yscale="log")
    both[1].set(xlabel="brokers", ylabel="event messages per delivery")
    both[0].legend(fontsize=8, loc="upper left")
    return figure


def _loss_figure(rows: Rows) -> "Figure":
    figure, both = new_figure(2)
    size = lossy_size(rows)
    for axes, failure in zip(both, ("links", "brokers"), strict=True):
        for colour, topology in zip(COLOURS, TOPOLOGIES, strict=False):
            for redundancy, style in ((1, ":"), (3, "-")):
                mine = chosen(rows, topology=topology, brokers=size, failure=failure, redundancy=redundancy)
                shares = sorted({row.share for row in mine})
                points = [(100 * s, 100 * mean_of(chosen(mine, share=s), lambda r: r.survived_blind)) for s in shares]
                label = f"{topology}, {redundancy}"
                axes.plot(*zip(*points, strict=True), style, marker=".", color=colour, label=label)
        axes.set(xlabel=f"{failure} lost in percent", ylabel="arrives before the loss is noticed, percent")
    both[0].legend(fontsize=6, loc="lower left")
    return figure
