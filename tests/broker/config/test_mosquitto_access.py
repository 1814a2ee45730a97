"""An imported configuration decides as the real Mosquitto that it was made for: everybody, everywhere, reading and
writing."""

import asyncio
import contextlib
import fcntl
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.broker.certificates import Authority
from tests.broker.config.mosquitto_configs import CONFIGS, OPENING, STRICTER, USERS, write_files
from tests.probe import Closed, Probe

from geomq.broker.config.load import parse_config
from geomq.broker.config.mosquitto_conf import import_mosquitto
from geomq.broker.config.settings import Listener
from geomq.broker.local_federation import free_ports
from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import Connack, Connect, Puback, Publish
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5

pytestmark = pytest.mark.anyio

TOPICS = ["open", "open/a", "open/b", "open/c-bob-0", "anna/x", "anna/secret", "bob/x", "site/open/a", "site/anna/x"]
TOPICS += ["device/x", "subject/x", "foo/bar"]
PORT = 1883
"""Where Mosquitto listens if it is not told where."""


class Who(NamedTuple):
    """Somebody who tries; `certificate` goes along where the listener wants one."""

    name: str
    user: str | None = None
    password: bytes | None = None
    client_id: str | None = None
    certificate: str | None = "device"


EVERYBODY = [
    Who("anonymous"),
    *(Who(user, user, password) for user, password in USERS.items()),
    Who("wrong", "anna", b"wrong"),
    Who("unproved", "bob"),
    Who("unknown", "eve", b"x"),
    Who("nameless", client_id=""),
    Who("stranger", certificate=None),
]


class Decision(NamedTuple):
    """What somebody managed to do at one listener. Read is what was published under a topic, as the broker knows it."""

    admitted: bool
    written: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()


Decisions = dict[tuple[int, str], Decision]


class Visit:
    """One who comes in by one listener, if it lets them."""

    def __init__(self, number: int, who: Who) -> None:
        self.key = (number, who.name)
        self.who = who
        self.probe: Probe | None = None
        self.written: set[str] = set()
        self.read: set[str] = set()

    async def come(self, port: int, folder: Path, *, tls: bool) -> None:
        number, name = self.key
        client_id = f"c-{name}-{number}" if self.who.client_id is None else self.who.client_id
        context = _context(folder, self.who.certificate) if tls else None
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            probe = Probe(reader, writer, V5, "127.0.0.1", port)
            if await self._is_let_in(probe, client_id):
                self.probe = probe
                await probe.subscribe("#")
            else:
                await probe.drop()

    async def _is_let_in(self, probe: Probe, client_id: str) -> bool:
        with contextlib.suppress(Closed, ssl.SSLError):
            probe.send(Connect(client_id, username=self.who.user, password=self.who.password))
            return (await probe.expect(Connack)).reason == ReasonCode.SUCCESS
        return False

    async def write_all(self, mount: str) -> None:
        """Try every topic, and wait for every answer."""
        if self.probe is None:
            return
        asked = {self.probe.publish(topic, f"{mount}{topic}".encode(), 1): topic for topic in TOPICS}
        while asked:
            packet = await self._receive()
            if isinstance(packet, Puback):
                topic = asked.pop(packet.packet_id)
                if packet.reason < ReasonCode.UNSPECIFIED_ERROR:
                    self.written.add(topic)

    async def read_all(self) -> None:
        """What was delivered came before the answer to a ping."""
        if self.probe is not None:
            self.probe.send_bytes(b"\xc0\x00")
            while isinstance(await self._receive(), Publish):
                pass
            await self.probe.drop()

    async def _receive(self) -> object:
        assert self.probe is not None
        packet = await self.probe.receive()
        if isinstance(packet, Publish):
            self.read.add(packet.payload.decode())
        return packet

    @property
    def decision(self) -> Decision:
        return Decision(self.probe is not None, frozenset(self.written), frozenset(self.read))


