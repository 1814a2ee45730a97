"""`geomq reproduce rendezvous`, in one process."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from geomq.cli import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["reproduce", "rendezvous", "--engine", "local", *arguments])


def test_the_comparison_is_printed_and_written(tmp_path: Path) -> None:
    result = run("--networks", "2", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert "2 networks of each size, 20 pairs in each, seed 1" in result.output
    assert "| Figure 3(b) |" in result.output
    assert (tmp_path / "out" / "rendezvous.md").read_text() in result.output
    assert (tmp_path / "out" / "rendezvous.png").stat().st_size > 10_000
    again = run("--networks", "2", "--out", str(tmp_path / "out"))
    assert again.exit_code == 2
    assert "rendezvous.md already exists" in again.stderr
    data = json.loads((tmp_path / "out" / "rendezvous.json").read_text())
    assert list(data["overhead"]) == ["80", "150", "300", "600", "1000", "1500", "2000", "3000"]


def test_the_same_seed_gives_the_same_numbers_for_machines() -> None:
    first, again, other = (json.loads(run("--networks", "1", "--json", "--seed", seed).output) for seed in "778")
    for data in (first, again, other):
        data.pop("wall_s")
    assert first == again
    assert first["overhead"] != other["overhead"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--networks", "0"), "--networks must be 1 to 10,000"),
        (("--networks", "10001"), "--networks must be 1 to 10,000"),
        (("--quick", "--networks", "3"), "leave --networks out"),
        (("--seed", "-1"), "--seed must not be negative"),
        (("--master", "local[2]"), "--master needs --engine spark"),
        (("--out", __file__), "is not a directory"),
    ],
)
def test_impossible_requests_are_refused_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.splitlines()) == 1
