"""What a worker does: it carries the sockets of clients, their TLS, and the waiting when a client reads slowly.

It knows nothing of MQTT. What a client sends goes to the broker, what the broker says goes to the client, everything
that became due in one tick of the loop together.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import msgspec

from geomq.broker.sockets.tls import TlsSettings, tls_context
from geomq.broker.workers.frames import BROKEN, KIND, Entry, Gathering, Order, Report, many
from geomq.errors import ConfigError, ProtocolError

log = logging.getLogger("geomq.workers")

FULL_BYTES: Final = 1 << 20
"""While more than this waits for the broker, no client is read that sends more."""


class Establish(Protocol):
    """Connects the socket that came next with what is to carry it."""

    def __call__(self, carried: "Carried", tls: ssl.SSLContext | None) -> None: ...


class Carried(asyncio.Protocol):
    """One connection."""

    def __init__(self, carrying: "Carrying", number: int) -> None:
        self._carrying = carrying
        self._say = carrying.gathering.write
        self.number = number
        self.transport: Any = None
        self._task: asyncio.Future[Any] | None = None
        self._paused = self._closing = False

    def establish(self, task: "asyncio.Future[Any]") -> None:
        """The task does it."""
        self._task = task

    # What the loop calls.

    def connection_made(self, transport: Any) -> None:
        if self._closing:
            transport.abort()
            return
        self.transport = transport
        if self._paused:
            transport.pause_reading()
        self._carrying.opened(self)

    def data_received(self, data: bytes) -> None:
        self._say(self.number, data)
        if self._carrying.full:
            self._carrying.hold(self)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._carrying.gathering.say(Report.STALLED, self.number)

    def resume_writing(self) -> None:
        self._carrying.gathering.say(Report.FLOWING, self.number)

    def connection_lost(self, error: Exception | None) -> None:
        self._carrying.ended(self.number, broken=error is not None)

    # What the broker orders.

    def close(self) -> None:
        if self.transport is None:
            self.abort()
        else:
            self.transport.close()

    def write_eof(self) -> None:
        if self.transport is not None and self.transport.can_write_eof():
            try:
                self.transport.write_eof()
            except OSError:  # the client has gone
                self.transport.abort()

    def abort(self) -> None:
        self._closing = True
        if self.transport is not None:
            self.transport.abort()
        elif self._task is not None:
            self._task.cancel()

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self.read(not paused)

    def read(self, wanted: bool) -> None:
        """Whether it is to be read, if the broker wants it to be."""
        if self.transport is None or self.transport.is_closing():
            return
        if wanted and not self._paused:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def limit(self, high: int) -> None:
        if self.transport is not None:
            self.transport.set_write_buffer_limits(high, high // 4)


class Carrying:
    """All connections of one worker. `due` is called when there is something for the broker."""

    def __init__(self, *, due: Callable[[], object], establish: Establish) -> None:
        self.gathering = Gathering(due)
        self.connections: dict[int, Carried] = {}
        self.full = False
        """Whether the broker has more to take in than it should."""
        self._writers: dict[int, Callable[[bytes], object]] = {}
        self._establish = establish
        self._contexts: tuple[ssl.SSLContext, ...] = ()
        self._held: list[Carried] = []

    # What happened.

    def opened(self, carried: Carried) -> None:
        self._writers[carried.number] = carried.transport.write
        self.gathering.say(Report.OPENED, carried.number, _certificate(carried.transport))

    def ended(self, number: int, *, broken: bool) -> None:
        self._writers.pop(number, None)
        if self.connections.pop(number, None) is not None:
            self.gathering.say(Report.CLOSED, number, BROKEN if broken else b"")

    def hold(self, carried: Carried) -> None:
        """It is not read until the broker took what there is."""
        self._held.append(carried)
        carried.read(False)

    def waits(self, count: int) -> None:
        """So many bytes wait for the broker to read them."""
        self.full = count > FULL_BYTES
        if self._held and not self.full:
            held, self._held = self._held, []
            for each in held:
                each.read(True)

    # What the broker says.

    def obey(self, entries: Iterable[Entry]) -> None:
        """Orders about connections that have ended meanwhile are void."""
        writers = self._writers
        for key, data in entries:
            if key < KIND:
                if key in writers:
                    writers[key](data)
                continue
            what, number = divmod(key, KIND)
            if what == Order.WRITE_ALL:
                numbers, data = many(number, data)
                for each in numbers:
                    if each in writers:
                        writers[each](data)
            else:
                self._order(what, number, data)

    def _order(self, what: int, number: int, data: bytes) -> None:
        if what == Order.ADD:
            carried = self.connections[number] = Carried(self, number)
            self._establish(carried, self._contexts[data[0]] if data else None)
        elif what == Order.SET_UP:
            self._set_up(data)
        elif what == Order.PING:
            self.gathering.say(Report.READY)
        elif what not in _OF_ONE:
            raise ProtocolError(f"no such order: {what}")
        elif number in self.connections:
            _OF_ONE[what](self.connections[number], data)

    def _set_up(self, data: bytes) -> None:
        try:
            settings = msgspec.msgpack.decode(data, type=tuple[TlsSettings, ...])
            self._contexts = tuple(tls_context(each) for each in settings)
        except ConfigError as error:
            # The broker has just read the same files; what they said before goes on to hold.
            log.error("TLS files not read again: %s", error)
        self.gathering.say(Report.READY)


_OF_ONE: Final[dict[int, Callable[[Carried, bytes], None]]] = {
    Order.CLOSE: lambda carried, _: carried.close(),
    Order.ABORT: lambda carried, _: carried.abort(),
    Order.WRITE_EOF: lambda carried, _: carried.write_eof(),
    Order.PAUSE: lambda carried, _: carried.pause(True),
    Order.RESUME: lambda carried, _: carried.pause(False),
    Order.LIMIT: lambda carried, data: carried.limit(int.from_bytes(data, "little")),
}


def _certificate(transport: Any) -> bytes:
    """What the broker has to know of the TLS of a connection."""
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return b""
    return msgspec.msgpack.encode((tls.getpeercert(), tls.getpeercert(binary_form=True)))
