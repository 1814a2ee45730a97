"""The brokers under test as child processes: GeoMQ with everything on, Debian's Mosquitto, amqtt from PyPI.

Beside them a bare relay in C, to know what the kernel alone costs.
Each listens on 127.0.0.1 on a free port, on the core it is told, with its files in a folder of its own.
"""

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import Self

from bench.measure import BenchError, pin
from geomq.broker.local_federation import free_ports

ROOT = Path(__file__).parent.parent
AMQTT_VENV = Path(sys.prefix) / "amqtt"
START_S_MAX = 20.0
CROSSING = "bench/to"
"""What is published under this topic at one of two linked brokers is heard at the other."""

_ACL = """\
topic readwrite bench/#
topic readwrite $geo/#
topic read $SYS/#
pattern readwrite clients/%c/#
user operator
topic readwrite #
"""

_GEOMQ = """\
[[listeners]]
host = "127.0.0.1"
port = {port}
[auth]
anonymous = "loopback"
acl_file = "{folder}/acl"
{auth}
[limits]
connections_per_address_max = 0
pending_per_address_max = 0
{limits}
[persistence]
enabled = true
sync = true
[admin]
enabled = true
port = {admin_port}
[metrics]
public = true
sys_interval_s = 10
[log]
level = "warning"
"""

_MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
log_type error
max_queued_messages 0
"""

_BRIDGE = """\
connection beyond
address 127.0.0.1:{beyond}
topic {crossing}/# out 1
notifications false
"""

_AMQTT = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
    max_connections: 50000
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""


class Broker(ABC):
    """A running broker; use it as a context. `start_s` is how long it took to listen."""

    name = ""

    def __init__(self, core: int | None, *, files: int | None = None) -> None:
        self._core = core
        self._files = files
        (self.port,) = free_ports(1)
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.start_s = 0.0

    @property
    def exited(self) -> int | None:
        """Its exit code, if it ended by itself."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    def command(self) -> list[str]:
        """Write the settings; the command that starts the broker with them."""

    def __enter__(self) -> Self:
        command = self.command()
        with open(self.folder / "log", "wb") as log:
            begin = time.perf_counter()
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=partial(_confine, self._core, self._files),
            )
            self._await_listening(begin)
        return self

    def _await_listening(self, begin: float) -> None:
        assert self._process is not None
        while time.perf_counter() - begin < START_S_MAX:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                time.sleep(0.002)
                continue
            self.start_s = time.perf_counter() - begin
            return
        log = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        self.stop()
        raise BenchError(f"{self.name} does not listen: {log[-1] if log else 'no output'}")

    def stop(self) -> int:
        """Ask it to end, insist if need be; the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class GeoMQ(Broker):
    """With an ACL file, the geo index, metrics, and a store that syncs.

    `more` goes before its settings, so that it may be dotted keys as well as tables; `limits` among its limits.
    """

    name = "geomq"

    def __init__(
        self, core: int | None, more: str = "", *, limits: str = "", auth: str = "", files: int | None = None
    ) -> None:
        super().__init__(core, files=files)
        self._more = more
        self._limits = limits
        self._auth = auth
        self.admin_port = 0

    def command(self) -> list[str]:
        (self.folder / "acl").write_text(_ACL)
        settings = f'broker.data_dir = "{self.folder}/data"\n{self._more}\n'
        settings += _GEOMQ.format(
            folder=self.folder, port=self.port, admin_port=self.admin_port, limits=self._limits, auth=self._auth
        )
        (self.folder / "geomq.toml").write_text(settings)
        return [geomq_command(), "broker", "-c", str(self.folder / "geomq.toml")]


class Mosquitto(Broker):
    """As installed, without an ACL; sessions are kept in memory and saved now and then.

    One with `beyond`, another's port, has a bridge to it for what crosses, and only for that.
    """

    name = "mosquitto"

    def __init__(self, core: int | None, beyond: int | None = None) -> None:
        super().__init__(core)
        self._beyond = beyond

    def command(self) -> list[str]:
        os.chmod(self.folder, 0o777)
        settings = _MOSQUITTO.format(folder=self.folder, port=self.port)
        if self._beyond is not None:
            settings += _BRIDGE.format(beyond=self._beyond, crossing=CROSSING)
        (self.folder / "mosquitto.conf").write_text(settings)
        path = mosquitto_command()
        assert path is not None
        return [path, "-c", str(self.folder / "mosquitto.conf")]


class Amqtt(Broker):
    """With anonymous access and no other plugin."""

    name = "amqtt"

    def command(self) -> list[str]:
        (self.folder / "amqtt.yaml").write_text(_AMQTT.format(port=self.port))
        return [str(AMQTT_VENV / "bin" / "amqtt"), "-c", str(self.folder / "amqtt.yaml")]


class Relay(Broker):
    """No broker: the least any broker must do, in C. It serves one load, then another relay must be started.

    One with `beyond`, another's port, passes everything on to that.
    """

    name = "relay"

    def __init__(self, core: int | None, beyond: int | None = None) -> None:
        super().__init__(core)
        self._beyond = beyond

    def command(self) -> list[str]:
        program = self.folder / "relay"
        compiler = c_compiler()
        assert compiler is not None
        done = subprocess.run(
            [compiler, "-O2", "-o", program, ROOT / "bench" / "relay.c"], capture_output=True, check=False
        )
        if done.returncode:
            raise BenchError("the bare relay does not compile")
        return [str(program), str(self.port), *(() if self._beyond is None else (str(self._beyond),))]


def _confine(core: int | None, files: int | None) -> None:
    """Keep this process on a core, with so many open files at most."""
    if core is not None:
        pin(0, core)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


def geomq_command() -> str:
    return str(Path(sys.executable).parent / "geomq")


def mosquitto_command() -> str | None:
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def c_compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def versions() -> dict[str, str]:
    """Which of the brokers there are, by name; those missing are left out."""
    found = {"geomq": _first_line([geomq_command(), "--version"])}
    mosquitto = mosquitto_command()
    if mosquitto is not None:
        found["mosquitto"] = _first_line([mosquitto, "-h"])
    if install_amqtt():
        found["amqtt"] = "amqtt " + _first_line([str(AMQTT_VENV / "bin" / "amqtt"), "--version"])
    if c_compiler() is not None:
        found["relay"] = "a bare relay in C"
    return found


def install_amqtt() -> bool:
    """Make sure of amqtt, in an environment of its own so that its needs never meet GeoMQ's."""
    if (AMQTT_VENV / "bin" / "amqtt").exists():
        return True
    python = str(AMQTT_VENV / "bin" / "python")
    group = f"{ROOT / 'pyproject.toml'}:bench"
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", str(AMQTT_VENV)],
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--group", group],
    ):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return False
    return True


def _first_line(command: list[str]) -> str:
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return output.splitlines()[0] if output else "unknown version"
