"""Whole brokers keep what they promise, the same seed gives the same run, and a failure can be seen again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim import soak
from geomq.sim.virtual.run import run
from geomq.sim.virtual.scenario import HABITS, TROUBLES, Options, Scenario
from geomq.sim.virtual.soak import command_of, play

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("seed", [101, 103, 104, 105, 106, 107, 108, 110, 111])
def test_a_seed_breaks_no_promise(seed: int) -> None:
    assert play(seed).failure is None


def test_the_same_seed_gives_the_same_run_whatever_texts_hash_to() -> None:
    code = "from geomq.sim.virtual.run import run; print([run(seed).digest for seed in (1, 4)])"
    digests = set()
    for hash_seed in ("0", "1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code]
        digests.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    digests.add(f"{[run(seed).digest for seed in (1, 4)]}\n")
    assert len(digests) == 1


def test_another_seed_is_another_run() -> None:
    assert run(1).digest != run(4).digest


def test_seeds_draw_every_strategy_trouble_and_habit() -> None:
    scenarios = [Scenario(seed) for seed in range(200)]
    assert {scenario.strategy for scenario in scenarios} == set(STRATEGIES)
    assert {trouble for scenario in scenarios for trouble in scenario.troubles} == set(TROUBLES)
    assert {habit for scenario in scenarios for habit in scenario.habits} == set(HABITS)
    assert {scenario.mode for scenario in scenarios} == {"calm", "heals", "never heals"}
    assert {scenario.refuses for scenario in scenarios} == {True, False}


def test_what_a_run_is_told_is_not_left_to_its_seed() -> None:
    options = Options(strategy="mesh", mode="calm", habits=frozenset({"will"}))
    scenario = Scenario(3, options)
    assert (scenario.strategy, scenario.mode) == ("mesh", "calm")
    assert (scenario.habits, scenario.troubles) == (frozenset({"will"}), frozenset())


def test_a_failure_names_the_command_that_shows_it() -> None:
    options = Options(strategy="georendezvous", strategy_options=(("rendezvous", 3),))
    assert command_of(7, options) == (
        "python -m geomq.sim.soak --whole --seed 7 --transcript --strategy georendezvous --option rendezvous=3"
    )


def test_a_transcript_says_what_clients_did_and_brokers_logged(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--whole", "--seed", "1", "--transcript"]) == 0
    printed = capsys.readouterr().out
    assert f"transcript {run(1).digest}" in printed
    for expected in ("seed 1: ", "] geomq.broker: listening", "is let in by", "acknowledged", "0 violations"):
        assert expected in printed


def test_many_seeds_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--whole", "--seed", "1", "--strategy", "single"]) == 0
    assert capsys.readouterr().out.startswith("1 seeds of whole brokers: 0 failed; ")


def test_a_transcript_is_of_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        soak.main(["--transcript"])
    assert "--transcript goes with --whole and --seed" in capsys.readouterr().err
