"""The network: who listens where, how long bytes take between two hosts, and what goes wrong on the way.

A path joins two hosts in both directions. It may be cut, in which case what is written waits until it is whole again,
as TCP does; or it may break connections. Between brokers it may also handle whole frames badly: hold them back, repeat
them, swap them or end a connection in the middle of one.
"""

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import NamedTuple

from geomq.sim.virtual.processes import PROCESS, Process
from geomq.sim.virtual.transports import Transport

CONNECT_S_MAX = 20.0
GREETING_FRAMES = 2
"""Frames at the start of a connection between brokers that pass untouched, as behind them is where harm can be done."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How a path behaves: delays in seconds, everything else as the probability that it strikes a write or a frame."""

    delay_s: tuple[float, float] = (0.0005, 0.01)
    split: float = 0.05
    repeat: float = 0.0
    swap: float = 0.0
    truncate: float = 0.0

    @property
    def minds_frames(self) -> bool:
        return bool(self.repeat or self.swap or self.truncate)


FAIR = Weather()


class Path:
    """Between two hosts."""

    def __init__(self, network: "Network", ends: tuple[str, str], rng: random.Random) -> None:
        self.network = network
        self.ends = ends
        self.weather = FAIR
        self.cut_from: frozenset[str] = frozenset()
        """The hosts whose bytes do not pass."""
        self._held: list[tuple[Transport, bytes | None]] = []
        self._rng = rng
        self._frames: dict[Transport, _Frames] = {}

    def delay_s(self) -> float:
        return self._rng.uniform(*self.weather.delay_s)

    def pieces(self, sender: Transport, data: bytes) -> list[bytes]:
        """How bytes arrive that were written together."""
        frames = self._frames.get(sender)
        if frames is not None:
            pieces = frames.handle(data, self.weather)
            if frames.truncated:
                self.network.loop.call_soon(self.network.reset, sender, context=Context())
            return pieces
        if len(data) > 1 and self._rng.random() < self.weather.split:
            at = self._rng.randrange(1, len(data))
            return [data[:at], data[at:]]
        return [data]

    def part_of(self, data: bytes) -> bytes:
        """What still arrives of bytes under way when their connection breaks."""
        if not data or self._rng.random() < 0.5:
            return data
        return data[: self._rng.randrange(len(data))]

    def watch_frames(self, transport: Transport) -> None:
        self._frames[transport] = _Frames(self._rng)

    def forget(self, ended: Transport) -> None:
        self._frames.pop(ended, None)
        self.network.live.pop(ended, None)

    def hold(self, sender: Transport, data: bytes | None) -> None:
        self._held.append((sender, data))

    def drop_held(self, sender: Transport) -> None:
        self._held = [(each, data) for each, data in self._held if each is not sender]

    def is_cut(self, sender: Transport) -> bool:
        return bool(self.cut_from) and sender.host in self.cut_from

    def answers_for(self, gone: Transport) -> bool:
        """Whether the host of an end that vanished is there again, and says that it knows no such connection."""
        return self.network.is_up(gone.host) and not self.cut_from

    def cut(self, *hosts: str) -> None:
        """From now on bytes of these hosts, by default of both, wait."""
        self.cut_from = frozenset(hosts or self.ends)

    def heal(self) -> None:
        self.cut_from = frozenset()
        held, self._held = self._held, []
        for transport, data in held:
            transport.carry(data)


class _Frames:
    """Finds frames in what one end of a connection between brokers writes, and mistreats them."""

    def __init__(self, rng: random.Random) -> None:
        self.truncated = False
        self._rng = rng
        self._rest = b""
        self._seen = 0
        self._late: bytes | None = None

    def handle(self, data: bytes, weather: Weather) -> list[bytes]:
        if self.truncated:
            return []
        if not weather.minds_frames and not self._rest and self._late is None and self._seen > GREETING_FRAMES:
            self._rest = _after_whole_frames(data)
            return [data] if not self._rest else [data[: -len(self._rest)]] if len(self._rest) < len(data) else []
        out: list[bytes] = []
        self._rest += data
        while len(self._rest) >= 4:
            size = 4 + int.from_bytes(self._rest[:4], "big")
            if len(self._rest) < size:
                break
            frame, self._rest = self._rest[:size], self._rest[size:]
            self._seen += 1
            self._frame(frame, weather, out)
            if self.truncated:
                break
        return [b"".join(out)] if out and any(out) else []

    def _frame(self, frame: bytes, weather: Weather, out: list[bytes]) -> None:
        if self._seen <= GREETING_FRAMES or not weather.minds_frames:
            out.append(frame)
        elif self._rng.random() < weather.truncate:
            self.truncated = True
            out.append(frame[: self._rng.randrange(len(frame))])
            return
        elif self._late is None and self._rng.random() < weather.swap:
            self._late = frame
            return
        else:
            out.append(frame * 2 if self._rng.random() < weather.repeat else frame)
        if self._late is not None:
            out.append(self._late)
            self._late = None


