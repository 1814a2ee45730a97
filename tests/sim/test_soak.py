"""Many seeds with faults: every strategy holds, and a failure says how to see it again."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sim.faults_in_core import CORE_FAULTS, planted

from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim import soak, soak_run
from geomq.sim.soak_world import Dicer

ROOT = Path(__file__).parents[2]
FEDERATED = [name for name in STRATEGIES if name != "single"]


@pytest.mark.parametrize("strategy", FEDERATED)
def test_twelve_seeds_of_faults_break_no_rule(strategy: str) -> None:
    assert [line for seed in range(12) for line in soak.run_all(seed, {strategy: {}})] == []


@pytest.mark.parametrize("bug", ["Forgetful", "Stutterer", "Gossip", "Juggler"])
def test_a_planted_bug_is_found_within_a_few_seeds(bug: str) -> None:
    assert any(soak_run.run(f"tests.sim.planted:{bug}", seed) for seed in range(3))


@pytest.mark.parametrize("name", CORE_FAULTS)
def test_a_fault_planted_in_the_node_is_found(name: str) -> None:
    fault = CORE_FAULTS[name]
    with planted(fault):
        assert any(soak.run_all(seed, {fault.strategy: {}}) for seed in range(30))


@pytest.mark.parametrize(
    ("strategy", "seed"),
    [("broadcast_groups", 1), ("broadcast_groups", 61), ("broadcast_groups", 152), ("broadcast_groups", 221)],
)
def test_what_a_seed_found_once_stays_mended(strategy: str, seed: int) -> None:
    assert soak.run_all(seed, {strategy: {}}) == []


def test_a_failure_names_the_command_that_repeats_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--strategy", "tests.sim.planted:Forgetful", "--seed", "1"]) == 1
    first, last = capsys.readouterr().out.splitlines()
    command = first.split("again: ")[1]
    assert command == "python -m geomq.sim.soak --strategy tests.sim.planted:Forgetful --seed 1"
    assert last == "1 seeds x 1 strategies: 1 failed"
    again = subprocess.run(
        [sys.executable, *shlex.split(command)[1:]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (again.returncode, again.stdout.splitlines()) == (1, [first, last])


def test_an_exception_is_a_failure_that_can_be_repeated() -> None:
    (line,) = soak.run_all(0, {"tests.sim.planted:Clumsy": {}})
    assert line.startswith("tests.sim.planted:Clumsy, seed 0: RuntimeError: fell over")
    assert line.endswith("again: python -m geomq.sim.soak --strategy tests.sim.planted:Clumsy --seed 0")


def test_no_failure_is_exit_code_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--strategy", "dht", "--seed", "3"]) == 0
    assert capsys.readouterr().out == "1 seeds x 1 strategies: 0 failed\n"


@pytest.mark.parametrize(
    ("name", "reason"), [("dth", "did you mean dht?"), ("single", "serves one broker"), ("no:Thing", "cannot load")]
)
def test_a_strategy_that_cannot_run_is_refused_in_one_line(
    name: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert soak.main(["--strategy", name]) == 2
    printed = capsys.readouterr()
    assert reason in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--seeds", "-4"], ["--seeds", "many"], ["--sead", "1"]])
def test_bad_numbers_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        soak.main(arguments)
    assert refused.value.code == 2


def test_many_seeds_run_side_by_side() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "geomq.sim.soak", "--strategy", "flood_events", "--seeds", "6"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stdout) == (0, "6 seeds x 1 strategies: 0 failed\n")


def test_a_seed_is_a_whole_world() -> None:
    one, same, other = Dicer(5), Dicer(5), Dicer(6)
    assert one.federation.brokers == same.federation.brokers != other.federation.brokers
    assert one.setting_up() == same.setting_up()
    assert one.churn() == same.churn()
    assert one.faults(100, 900) == same.faults(100, 900)


def test_faults_are_healed_in_time() -> None:
    for seed in range(50):
        cuts, crashes = Dicer(seed).faults(1_000, 5_000)
        spans = [(cut.from_ms, cut.until_ms) for cut in cuts] + [(crash.from_ms, crash.until_ms) for crash in crashes]
        assert all(1_000 <= start < end <= 5_000 for start, end in spans)
