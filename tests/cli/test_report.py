"""`geomq report` and `geomq reproduce` on the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from geomq.cli import main


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


def test_report_writes_everything(results: Path, tmp_path: Path) -> None:
    result = run("report", str(results), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"report.md", "report.csv", "report.html", "messages-0.png", "load-0.svg"} <= names


def test_report_refuses_what_is_no_result(tmp_path: Path) -> None:
    result = run("report", str(tmp_path))
    assert result.exit_code == 2
    assert "no finished geomq dataset" in result.stderr


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


@pytest.mark.parametrize("arguments", [["--rounds", "4"], ["--rounds", "1,1"], ["--rounds", "x"], ["--scale", "0"]])
def test_reproduce_refuses_strange_rounds(arguments: list[str]) -> None:
    result = run("reproduce", "disgb", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("geomq: ")