def _after_whole_frames(data: bytes) -> bytes:
    at = 0
    while len(data) - at >= 4:
        size = 4 + int.from_bytes(data[at : at + 4], "big")
        if at + size > len(data):
            break
        at += size
    return data[at:]


class _Listening(NamedTuple):
    make: Callable[[], asyncio.BaseProtocol]
    context: Context
    process: Process | None


class Server:
    """A listening address, as much of an `asyncio.Server` as a broker uses."""

    def __init__(self, network: "Network", address: tuple[str, int]) -> None:
        self._network = network
        self._address = address
        self.addresses = (address,)

    def close(self) -> None:
        self._network.listening.pop(self._address, None)

    async def wait_closed(self) -> None:
        """Nothing has to end first."""


class Network:
    """All hosts; `names` says which host has which address, `framed` on which ports brokers speak in frames."""

    def __init__(self, seed: int, names: dict[str, str], framed: frozenset[int]) -> None:
        self.loop: asyncio.AbstractEventLoop
        self.names = names
        self.listening: dict[tuple[str, int], _Listening] = {}
        self.live: dict[Transport, None] = {}
        self.down: set[str] = set()
        """Hosts without power."""
        self._rng = random.Random(f"network {seed}")
        self._framed = framed
        self._paths: dict[tuple[str, str], Path] = {}
        self._ports = 40_000

    def path(self, one: str, other: str) -> Path:
        ends = (one, other) if one < other else (other, one)
        found = self._paths.get(ends)
        if found is None:
            found = self._paths[ends] = Path(self, ends, self._rng)
        return found

    def is_up(self, host: str) -> bool:
        return host not in self.down

    def listen(self, make: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Server:
        process = PROCESS.get()
        if (host, port) in self.listening:
            raise OSError(98, "address already in use")
        context = Context() if process is None else process.context()
        self.listening[host, port] = _Listening(make, context, process)
        return Server(self, (host, port))

    async def connect(
        self, make: Callable[[], asyncio.BaseProtocol], host: str, port: int, source: str | None = None
    ) -> tuple[Transport, asyncio.BaseProtocol]:
        """Both ends of a new connection; where nobody listens it is refused, where nobody answers it takes long."""
        process = PROCESS.get()
        here = source or (process.name if process is not None else "nobody")
        there = self.names[host]
        path = self.path(here, there)
        deadline = self.loop.time() + CONNECT_S_MAX
        await asyncio.sleep(2 * path.delay_s())
        while path.cut_from or not self.is_up(there):
            if self.loop.time() > deadline:
                raise TimeoutError(f"no answer from {there}")
            await asyncio.sleep(self._rng.uniform(0.05, 0.5))
        found = self.listening.get((host, port))
        if found is None or (found.process is not None and not found.process.alive):
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        self._ports += 1
        context = Context() if process is None else process.context()
        near = Transport(self.loop, path, context, (here, self._ports), (host, port), here)
        far = Transport(self.loop, path, found.context.copy(), (host, port), (here, self._ports), there)
        near.other, far.other = far, near
        self.live[near] = self.live[far] = None
        if port in self._framed:
            path.watch_frames(near)
            path.watch_frames(far)
        protocol = make()
        self.loop.call_soon(_accept, far, found.make, context=far.context)
        near.begin(protocol)
        return near, protocol

    def reset(self, transport: Transport) -> None:
        """Break a connection at both ends."""
        transport.break_off()
        transport.other.break_off()

    def reset_all(self, path: Path) -> None:
        for transport in [each for each in self.live if each.path is path]:
            transport.break_off()

    def lose(self, process: Process, *, silently: bool) -> None:
        """A process died: its addresses are free, its connections end."""
        for address in [address for address, found in self.listening.items() if found.process is process]:
            del self.listening[address]
        for transport in [each for each in self.live if each.process is process]:
            transport.die(silently=silently)


def _accept(transport: Transport, make: Callable[[], asyncio.BaseProtocol]) -> None:
    transport.begin(make())
