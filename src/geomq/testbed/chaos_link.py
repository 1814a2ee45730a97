"""A link between two brokers that misbehaves frame by frame: it delays, repeats, reorders, truncates and cuts.

It sits between the broker that dials and the one that listens, and understands only where frames begin and end. The
greetings and proofs of both sides pass untouched, because behind them is where a network can still do harm. The same
seed and the same frames give the same mischief.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from geomq.broker.local_federation import HOST

GREETING_FRAMES = 2
FRAME_BYTES_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class Mischief:
    """What may happen to a frame: held up to `delay_ms`, and with a probability each of the others."""

    delay_ms: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    truncate: float = 0.0
    cut: float = 0.0


HARMLESS = Mischief()


class ChaosLink:
    """A listener on 127.0.0.1 whose connections lead to `target`; `mischief` may change at any time."""

    def __init__(self, target_port: int, *, seed: int) -> None:
        self.mischief = HARMLESS
        self.done: dict[str, int] = {}
        """How often each kind of mischief was done."""
        self.bytes = 0
        """Carried so far, in both directions."""
        self._target_port = target_port
        self._random = random.Random(seed)
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._break()  # those that were just being joined
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        """Where to connect instead of the target."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        self._is_cut = True
        self._count("cut")
        self._break()

    def heal(self) -> None:
        """Behave."""
        self._is_cut, self.mischief = False, HARMLESS

    def _break(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        self._writers.add(writer)
        connection = asyncio.create_task(self._join(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._target_port)
        except OSError:
            await self._drop(writer)
            return
        self._writers.add(far_writer)
        ways = [asyncio.create_task(self._carry(*way)) for way in ((reader, far_writer), (far_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await self._drop(writer, far_writer)

    async def _drop(self, *writers: asyncio.StreamWriter) -> None:
        for writer in writers:
            self._writers.discard(writer)
            writer.transport.abort()
        for writer in writers:
            with suppress(OSError):
                await writer.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Frames in one direction, until the connection breaks or is broken."""
        with suppress(OSError, asyncio.IncompleteReadError):
            for _ in range(GREETING_FRAMES):
                writer.write(await _frame(reader))
            held: bytes | None = None
            while True:
                frame = await _frame(reader)
                self.bytes += len(frame)
                if self.mischief.delay_ms:
                    await asyncio.sleep(self._random.random() * self.mischief.delay_ms / 1000.0)
                if self._strikes("cut"):
                    break
                if self._strikes("truncate"):
                    writer.write(frame[: self._random.randrange(len(frame))])
                    await writer.drain()
                    break
                if held is None and self._strikes("reorder"):
                    held = frame
                    continue
                writer.write(frame * 2 if self._strikes("duplicate") else frame)
                if held is not None:
                    writer.write(held)
                    held = None
                await writer.drain()

    def _strikes(self, kind: str) -> bool:
        probability: float = getattr(self.mischief, kind)
        if not probability or self._random.random() >= probability:
            return False
        self._count(kind)
        return True

    def _count(self, kind: str) -> None:
        self.done[kind] = self.done.get(kind, 0) + 1


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    length = int.from_bytes(head, "big")
    if length > FRAME_BYTES_MAX:
        raise OSError("not a frame of a peer link")
    return head + await reader.readexactly(length)
