"""One end of a connection in memory: bytes arrive at the other end later, in order, in pieces of any size.

It behaves as TCP under asyncio does: what the other side does not read fills the system's buffers and then this end's,
`close` lets what was written go first, `abort` may lose it, and a connection whose other end vanished without a word
stays open until somebody writes to it.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextvars import Context
from typing import Final, Protocol

from geomq.sim.virtual.processes import PROCESS, Crashed, Process

SYSTEM_BYTES: Final = 1 << 16
"""What the buffers of both systems take before the writer has to keep bytes itself."""
HIGH_BYTES: Final = 1 << 16
END: Final = b""
"""Nothing more will come."""
RESET: Final = None
"""The connection is broken."""


class Address:
    """Stands where a socket would: it knows both ends and takes options."""

    def __init__(self, here: tuple[str, int], there: tuple[str, int]) -> None:
        self._here, self._there = here, there

    def getsockname(self) -> tuple[str, int]:
        return self._here

    def getpeername(self) -> tuple[str, int]:
        return self._there

    def setsockopt(self, *_options: object) -> None:
        """Nothing to set."""


class Path(Protocol):
    """What lies between the two ends of a connection."""

    def delay_s(self) -> float: ...
    def pieces(self, sender: "Transport", data: bytes) -> list[bytes]:
        """How bytes arrive that were written together."""

    def part_of(self, data: bytes) -> bytes:
        """What still arrives of bytes under way when their connection breaks."""

    def is_cut(self, sender: "Transport") -> bool: ...
    def hold(self, sender: "Transport", data: bytes | None) -> None:
        """Keep what cannot pass now."""

    def drop_held(self, sender: "Transport") -> None: ...
    def answers_for(self, gone: "Transport") -> bool:
        """Whether the host of an end that vanished is there again, and says that it knows no such connection."""

    def forget(self, ended: "Transport") -> None: ...


class Transport(asyncio.Transport):
    """Made in pairs by the network; `context` is that of the process this end belongs to."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: Path,
        context: Context,
        here: tuple[str, int],
        there: tuple[str, int],
        host: str,
    ) -> None:
        super().__init__({"peername": there, "socket": Address(here, there)})
        self.path = path
        self.host = host
        self.other: Transport
        self.protocol: asyncio.BaseProtocol | None = None
        self.context = context
        self.vanished = False
        """Whether this end went without a word: its machine lost power."""
        self._loop = loop
        self.process: Process | None = context.get(PROCESS)
        self._reading = True
        self._closing = False
        self._broken = False
        """Whether the connection is: nothing that is written from now on goes anywhere."""
        self._inbox: deque[bytes] = deque()
        self._flight: deque[tuple[bytes | None, asyncio.TimerHandle]] = deque()
        self._ready_at = 0.0
        self._unread = 0
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4
        self._paused = False

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """The connection is there; what came before the protocol did is handed over."""
        self.protocol = protocol
        protocol.connection_made(self)
        self._drain()

    def hand_over(self, protocol: asyncio.BaseProtocol, context: Context) -> None:
        """Another process carries the connection from now on, if it is still there."""
        if self.protocol is None:
            protocol.connection_lost(None)
            return
        self.context, self.process = context, context.get(PROCESS)
        self._reading = True
        self.begin(protocol)

    # What a protocol calls.

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return max(0, self._unread - SYSTEM_BYTES)

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.process is not None:
            self.process.reach("write")
        if self._closing or self._broken or not data:
            return
        self._send(bytes(data))

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(parts))

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            if self._inbox:
                self._loop.call_soon(self._drain, context=self.context)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.carry(END)
            if not self.get_write_buffer_size():
                self._loop.call_soon(self._lose, None, context=self.context)

    def abort(self) -> None:
        """Forget what the system does not have yet; what it has may be lost, too."""
        if self.protocol is not None:
            self._closing = True
            self.break_off()
            self._loop.call_soon(self._lose, None, context=self.context)

    # The way to the other end.

    def _send(self, data: bytes) -> None:
        self._unread += len(data)
        for piece in self.path.pieces(self, data):
            self.carry(piece)
        if not self._paused and self.get_write_buffer_size() > self._high and self.protocol is not None:
            self._paused = True
            self.protocol.pause_writing()

    def carry(self, data: bytes | None) -> None:
        """Bring bytes, an END or a RESET to the other end, behind all that went before."""
        if self.other.vanished:
            if self.path.answers_for(self.other):
                self._loop.call_later(self.path.delay_s(), self._lose, ConnectionResetError(), context=self.context)
        elif self.path.is_cut(self):
            self.path.hold(self, data)
        else:
            self._ready_at = max(self._ready_at + 1e-9, self._loop.time() + self.path.delay_s())
            handle = self._loop.call_at(self._ready_at, self._arrive, context=self.other.context)
            self._flight.append((data, handle))

    def _arrive(self) -> None:
        data, _ = self._flight.popleft()
        self.other.take(data)

    def break_off(self) -> None:
        """The other end will learn that the connection is broken; of what is under way only a part may come."""
        if self._broken:
            return
        self._broken = True
        parts: list[bytes] = []
        for data, handle in self._flight:
            handle.cancel()
            parts.append(data or b"")
        self._flight.clear()
        self.path.drop_held(self)
        arriving = self.path.part_of(b"".join(parts))
        if arriving:
            self.carry(arriving)
        self.carry(RESET)

    # What arrives here.

    def take(self, data: bytes | None) -> None:
        if data is RESET:
            self._lose(ConnectionResetError("connection reset"))
            return
        self._inbox.append(data)
        self._drain()

    def _drain(self) -> None:
        while self._inbox and self._reading and self.protocol is not None:
            data = self._inbox.popleft()
            if not data:
                self._lose(None)
                return
            self.other.was_read(len(data))
            try:
                self._hand_over(data)
            except Crashed:
                return
            except Exception as error:
                self._loop.call_exception_handler({"message": "a protocol failed", "exception": error})
                self.abort()

    def _hand_over(self, data: bytes) -> None:
        protocol = self.protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)  # type: ignore[union-attr]
            return
        view = memoryview(data)
        while view and self.protocol is not None and self._reading:
            room = memoryview(protocol.get_buffer(len(view)))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            view = view[count:]
            protocol.buffer_updated(count)
        if view and self.protocol is not None:
            self._inbox.appendleft(bytes(view))
            self.other.was_read(-len(view))

    def was_read(self, count: int) -> None:
        """The other side took in what was written here."""
        self._unread -= count
        if self._paused and self.get_write_buffer_size() <= self._low:
            self._loop.call_soon(self._resume_writing, context=self.context)
        if self._closing and not self.get_write_buffer_size() and self.protocol is not None:
            self._loop.call_soon(self._lose, None, context=self.context)

    def _resume_writing(self) -> None:
        if self._paused and self.protocol is not None:
            self._paused = False
            self.protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        protocol, self.protocol = self.protocol, None
        self._closing = True
        if protocol is not None:
            self.path.forget(self)
            protocol.connection_lost(error)

    # The death of the process.

    def die(self, *, silently: bool) -> None:
        """The process of this end is dead; if its machine is as well, nobody tells the other end."""
        if self.protocol is None:
            return
        self.protocol = None
        self._closing = True
        self.path.forget(self)
        if silently:
            self.vanished = True
            for _, handle in self._flight:
                handle.cancel()
            self._flight.clear()
            self.path.drop_held(self)
        else:
            self.break_off()
