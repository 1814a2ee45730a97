"""Figure 3 of the GeoRendezvous paper, drawn from our findings.

Owns how the four panels look. Draws with matplotlib, without a display.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from geomq.reproduction.figures import new_figure, save_figure
from geomq.reproduction.rendezvous.findings import Findings
from geomq.reproduction.rendezvous.plane import overhead_in_plane
from geomq.reproduction.rendezvous.study import FIXED, FOCUS, RENDEZVOUS, SUBSCRIBERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(found: Findings) -> "Figure":
    """All four panels as one figure."""
    figure, panels = new_figure(2, 2, width=4.5, height=3.25)
    _by_rendezvous(panels[0], found)
    _by_size(panels[1], found)
    _by_closeness(panels[2], found)
    _by_subscribers(panels[3], found)
    for axes in panels:
        axes.grid(alpha=0.3)
    return figure


def write_figure(found: Findings, path: Path) -> None:
    """The figure as a PNG file."""
    save_figure(draw(found), path, dpi=80)


def _by_rendezvous(axes: "Axes", found: Findings) -> None:
    numbers = range(1, RENDEZVOUS + 1)
    for nodes in found.sums:
        axes.plot(numbers, found.overhead(nodes), marker=".", label=f"{nodes:,} nodes")
    axes.plot(numbers, overhead_in_plane(RENDEZVOUS), "k--", label="the plane")
    axes.set(title="(a) overhead by rendezvous", xlabel="rendezvous n", ylabel="hops over direct hops")
    axes.legend(fontsize=7, loc="upper right")


def _by_size(axes: "Axes", found: Findings) -> None:
    for n in (1, 2, 4, FIXED, RENDEZVOUS):
        heights = [found.overhead(nodes)[n - 1] for nodes in found.sums]
        margins = [found.margins[nodes][n - 1] for nodes in found.sums]
        axes.errorbar(list(found.sums), heights, yerr=margins, marker=".", capsize=2, label=f"n = {n}")
    axes.set(title="(b) overhead by network size", xlabel="nodes", ylabel="hops over direct hops", ylim=(0.95, 2.35))
    axes.legend(fontsize=7, ncols=5, loc="upper center")


def _by_closeness(axes: "Axes", found: Findings) -> None:
    axes.plot(range(1, FIXED + 1), found.close(), marker="o", label=f"the m closest of {FIXED}")
    axes.plot(range(1, FIXED + 1), found.overhead(FOCUS)[:FIXED], "k:", label="all of m (panel a)")
    axes.set(title=f"(c) closest rendezvous, {FOCUS} nodes", xlabel="tried m", ylabel="hops over direct hops")
    axes.set_ylim(1.0, 1.7)
    axes.legend(fontsize=7, loc="upper right")


def _by_subscribers(axes: "Axes", found: Findings) -> None:
    labels = {"replicated": "branches shared after rendezvous", "shared": "all links shared", "copies": "a copy each"}
    for name, ratios in found.trees().items():
        axes.plot(range(1, SUBSCRIBERS + 1), ratios, marker=".", label=labels[name])
    axes.axhline(1.0, color="k", linewidth=0.8)
    axes.set(
        title=f"(d) tree with {FIXED} rendezvous over 1, {FOCUS} nodes", xlabel="subscribers", ylabel="length ratio"
    )
    axes.legend(fontsize=7, loc="upper right")
