"""`geomq reproduce mesh`, with a study small enough for a test."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import geomq.reproduction.mesh.on_spark as on_spark
from geomq.cli import main
from geomq.cli.reproduce_mesh import FILES
from geomq.reproduction.mesh.report import claims, lossy_size
from geomq.reproduction.mesh.study import MeshRow, MeshRun, run_mesh


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Spark, and few brokers."""

    def run_here(runs: list[MeshRun], *, master: str | None) -> list[MeshRow]:
        return [run_mesh(replace(run, places=run.places[:9])) for run in runs if len(run.places) == 16]

    monkeypatch.setattr(on_spark, "mesh_on_spark", run_here)


def test_it_prints_tables_and_writes_files(small: None, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["reproduce", "mesh", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "Theorem 1: a renewed announcement costs at most 2 x links | yes" in result.output
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    again = CliRunner().invoke(main, ["reproduce", "mesh", "--quick", "--out", str(tmp_path)])
    assert again.exit_code == 2
    assert "mesh.md already exists" in again.stderr
    for title in ("Announcements", "Convergence", "Mesh size and ways", "Losses", "What the paper says"):
        assert title in result.output
    rows = [MeshRow(**row) for row in json.loads((tmp_path / "mesh.json").read_text())]
    assert lossy_size(rows) == 9
    assert "Theorem 1: so does the first one, whatever links take | yes" in result.output
    found = {claim.text: claim.holds for claim in claims(rows)}
    assert found["every event reaches every subscriber, once"]
    assert found["after a loss everything that is still connected arrives again"]


def test_a_wrong_master_ends_with_one_line_and_code_2() -> None:
    result = CliRunner().invoke(main, ["reproduce", "mesh", "--quick", "--master", "nonsense", "--json"])
    assert result.exit_code == 2
    assert result.output.startswith("geomq: 'nonsense' is not a Spark master")


def test_a_seed_below_zero_is_refused() -> None:
    for name in ("groups", "mesh"):
        result = CliRunner().invoke(main, ["reproduce", name, "--seed", "-1"])
        assert result.exit_code == 2
        assert "-1 is not in the range" in result.output
