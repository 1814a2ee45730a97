"""Sweeps: which runs there are, the same numbers from every engine, failures as rows."""

import dataclasses
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from geomq.cli import main
from geomq.errors import ConfigError, UsageError
from geomq.pipeline.own_modules import own_modules_zip
from geomq.pipeline.pool import in_processes
from geomq.pipeline.simulation import Scenario
from geomq.pipeline.sweep import SimulationRow, longest_first, run_numbered, runs_of, sweep_locally
from geomq.pipeline.sweep_on_spark import sweep_on_spark
from geomq.workload.schema import DATASETS

SMALL = Scenario(brokers=4, clients=30, seconds=90, topics=5, preset="steady", seed=1)

SKIPPING = """
from skipping_places import some_of
from geomq.routing.strategies.flooding import FloodEvents
from geomq.routing.core.strategy import StrategyOptions


class Options(StrategyOptions, frozen=True):
    skip: int = 0


class Skipping(FloodEvents):
    Options = Options

    def event_targets(self, event):
        if self.options.skip == 9:
            raise RuntimeError("fell\\nover")
        return some_of(self.federation.ids, self.options.skip)
"""
PLACES = """
def some_of(ids, skip):
    return ids[: len(ids) - skip]
"""


@pytest.fixture
def skipping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A strategy in a directory that only this process knows; it leaves out as many brokers as its option says."""
    (tmp_path / "skipping_strategy.py").write_text(SKIPPING)
    (tmp_path / "skipping_places.py").write_text(PLACES)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "skipping_strategy:Skipping"
    for name in ("skipping_strategy", "skipping_places"):
        sys.modules.pop(name, None)


def test_a_sweep_is_every_combination_each_once() -> None:
    runs = runs_of(SMALL, ["dht", "mesh"], ["seed=0..2", "brokers=4,9", "option.redundancy=1,2"])
    assert len(runs) == 3 * 2 * (1 + 2)
    assert {run.scenario.seed for run in runs} == {0, 1, 2}
    assert {run.scenario.brokers for run in runs} == {4, 9}
    assert {(run.strategy, run.options_text) for run in runs} == {
        ("dht", ""),
        ("mesh", '{"redundancy": 1}'),
        ("mesh", '{"redundancy": 2}'),
    }


def test_options_given_once_hold_for_all_runs_unless_swept() -> None:
    runs = runs_of(SMALL, ["mesh"], ["option.redundancy=1,2"], ["redundancy=5", "announce_ms=99"])
    assert [run.options for run in runs] == [{"redundancy": n, "announce_ms": 99} for n in (1, 2)]


def test_a_json_value_may_have_commas() -> None:
    runs = runs_of(SMALL, ["mesh"], ['option.links=null,[["a","b"],["b","c"]],[]'])
    assert [run.options["links"] for run in runs] == [None, (("a", "b"), ("b", "c")), ()]


def test_all_are_those_that_can_serve_each_federation() -> None:
    runs = runs_of(dataclasses.replace(SMALL, clients=60), None, ["brokers=1,4"])
    assert {run.scenario.brokers for run in runs if run.strategy == "single"} == {1}
    assert {run.scenario.brokers for run in runs if run.strategy == "dht"} == {1, 4}


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        (["speed=1"], "a sweep is name=value,value or name=first..last with a name from seed, brokers"),
        (["seed="], "a sweep is name=value"),
        (["seed"], "a sweep is name=value"),
        (["seed=3..1"], "a sweep is name=value"),
        (["seed=one"], "'one' is not a number for seed"),
        (["seed=1,,2"], "'' is not a number for seed"),
        (["seed=1", "seed=2"], "seed is swept twice"),
        (["seed=0..99999"], "more than 10,000 numbers"),
        (["seed=0..999", "topics=5..25"], "at most 10,000 runs"),
        (["seed=-1"], "seed must be between"),
        (["brokers=4,0"], "brokers must be between"),
        (["option.nope=1"], "none of these strategies has an option 'nope'"),
    ],
)
def test_an_impossible_sweep_is_refused(terms: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        runs_of(SMALL, ["dht"], terms)


def test_a_strategy_that_cannot_serve_a_size_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="serves one broker"):
        runs_of(SMALL, ["single"], ["brokers=1,4"])


def test_every_engine_gives_the_same_rows_for_a_strategy_of_ones_own(spark: SparkSession, skipping: str) -> None:
    runs = runs_of(SMALL, [skipping, "dht"], ["seed=1,2", "option.skip=0,1,9"])
    here = [run_numbered(numbered) for numbered in enumerate(runs)]
    assert sweep_locally(runs) == here
    assert sweep_on_spark(runs, master="local[2]") == here
    right = [row for row in here if "1" not in row.options and "9" not in row.options]
    assert len(right) == 4
    assert not any(row.is_wrong for row in right)
    assert all(row.expected and row.total_messages and row.trace_hash for row in right)
    skipped = [row for row in here if row.options == '{"skip": 1}']
    assert all(row.is_wrong and row.missed and row.first and "did not reach" in row.first for row in skipped)
    failed = [row for row in here if row.options == '{"skip": 9}']
    assert {row.error for row in failed} == {"RuntimeError: fell over (skipping_strategy.py:16)"}
    assert all(row.is_wrong and row.expected is None for row in failed)


def test_the_command_of_a_run_repeats_it() -> None:
    (run,) = runs_of(SMALL, ["mesh"], ["seed=3"], ['groups={"topic-1": "a b"}', "redundancy=1"])
    words = shlex.split(run.command())
    assert words[:2] == ["geomq", "simulate"]
    result = CliRunner().invoke(main, [*words[1:], "--json"])
    row = run_numbered((0, run))
    assert result.exit_code == 0
    assert f'"trace_hash": "{row.trace_hash}"' in result.output


def test_the_longest_runs_start_first_and_the_rows_keep_their_order() -> None:
    runs = runs_of(SMALL, ["dht"], ["clients=10,30,20"])
    assert [number for number, _ in longest_first(runs)] == [1, 2, 0]
    assert [(row.run, row.clients) for row in sweep_locally(runs)] == [(0, 10), (1, 30), (2, 20)]


def test_rows_have_the_columns_of_their_dataset() -> None:
    names = [field.name for field in dataclasses.fields(SimulationRow)]
    assert names == [column.name for column in DATASETS["simulations"]]


def test_own_modules_take_along_what_they_were_loaded_with(tmp_path: Path, skipping: str) -> None:
    import zipfile

    made = own_modules_zip(tmp_path, [skipping, "dht"])
    assert made is not None
    assert zipfile.ZipFile(made).namelist() == ["skipping_places.py", "skipping_strategy.py"]
    assert own_modules_zip(tmp_path, [skipping]) == made
    (tmp_path / "skipping_places.py").write_text(PLACES + "\n")
    assert own_modules_zip(tmp_path, [skipping]) != made


def test_nothing_is_taken_along_for_built_in_strategies(tmp_path: Path) -> None:
    assert own_modules_zip(tmp_path, ["dht", "geomq.routing.strategies.dht:Dht"]) is None


def test_a_package_goes_along_whole(tmp_path: Path) -> None:
    import zipfile

    made = own_modules_zip(tmp_path, ["tests.sim.planted:Forgetful"])
    assert made is not None
    names = zipfile.ZipFile(made).namelist()
    assert {"tests/sim/planted.py", "tests/routing/goldens/dht.txt"} <= set(names)
    assert not any(name.startswith("geomq/") or "__pycache__" in name for name in names)


def test_processes_give_results_in_the_order_of_the_tasks() -> None:
    assert list(in_processes(abs, [-3, 1, -2])) == [3, 1, 2]
    assert list(in_processes(abs, [-3])) == [3]
