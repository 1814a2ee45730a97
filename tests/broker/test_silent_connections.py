"""Connections that are opened and never say what they want: they count, end, make room, and take no files away."""

import asyncio
import contextlib
import resource
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.broker.certificates import Authority
from tests.broker.federated import until
from tests.broker.probes import Probe, client, drop_all

from geomq.broker.config.settings import Config, Limits, Listener, Metrics, Persistence
from geomq.broker.local_federation import free_ports
from geomq.broker.platform import SYSTEM, Platform
from geomq.broker.server import Broker
from geomq.broker.sockets.descriptors import Descriptors
from geomq.mqtt.codec.packets import Connack, Connect, Disconnect, Puback, Publish, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5

pytestmark = pytest.mark.anyio

COMMAND = (sys.executable, "-c", "from geomq.cli import main; main()")
FILES = 256


@asynccontextmanager
async def running(
    folder: Path, limits: Limits, *, tls_max: int | None = None, platform: Platform = SYSTEM
) -> AsyncIterator[tuple[Broker, int]]:
    """A broker with a plain listener and one for TLS, and the port of that."""
    certificate, key = Authority(folder).issue("localhost")
    config = Config(
        listeners=(
            Listener(host="127.0.0.1", port=0),
            Listener(
                kind="tls",
                host="127.0.0.1",
                port=0,
                certfile=str(certificate),
                keyfile=str(key),
                connections_max=tls_max,
            ),
        ),
        persistence=Persistence(enabled=False),
        metrics=Metrics(sys_interval_s=0),
        limits=limits,
    )
    async with Broker(config, platform=platform) as broker:
        yield broker, broker.addresses[1][2]
        await drop_all()


async def ended(silent: Probe) -> None:
    with contextlib.suppress(ConnectionError):
        assert await silent._reader.read(1) == b""


async def test_tls_handshakes_count_for_their_address_and_have_a_deadline(tmp_path: Path) -> None:
    limits = Limits(pending_per_address_max=3, connect_timeout_s=1.0)
    async with running(tmp_path, limits) as (broker, tls_port):
        silent = [await Probe.open(tls_port) for _ in range(5)]
        for refused in silent[3:]:
            await ended(refused)
        assert len(broker.parts.handlers.connections) == 3
        for late in silent[:3]:
            await ended(late)
        assert not broker.parts.handlers.connections
        assert broker.core.counts.connections_refused == 2


async def test_who_is_silent_makes_room_and_who_is_let_in_stays(tmp_path: Path) -> None:
    limits = Limits(connections_max=4, connect_timeout_s=600.0)
    async with running(tmp_path, limits) as (broker, tls_port):
        first = await client(broker, "first")
        silent = [await Probe.open(tls_port) for _ in range(3)]
        await until(lambda: len(broker.parts.handlers.connections) == 4)
        others = [await client(broker, name) for name in ("second", "third", "fourth")]
        for gone in silent:
            await ended(gone)
        refused = await Probe.open(broker.port)
        await ended(refused)
        for each in (first, *others):
            each.publish("t", b"", 1)
            assert (await each.expect(Puback)).reason == ReasonCode.NO_MATCHING_SUBSCRIBERS


async def test_a_full_listener_takes_nothing_from_another(tmp_path: Path) -> None:
    limits = Limits(connect_timeout_s=600.0)
    async with running(tmp_path, limits, tls_max=2) as (broker, tls_port):
        waiting = await Probe.open(broker.port)
        await until(lambda: len(broker.parts.handlers.connections) == 1)
        silent = [await Probe.open(tls_port) for _ in range(3)]
        await ended(silent[0])
        await until(lambda: len(broker.parts.handlers.connections) == 3)
        waiting.send(Connect("c"))
        assert (await waiting.expect(Connack)).reason == ReasonCode.SUCCESS


def _few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES // 2, FILES))


@contextlib.contextmanager
def silent_sockets(port: int, count: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(count):
            made = stack.enter_context(socket.socket())
            made.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                made.connect(("127.0.0.1", port))
        yield


async def test_a_process_with_few_files_goes_on_under_more_silent_handshakes_than_it_can_hold(tmp_path: Path) -> None:
    """Clients are served, come in and are acknowledged, although the store opens one log after the other."""
    port, tls_port = free_ports(2)
    certificate, key = Authority(tmp_path).issue("localhost")
    config, log = tmp_path / "geomq.toml", tmp_path / "log"
    config.write_text(
        f'''log.file = "log"
metrics.sys_interval_s = 1
[[listeners]]
host = "127.0.0.1"
port = {port}
[[listeners]]
kind = "tls"
host = "127.0.0.1"
port = {tls_port}
certfile = "{certificate}"
keyfile = "{key}"
'''
    )
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    trusting.check_hostname = False
    process = await asyncio.create_subprocess_exec(*COMMAND, "broker", "-c", str(config), preexec_fn=_few_files)
    try:
        await until(lambda: log.exists() and log.read_text().count("listening") == 2)
        keeps = Properties(session_expiry_interval=1_000)
        kept, _ = await Probe.connect(port, Connect("kept", clean_start=False, properties=keeps))
        await kept.subscribe(SubscribeRequest("load/#", 1))
        kept.send(Disconnect())
        publisher, _ = await Probe.connect(port, Connect("publisher"))
        watcher, _ = await Probe.connect(port, Connect("watcher"))
        await watcher.subscribe("$SYS/broker/uptime")
        with silent_sockets(tls_port, 2 * FILES):
            for number in range(60):
                publisher.publish("load/x", bytes(1_000_000), 1)
                assert (await publisher.expect(Puback)).reason == ReasonCode.SUCCESS
                if number % 10 == 0:
                    for tls in (None, trusting):
                        await (await _come_in(port if tls is None else tls_port, f"new {number}", tls)).drop()
            said = {(await watcher.expect(Publish)).payload for _ in range(4)}
        assert len(said) >= 3
        assert process.returncode is None
        assert f"open_files={FILES}" in next(line for line in log.read_text().splitlines() if "lowered" in line)
        await drop_all()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _come_in(port: int, name: str, tls: ssl.SSLContext | None) -> Probe:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    probe = Probe(reader, writer, V5, "127.0.0.1", port)
    probe.send(Connect(name))
    assert (await probe.expect(Connack)).reason == ReasonCode.SUCCESS
    return probe


async def test_clients_that_are_told_to_go_and_stay_on_the_line_are_bounded(tmp_path: Path) -> None:
    """They shook hands, so each end has to say goodbye; a client that does not is still an open file."""
    few = Platform(descriptors=lambda: Descriptors(1_024))
    async with running(tmp_path, Limits(), platform=few) as (broker, tls_port):
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        context.check_hostname = False
        endings = broker.parts.handlers.endings
        with ExitStack() as stack:
            for _ in range(70):
                raw = stack.enter_context(socket.create_connection(("127.0.0.1", tls_port)))
                stack.enter_context(await asyncio.to_thread(_shake_hands, context, raw)).sendall(b"no CONNECT")
            await until(lambda: broker.core.counts.protocol_errors == 70)
            assert 50 < len(endings) <= 55
        await until(lambda: not len(endings))


def _shake_hands(context: ssl.SSLContext, raw: socket.socket) -> ssl.SSLSocket:
    return context.wrap_socket(raw)
