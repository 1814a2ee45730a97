"""Real brokers as processes, and a publisher that knows what was acknowledged."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from pyspark.errors import StreamingQueryException

from geomq.broker.local_federation import free_ports
from geomq.errors import DataError
from geomq.mqtt.codec.packets import SubscribeRequest
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.pipeline.recent import Admin
from geomq.pipeline.streaming.connection import Connection
from geomq.pipeline.streaming.options import Login, parse_addresses
from geomq.pipeline.streaming.publisher import Publisher

T = TypeVar("T")

GEOMQ = """\
[broker]
name = "{name}"
data_dir = "{folder}/data"
[[listeners]]
host = "127.0.0.1"
port = {port}
[limits]
queue_messages_max = 1000000
[geo]
details = ["event", "time", "broker", "publisher", "location", "fence"]
[log]
level = "warning"
"""
MEMBER = """\
[broker]
name = "{name}"
location = "{location}"
data_dir = "{folder}/{name}"
[[listeners]]
host = "127.0.0.1"
port = {port}
[admin]
enabled = true
port = {admin}
[routing]
strategy = "flood_events"
[federation]
host = "127.0.0.1"
port = {link}
key_file = "{folder}/key"
[limits]
queue_messages_max = 1000000
[geo]
details = ["event", "time", "broker", "publisher", "location", "fence"]
[log]
level = "error"
"""
PEER = """\
[[peers]]
name = "{name}"
address = "127.0.0.1:{link}"
location = "{location}"
"""
CITIES = {"berlin": "52.5,13.4", "paris": "48.86,2.35", "madrid": "40.42,-3.7"}
MOSQUITTO = "listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nlog_type error\n"


@contextmanager
def geomq_broker(folder: Path, *, port: int | None = None, name: str = "home") -> Iterator[int]:
    """A GeoMQ broker; its port."""
    port = free_ports(1)[0] if port is None else port
    folder.mkdir(exist_ok=True)
    config = folder / "geomq.toml"
    config.write_text(GEOMQ.format(folder=folder, port=port, name=name))
    with _process([sys.executable, "-m", "geomq", "broker", "-c", str(config)], folder, port):
        yield port


@contextmanager
def geomq_federation(folder: Path) -> Iterator[dict[str, tuple[int, int]]]:
    """Three linked brokers that flood events; by name, the ports for clients and for the admin API."""
    folder.mkdir(exist_ok=True)
    (folder / "key").write_text("0123456789abcdef0123456789abcdef\n")
    (folder / "key").chmod(0o600)
    ports = {name: tuple(free_ports(3)) for name in CITIES}
    with ExitStack() as stack:
        for name, (port, admin, link) in ports.items():
            text = MEMBER.format(name=name, location=CITIES[name], folder=folder, port=port, admin=admin, link=link)
            peers = [
                PEER.format(name=peer, link=ports[peer][2], location=CITIES[peer]) for peer in CITIES if peer != name
            ]
            (folder / f"{name}.toml").write_text(text + "".join(peers))
            command = [sys.executable, "-m", "geomq", "broker", "-c", str(folder / f"{name}.toml")]
            stack.enter_context(_process(command, folder, port))
        apis = [Admin(f"127.0.0.1:{admin}", None) for _, admin, _ in ports.values()]
        assert wait_until(lambda: all(map(_is_linked, apis))), "the brokers do not connect to each other"
        yield {name: (port, admin) for name, (port, admin, _) in ports.items()}


def _is_linked(api: Admin) -> bool:
    try:
        return bool(api.ask("broker")["gauges"]["peers_connected"] == len(CITIES) - 1)
    except DataError:
        return False


def subscribe(port: int, name: str, place: str, topic: str, fence: str | None = None) -> None:
    """Leave a session behind that was at a place and waits for events."""
    (address,) = parse_addresses(f"127.0.0.1:{port}")
    at = Properties(session_expiry_interval=3600, user_properties=(("geo-location", place),))
    connection = Connection.open(address, Login(), name, clean=False, keep_alive_s=60, properties=at)
    within = NO_PROPERTIES if fence is None else Properties(user_properties=(("geo-fence", fence),))
    connection.link.ask(connection.session.subscribe(SubscribeRequest(topic, 1), properties=within))
    connection.close()


@contextmanager
def mosquitto_broker(folder: Path) -> Iterator[int]:
    """Debian's Mosquitto; its port."""
    binary = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if binary is None:
        pytest.skip("mosquitto is not installed: the source is not tested against it")
    folder.mkdir(exist_ok=True)
    (port,) = free_ports(1)
    (folder / "conf").write_text(MOSQUITTO.format(port=port))
    with _process([binary, "-c", str(folder / "conf")], folder, port):
        yield port


@contextmanager
def _process(command: list[str], folder: Path, port: int) -> Iterator[None]:
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
    try:
        await_port(port, process)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"nothing listens on {port}")


def publish(port: int, events: list[tuple[str, bytes]], *, properties: Properties = NO_PROPERTIES) -> None:
    """Publish with QoS 1 over a few connections; all is acknowledged on return."""
    with publisher(port) as out:
        for topic, payload in events:
            out.publish(topic, payload, 1, retain=False, properties=properties)
        out.flush()


def publisher(port: int, *, connections: int = 4) -> Publisher:
    (address,) = parse_addresses(f"127.0.0.1:{port}")
    return Publisher(address, Login(), f"publisher-{os.urandom(4).hex()}", connections=connections, timeout_s=60)


def wait_until(condition: object, *, seconds: float = 60.0) -> bool:
    """Whether a function came to return something true in time."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def patiently(run: Callable[[], T], *, attempts: int = 6) -> T:
    """Do it again if Spark gave its Python process too little time to start: ten seconds, whatever the machine does."""
    for left in reversed(range(attempts)):
        try:
            return run()
        except StreamingQueryException as error:
            if not left or "connect back" not in str(error):
                raise
    raise AssertionError("unreachable")
