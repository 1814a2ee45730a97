"""Brokers as child processes on 127.0.0.1: GeoMQ from a config, Mosquitto as it is installed.

Started on ports that were free, watched until they answer, stopped or killed by their own process id; what they print
is kept beside their data. Refuses to look for processes it did not start.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from geomq.broker.config.settings import Admin, Config
from geomq.broker.config.text import config_text
from geomq.broker.local_federation import HOST, free_ports
from geomq.errors import UsageError

START_S_MAX = 30.0
STOP_S_MAX = 20.0
LINKED_S_MAX = 60.0
ANSWER_S_MAX = 10.0
POLL_S = 0.05
Done = TypeVar("Done")


class ChildProcess:
    """One process with a folder of its own; `log` is everything it printed. A context, or start and stop it."""

    def __init__(self, name: str, folder: Path, port: int) -> None:
        self.name = name
        self.folder = folder
        self.port = port
        self.log_path = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """What to run."""
        raise NotImplementedError

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not started"
        return self._process.pid

    @property
    def children(self) -> list[int]:
        """The processes it has started, as Linux lists them."""
        return [int(word) for word in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, *, seconds: float = START_S_MAX) -> None:
        """Run it, again if need be, until it listens; UsageError with its last words if it never does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            await wait_until(self._listens, f"{self.name} does not listen on port {self.port}", seconds=seconds)
        except BaseException:
            self.kill()
            raise

    async def _listens(self) -> bool:
        if not self.running:
            lines = self.log.strip().splitlines()
            raise UsageError(f"{self.name} did not start: {lines[-1] if lines else 'no output'}")
        try:
            _, writer = await asyncio.open_connection(*self.address)
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGSTOP and SIGCONT make a broker pause and go on."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it without a chance to say goodbye, as a power cut would."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    async def stop(self) -> int | None:
        """Ask it to end, insist if it does not; the exit code."""
        if self._process is None:
            return None
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(self._process.wait, STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode


class BrokerProcess(ChildProcess):
    """`geomq broker` with a config; the admin API is on, so that others can ask whether it is linked."""

    def __init__(self, config: Config, folder: Path) -> None:
        super().__init__(config.broker.name, folder, config.listeners[0].bind_port)
        if not self.port:
            raise UsageError(f"broker {self.name} needs a fixed port")
        self.admin_port = config.admin.port if config.admin.enabled else free_ports(1)[0]
        self.config = msgspec.structs.replace(
            config,
            admin=Admin(enabled=True, host=HOST, port=self.admin_port),
            metrics=msgspec.structs.replace(config.metrics, public=True),
        )

    def command(self) -> list[str]:
        path = self.folder / f"{self.name}.toml"
        path.write_text(config_text(self.config))
        return [sys.executable, "-m", "geomq", "broker", "-c", str(path)]

    async def ask(self, path: str) -> Any:
        """What the admin API answers."""
        return await asyncio.to_thread(self._ask, f"http://{HOST}:{self.admin_port}{path}")

    def _ask(self, address: str) -> Any:
        with urllib.request.urlopen(address, timeout=ANSWER_S_MAX) as answer:
            return msgspec.json.decode(answer.read())

    async def numbers(self) -> dict[str, float]:
        """Its counts and gauges, by name."""
        told = await self.ask("/api/v1/broker")
        return {**told["counts"], **told["gauges"]}

    async def is_linked(self) -> bool:
        """Whether it has a link to every peer and, if its strategy needs one, to the cloud."""
        try:
            numbers = await self.numbers()
        except OSError:  # its clients' listener opens before its admin API
            return False
        with_cloud = self.config.cloud.address is not None and self.config.routing.strategy == "broadcast_groups"
        return numbers["peers_connected"] >= len(self.config.peers) and numbers["cloud_connected"] >= with_cloud


class MosquittoProcess(ChildProcess):
    """Mosquitto with open doors and room for much; with persistence as its documentation suggests, or without.

    With `saves` it saves all it has after every change, which is the most it can be told to do.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        port: int | None = None,
        *,
        durable: bool = False,
        saves: bool = False,
        data: Path | None = None,
    ) -> None:
        super().__init__(name, folder, free_ports(1)[0] if port is None else port)
        self._persistence = f"true\npersistence_location {data or folder}/" if durable else "false"
        if saves:
            self._persistence += "\nautosave_interval 1\nautosave_on_changes true"

    def command(self) -> list[str]:
        path = self.folder / f"{self.name}.conf"
        path.write_text(
            f"listener {self.port} {HOST}\nallow_anonymous true\npersistence {self._persistence}\n"
            "log_dest stderr\nlog_type error\nlog_type warning\n"
            "sys_interval 0\nmax_queued_messages 0\nset_tcp_nodelay true\nuser root\n"
        )
        executable = mosquitto_path()
        if executable is None:
            raise UsageError("mosquitto is not installed; install it or run without a cloud")
        return [executable, "-c", str(path)]


def mosquitto_path() -> str | None:
    """Where Mosquitto is, if it is there; many systems keep it off the path of ordinary users."""
    return shutil.which("mosquitto", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))


class Federation:
    """Brokers started together; `async with Federation(configs, folder) as federation` waits until all are linked."""

    def __init__(self, configs: Iterable[Config], folder: Path) -> None:
        self.brokers = {config.broker.name: BrokerProcess(config, folder / config.broker.name) for config in configs}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for broker in self.brokers.values():
                stack.push_async_callback(broker.stop)
            await asyncio.gather(*(broker.start() for broker in self.brokers.values()))
            await self.wait_linked()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def wait_linked(self, *, seconds: float = LINKED_S_MAX) -> None:
        """Until every running broker has all its links."""

        async def linked() -> bool:
            return all([await broker.is_linked() for broker in self.brokers.values() if broker.running])

        await wait_until(linked, "the brokers do not connect to each other", seconds=seconds)


async def stoppable(work: Awaitable[Done]) -> Done:
    """The work, which a signal to end or a closed terminal stops as Ctrl-C does: no process is left behind."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        raise UsageError("stopped before the run was complete") from None


async def wait_until(condition: Callable[[], Awaitable[bool]], what: str, *, seconds: float) -> None:
    """Look again and again until it is so; UsageError that says `what` if that takes too long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not await condition():
        if loop.time() > deadline:
            raise UsageError(f"{what} within {seconds:g} s")
        await asyncio.sleep(POLL_S)
