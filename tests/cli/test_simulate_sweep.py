"""`geomq simulate --sweep`: a row for each run, in every form, and what was wrong."""

import csv
import io
import json
import re
from pathlib import Path

from click.testing import CliRunner, Result

from geomq.cli import main
from geomq.workload.files import read_table

SMALL = ("--brokers", "4", "--clients", "12", "--seconds", "150", "--topics", "5")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments])


SWEPT = ("--strategy", "dht,tests.sim.planted:Forgetful", *SMALL, "--sweep", "seed=1..2", "--engine", "local")


def test_a_sweep_prints_a_row_for_each_run_and_says_what_was_wrong(tmp_path: Path) -> None:
    out = tmp_path / "swept"
    as_json = run(*SWEPT, "--json", "--out", str(out))
    runs = json.loads(as_json.stdout)["runs"]
    assert as_json.exit_code == 1
    assert [(row["run"], row["strategy"], row["seed"]) for row in runs] == [
        (0, "dht", 1),
        (1, "tests.sim.planted:Forgetful", 1),
        (2, "dht", 2),
        (3, "tests.sim.planted:Forgetful", 2),
    ]
    first, second = as_json.stderr.splitlines()
    assert " did not reach " in first
    assert first.endswith("--topics 5 --preset steady --seed 1")
    assert second.endswith("--topics 5 --preset steady --seed 2")
    as_csv = run(*SWEPT, "--csv")
    rows = list(csv.DictReader(io.StringIO(as_csv.stdout)))
    assert rows == [{name: "" if value is None else str(value) for name, value in row.items()} for row in runs]
    assert read_table(out / "simulations.parquet", "simulations").to_pylist() == runs
    again = run(*SWEPT, "--out", str(out))
    assert (again.exit_code, again.stdout) == (2, "")
    assert "already exists" in again.stderr
    assert run(*SWEPT, "--out", str(out), "--overwrite").exit_code == 1


def test_the_table_of_a_sweep_brings_seeds_together() -> None:
    lines = [re.split(" {2,}", line) for line in run(*SWEPT).stdout.splitlines() if "  " in line]
    found = {cells[0]: cells[1:] for cells in lines}
    assert found["dht"][0] == "2"
    assert found["dht"][-1] == "right"
    assert re.fullmatch(r"\d+ missed", found["tests.sim.planted:Forgetful"][-1])
    assert all(re.fullmatch(r"[\d,.]+ ± [\d,.]+", cell) for cell in found["dht"][1:-1])
