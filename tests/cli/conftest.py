"""A Mosquitto that the tests of the command line talk to."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from geomq.broker.local_federation import free_ports


@pytest.fixture(scope="session")
def mosquitto_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    binary = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if binary is None:
        pytest.skip("mosquitto is not installed: pub and sub are not tested against it")
    folder: Path = tmp_path_factory.mktemp("mosquitto")
    (port,) = free_ports(1)
    (folder / "conf").write_text(f"user root\nallow_anonymous true\nlistener {port} 127.0.0.1\n")
    process = subprocess.Popen([binary, "-c", folder / "conf"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(10)
