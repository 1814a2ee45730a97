"""A network link in user space: a TCP proxy that delays, jitters, throttles, loses, cuts and heals. No root needed.

What it emulates is what TCP shows to its user. A lost segment is never missing: it comes later, after a retransmission
time-out that doubles with every further loss, and everything behind it waits. Bytes are never reordered. The
same seed and the same bytes in the same pieces give the same delays.

    async with EmulatedLink(("127.0.0.1", 1884), Conditions(latency_ms=40), seed=1) as link:
        ...                      # connect to 127.0.0.1, link.port
        link.cut()               # both sides hold their breath
        link.heal()              # what waited goes on

Each connection is a link of its own, with the whole bandwidth in each direction.
"""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Self, cast

from geomq.errors import UsageError
from geomq.testbed.alarm import Alarm

SEGMENT_BYTES = 1460
RETRANSMIT_MS_MIN = 200.0
"""The shortest retransmission time-out of Linux."""
LOSSES_IN_A_ROW_MAX = 8
BUFFER_BYTES_MAX = 1 << 22
"""What one direction holds before the sender has to wait, as it would for a full socket buffer."""


class _News(Enum):
    """What travels beside bytes: the sender has no more to say, or it is gone."""

    END = 0
    BREAK = 1


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a link behaves, each way: `latency_ms` plus up to `jitter_ms`, `mbit_per_s` (0: any), `loss` per segment."""

    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    mbit_per_s: float = 0.0
    loss: float = 0.0

    def __post_init__(self) -> None:
        for name in ("latency_ms", "jitter_ms", "mbit_per_s"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1e6:
                raise UsageError(f"{name} of a link must be between 0 and 1000000, not {value!r}")
        if not 0.0 <= self.loss <= 0.9:
            raise UsageError(f"loss of a link must be between 0 and 0.9, not {self.loss!r}")

    @property
    def retransmit_ms(self) -> float:
        """How long a lost segment keeps everybody waiting, the first time."""
        return max(RETRANSMIT_MS_MIN, 2.0 * (2.0 * self.latency_ms + self.jitter_ms))


class Delays:
    """When bytes handed in at some time come out at the other end: one direction of one connection, no clock."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)
        self._line_free_s = 0.0
        self._last_out_s = 0.0
        self.segments_lost = 0

    def arrival_s(self, size: int, now_s: float, conditions: Conditions) -> float:
        """The time at which the last of `size` bytes arrives."""
        start_s = max(now_s, self._line_free_s) if conditions.mbit_per_s else now_s
        if conditions.mbit_per_s:
            start_s += size * 8 / (conditions.mbit_per_s * 1e6)
            self._line_free_s = start_s
        delay_ms = conditions.latency_ms
        if conditions.jitter_ms:
            delay_ms += self._random.random() * conditions.jitter_ms
        if conditions.loss:
            delay_ms += self._retransmission_ms(size, conditions)
        self._last_out_s = max(self._last_out_s, start_s + delay_ms / 1000.0)
        return self._last_out_s

    def _retransmission_ms(self, size: int, conditions: Conditions) -> float:
        """Segments are lost independently and resent at the same time, so the unluckiest one decides."""
        worst = 0
        for _ in range(-(-size // SEGMENT_BYTES)):
            losses = 0
            while losses < LOSSES_IN_A_ROW_MAX and self._random.random() < conditions.loss:
                losses += 1
            self.segments_lost += losses
            worst = max(worst, losses)
        return conditions.retransmit_ms * ((1 << worst) - 1)


class EmulatedLink:
    """A listener on 127.0.0.1 whose connections lead to `target` under conditions that may change at any time."""

    def __init__(self, target: tuple[str, int], conditions: Conditions | None = None, *, seed: int = 0) -> None:
        self.target = target
        self.conditions = conditions or Conditions()
        self.seed = seed
        self.is_cut = False
        self.bytes_carried = 0
        self.connections: list[_Connection] = []
        self._opened = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen; port 0 picks a free one."""
        loop = asyncio.get_running_loop()
        self.alarm = Alarm(loop)
        self._server = await loop.create_server(self._accept, "127.0.0.1", port, backlog=1024)

    @property
    def port(self) -> int:
        """Where to connect instead of the target."""
        assert self._server is not None, "the link is not started"
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the listener and every connection."""
        if self._server is not None:
            self._server.close()
            self.reset()
            await asyncio.sleep(0)  # lets transports say that they are closed
            self.alarm.close()

    def set(self, conditions: Conditions) -> None:
        """From now on behave like this; what is under way already keeps its time."""
        self.conditions = conditions

    def cut(self) -> None:
        """Let nothing through; connections stay open and know nothing of it, as when a cable is pulled."""
        self.is_cut = True

    def heal(self) -> None:
        """Let everything through again, what waited first."""
        self.is_cut = False
        for connection in tuple(self.connections):
            connection.heal()

    def reset(self) -> None:
        """Break every connection at once; new ones are welcome."""
        for connection in tuple(self.connections):
            connection.abort()

    @property
    def segments_lost(self) -> int:
        return sum(pipe.delays.segments_lost for connection in self.connections for pipe in connection.pipes)

    def _accept(self) -> "_End":
        connection = _Connection(self, self._opened)
        self._opened += 1
        self.connections.append(connection)
        return connection.near


class _Connection:
    """A client's connection and the one to the target."""

    def __init__(self, link: EmulatedLink, number: int) -> None:
        self.link = link
        self.pipes = tuple(_Pipe(self, Delays(f"{link.seed}:{number}:{way}")) for way in ("out", "back"))
        self.near = _End(self, *self.pipes)
        self.far = _End(self, *reversed(self.pipes))
        self._dial: asyncio.Task[None] | None = None
        self._over = False

    def opened(self, end: "_End") -> None:
        if end is self.near:
            self._dial = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.far, *self.link.target)
        except OSError:
            self.abort()

    def heal(self) -> None:
        for pipe in self.pipes:
            pipe.release()

    def ended(self) -> None:
        """No more bytes come in one direction; when that is so in both, the connection is over."""
        if all(pipe.ended for pipe in self.pipes):
            self._end(lambda transport: transport.close())

    def lost(self) -> None:
        """A side is gone; without the other there is nobody left to tell."""
        if self.near.transport is None and self.far.transport is None:
            self.abort()

    def abort(self) -> None:
        """Both sides see a broken connection."""
        self._end(lambda transport: transport.abort())

    def _end(self, how: Callable[[asyncio.Transport], None]) -> None:
        if self._over:
            return
        self._over = True
        self.link.connections.remove(self)
        if self._dial is not None:
            self._dial.cancel()
        for end in (self.near, self.far):
            if end.transport is not None:
                how(end.transport)


class _End(asyncio.Protocol):
    """One socket of a connection: reads into one pipe, is written to by the other."""

    def __init__(self, connection: _Connection, outgoing: "_Pipe", incoming: "_Pipe") -> None:
        self._connection = connection
        self._outgoing = outgoing
        self._incoming = incoming
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._outgoing.source = self.transport
        self._incoming.drain = self.transport
        self._incoming.release()
        self._connection.opened(self)

    def data_received(self, data: bytes) -> None:
        self._outgoing.put(data)

    def eof_received(self) -> bool:
        self._outgoing.put(_News.END)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The news of a broken connection travels like any other bytes."""
        self.transport = self._outgoing.source = self._incoming.drain = None
        self._connection.lost()
        self._outgoing.put(_News.BREAK)


class _Pipe:
    """Bytes under way in one direction."""

    def __init__(self, connection: _Connection, delays: Delays) -> None:
        self._connection = connection
        self._link = connection.link
        self.delays = delays
        self.source: asyncio.Transport | None = None
        self.drain: asyncio.Transport | None = None
        self.ended = False
        self._arrived: deque[bytes | _News] = deque()
        self._under_way = 0
        self._full = False

    def put(self, data: bytes | _News) -> None:
        """Send something off."""
        size = 0 if isinstance(data, _News) else len(data)
        self._under_way += size
        if self._under_way > BUFFER_BYTES_MAX and not self._full and self.source is not None:
            self._full = True
            self.source.pause_reading()
        at_s = self.delays.arrival_s(size, time.monotonic(), self._link.conditions)
        self._link.alarm.set(at_s, lambda: self._arrive(data))

    def _arrive(self, data: bytes | _News) -> None:
        self._arrived.append(data)
        self.release()

    def release(self) -> None:
        """Hand over what has arrived, unless the link is cut or the other side is not there yet."""
        while self._arrived and not self._link.is_cut and self.drain is not None:
            data = self._arrived.popleft()
            if not isinstance(data, _News):
                self.drain.write(data)
                self._link.bytes_carried += len(data)
                self._under_way -= len(data)
            elif data is _News.END:
                self.ended = True
                with contextlib.suppress(OSError):  # the other side may have gone a moment ago
                    self.drain.write_eof()
                self._connection.ended()
            else:
                self._connection.abort()
        if self._full and self._under_way <= BUFFER_BYTES_MAX // 2 and self.source is not None:
            self._full = False
            self.source.resume_reading()
