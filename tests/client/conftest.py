"""A real Mosquitto for the plain part of the client."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest


class Mosquitto(NamedTuple):
    """A running broker: a plain port, one with TLS, and the certificate to trust."""

    port: int
    tls_port: int
    cafile: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    binary = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    openssl = shutil.which("openssl")
    if binary is None or openssl is None:
        pytest.skip("mosquitto or openssl is not installed: the client is not tested against it")
    folder = tmp_path_factory.mktemp("mosquitto")
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    command += f" -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {folder}/key -out {folder}/cert"
    subprocess.run(command.split(), check=True, capture_output=True)
    port, tls_port = free_port(), free_port()
    (folder / "acl").write_text("topic readwrite plain/#\ntopic readwrite $geo/#\nuser alice\ntopic #\n")
    (folder / "conf").write_text(
        f"user root\nallow_anonymous true\nacl_file {folder}/acl\n"
        f"listener {port} 127.0.0.1\nlistener {tls_port} 127.0.0.1\ncertfile {folder}/cert\nkeyfile {folder}/key\n"
    )
    process = subprocess.Popen([binary, "-c", folder / "conf"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", tls_port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield Mosquitto(port, tls_port, folder / "cert")
    finally:
        process.terminate()
        process.wait(10)
