"""A machine with a broker on it: its clocks, its disk, its life and its deaths."""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from geomq.broker.config.settings import Config, Listener
from geomq.broker.platform import Platform
from geomq.broker.server import Broker
from geomq.broker.sockets.descriptors import Descriptors
from geomq.broker.state.turns import TURN_NS
from geomq.broker.storage.memory import MemoryStore
from geomq.broker.storage.store import Store
from geomq.errors import GeomqError
from geomq.sim.virtual.disk import VirtualDisk
from geomq.sim.virtual.loop import VirtualLoop
from geomq.sim.virtual.network import Server
from geomq.sim.virtual.processes import Process
from geomq.sim.virtual.workers import VirtualWorkers

UNIX_S = 1_700_000_000.0
"""What a clock that is right shows when virtual time begins."""
SYNC_S = (0.0005, 0.005)
STEPS_NS = (0, TURN_NS // 4, TURN_NS, 4 * TURN_NS)
"""How long one step of a connection may take on a machine."""


class Worker(Executor):
    """Instead of a thread: what it is given takes a while, and the loop goes on meanwhile."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, disk: VirtualDisk) -> None:
        self._loop = loop
        self._rng = rng
        self._disk = disk

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._disk.begin_sync()
        self._loop.call_later(self._rng.uniform(*SYNC_S), fn, *args)
        return Future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """There is no thread to wait for."""


class Machine:
    """Where one broker lives. `wall_offset_s` is by how much its clock is wrong."""

    def __init__(self, loop: VirtualLoop, config: Config, seed: int, note: Callable[[str], object]) -> None:
        self.name = config.broker.name
        self.config = config
        self.wall_offset_s = 0.0
        self.broker: Broker | None = None
        self.process: Process | None = None
        self.starts = 0
        self._loop = loop
        self._rng = random.Random(f"{self.name} {seed}")
        self.disk = VirtualDisk(self._rng)
        self._turns_rng = random.Random(f"turns {self.name} {seed}")
        self._step_ns = self._turns_rng.choice(STEPS_NS)
        self._computed_ns = 0
        self._note = note
        self._silently = False
        self.workers = VirtualWorkers(loop, random.Random(f"workers {self.name} {seed}"), self.name)

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def linked(self) -> bool:
        """Whether the broker runs, is started and has found its peers."""
        process, broker = self.process, self.broker
        runs = process is not None and process.alive and not process.stopped
        return runs and broker is not None and broker.membership is not None and broker.linked

    def do(self, action: Callable[[], object]) -> None:
        """Do something in the name of the broker's process."""
        assert self.process is not None
        self.process.context().run(action)

    def platform(self) -> Platform:
        loop, rng = self._loop, self._rng
        return Platform(
            wall_s=self.wall_s,
            perf_ns=lambda: int(loop.now * 1e9),
            turn_ns=self._turn_ns,
            random_bytes=rng.randbytes,
            uniform=rng.uniform,
            start_workers=lambda _name, _threads: Worker(loop, rng, self.disk),
            processors=1,
            open_server=self._open_server,
            descriptors=lambda: Descriptors(None),
            resident_bytes=lambda: 0,
            available_bytes=lambda: None,
            check_free=_check_free,
        )

    async def _open_server(self, make: Callable[[], Any], host: str | None, port: int, **_: object) -> Server:
        return await self._loop.create_server(make, host, port)

    def _turn_ns(self) -> int:
        """Virtual time stands still while a broker computes, so this passes by being looked at: after each step of a
        connection, and by how much is of the seed's choosing. On a slow machine hardly any packet shares its turn."""
        self._computed_ns += int(self._turns_rng.random() * self._step_ns)
        return self._computed_ns

    def wall_s(self) -> float:
        return UNIX_S + self._loop.now + self.wall_offset_s

    def _open_store(self, config: Config) -> Store:
        return Store(self.disk) if config.persistence.enabled else MemoryStore()

    def start(self) -> None:
        """Start the broker; one that gives up is started again by whoever looks after it."""
        if self.up:
            return
        self.starts += 1
        self._loop.network.down.discard(self.name)
        process = self.process = self.disk.process = Process(self.name, self._died)
        self._note(f"{self.name} starts")
        process.context().run(self._begin, process)

    def _begin(self, process: Process) -> None:
        broker = self.broker = Broker(
            self.config, platform=self.platform(), open_store=self._open_store, make_crew=self.workers.make_crew
        )
        self._loop.create_task(self._live(broker, process))

    async def _live(self, broker: Broker, process: Process) -> None:
        try:
            await broker.start()
            code = await broker.wait_stopped()
            self._note(f"{self.name} stopped, exit code {code}")
        except GeomqError as error:
            self._note(f"{self.name} did not start: {error}")
        process.kill()

    def kill(self, *, power: bool = False) -> None:
        """End the process at once; with the power also what its disk did not sync and its connections' farewells go."""
        if self.process is not None and self.process.alive:
            self._silently = power
            self.process.kill()

    def plan_death(self, kind: Any, count: int, *, power: bool) -> None:
        """Die in the midst of what the broker does: at the count-th callback, write to a connection or to the disk."""
        if self.process is not None:
            self._silently = power
            self.process.kill_at(kind, count)

    def spare(self) -> None:
        """Neither the broker nor its workers are to die in the midst of anything any more."""
        if self.process is not None:
            self.process.spare()
        self.workers.spare()

    def _died(self, process: Process) -> None:
        power, self._silently = self._silently, False
        self._note(f"{self.name} {'loses power' if power else 'is dead'}")
        self.disk.process = None
        self._loop.network.lose(process, silently=power)
        self.workers.broker_died(silently=power)
        if power:
            self._loop.network.down.add(self.name)
            self.disk.lose_power()

    def stop(self) -> None:
        """As SIGSTOP does."""
        if self.process is not None and self.up:
            self.process.stopped = True

    def go_on(self) -> None:
        if self.process is not None and self.process.stopped:
            self._loop.resume(self.process)


async def _check_free(_listener: Listener) -> None:
    await asyncio.sleep(0)
