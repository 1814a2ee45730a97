"""`geomq up`: a whole federation with one command, started and stopped as a person would."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from tests import patience

from geomq.broker.local_federation import Site
from geomq.cli.up import UpOptions, _announce
from geomq.client import Client
from geomq.geo import Location
from geomq.routing.strategies.registry import STRATEGIES

GEOMQ = [sys.executable, "-m", "geomq"]


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "single"])
def test_a_federation_comes_up_under_every_strategy_serves_and_stops(strategy: str) -> None:
    """Demo clients and the page under the default strategy, workers under one."""
    demo = "--demo" if strategy == "adaptive" else "--no-demo"
    command = [*GEOMQ, "up", "--brokers", "3", "--strategy", strategy, demo, "--port", "0", "--page-port", "0"]
    command += ["--workers", "2"] if strategy == "mesh" else []
    running = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        said = json.loads(running.stdout.readline())
        assert (said["strategy"], len(said["brokers"])) == (strategy, 3)
        if demo == "--demo":
            assert list(said["brokers"]) == ["paris", "frankfurt", "columbus"]
            with urllib.request.urlopen(said["page"], timeout=60) as page:
                assert b"<title>" in page.read()
        first, *_, last = said["brokers"].values()
        assert patience.run(crosses(first, last)) == b"hello"
        if demo == "--demo":
            assert patience.run(version(last)).startswith(b"geomq version")
    finally:
        running.send_signal(signal.SIGINT)
        _, _ = running.communicate(timeout=60)
    assert running.returncode == 0


@pytest.mark.parametrize("demo", [True, False])
def test_only_what_somebody_publishes_is_suggested(demo: bool, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site("paris", Location(48.9, 2.4))
    plan = UpOptions(1, "single", None, 0, [], demo=demo, as_json=False)
    _announce([site], {"paris": 1883}, "single", "http://127.0.0.1/", plan)
    said = capsys.readouterr().out
    assert said.startswith("1 broker, strategy single")
    assert ("-t 'warning/#'" in said) == demo


async def version(port: int) -> bytes:
    """What the broker says of itself."""
    async with Client("127.0.0.1", port) as client:
        await client.subscribe("$SYS/broker/version")
        return (await anext(aiter(client))).payload


async def crosses(there: int, here: int) -> bytes:
    """What a client at one broker gets of what another publishes at the other, until it gets something."""
    async with Client("127.0.0.1", there, client_id="s") as reader, Client("127.0.0.1", here, client_id="p") as writer:
        await reader.subscribe("a", qos=1)
        arrival = asyncio.ensure_future(anext(aiter(reader)))
        async with asyncio.timeout(30):
            while not arrival.done():
                await writer.publish("a", b"hello", qos=1)
                await asyncio.wait([arrival], timeout=0.1)
        return bytes(arrival.result().payload)


def test_a_number_of_brokers_that_a_strategy_cannot_use_is_refused_in_one_line() -> None:
    command = [*GEOMQ, "up", "--no-demo", "--brokers", "3", "--strategy", "single"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "strategy single serves one broker; this federation has 3" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--brokers", "0"], ["--brokers", "9999"], ["--strategy", "flod_events"], ["--port", "70000"]]
)
def test_what_cannot_be_is_refused_in_one_line(arguments: list[str]) -> None:
    command = [*GEOMQ, "up", "--no-demo", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("geomq: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--port", "--page-port"])
def test_a_taken_port_is_one_line_that_says_what_to_do(option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        other = {"--port": "--page-port", "--page-port": "--port"}[option]
        port = taken.getsockname()[1]
        command = [*GEOMQ, "up", "--no-demo", "--brokers", "1", option, str(port), other, "0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert done.stderr.endswith("--port 0 and --page-port 0 take free ones\n")
    assert done.stderr.count("\n") == 1
