"""`geomq evaluate` and `geomq workload` on the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from geomq.cli import main

SMALL = ["--clients", "3000", "--topics", "20", "--seconds", "200", "--engine", "local"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_evaluate_prints_json_with_every_published_strategy() -> None:
    result = run("evaluate", "--variant", "paper", *SMALL, "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["wall_s"] > 0
    assert data["peak_rss_mb"] > 0
    for name in ("flood_events", "disgb_events", "dht", "grid_quorum", "broadcast_groups", "oracle"):
        found = data["strategies"][name]
        assert set(found["messages"]) == {"event", "subscription", "delivery", "location", "control", "total"}
        assert {"mean", "std", "p50", "p75", "p99"} <= set(found["latency_ms"])
        assert found["deliveries"] == found["latency_ms"]["count"] > 0
    assert "subscription_delay_ms" in data["strategies"]["dht"]
    assert "georendezvous" not in data["strategies"]


def test_evaluate_prints_a_table_for_people() -> None:
    result = run("evaluate", *SMALL)
    assert result.exit_code == 0, result.output
    for name in ("disgb_events", "adaptive", "georendezvous", "mesh"):
        assert name in result.stdout


def test_what_is_left_out_is_said_in_one_line() -> None:
    result = run("evaluate", "--clients", "300", "--topics", "5000", "--seconds", "60", "--engine", "local", "--json")
    assert result.exit_code == 0, result.output
    assert "mesh" not in json.loads(result.stdout)["strategies"]
    assert (
        result.stderr
        == "geomq: mesh is skipped: it maps at most 4,096 first topic levels to one application, not 5,000\n"
    )


def test_a_sweep_gives_one_run_each() -> None:
    result = run("evaluate", *SMALL, "--sweep", "clients=1000,2000 fence=1,5", "--json")
    assert result.exit_code == 0, result.output
    assert [entry["run"]["event_fence_deg"] for entry in json.loads(result.stdout)["runs"]] == [1.0, 5.0, 1.0, 5.0]


def test_a_dataset_gives_the_same_numbers_as_the_preset(tmp_path: Path) -> None:
    made = run("workload", *SMALL, "--seed", "3", "--out", str(tmp_path / "data"), "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["clients"] == 2988
    direct = json.loads(run("evaluate", *SMALL, "--seed", "3", "--json").stdout)
    read = json.loads(run("evaluate", "--data", str(tmp_path / "data"), "--engine", "local", "--json").stdout)
    assert read["strategies"] == direct["strategies"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", "--preset", "nope"], "unknown preset"),
        (["evaluate", "--clients", "0"], "number of clients"),
        (["evaluate", "--brokers", "0"], "number of brokers"),
        (["evaluate", "--sweep", "x=1"], "a sweep is"),
        (["evaluate", "--engine", "local", "--master", "local[1]"], "--master needs"),
        (["evaluate", "--data", "nowhere"], "not a complete geomq dataset"),
        (["evaluate", "--data", "x", "--sweep", "clients=1"], "cannot be swept"),
        (["evaluate", "--master", "spark://127.0.0.1:1"], "cannot reach the Spark master"),
        (["evaluate", "--places", "nowhere.csv"], "cannot read"),
        (["workload", "--out", "."], "already exists"),
    ],
)
def test_impossible_requests_are_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_results_already_there_are_kept(tmp_path: Path) -> None:
    out = str(tmp_path / "r")
    assert run("evaluate", *SMALL, "--out", out).exit_code == 0
    again = run("evaluate", *SMALL, "--out", out)
    assert again.exit_code == 2
    assert "already exists" in again.stderr
    assert run("evaluate", *SMALL, "--out", out, "--overwrite").exit_code == 0


def test_neither_of_the_two_replaces_the_other(tmp_path: Path) -> None:
    made, found = str(tmp_path / "w"), str(tmp_path / "e")
    few = ["--clients", "300", "--topics", "20", "--seconds", "60", "--engine", "local"]
    assert run("workload", *few, "--out", made).exit_code == 0
    assert run("evaluate", "--data", made, "--engine", "local", "--out", found).exit_code == 0
    before = sorted(tmp_path.rglob("*"))
    for arguments in (["evaluate", "--data", made, "--out", made], ["workload", "--out", found]):
        result = run(*arguments, "--engine", "local", "--overwrite")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "left unchanged" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before
