"""Figures as files, drawn with matplotlib and without a display: the same numbers give the same bytes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomq.errors import DataError
from geomq.extras import missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")


def new_figure(
    columns: int = 1, rows: int = 1, *, width: float = 5.0, height: float = 4.0
) -> "tuple[Figure, list[Axes]]":
    """A figure with panels of this size, row by row."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise missing("matplotlib") from None
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, number + 1) for number in range(rows * columns)]


def save_figure(figure: "Figure", path: Path, **how: Any) -> Path:
    """Write a figure as SVG, or as PNG if the name says so."""
    import matplotlib as mpl

    mpl.rcParams["svg.hashsalt"] = "geomq"
    unstamped = {"Software": None} if path.suffix == ".png" else {"Date": None}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata=unstamped, **how)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from None
    return path
