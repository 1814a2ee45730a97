"""`geomq dashboard` as a person starts and stops it."""

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

GEOMQ = [sys.executable, "-m", "geomq"]


def test_a_set_up_is_served_until_control_c() -> None:
    command = [*GEOMQ, "dashboard", "--setup", "9,40", "--port", "0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        address = re.fullmatch(r"Dashboard: (http://127\.0\.0\.1:\d+/)\n", running.stdout.readline())
        assert address is not None
        with urllib.request.urlopen(f"{address[1]}api/views/setup-9-40", timeout=60) as answer:
            assert b'"kind":"setup"' in answer.read()
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    assert running.returncode == 0


def test_off_loopback_a_token_is_made_and_shown_once() -> None:
    command = [*GEOMQ, "dashboard", "--setup", "1,2", "--host", "0.0.0.0", "--port", "0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        page, token = running.stdout.readline(), running.stdout.readline().split()[-1]
        port = page.rstrip("/\n").rpartition(":")[2]
        assert token not in page
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/views", timeout=60)
        assert refused.value.code == 401
        refused.value.close()
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--setup", "nine"],
        ["--setup", "0,1"],
        ["--setup", "4,10", "--setup", "4,10"],
        ["nowhere"],
        ["--admin", "nonsense"],
        ["--setup", "1,1", "--token-file", "nowhere"],
        ["--setup", "1,1", "--keyfile", "nowhere"],
        ["--setup", "1,1", "--certfile", "nowhere"],
    ],
)
def test_what_cannot_be_shown_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    command = [*GEOMQ, "dashboard", "--port", "0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("geomq: ")
    assert done.stderr.count("\n") == 1
