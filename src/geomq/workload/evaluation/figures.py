"""Figures from results, and one HTML page that holds everything.

Owns how results look: messages stacked by kind, latency and delay as boxes, load on a map. Draws with matplotlib,
without a display. The page needs no network.
"""

import base64
import html
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomq.errors import DataError
from geomq.extras import missing
from geomq.workload.evaluation.report import HEADERS, KINDS, Rows, cell, run_tables, run_title
from geomq.workload.evaluation.results import CLOUD_NAME, statistics_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#4477aa", "#ee6677", "#ccbb44", "#66ccee", "#aa3377")
_CSS = """body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}"""


def draw_all(results: dict[str, Rows], run: dict[str, Any]) -> "dict[str, Figure]":
    """The figures of one run by name."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise missing("matplotlib") from None
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "geomq"
    number = run["run"]
    return {
        "messages": _figure(run, lambda axes: _messages(axes, results, number)),
        "latency": _figure(run, lambda axes: _boxes(axes, results, number, "latency", "delivery latency in ms")),
        "delay": _figure(run, lambda axes: _boxes(axes, results, number, "delay", "subscription update delay in ms")),
        "load": _load_map(results, run),
    }


def figure_names(results: dict[str, Rows]) -> list[str]:
    """The files that `write_figures` writes."""
    kinds = ("messages", "latency", "delay", "load")
    return [f"{kind}-{run['run']}.{ending}" for run in results["runs"] for kind in kinds for ending in ("png", "svg")]


def write_figures(results: dict[str, Rows], directory: Path) -> list[Path]:
    """All figures of all runs as PNG and SVG."""
    paths = []
    for run in results["runs"]:
        for name, figure in draw_all(results, run).items():
            for ending in ("png", "svg"):
                path = directory / f"{name}-{run['run']}.{ending}"
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    figure.savefig(path, dpi=120, metadata={"Date": None} if ending == "svg" else None)
                except OSError as error:
                    raise DataError(f"cannot write {path}: {error.strerror or error}") from None
                paths.append(path)
    return paths


def page(results: dict[str, Rows]) -> str:
    """Everything as one HTML page that needs nothing else."""
    parts = [f"<!doctype html><meta charset=utf-8><title>GeoMQ evaluation</title><style>{_CSS}</style>"]
    parts.append("<h1>Evaluation of routing strategies</h1>")
    for run, table in zip(results["runs"], run_tables(results), strict=True):
        parts.append(f"<h2>{html.escape(table.title)}</h2><p>{html.escape(table.caption)}. Times in milliseconds.</p>")
        head = "".join(f"<th>{html.escape(name)}</th>" for name in HEADERS)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell(value))}</td>" for value in row) + "</tr>" for row in table.rows
        )
        parts.append(f"<table><tr>{head}</tr>{body}</table>")
        parts += [_embedded(name, figure) for name, figure in draw_all(results, run).items()]
    return "\n".join(parts) + "\n"


def _embedded(name: str, figure: "Figure") -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<p><img alt="{name}" style="max-width:100%" src="data:image/svg+xml;base64,{data}"></p>'


def _figure(run: dict[str, Any], draw: "Callable[[Axes], None]") -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    draw(axes)
    axes.set_title(run_title(run), fontsize=9)
    return figure


def _strategies(results: dict[str, Rows], number: int) -> Rows:
    return [row for row in results["results"] if row["run"] == number]


def _messages(axes: "Axes", results: dict[str, Rows], number: int) -> None:
    rows = _strategies(results, number)
    names, bottom = [row["strategy"] for row in rows], [0.0] * len(rows)
    for kind, colour in zip(KINDS, COLOURS, strict=True):
        heights = [row[f"{kind}_messages"] / 1e6 for row in rows]
        if any(heights):
            axes.bar(names, heights, bottom=bottom, color=colour, label=kind)
            bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
    for x, height in enumerate(bottom):
        axes.annotate(f"{height:.2f}", (x, height), ha="center", va="bottom", fontsize=8)
    axes.set_ylabel("messages between brokers, millions")
    axes.tick_params(axis="x", rotation=30)
    axes.legend(loc="upper right")


def _boxes(axes: "Axes", results: dict[str, Rows], number: int, measure: str, label: str) -> None:
    stats = []
    for row in _strategies(results, number):
        found = statistics_of(results["histograms"], number, row["strategy"], measure)
        if found["count"]:
            quartiles = {"q1": found["p25"], "med": found["p50"], "q3": found["p75"], "mean": found["mean"]}
            whiskers = {"whislo": found["p5"], "whishi": found["p95"]}
            stats.append({"label": row["strategy"], **quartiles, **whiskers})
    if stats:
        axes.bxp(stats, showmeans=True, showfliers=False)
    axes.set_ylabel(f"{label} (whiskers 5 % and 95 %)")
    axes.tick_params(axis="x", rotation=30)


def _load_map(results: dict[str, Rows], run: dict[str, Any]) -> "Figure":
    """Per strategy a map of the brokers, as large as the messages they send and receive."""
    from matplotlib.figure import Figure

    rows = _strategies(results, run["run"])
    columns = 2
    height = -(-len(rows) // columns)
    figure = Figure(figsize=(9, 2.6 * height), layout="constrained")
    places = {row["name"]: (row["lon"], row["lat"]) for row in results["places"] if row["run"] == run["run"]}
    for position, row in enumerate(rows):
        axes = figure.add_subplot(height, columns, position + 1)
        load = dict.fromkeys(places, 0)
        for link in results["links"]:
            if link["run"] == run["run"] and link["strategy"] == row["strategy"]:
                for end in (link["sender"], link["receiver"]):
                    if end != CLOUD_NAME:
                        load[end] += link["messages"]
        most = max(load.values(), default=0) or 1
        sizes = [4 + 200 * load[name] / most for name in places]
        lons, lats = [lon for lon, _ in places.values()], [lat for _, lat in places.values()]
        axes.scatter(lons, lats, s=sizes, color=COLOURS[0], alpha=0.7)
        axes.set_title(f"{row['strategy']}: at most {most:,}", fontsize=8)
        axes.set_xlim(-180, 180)
        axes.set_ylim(-60, 75)
        axes.tick_params(labelsize=6)
    figure.suptitle("messages sent and received per broker", fontsize=9)
    return figure
