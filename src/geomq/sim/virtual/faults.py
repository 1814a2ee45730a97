"""The trouble of one run: what breaks, when, and that all of it is whole again when it is to be.

Each kind is a task of its own that strikes at random moments until `heal`.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from geomq.sim.virtual.loop import VirtualLoop
from geomq.sim.virtual.machine import Machine
from geomq.sim.virtual.network import FAIR, Path, Weather
from geomq.sim.virtual.scenario import STORM, WORKERS_DIE

RESTART_S = (0.2, 2.5)
STORM_S = 2.5
LOOK_S = 0.1
OFFSET_S_MAX = 1.0


class Faults:
    """Knows all machines and the paths between them and clients; `clients` are hosts of their own."""

    def __init__(
        self,
        loop: VirtualLoop,
        machines: list[Machine],
        clients: Collection[str],
        seed: int,
        note: Callable[[str], object],
    ) -> None:
        self.healed = False
        self._loop = loop
        self._machines = machines
        self._clients = clients
        self._rng = random.Random(f"faults {seed}")
        self._note = note
        self._tasks: list[asyncio.Task[None]] = []
        self._rough: list[Path] = []
        self._due: dict[str, float] = {}

    def begin(self, kinds: frozenset[str]) -> None:
        makers: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            STORM: self._storm,
            "kill": lambda: self._deaths(power=False),
            "power": lambda: self._deaths(power=True),
            "mid-write": self._deaths_in_the_midst,
            "cut": self._cuts,
            "reset": self._resets,
            "frames": self._weather,
            "pause": self._pauses,
            "clock": self._clocks,
            "full disk": lambda: self._disks("full"),
            "broken disk": lambda: self._disks("broken"),
            WORKERS_DIE: self._deaths_of_workers,
        }
        self._tasks = [self._loop.create_task(makers[kind]()) for kind in sorted(kinds)]

    async def keep_running(self) -> None:
        """Start every machine that is down again, after a while."""
        while True:
            for machine in self._machines:
                if machine.up:
                    self._due.pop(machine.name, None)
                elif self._loop.now >= self._due.setdefault(machine.name, self._loop.now + self._draw(*RESTART_S)):
                    machine.disk.broken = False
                    machine.start()
            await asyncio.sleep(LOOK_S)

    def heal(self) -> None:
        """Undo everything, and let nothing new begin."""
        self.healed = True
        for task in self._tasks:
            task.cancel()
        for path in self._rough:
            path.weather = FAIR
            path.heal()
        for machine in self._machines:
            machine.spare()
            machine.go_on()
            machine.disk.full = False
            machine.disk.broken = False
            self._due[machine.name] = min(self._due.get(machine.name, self._loop.now), self._loop.now)

    def _draw(self, low: float, high: float) -> float:
        return self._rng.uniform(low, high)

    def _pick(self) -> Machine:
        return self._rng.choice(self._machines)

    def _path(self) -> Path:
        """Between two brokers, or a client and a broker."""
        names = [machine.name for machine in self._machines]
        other, *more = self._rng.sample(names, min(2, len(names)))
        to_client = not more or self._rng.random() < 0.3
        one = self._rng.choice(list(self._clients)) if to_client else more[0]
        path = self._loop.network.path(one, other)
        self._rough.append(path)
        return path

    # The kinds.

    async def _deaths(self, *, power: bool) -> None:
        while True:
            await asyncio.sleep(self._draw(1.0, 6.0))
            self._pick().kill(power=power)

    async def _storm(self) -> None:
        """One broker after the other, but never the last that runs."""
        while True:
            await asyncio.sleep(STORM_S)
            up = [machine for machine in self._machines if machine.up]
            if len(up) > 1:
                self._rng.choice(up).kill()

    async def _deaths_in_the_midst(self) -> None:
        """Killed between two callbacks, or in the middle of one, where it writes to a connection or to the disk."""
        while True:
            await asyncio.sleep(self._draw(1.0, 5.0))
            point = self._rng.choice(["callback", "write", "disk", "disk"])
            count = self._rng.randint(1, 200 if point == "callback" else 12)
            self._pick().plan_death(point, count, power=self._rng.random() < 0.5)

    async def _deaths_of_workers(self) -> None:
        """Killed between two callbacks, or in the middle of what they write to clients; their brokers go on."""
        while True:
            await asyncio.sleep(self._draw(0.3, 3.0))
            lines = self._pick().workers.lines
            if lines:
                process = self._rng.choice(lines).process
                self._note(f"{process.name} is about to die")
                process.kill_at(self._rng.choice(["callback", "write"]), self._rng.randint(1, 60))

    async def _cuts(self) -> None:
        """Bytes wait, of one side or both."""
        while True:
            await asyncio.sleep(self._draw(0.5, 4.0))
            path = self._path()
            hosts = self._rng.choice([path.ends, path.ends, path.ends[:1], path.ends[1:]])
            self._note(f"no bytes of {' and '.join(hosts)} between {' and '.join(path.ends)}")
            path.cut(*hosts)
            self._loop.call_later(self._draw(0.2, 9.0), self._mend, path)

    def _mend(self, path: Path) -> None:
        if path.cut_from:
            self._note(f"bytes pass again between {' and '.join(path.ends)}")
            path.heal()

    async def _resets(self) -> None:
        while True:
            await asyncio.sleep(self._draw(0.3, 2.5))
            path = self._path()
            self._note(f"connections break between {' and '.join(path.ends)}")
            self._loop.network.reset_all(path)

    async def _weather(self) -> None:
        """Slow paths, split writes, frames that come twice, swapped or cut off."""
        while True:
            path = self._path()
            slow_s = self._rng.choice([0.01, 0.05, 0.3, 1.0])
            kind = self._rng.choice([0.0, 0.02, 0.1])
            path.weather = Weather((0.0005, slow_s), 0.3, kind, kind, kind / 10)
            await asyncio.sleep(self._draw(0.2, 2.0))

    async def _pauses(self) -> None:
        while True:
            await asyncio.sleep(self._draw(1.0, 5.0))
            machine = self._pick()
            self._note(f"{machine.name} stops")
            machine.stop()
            await asyncio.sleep(self._rng.choice([0.3, 1.0, 3.0, 8.0]))
            self._note(f"{machine.name} goes on")
            machine.go_on()

    async def _clocks(self) -> None:
        for machine in self._machines:
            machine.wall_offset_s = self._draw(-OFFSET_S_MAX, OFFSET_S_MAX)
        while True:
            await asyncio.sleep(self._draw(1.0, 6.0))
            machine = self._pick()
            machine.wall_offset_s = self._draw(-OFFSET_S_MAX, OFFSET_S_MAX)
            self._note(f"the clock of {machine.name} is wrong by {machine.wall_offset_s:.2f} s")

    async def _disks(self, kind: str) -> None:
        while True:
            await asyncio.sleep(self._draw(2.0, 8.0))
            machine = self._pick()
            self._note(f"the disk of {machine.name} is {kind}")
            setattr(machine.disk, kind, True)
            await asyncio.sleep(self._draw(0.5, 4.0))
            if kind == "full":
                machine.disk.full = False
                self._note(f"the disk of {machine.name} has room again")
