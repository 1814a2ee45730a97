"""The figure has its four panels."""

from pathlib import Path

import pytest

from geomq.errors import DataError
from geomq.workload.wireless.drawing import draw, write_figure
from geomq.workload.wireless.findings import Findings


def test_the_figure_has_four_panels_with_a_curve_each_at_least(findings: Findings, tmp_path: Path) -> None:
    panels = draw(findings).axes
    assert [panel.get_title()[:3] for panel in panels] == ["(a)", "(b)", "(c)", "(d)"]
    assert all(panel.lines for panel in panels)
    write_figure(findings, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_place_that_cannot_be_written_is_named(findings: Findings, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot write .*missing/figure\.png"):
        write_figure(findings, tmp_path / "missing" / "figure.png")
