"""`geomq reproduce groups`, with a study small enough for a test."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import geomq.reproduction.groups.on_spark as on_spark
from geomq.cli import main
from geomq.cli.reproduce_groups import FILES
from geomq.reproduction.groups.study import FormationRow, FormationRun, run_formation


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Spark, and of the study only what is quick."""

    def run_here(runs: list[FormationRun], *, master: str | None) -> list[FormationRow]:
        return [run_formation(run) for run in runs if run.brokers <= 1200]

    monkeypatch.setattr(on_spark, "formation_on_spark", run_here)


def test_it_prints_tables_beside_the_published_numbers_and_writes_files(small: None, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["reproduce", "groups", "--quick", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert "| 10 | 1,200 | groups | 260 | 253 | -2.7 % |" in result.output
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(FILES)


def test_a_file_that_is_there_is_kept(small: None, tmp_path: Path) -> None:
    (tmp_path / "groups-joins.svg").write_text("mine")
    result = CliRunner().invoke(main, ["reproduce", "groups", "--quick", "--out", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "groups-joins.svg already exists" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["groups-joins.svg"]


def test_json_is_for_machines(small: None) -> None:
    result = CliRunner().invoke(main, ["reproduce", "groups", "--quick", "--json"])
    document = json.loads(result.output)
    assert all(claim["holds"] for claim in document["claims"] if "within 15 %" in claim["text"])
    assert {row["kind"] for row in document["runs"]} == {"form", "change", "watch"}


def test_an_unknown_city_list_ends_with_one_line_and_code_2() -> None:
    result = CliRunner().invoke(main, ["reproduce", "groups", "--cities", "best"])
    assert result.exit_code == 2
    assert (
        result.output.strip()
        == "geomq: no city list 'best'; choose one of regions, largest, sample, or name a .csv file"
    )


def test_an_unwritable_directory_ends_at_once_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(main, ["reproduce", "groups", "--quick", "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "cannot write" in result.output
