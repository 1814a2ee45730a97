"""`geomq simulate`: what it prints, for people and for programs, and how it refuses."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from geomq.cli import main
from geomq.routing.strategies.registry import STRATEGIES

GEOMQ = str(Path(sys.executable).parent / "geomq")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments])


@pytest.fixture(scope="module")
def all_strategies() -> dict[str, Any]:
    command = [GEOMQ, "simulate", "--brokers", "9", "--clients", "60", "--seconds", "150", "--topics", "6", "--json"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert finished.stderr == ""
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


def test_all_means_every_strategy_that_can_serve(all_strategies: dict[str, Any]) -> None:
    assert list(all_strategies["strategies"]) == [name for name in STRATEGIES if name != "single"]


def test_every_strategy_delivers_the_same_in_the_quiet_tail(all_strategies: dict[str, Any]) -> None:
    tails = {name: result["quiet_tail_deliveries"] for name, result in all_strategies["strategies"].items()}
    assert len(set(tails.values())) == 1, tails
    assert min(tails.values()) >= 60


def test_the_result_has_counts_by_kind_and_latencies(all_strategies: dict[str, Any]) -> None:
    assert all_strategies["scenario"] == {
        "brokers": 9,
        "clients": 60,
        "seconds": 150,
        "topics": 6,
        "preset": "steady",
        "seed": 1,
    }
    assert all_strategies["wall_s"] >= 0
    for name, result in all_strategies["strategies"].items():
        messages = dict(result["messages"])
        total = messages.pop("total")
        assert set(messages) == {"event", "subscription", "delivery", "location", "control"}
        assert total == sum(messages.values())
        assert total > 0, name
        latency = result["latency_ms"]
        assert latency["count"] == result["deliveries"] > 0
        assert 10 <= latency["min"] <= latency["p50"] <= latency["p75"] <= latency["p99"] <= latency["max"]
        assert {"mean", "std"} <= set(latency)
        assert {"subscription_delay_ms", "redundant", "load_max"} <= set(result)
        assert re.fullmatch("[0-9a-f]{32}", result["trace_hash"])


def test_every_strategy_is_judged_by_the_oracle(all_strategies: dict[str, Any]) -> None:
    for name, result in all_strategies["strategies"].items():
        verdict = result["verdict"]
        assert verdict["expected"] == result["quiet_tail_deliveries"] >= 60, name
        assert (verdict["missed"], verdict["unexpected"], verdict["doubled"], verdict["first"]) == (0, 0, 0, None), name


def test_what_is_known_of_the_strategies_shows_in_the_counts(all_strategies: dict[str, Any]) -> None:
    counts = {name: result["messages"] for name, result in all_strategies["strategies"].items()}
    assert counts["flood_events"]["subscription"] == counts["flood_subscriptions"]["event"] == 0
    assert counts["disgb_events"]["total"] < counts["flood_events"]["total"]
    assert counts["disgb_subscriptions"]["total"] < counts["flood_subscriptions"]["total"]


SMALL = ("--brokers", "4", "--clients", "12", "--seconds", "150", "--topics", "5")


def test_the_same_seed_gives_the_same_trace() -> None:
    def trace(seed: int) -> str:
        result = run("--strategy", "disgb_events", *SMALL, "--json", "--seed", str(seed))
        return str(json.loads(result.output)["strategies"]["disgb_events"]["trace_hash"])

    assert trace(4) == trace(4) != trace(5)


def test_a_person_gets_a_table() -> None:
    result = run("--strategy", "dht", *SMALL)
    assert result.exit_code == 0
    assert "4 brokers, 10 clients (12 by population, rounded down), 150 s, seed 1" in result.output
    (row,) = [line for line in result.output.splitlines() if line.startswith("dht ")]
    assert len(re.split(" {2,}", row)) == 11
    assert row.endswith("  right")


@pytest.mark.parametrize("strategy", ["disgb_events", "disgb_subscriptions", "dht", "mesh", "adaptive"])
def test_a_transcript_is_something_a_person_can_follow(strategy: str) -> None:
    result = run("--strategy", strategy, *SMALL, "--explain", "--steps", "40")
    lines = result.output.splitlines()
    assert result.exit_code == 0
    steps = [line for line in lines if re.match(r" *\d+ [^:]+: ", line)]
    actions = [line for line in lines if re.match(r" {8,}-> (to [^:]+: |deliver |drop )", line)]
    assert len(steps) + len(actions) == len(lines)
    assert steps
    assert actions
    assert len([line for line in steps if ": received " not in line]) == 40


def test_a_transcript_stops_when_it_was_asked_to() -> None:
    result = run("--strategy", "flood_events", "--clients", "2000", "--seconds", "900", "--explain", "--steps", "1")
    assert len([line for line in result.output.splitlines() if "->" not in line]) == 1


def test_a_strategy_of_ones_own_is_simulated() -> None:
    result = run("--strategy", "geomq.routing.strategies.dht:Dht", *SMALL, "--json")
    own, built_in = (json.loads(r.output)["strategies"] for r in (result, run("--strategy", "dht", *SMALL, "--json")))
    assert own["geomq.routing.strategies.dht:Dht"] == built_in["dht"]


REFUSED = [
    (["--strategy", "disgb_event"], "unknown strategy 'disgb_event'; did you mean disgb_events?"),
    (["--strategy", "quantum"], "known are single, flood_events"),
    (["--strategy", "no.such:Thing"], "cannot load strategy 'no.such:Thing'"),
    (["--strategy", "builtins:dict"], "is not a subclass of"),
    (["--strategy", "single", "--brokers", "3"], "serves one broker"),
    (["--brokers", "0"], "brokers must be between 1 and 1000, not 0"),
    (["--brokers", "1001"], "brokers must be between 1 and 1000, not 1001"),
    (["--brokers", "900"], "ask for fewer brokers"),
    (["--brokers", "many"], "'many' is not a valid integer"),
    (["--clients", "0"], "clients must be between 1 and 200,000"),
    (["--clients", "1000000"], "geomq evaluate has no such limit"),
    (["--brokers", "25", "--clients", "3"], "too few"),
    (["--seconds", "0"], "seconds must be between"),
    (["--seconds", "-1"], "seconds must be between"),
    (["--topics", "0"], "topics must be between"),
    (["--topics", "3"], "topics per client"),
    (["--seed", "-1"], "seed must be between 0"),
    (["--seed", str(2**70)], "seed must be between 0"),
    (["--steps", "0", "--explain"], "'--steps'"),
    (["--explain"], "--explain follows one strategy; name it with --strategy"),
    (["-s", "dht", "--explain", "--json"], "it cannot be combined with --json or --trace"),
    (["-s", "dht", "--explain", "--trace", "x"], "it cannot be combined with --json or --trace"),
    (["-s", "dht", "--topics", "20000000"], "the number of topics must be between 1 and 10,000,000, not 20,000,000"),
    (["--preset", "fast"], "'fast' is not one of 'paper', 'steady'"),
    (["--fast"], "No such option"),
    (["-s", "dht,"], "an empty name in the list of strategies"),
    (["-s", "dht,quantum"], "unknown strategy 'quantum'"),
    (["-s", "no_such_module:Thing"], "it must be in the working directory or on PYTHONPATH"),
    (
        ["-s", "mesh,dht", "--option", "redundncy=1"],
        "has an option 'redundncy': mesh has links,",
    ),
    (["-s", "mesh", "--option", "redundancy=x"], "option redundancy of mesh: Expected `int`"),
    (["-s", "mesh", "--option", "redundancy"], "an option must be name=value"),
    (["-s", "dht", "--csv"], "--csv goes with --sweep"),
    (["-s", "dht", "--engine", "local"], "--engine goes with --sweep"),
    (["-s", "dht", "--master", "local[1]"], "--master goes with --sweep"),
    (["-s", "dht", "--out", "x"], "--out goes with --sweep"),
    (["-s", "dht", "--sweep", "seed=1", "--explain"], "it cannot be combined with --explain or --trace"),
    (["-s", "dht", "--sweep", "seed=1", "--csv", "--json"], "give either --csv or --json"),
    (["-s", "dht", "--sweep", "seed=1", "--engine", "local", "--master", "x"], "--master needs --engine spark"),
    (["-s", "dht", "--sweep", "speed=1", "--engine", "local"], "a sweep is name=value"),
    (["-s", "dht", "--sweep", "seed=1", "--master", "nonsense"], "not a Spark master"),
]


@pytest.mark.parametrize(("arguments", "reason"), REFUSED, ids=[" ".join(arguments)[:40] for arguments, _ in REFUSED])
def test_the_impossible_is_refused_in_one_line(arguments: list[str], reason: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("geomq: ")
    assert result.stderr.count("\n") == 1
    assert reason in result.stderr


def test_an_error_is_one_line_outside_a_test_too() -> None:
    command = [GEOMQ, "simulate", "--strategy", "single", "--brokers", "24"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == "geomq: strategy single serves one broker; this federation has 24\n"


def test_an_interrupt_ends_it_and_its_workers_at_once() -> None:
    command = [GEOMQ, "simulate", "--clients", "5000", "--seconds", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            until_it_has_children(process)
            os.killpg(process.pid, signal.SIGINT)
            _, error = process.communicate(timeout=60)
            for _ in range(3_000):
                os.killpg(process.pid, 0)
                time.sleep(0.01)
        except ProcessLookupError:
            pass  # all of them are gone
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
                pytest.fail("it left workers behind")
    assert (process.returncode, error) == (130, b"geomq: interrupted\n")


def until_it_has_children(process: "subprocess.Popen[bytes]") -> None:
    """The very moment at which its workers begin."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None and not children.read_text():
        time.sleep(0.001)


