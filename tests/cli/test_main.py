"""The command line as a whole: what it lists, what it loads, how it refuses."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from geomq import __version__
from geomq.cli import COMMANDS, main
from geomq.errors import ConfigError
from geomq.extras import EXTRAS, missing
from geomq.workload.generation.disgb import DisgbSpec
from geomq.workload.generation.presets import PRESETS
from geomq.workload.generation.scenarios import SCENARIOS


def test_every_command_is_listed_with_a_summary() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name, (_, summary) in COMMANDS.items():
        assert f"{name} " in result.output
        assert summary.split(".")[0].split()[0] in result.output


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_there_for_simulate(option: str) -> None:
    result = CliRunner().invoke(main, ["simulate", option])
    assert result.exit_code == 0, result.output
    assert "--strategy" in result.output


def test_the_version_is_the_packages() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"geomq, version {__version__}\n"


def test_listing_loads_no_command() -> None:
    code = (
        "import sys, geomq.cli\n"
        "from click.testing import CliRunner\n"
        "CliRunner().invoke(geomq.cli.main, ['--help'])\n"
        "print(*[name for name in sys.modules if name.startswith(('geomq.', 'numpy', 'shapely', 'pyspark'))])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(finished.stdout.split()) == ["geomq.cli", "geomq.errors", "geomq.extras"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["simulat"], "geomq: No such command 'simulat'"),
        (["--verbos"], "geomq: No such option '--verbos'"),
        (["simulate", "extra"], "geomq: Got unexpected extra argument"),
    ],
)
def test_a_wrong_word_is_one_line(arguments: list[str], line: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import geomq.cli
geomq.cli.main({words!r})
"""


def run_without(hidden: tuple[str, ...], command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command in a process that does not find these packages."""
    code = WITHOUT.format(hidden=hidden, words=command.split())
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)


NEED_DATA = (
    "dashboard --setup 3,4",
    "dashboard .",
    "up --view .",
    "why .",
    "workload --engine local --out made",
    "evaluate --engine local",
    "evaluate --engine local --data .",
    "simulate --sweep seed=1,2 --engine local --out made",
    "simulate --trace made",
    "testbed plan.toml --out made",
    "advise --engine local .",
    "report .",
    "reproduce disgb --engine local",
    "reproduce rendezvous --engine local",
)
NEED_SPARK = (
    "workload --out made",
    "evaluate",
    "evaluate --data .",
    "simulate --sweep seed=1,2",
    "advise .",
    "analyse . --out made",
    "archive land --brokers 127.0.0.1:1 made",
    "archive report rates .",
    "reproduce disgb",
    "reproduce groups",
    "reproduce live",
    "reproduce mesh",
    "reproduce rendezvous",
)


@pytest.mark.parametrize(
    ("extra", "command"), [*(("data", each) for each in NEED_DATA), *(("spark", each) for each in NEED_SPARK)]
)
def test_without_an_extra_one_line_says_how_to_get_it(extra: str, command: str, tmp_path: Path) -> None:
    finished = run_without((*EXTRAS["data"], *EXTRAS["spark"]), command, tmp_path)
    assert (finished.returncode, finished.stdout) == (2, "")
    package = finished.stderr.partition(",")[0].rpartition(" ")[2]
    assert package in EXTRAS[extra]
    assert finished.stderr == f"geomq: {missing(package)}\n"
    assert list(tmp_path.iterdir()) == []


def test_the_data_extra_is_enough_for_all_that_runs_on_this_machine(tmp_path: Path) -> None:
    small = "--clients 300 --topics 5 --seconds 100 --engine local"
    for command in (
        f"workload {small} --out made",
        "evaluate --engine local --data made --out results",
        "report results --out report",
        "simulate -b 4 -c 20 -t 100 --topics 5 -s dht --trace trace",
        "why --limit 1 trace",
        "advise --engine local --samples 0 trace",
        "simulate -b 4 -c 20 -t 60 -s dht --sweep seed=1,2 --engine local --out sweep",
        "reproduce rendezvous --engine local --networks 1 --out rendezvous",
    ):
        finished = run_without(EXTRAS["spark"], command, tmp_path)
        assert finished.returncode == 0, f"{command}: {finished.stderr}"


def test_nothing_but_the_base_is_needed_to_simulate(tmp_path: Path) -> None:
    hidden = (*EXTRAS["data"], *EXTRAS["spark"], "uvloop")
    finished = run_without(hidden, "simulate -b 4 -c 20 -t 60 --topics 5", tmp_path)
    assert (finished.returncode, finished.stderr.count("Traceback")) == (0, 0)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> str:
    @click.command()
    def fail() -> None:
        raise ConfigError("first line\n   second line")

    monkeypatch.setattr(main, "get_command", lambda ctx, name: fail)
    return "fail"


def test_an_error_of_several_lines_is_printed_as_one(failing: str) -> None:
    result = CliRunner().invoke(main, [failing])
    assert (result.exit_code, result.stderr) == (2, "geomq: first line second line\n")


def test_without_a_command_the_help_is_shown() -> None:
    result = CliRunner().invoke(main, [])
    assert "Commands:" in result.output
    assert "geomq: " not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["advise", "--last", "nan", "trace"],
        ["advise", "--live", "127.0.0.1:1", "--seconds", "nan"],
        ["sub", "-t", "a", "-W", "nan"],
        ["pub", "-t", "a", "-m", "x", "--timeout", "nan"],
        ["archive", "land", "--brokers", "a", "--snapshot-every", "nan", "out"],
        ["replay", "x", "--brokers", "a", "--seconds", "nan", "--out", "y"],
    ],
)
def test_nan_is_no_number(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "'nan' is not a number" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["workload", "evaluate"])
def test_help_says_what_a_workload_is_if_nothing_is_given(command: str) -> None:
    said = " ".join(CliRunner().invoke(main, [command, "--help"]).output.split())
    usual = DisgbSpec()
    for number in (usual.clients, usual.topics, usual.seconds, SCENARIOS["hiking"].clients):
        assert f"{number:,}" in said
    assert f"{usual.event_fence_deg:g} if not given" in said
    assert f"{usual.subscription_fence_deg:g} if not given" in said
    assert all(preset in said for preset in PRESETS)
    assert "name, latitude, longitude and population" in said
