"""`geomq up`: a whole federation with one command, started and stopped as a person would."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

GEOMQ = [sys.executable, "-m", "geomq"]


@pytest.mark.parametrize("strategy", ["flood_events", "adaptive", "broadcast_groups"])
def test_a_federation_comes_up_serves_and_stops(strategy: str) -> None:
    command = [*GEOMQ, "up", "--port", "0", "--page-port", "0", "--strategy", strategy, "--json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        said = json.loads(running.stdout.readline())
        assert said["strategy"] == strategy
        assert list(said["brokers"]) == ["paris", "frankfurt", "columbus"]
        with urllib.request.urlopen(said["page"], timeout=20) as page:
            assert b"<title>" in page.read()
        port = str(said["brokers"]["columbus"])
        sent = subprocess.run([*GEOMQ, "pub", "-p", port, "-t", "a", "-m", "b", "-q", "1"], timeout=20, check=False)
        assert sent.returncode == 0
    finally:
        running.send_signal(signal.SIGINT)
        _, _ = running.communicate(timeout=10)
    assert running.returncode == 0


@pytest.mark.parametrize(
    "arguments", [["--brokers", "0"], ["--brokers", "9999"], ["--strategy", "flod_events"], ["--port", "70000"]]
)
def test_what_cannot_be_is_refused_in_one_line(arguments: list[str]) -> None:
    command = [*GEOMQ, "up", "--no-demo", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
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
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert done.stderr.endswith("--port 0 and --page-port 0 take free ones\n")
    assert done.stderr.count("\n") == 1
