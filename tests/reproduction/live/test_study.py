"""The live experiments in small: real brokers, Mosquitto, Spark, and the papers' statements about what comes out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from geomq.cli import main
from geomq.errors import UsageError
from geomq.reproduction.live.report import as_json, claims, is_full, markdown, percentile, share, write_figures
from geomq.reproduction.live.study import FULL, QUICK, Study, StudySize, chosen, run_study
from geomq.testbed.processes import mosquitto_path

SMALL = StudySize(
    scenarios=("context",),
    strategies=("disgb_events",),
    clients=60,
    seconds=20,
    ways=("broadcast groups",),
    iov_seconds=4,
    iov_speed=1.0,
    probes=3,
    seeds=2,
)

needs_mosquitto = pytest.mark.skipif(mosquitto_path() is None, reason="mosquitto is not installed")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def study(directory: Path) -> Study:
    return run_study(directory, SMALL, seed=1, master=None)


@needs_mosquitto
def test_the_statements_hold_in_small(study: Study) -> None:
    # How late the replayer is and what brokers add to links depends on what else the machine does.
    timing = ("the replayer is less than", "the median delivery takes")
    for claim in claims(study):
        assert claim.holds or any(word in claim.text for word in timing), claim


@needs_mosquitto
def test_excess_data_is_that_of_the_tables_and_links_take_their_time(study: Study) -> None:
    assert {flow: round(share(counts), 2) for flow, counts in study.excess["broadcast groups"].items()} == {
        "/car-telemetry": 0.33,
        "/traffic-control": 0.0,
    }
    # The quickest of thousands, because a busy machine slows most of them.
    quickest = {way: percentile(found, 0.001) for way, found in study.latency["broadcast groups"].items()}
    assert 4 <= quickest["same edge broker"] < 7 <= quickest["edge 2 and edge 3"] < 44
    assert quickest["monitoring to authority"] >= 44


@needs_mosquitto
def test_a_study_becomes_text_figures_and_data(study: Study, tmp_path: Path) -> None:
    text = markdown(study)
    assert "context, 2 seeds" in text
    assert "Tables I and II" in text
    assert json.loads(as_json(study))["checks"]["context"]["disgb_events"]["lost"] == 0
    assert {path.name for path in write_figures(study, tmp_path)} == {"live-context.svg", "live-telemetry.svg"}
    assert not is_full(study.live["context"])


@needs_mosquitto
@pytest.mark.parametrize(
    ("changed", "seed", "reason"),
    [
        ({}, 2, r"context holds another workload \(seed 1, not 2\)"),
        ({"seconds": 30}, 1, r"context holds another workload \(seconds 2"),
        ({"iov_seconds": 5}, 1, "iov holds another workload"),
        ({"speed": 3.0}, 1, r"context-disgb_events holds a run of another plan \(its workload differs\)"),
    ],
)
def test_what_another_study_left_is_not_taken_for_this_one(
    study: Study, directory: Path, changed: dict[str, Any], seed: int, reason: str
) -> None:
    assert study.live
    with pytest.raises(UsageError, match=reason):
        run_study(directory, replace(SMALL, **changed), seed=seed, master=None)


def test_parts_of_a_study_can_be_chosen() -> None:
    part = chosen(FULL, only="hiking,groups", strategies="adaptive", speed=3, seconds=60)
    assert (part.scenarios, part.strategies, part.speed, part.ways) == (("hiking",), ("adaptive",), 3, FULL.ways)
    assert (part.seconds, part.iov_seconds) == (60, FULL.iov_seconds)
    shorter = chosen(QUICK, only="open", strategies=None, speed=None)
    assert (shorter.ways, shorter.seconds) == ((), QUICK.seconds)
    with pytest.raises(UsageError, match="'hikking' is unknown; choose one of"):
        chosen(FULL, only="hikking", strategies=None, speed=None)


def test_the_command_refuses_unknown_parts_in_one_line() -> None:
    result = CliRunner().invoke(main, ["reproduce", "live", "--only", "nothing"])
    assert result.exit_code == 2
    assert "'nothing' is unknown; choose one of open, hiking, context, groups" in result.output