@pytest.mark.parametrize("more", [["--json"], ["--explain"]])
def test_a_run_too_short_for_subscriptions_says_so(more: list[str]) -> None:
    few = ["-s", "disgb_events", "-b", "4", "-c", "40", "--topics", "5"]
    short, long = run(*few, "-t", "30", *more), run(*few, "-t", "100", *more)
    assert short.stderr == "geomq: no client subscribed: clients begin after 50 s or later; give more --seconds\n"
    assert long.stderr == ""
    assert (short.exit_code, long.exit_code) == (0, 0)


def test_the_transcript_of_the_readme_shows_an_event_at_another_broker() -> None:
    command = "--strategy disgb_events --brokers 9 --clients 100 --topics 5 --explain"
    assert f"geomq simulate {command}\n" in (Path(__file__).parents[2] / "README.md").read_text()
    assert re.search(r": from \w+: ForwardEvent .*\n +-> deliver", run(*command.split()).output)


@pytest.mark.parametrize(
    ("bug", "fault"), [("Forgetful", "missed"), ("Gossip", "unexpected"), ("Stutterer", "doubled"), ("Idle", "missed")]
)
def test_a_wrong_strategy_is_seen_to_be_wrong(bug: str, fault: str) -> None:
    name = f"tests.sim.planted:{bug}"
    shown = run("--strategy", f"dht,{name}", *SMALL)
    verdicts = {line.split()[0]: re.split(" {2,}", line)[-1] for line in shown.stdout.splitlines() if "  " in line}
    assert shown.exit_code == 1
    assert verdicts["dht"] == "right"
    assert re.search(rf"\b[1-9]\d* {fault}", verdicts[name])
    assert re.fullmatch(rf"geomq: {name} is wrong: .*[1-9]\d* {fault}.* of [1-9]\d*; .+\n", shown.stderr)
    as_json = run("--strategy", name, *SMALL, "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["strategies"][name]["verdict"][fault] > 0


def test_an_option_changes_what_is_simulated() -> None:
    def simulated(*options: str) -> dict[str, Any]:
        result = run("--strategy", "mesh,dht", *SMALL, "--json", *options)
        assert result.exit_code == 0, result.output
        return dict(json.loads(result.stdout)["strategies"])

    usual, rare = simulated(), simulated("--option", "announce_ms=60000")
    assert rare["mesh"]["options"] == {"announce_ms": 60_000}
    assert rare["mesh"]["messages"]["control"] < usual["mesh"]["messages"]["control"]
    assert rare["dht"] == usual["dht"]
    assert usual["dht"]["options"] == {}


def test_an_option_changes_the_transcript() -> None:
    usual = run("--strategy", "mesh", *SMALL, "--explain").output
    assert usual != run("--strategy", "mesh", *SMALL, "--explain", "--option", "announce_ms=60000").output


OWN = """
from geomq.routing.strategies.flooding import FloodEvents


class Mine(FloodEvents):
    def event_targets(self, event):
        return self.federation.ids[:1]
"""


@pytest.mark.parametrize(
    "more", [["--json"], ["--sweep", "seed=1,2", "--engine", "local", "--json"]], ids=["one", "sweep"]
)
def test_a_module_of_the_working_directory_is_found(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "found_here.py").write_text(OWN)
    command = [GEOMQ, "simulate", "--strategy", "found_here:Mine", *SMALL, *more]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 1
    assert "found_here:Mine" in finished.stdout
    assert finished.stderr.startswith("geomq: found_here:Mine is wrong: ")


def test_help_names_all_strategies() -> None:
    said = " ".join(run("--help").output.split())
    assert ", ".join(STRATEGIES) in said
