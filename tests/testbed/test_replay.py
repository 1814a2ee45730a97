"""Workloads replayed against real brokers: everything is said, heard and written down."""

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from geomq.broker.config.settings import Config, Listener, Persistence
from geomq.broker.local_federation import free_ports
from geomq.cli import main
from geomq.errors import UsageError
from geomq.testbed.processes import BrokerProcess, MosquittoProcess, mosquitto_path
from geomq.testbed.replay import ReplayReport, ReplaySettings, replay, spread
from geomq.testbed.replay_worker import BrokerAddress
from geomq.workload.dataset import read_manifest
from geomq.workload.files import read_table
from geomq.workload.generation.generate import write_workload
from geomq.workload.generation.presets import Request, build


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty validation clients, all three homes at one broker."""
    directory = tmp_path_factory.mktemp("replay") / "workload"
    request = Request("validation", clients=30, seconds=15)
    write_workload(directory, *build(request), request, overwrite=False)
    return directory


def run_against(port: int, workload: Path, out: Path, *, plain: bool, qos: int = 0) -> ReplayReport:
    brokers = [BrokerAddress("one", "127.0.0.1", port, plain)] * 3
    return replay(workload, brokers, ReplaySettings(speed=10, processes=2, qos=qos), out)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_replay_says_and_hears_everything_once(workload: Path, tmp_path: Path, qos: int) -> None:
    config = Config(
        listeners=(Listener(host="127.0.0.1", port=free_ports(1)[0]),), persistence=Persistence(enabled=False)
    )

    async def run() -> ReplayReport:
        async with BrokerProcess(config, tmp_path / "broker") as broker:
            return await asyncio.to_thread(run_against, broker.port, workload, tmp_path / "out", plain=False, qos=qos)

    report = asyncio.run(run())
    actions = read_table(workload / "actions" / "part-00000.parquet", "actions")
    kinds = Counter(actions.column("kind").to_pylist())
    assert (report.locations, report.subscriptions, report.events) == (kinds[0], kinds[1], kinds[2])
    assert (report.unsent, report.refused, report.connections_lost) == (0, 0, 0)
    assert read_manifest(tmp_path / "out", "replay")["report"]["received"] == report.received
    heard: Counter[tuple[int, int, int]] = Counter()
    for part in range(2):
        table = read_table(tmp_path / "out" / "received" / f"part-{part:05d}.parquet", "received").to_pydict()
        heard.update(zip(table["client"], table["publisher"], table["number"], strict=True))
    # Everybody hears oneself in the first and the last burst; in the second the subscription is elsewhere.
    own = {(client, client, number) for client in range(30) for number in (*range(5), *range(10, 15))}
    assert own <= heard.keys()
    assert set(heard.values()) == {1}


@pytest.mark.skipif(mosquitto_path() is None, reason="mosquitto is not installed")
def test_a_plain_replay_drives_any_broker(workload: Path, tmp_path: Path) -> None:
    async def run() -> ReplayReport:
        async with MosquittoProcess("other", tmp_path / "broker") as broker:
            return await asyncio.to_thread(run_against, broker.port, workload, tmp_path / "out", plain=True)

    report = asyncio.run(run())
    assert report.locations == 0
    assert report.received == 30 * report.events


def test_a_replay_can_be_stopped(workload: Path, tmp_path: Path) -> None:
    async def run() -> None:
        listener = Listener(host="127.0.0.1", port=free_ports(1)[0])
        config = Config(listeners=(listener,), persistence=Persistence(enabled=False))
        async with BrokerProcess(config, tmp_path / "broker") as broker:
            brokers = [BrokerAddress("one", "127.0.0.1", broker.port)] * 3
            settings, out = ReplaySettings(speed=0.01, processes=1), tmp_path / "out"
            await asyncio.to_thread(replay, workload, brokers, settings, out, stopped=lambda: True)

    with pytest.raises(UsageError, match="the replay was stopped"):
        asyncio.run(run())
    assert not (tmp_path / "out").exists()


def test_a_broker_that_is_not_there_is_one_line(workload: Path, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = ["replay", str(workload), "--brokers", ",".join([address] * 3), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "cannot connect to a broker" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("brokers", "said"),
    [("127.0.0.1:1883", "the workload has 3 brokers"), ("nowhere", "'nowhere' is not host:port")],
)
def test_wrong_brokers_are_refused_before_anything_starts(
    workload: Path, tmp_path: Path, brokers: str, said: str
) -> None:
    result = CliRunner().invoke(main, ["replay", str(workload), "--brokers", brokers, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("wrong", [{"speed": 0}, {"processes": 0}, {"qos": 2}, {"seconds": -1}])
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        ReplaySettings(**wrong)


def test_a_spread_of_nothing_is_empty() -> None:
    import numpy as np

    assert spread(np.array([])) == {}
    assert spread(np.arange(101.0))["p50"] == 50.0


def test_mosquitto_is_found_where_the_shell_finds_it() -> None:
    found = shutil.which("mosquitto")
    assert found is None or mosquitto_path() == found
