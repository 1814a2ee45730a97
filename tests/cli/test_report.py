"""`geomq report` and `geomq reproduce` on the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from geomq.cli import main
from geomq.workload.evaluation.figures import figure_names
from geomq.workload.evaluation.report import KINDS


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results") / "r"
    made = run(
        "evaluate", "--clients", "2000", "--topics", "10", "--seconds", "200", "--engine", "local", "--out", str(out)
    )
    assert made.exit_code == 0, made.output
    return out


@pytest.mark.parametrize("style", ["terminal", "markdown", "csv"])
def test_report_prints_tables(results: Path, style: str) -> None:
    result = run("report", str(results), "--format", style)
    assert result.exit_code == 0, result.output
    assert "disgb_subscriptions" in result.stdout


@pytest.mark.parametrize("wanted", [["--json"], ["--format", "json"]])
def test_report_prints_the_tables_as_data(results: Path, wanted: list[str]) -> None:
    result = run("report", str(results), *wanted)
    assert result.exit_code == 0, result.output
    (made,) = json.loads(result.stdout)["runs"]
    by_name = {row["strategy"]: row for row in made["strategies"]}
    assert by_name["dht"]["total"] == sum(by_name["dht"][kind] for kind in KINDS) > 0


def test_report_writes_everything(results: Path, tmp_path: Path) -> None:
    result = run("report", str(results), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"report.md", "report.csv", "report.html", *figure_names({"runs": [{"run": 0}]})}
    again = run("report", str(results), "--out", str(tmp_path / "out"))
    assert (again.exit_code, again.stdout) == (2, "")
    assert "report.md already exists" in again.stderr
    assert run("report", str(results), "--out", str(tmp_path / "out"), "--overwrite").exit_code == 0


def test_report_refuses_what_is_no_result(tmp_path: Path) -> None:
    result = run("report", str(tmp_path))
    assert result.exit_code == 2
    assert "not a complete geomq dataset" in result.stderr


def test_reproduce_compares_with_the_published_table(tmp_path: Path) -> None:
    out = tmp_path / "disgb.md"
    result = run(
        "reproduce", "disgb", "--rounds", "1", "--scale", "0.05", "--engine", "local", "--json", "--out", str(out)
    )
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert len(data["table_iii"]["round 1"]) == 7
    assert all({"text", "holds", "numbers"} == set(claim) for claim in data["claims"])
    assert {"adaptive", "georendezvous", "mesh", "oracle"} < {row[0] for row in data["as_geomq_runs_them"]["round 1"]}
    assert "Round 1" in out.read_text()
    assert "| adaptive |" in out.read_text()


def test_reproduce_keeps_a_file_that_is_there_and_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geomq.cli.evaluate.run_requests", lambda *_, **__: pytest.fail("it began"))
    (tmp_path / "mine.md").write_text("mine")
    for out, words in ((tmp_path / "mine.md", "already exists"), (tmp_path, "is a directory")):
        result = run("reproduce", "disgb", "--out", str(out))
        assert result.exit_code == 2
        assert words in result.stderr
    assert (tmp_path / "mine.md").read_text() == "mine"


def test_what_cannot_be_written_in_the_end_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geomq.cli.output.check_files", lambda *_, **__: None)
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "disgb.md")
    result = run("reproduce", "disgb", "--rounds", "1", "--scale", "0.01", "--engine", "local", "--out", out)
    assert result.exit_code == 2
    assert "Round 1" in result.stdout
    assert result.stderr.startswith("geomq: cannot write ")


@pytest.mark.parametrize("arguments", [["--rounds", "4"], ["--rounds", "1,1"], ["--rounds", "x"], ["--scale", "0"]])
def test_reproduce_refuses_strange_rounds(arguments: list[str]) -> None:
    result = run("reproduce", "disgb", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("geomq: ")