def _context(folder: Path, certificate: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.check_hostname = False
    if certificate is not None:
        context.load_cert_chain(folder / f"{certificate}.pem", folder / f"{certificate}.key")
    return context


async def decisions(ports: list[int], folder: Path, listeners: tuple[Listener, ...]) -> Decisions:
    """What becomes of everybody at every listener; who is admitted is there while the others write."""
    visits = [Visit(number, who) for number in range(len(ports)) for who in EVERYBODY]
    for visit in visits:
        number = visit.key[0]
        await visit.come(ports[number], folder, tls=listeners[number].tls)
    for visit in visits:
        await visit.write_all(listeners[visit.key[0]].mount_point or "")
    for visit in visits:
        await visit.read_all()
    return {visit.key: visit.decision for visit in visits}


@asynccontextmanager
async def mosquitto(folder: Path, conf: str, ports: list[int]) -> AsyncIterator[None]:
    binary = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if binary is None:
        pytest.skip("mosquitto is not installed: nothing to compare with")
    (folder / "conf").write_text(f"user root\n{conf}")
    process = subprocess.Popen([binary, "-c", folder / "conf"], stderr=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(20):
            for port in ports:
                while not await _listens(port):
                    assert process.poll() is None, "Mosquitto refuses this configuration"
                    await asyncio.sleep(0.01)
        yield
    finally:
        process.terminate()
        process.wait(10)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    for name in ("server", "device"):
        authority.issue(name)
    return folder


def placed(name: str, folder: Path, certificates: Path) -> tuple[str, list[int]]:
    """The configuration with its ports and files."""
    text = {**CONFIGS, **STRICTER, **OPENING}[name]
    ports = free_ports(3)
    write_files(folder, ports)
    for file in (*certificates.glob("*.pem"), *certificates.glob("*.key")):
        shutil.copy(file, folder)
    count = sum(f"{{{number}}}" in text for number in range(3)) or 1
    named = "{0}" in text or name == "included"
    return text.format(*ports, folder=folder), ports[:count] if named else [PORT]


@pytest.mark.parametrize("name", CONFIGS)
async def test_everybody_may_do_the_same(name: str, tmp_path: Path, certificates: Path) -> None:
    ours, theirs = await both(name, tmp_path, certificates)
    assert ours == theirs


@pytest.mark.parametrize("name", STRICTER)
async def test_nobody_may_do_more_where_mosquitto_does_not_do_what_its_manual_says(
    name: str, tmp_path: Path, certificates: Path
) -> None:
    ours, theirs = await both(name, tmp_path, certificates)
    for key, (admitted, written, read) in ours.items():
        assert admitted <= theirs[key].admitted
        assert written <= theirs[key].written
        assert read <= theirs[key].read


async def both(name: str, tmp_path: Path, certificates: Path) -> tuple[Decisions, Decisions]:
    """What an imported configuration decides, and what it decides in Mosquitto."""
    tmp_path.chmod(0o755)
    conf, ports = placed(name, tmp_path, certificates)
    if ports == [PORT]:
        with alone():
            if await _listens(PORT):
                pytest.skip(f"something listens on port {PORT}, where this configuration has to")
            return await _both(name, tmp_path, conf, ports)
    return await _both(name, tmp_path, conf, ports)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """No other test of this kind runs meanwhile, in any process."""
    with (Path(tempfile.gettempdir()) / f"geomq-port-{PORT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def _both(name: str, tmp_path: Path, conf: str, ports: list[int]) -> tuple[Decisions, Decisions]:
    (tmp_path / "mosquitto.conf").write_text(conf)
    made = import_mosquitto(tmp_path / "mosquitto.conf")
    assert made.opening == []
    config = parse_config(made.toml, name=name, base=tmp_path)
    async with mosquitto(tmp_path, conf, ports):
        theirs = await decisions(ports, tmp_path, config.listeners)
    async with Broker(config) as broker:
        assert [port for _, _, port in broker.addresses][: len(ports)] == ports
        ours = await decisions(ports, tmp_path, config.listeners)
    return ours, theirs


@pytest.mark.parametrize("name", OPENING)
def test_what_would_open_access_is_not_written(name: str, tmp_path: Path, certificates: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text(placed(name, tmp_path, certificates)[0])
    assert import_mosquitto(tmp_path / "mosquitto.conf").opening
