"""Workers of a broker in virtual time: both ends are the product's own, and between them bytes take their time.

A worker is a process of its own. It can be killed at any point while its broker goes on, and it outlives its broker by
a moment, as real ones do until they hear that their socket is closed.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from geomq.broker.config.settings import Listener
from geomq.broker.platform import Platform
from geomq.broker.workers.carrying import Carried, Carrying
from geomq.broker.workers.crew import Crew
from geomq.broker.workers.frames import Cutter
from geomq.sim.virtual.loop import VirtualLoop
from geomq.sim.virtual.network import Server
from geomq.sim.virtual.processes import Process
from geomq.sim.virtual.transports import Transport

DELAY_S: Final = (0.0, 0.002)
ORPHAN_S: Final = (0.0, 0.05)
"""How long a worker lives on when its broker is dead."""


class VirtualLine:
    """To one worker; made in the context of its broker."""

    waiting_bytes = 0
    """What waits, waits in flight: a broker of a simulation never has to stop for its workers."""

    def __init__(
        self,
        readable: Callable[[], None],
        lost: Callable[[], None],
        *,
        loop: VirtualLoop,
        rng: random.Random,
        name: str,
    ) -> None:
        self._readable = readable
        self._lost = lost
        self._loop = loop
        self._rng = rng
        self._broker = copy_context()
        self._ended = self._paused = False
        self._inbox = b""
        self._accepted: deque[Transport] = deque()
        self._cutter = Cutter()
        self._ready_at = {"broker": 0.0, "worker": 0.0}
        self.process = Process(name, self._died)
        self._worker = self.process.context()
        self._carrying = Carrying(due=self._send_soon, establish=self._establish)

    @property
    def exit_code(self) -> int | None:
        return None if self.process.alive else -9

    # What the broker does.

    def write(self, data: bytes, accepted: tuple[Any, ...]) -> None:
        self._later("worker", self._arrive, data, accepted)

    def read_into(self, space: memoryview) -> int:
        count = self._rng.randint(1, min(len(self._inbox), len(space))) if self._inbox else 0
        space[:count] = self._inbox[:count]
        self._inbox = self._inbox[count:]
        if self._inbox and not self._paused:
            self._loop.call_soon(self._look, context=self._broker)
        return count

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._inbox:
            self._loop.call_soon(self._look, context=self._broker)

    def wait_until_below(self, size: int, timeout_s: float) -> bool:
        return True

    def close(self) -> None:
        self._ended = True
        self._later("worker", self._let_go)

    def kill(self) -> None:
        self._ended = True
        self.process.kill()

    def broker_died(self, *, silently: bool) -> None:
        """The worker hears of it soon, unless its machine is gone as well."""
        self._ended = True
        if silently:
            self._loop.network.lose(self.process, silently=True)
            self.process.kill()
        else:
            self._loop.call_later(self._rng.uniform(*ORPHAN_S), self.process.kill, context=self._worker)

    # What happens between them.

    def _later(self, to: str, call: Callable[..., object], *args: Any) -> None:
        """In order, each way."""
        at = max(self._ready_at[to] + 1e-9, self._loop.now + self._rng.uniform(*DELAY_S))
        self._ready_at[to] = at
        self._loop.call_at(at, call, *args, context=self._broker if to == "broker" else self._worker)

    def _look(self) -> None:
        if self._inbox and not self._paused and not self._ended:
            self._readable()

    def _come(self, data: bytes) -> None:
        self._inbox += data
        self._look()

    def _died(self, process: Process) -> None:
        self._loop.network.lose(process, silently=False)
        if not self._ended:
            self._later("broker", self._end)

    def _end(self) -> None:
        if not self._ended:
            self._lost()

    # What the worker does.

    def _arrive(self, data: bytes, accepted: tuple[Transport, ...]) -> None:
        self._accepted += accepted
        while data:
            space = self._cutter.space()
            count = self._rng.randint(1, min(len(data), len(space)))
            space[:count] = data[:count]
            data = data[count:]
            self._cutter.filled(count)
            self._carrying.obey(self._cutter.entries())

    def _establish(self, carried: Carried, tls: object) -> None:
        self._accepted.popleft().hand_over(carried, self._worker)

    def _send_soon(self) -> None:
        self._loop.call_soon(self._send, context=self._worker)

    def _send(self) -> None:
        self._later("broker", self._come, self._carrying.gathering.take())
        self._carrying.waits(0)

    def _let_go(self) -> None:
        for carried in tuple(self._carrying.connections.values()):
            carried.close()
        self._loop.call_later(1.0, self.process.kill, context=self._worker)


class _Door(asyncio.Protocol):
    """Takes a connection for a worker, if there is one."""

    def __init__(self, make: Callable[[], asyncio.BaseProtocol], take: Callable[[Any, Any], bool]) -> None:
        self._make = make
        self._take = take

    def connection_made(self, transport: Any) -> None:
        transport.pause_reading()
        if not self._take(transport, transport.get_extra_info("peername")):
            transport.hand_over(self._make(), transport.context)


class VirtualWorkers:
    """The workers of one machine, `lines` those of its broker now."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, machine: str) -> None:
        self._loop = loop
        self._rng = rng
        self._machine = machine
        self.lines: list[VirtualLine] = []

    def make_crew(self, count: int, listeners: Sequence[Listener], platform: Platform) -> Crew:
        self.lines = []
        return Crew(count, listeners, platform, open_line=self._open_line, listen=self._listen)

    def _open_line(self, readable: Callable[[], None], lost: Callable[[], None]) -> VirtualLine:
        self.lines = [line for line in self.lines if line.process.alive]
        name = f"{self._machine}'s worker"
        line = VirtualLine(readable, lost, loop=self._loop, rng=self._rng, name=name)
        self.lines.append(line)
        return line

    async def _listen(
        self,
        make: Callable[[], Any],
        host: str | None,
        port: int,
        *,
        tls: Callable[[], Any],
        end: int | None,
        take: Callable[[Any, Any], bool] | None,
    ) -> Server:
        door = make if take is None else partial(_Door, make, take)
        return await self._loop.create_server(door, host, port)

    def spare(self) -> None:
        """None of them is to die any more."""
        for line in self.lines:
            line.process.spare()

    def broker_died(self, *, silently: bool) -> None:
        for line in self.lines:
            line.broker_died(silently=silently)
