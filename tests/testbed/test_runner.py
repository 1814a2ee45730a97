"""A testbed from start to stop: everything runs for real, and everything is collected."""

import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from geomq.cli import main
from geomq.errors import ConfigError, UsageError
from geomq.testbed.plan_load import parse_plan
from geomq.testbed.runner import RunReport, broker_name, run_testbed
from geomq.workload.dataset import read_manifest
from geomq.workload.files import read_table


def test_a_run_leaves_records_of_clients_and_brokers(run: RunReport) -> None:
    manifest = read_manifest(run.directory, "testbed")
    assert manifest["names"] == ["Columbus", "Frankfurt", "Paris"]
    assert run.replay.clients == 150
    assert run.replay.received > 0
    assert (run.replay.unsent, run.replay.refused, run.replay.connections_lost) == (0, 0, 0)
    traces = [read_table(path, "trace") for path in sorted((run.directory / "trace").glob("*.parquet"))]
    published = sum(table.column("step").to_pylist().count("published") for table in traces)
    assert published == run.replay.events
    assert all("listening" in (run.directory / "brokers" / name / f"{name}.log").read_text() for name in run.brokers)


def test_a_slow_last_hop_slows_its_own_clients_alone(run: RunReport) -> None:
    least: dict[int, float] = {}
    for path in sorted((run.directory / "replay" / "received").glob("*.parquet")):
        table = read_table(path, "received").to_pydict()
        for home, t_ms, sent_ms in zip(table["home"], table["t_ms"], table["sent_ms"], strict=True):
            least[home] = min(least.get(home, 1e9), t_ms - sent_ms)
    assert least[2] >= 10.0
    assert least[0] < 10.0


def test_a_broker_the_workload_does_not_know_is_refused(tmp_path: Path) -> None:
    text = '[workload]\npreset = "validation"\nclients = 30\n[[brokers]]\nname = "Rome"\n'
    plan = parse_plan(text, name="x", base=tmp_path)
    with pytest.raises(ConfigError, match="the workload has no broker 'Rome', only Columbus, Frankfurt, Paris"):
        run_testbed(plan, tmp_path / "out")


@pytest.mark.parametrize(
    "wrong", ['[[links]]\nbetween = ["Paris", "Rome"]\n', '[cloud]\nenabled = true\nbroker = "Rome"\n']
)
def test_a_plan_with_a_wrong_name_writes_nothing(tmp_path: Path, wrong: str) -> None:
    plan = parse_plan(f'[workload]\npreset = "validation"\nclients = 30\n{wrong}', name="x", base=tmp_path)
    with pytest.raises(ConfigError, match="the workload has no broker 'Rome'"):
        run_testbed(plan, tmp_path / "out")
    assert not list(tmp_path.rglob("out/*"))


def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("mine")
    plan = parse_plan('[workload]\npreset = "hiking"\n', name="x", base=tmp_path)
    with pytest.raises(UsageError, match="is not empty"):
        run_testbed(plan, tmp_path)


def test_the_command_says_one_line_about_a_wrong_file(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[workload]\n")
    result = CliRunner().invoke(main, ["testbed", str(file), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "give either dataset or preset" in result.output


def test_a_testbed_that_is_told_to_end_leaves_no_broker_behind(tmp_path: Path) -> None:
    file, out = tmp_path / "plan.toml", tmp_path / "out"
    file.write_text('[workload]\npreset = "validation"\nclients = 30\n')
    logs = [out / "brokers" / name / f"{name}.log" for name in ("Columbus", "Frankfurt", "Paris")]
    command = [sys.executable, "-m", "geomq", "testbed", str(file), "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while not all(log.exists() and "listening" in log.read_text() for log in logs):
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.1)
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said.splitlines()[-1]) == (2, "geomq: stopped before the run was complete")
    for log in logs:
        port = tomllib.loads(log.with_suffix(".toml").read_text())["listeners"][0]["port"]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5).close()


def test_names_become_such_as_brokers_may_have() -> None:
    assert broker_name("Tel Aviv-Yafo") == "Tel-Aviv-Yafo"
