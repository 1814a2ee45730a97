"""A live run through Spark: what happened, and that it is what had to happen."""

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from pyspark.sql import Row
from tests.shared_spark import SharedSpark

from geomq.cli import main
from geomq.errors import DataError, UsageError
from geomq.pipeline.analyse import judge_topic, live_run
from geomq.pipeline.analyse_results import Analysis, analyse, strategy_result
from geomq.testbed.runner import RunReport
from geomq.workload.dataset import write_manifest
from geomq.workload.files import read_table
from geomq.workload.model import Kind


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("analysis") / "results"


@pytest.fixture(scope="module")
def analysis(run: RunReport, results: Path, shared_spark: SharedSpark) -> Analysis:
    shared_spark.session()
    return analyse([run.directory], out=results)


def test_nothing_is_lost_doubled_or_unexpected(run: RunReport, analysis: Analysis) -> None:
    assert sum(check.received for check in analysis.checks) == run.replay.received
    assert sum(check.required for check in analysis.checks) > 0
    for check in analysis.checks:
        assert (check.lost, check.duplicated, check.unexpected) == (0, 0, 0)


def test_every_event_is_followed_to_every_broker(run: RunReport, analysis: Analysis, results: Path) -> None:
    table = pd.read_parquet(results / "journeys")
    assert len(table[table["broker"] == table["home"]]) == run.replay.events
    assert table["clients"].sum() == run.replay.received
    assert (table.loc[table["broker"] != table["home"], "messages"] >= 1).all()


def test_messages_are_counted_by_kind_and_link(run: RunReport, analysis: Analysis) -> None:
    result = analysis.outcomes[0].strategies["disgb_subscriptions"]
    traces = [read_table(path, "trace").to_pandas() for path in sorted((run.directory / "trace").glob("*.parquet"))]
    records = pd.concat(traces)
    during = records[(records["step"] == "sent") & (records["t_ms"] <= run.replay.ended_ms)]
    assert {kind: n for kind, n in result.messages.items() if n} == during["kind"].value_counts().to_dict()
    assert int(result.latency.sum()) == run.replay.received


def test_the_report_shows_live_results(analysis: Analysis, results: Path) -> None:
    result = CliRunner().invoke(main, ["report", str(results), "--format", "markdown"])
    assert result.exit_code == 0, result.output
    assert "disgb_subscriptions" in result.output
    assert "what really happened" in result.output


def test_the_command_refuses_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no manifest"):
        live_run(0, tmp_path)
    result = CliRunner().invoke(main, ["analyse", str(tmp_path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1


def manifest(directory: Path, **more: object) -> Path:
    directory.mkdir(exist_ok=True)
    report = {"latency": {}, "ended_ms": 1.0, "clients": 1, "events": 1, "subscriptions": 1}
    said = {"strategy": "dht", "cloud": None, "names": ["a", "b"], "workload": "../workload", "replay": report}
    write_manifest(directory, {"kind": "testbed", **said, "plan": {"workload": {"speed": 1.0}}, **more})
    return directory


@pytest.mark.parametrize(
    "damage", [{"strategy": None, "names": 5}, {"replay": {}}, {"replay": []}, {"plan": {}}, {"workload": None}]
)
def test_a_damaged_run_is_named(tmp_path: Path, damage: dict[str, object]) -> None:
    assert live_run(0, manifest(tmp_path / "run")).settle_ms > 0
    with pytest.raises(DataError, match=r"manifest.json is damaged: "):
        live_run(0, manifest(tmp_path / "run", **damage))


def test_runs_that_would_hide_each_other_and_traces_of_other_brokers_are_refused(tmp_path: Path) -> None:
    both = [manifest(tmp_path / "one"), manifest(tmp_path / "two")]
    with pytest.raises(UsageError, match=r"one and .*two are runs of dht on one workload; analyse them separately$"):
        analyse(both)
    row = Row(run=0, kind="event", sender="a", receiver="elsewhere", messages=1)
    with pytest.raises(DataError, match="from a to elsewhere"):
        strategy_result(live_run(0, both[0]), [row], [], 0)


def test_a_lost_delivery_is_noticed() -> None:
    place = {"lat_e7": 0, "lon_e7": 0, "radius_cm": -1, "home": 0}
    said = pd.DataFrame(
        [
            {"t_ms": 0.0, "client": 1, "kind": int(Kind.SUBSCRIPTION), "number": -1, **place},
            {"t_ms": 1000.0, "client": 2, "kind": int(Kind.EVENT), "number": 0, **place},
            {"t_ms": 2000.0, "client": 2, "kind": int(Kind.EVENT), "number": 1, **place},
        ]
    )
    got = pd.DataFrame([{"client": 1, "home": 0, "publisher": 2, "number": 0}] * 2)
    verdict = judge_topic(said, got, 7, 3, 10.0).to_dict("records")[0]
    assert json.loads(json.dumps(verdict)) == {
        "run": 7,
        "topic": 3,
        "home": 0,
        "required": 2,
        "possible": 0,
        "received": 1,
        "lost": 1,
        "duplicated": 1,
        "unexpected": 0,
    }
