"""The figure has its four panels."""

from pathlib import Path

from geomq.reproduction.rendezvous.figures import draw, write_figure
from geomq.reproduction.rendezvous.findings import Findings


def test_the_figure_has_four_panels_with_a_curve_each_at_least(findings: Findings, tmp_path: Path) -> None:
    panels = draw(findings).axes
    assert [panel.get_title()[:3] for panel in panels] == ["(a)", "(b)", "(c)", "(d)"]
    assert all(panel.lines for panel in panels)
    write_figure(findings, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
