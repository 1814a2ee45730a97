"""The broker's side of the connections that a worker carries: to a protocol each is a transport like any other.

It decides nothing about MQTT. What protocols write in one tick goes to the worker together; what the worker reports is
handed to the protocols in the order in which it happened.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from geomq.broker.connections.transport import nowhere
from geomq.broker.workers.frames import BROKEN, KIND, Data, Entry, Gathering, Order, Report
from geomq.errors import ProtocolError

log = logging.getLogger("geomq.workers")

UNREAD_BYTES_MAX: Final = 1 << 16
"""What came for a connection that is not read may wait here; then the worker stops reading it, too."""


class Certified:
    """Stands where an SSLObject would: it has the certificate that the worker verified."""

    def __init__(self, data: bytes) -> None:
        self._read, self._binary = msgspec.msgpack.decode(data)

    def getpeercert(self, binary_form: bool = False) -> Any:
        return self._binary if binary_form else self._read


class RemoteTransport:
    """One connection from when it was accepted. `protocol` is told what happens to it."""

    __slots__ = (
        "_came",
        "_ended",
        "_here",
        "_info",
        "_open",
        "_reading",
        "_remote",
        "_stalled",
        "_stopped",
        "_unread",
        "number",
        "protocol",
        "write",
    )

    def __init__(self, remote: "Remote", number: int, protocol: Any, address: Any) -> None:
        self._remote = remote
        self.number = number
        self.protocol = protocol
        self._info: dict[str, Any] = {"peername": address}
        self._open = self._stopped = self._stalled = self._ended = False
        self._here = self._reading = True
        self._came: deque[bytes] = deque()
        self._unread = 0
        self.write: Callable[[Data], object] = nowhere

    # What a protocol calls, beside `write`.

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._order(Order.LIMIT, high.to_bytes(8, "little"))

    def get_write_buffer_size(self) -> int:
        """What waits, waits at the worker."""
        return 0

    def is_closing(self) -> bool:
        return not self._open

    def pause_reading(self) -> None:
        self._reading = False
        self._direct()

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            if self._came or self._ended:
                self._remote.loop.call_soon(self._catch_up)
            self._direct()
            self._flow()

    def _direct(self) -> None:
        """What comes goes straight to the protocol as long as it takes it."""
        if self._open and self._here:
            direct = self._reading and not self._came
            self._remote.receivers[self.number] = self.protocol.data_received if direct else self._keep

    def can_write_eof(self) -> bool:
        return self._open and "ssl_object" not in self._info

    def write_eof(self) -> None:
        self.write = nowhere
        self._order(Order.WRITE_EOF)

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol
        self._came.clear()
        self._unread = 0
        self._direct()

    def close(self) -> None:
        self._end(Order.CLOSE)

    def abort(self) -> None:
        self._end(Order.ABORT)

    def _end(self, order: Order) -> None:
        self._shut()
        if self._ended:
            self._remote.loop.call_soon(self._lose, None)
        else:
            self._order(order)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._info.get(name, default)

    def _order(self, what: Order, data: bytes = b"") -> None:
        if self._here:
            self._remote.gathering.say(what, self.number, data)

    def _shut(self) -> None:
        self._open, self.write = False, nowhere
        self._came.clear()
        self._remote.receivers.pop(self.number, None)

    # What the worker reports.

    def opened(self, certificate: bytes) -> None:
        if certificate:
            self._info["ssl_object"] = Certified(certificate)
        self._open = True
        self.write = partial(self._remote.gathering.write, self.number)
        self._direct()
        self.protocol.connection_made(self)

    def _keep(self, data: bytes) -> None:
        self._came.append(data)
        self._unread += len(data)
        if self._unread > UNREAD_BYTES_MAX and not self._stopped:
            self._stopped = True
            self._order(Order.PAUSE)

    def failed(self, error: Exception) -> None:
        """Its protocol did not expect that."""
        self._remote.loop.call_exception_handler({"message": "a connection failed", "exception": error})
        self.abort()

    def _catch_up(self) -> None:
        """Hand over what came while it was not wanted."""
        while self._came and self._reading and self._open:
            data = self._came.popleft()
            self._unread -= len(data)
            try:
                self.protocol.data_received(data)
            except Exception as error:
                self.failed(error)
        self._direct()
        self._flow()
        if self._ended and self._reading and not self._came:
            self._lose(None)

    def _flow(self) -> None:
        if self._stopped and self._reading and not self._came:
            self._stopped = False
            self._order(Order.RESUME)

    def stalled(self) -> None:
        if not self._stalled:
            self._stalled = True
            self.protocol.pause_writing()

    def flowing(self) -> None:
        if self._stalled:
            self._stalled = False
            self.protocol.resume_writing()

    def closed(self, *, broken: bool) -> None:
        """Nothing more comes or goes. What the client sent before is still taken in, if it left in order."""
        self._ended, self._here = True, False
        self._remote.receivers.pop(self.number, None)
        waits = self._open and not self._stalled and not broken and (self._came or not self._reading)
        if not waits:
            self._lose(ConnectionResetError() if broken else None)

    def _lose(self, error: Exception | None) -> None:
        protocol, self.protocol = self.protocol, None
        self._shut()
        if protocol is not None:
            protocol.connection_lost(error)


class Remote:
    """All connections that one worker carries. `due` is called when there is something to tell it, `ready` when it says
    that it is there."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        due: Callable[[], object],
        ready: Callable[[], object],
        name: str,
    ) -> None:
        self.loop = loop
        self.gathering = Gathering(due)
        self.transports: dict[int, RemoteTransport] = {}
        self.receivers: dict[int, Callable[[bytes], object]] = {}
        """Who takes what comes for a connection."""
        self._ready = ready
        self._name = name
        self._last = 0

    def offer(self, protocol: Any, address: Any) -> RemoteTransport:
        """For a connection that was accepted and may yet be refused."""
        self._last += 1
        return RemoteTransport(self, self._last, protocol, address)

    def hand_over(self, transport: RemoteTransport, tls: int | None) -> None:
        """The worker carries it from now on, encrypted by one of the TLS settings if there are any; its descriptor has
        to go along."""
        self.transports[transport.number] = transport
        self.gathering.say(Order.ADD, transport.number, b"" if tls is None else bytes((tls,)))

    def hear(self, entry: Entry) -> None:
        key, data = entry
        if key < KIND:
            receive = self.receivers.get(key)
            if receive is not None:
                try:
                    receive(data)
                except Exception as error:
                    self.transports[key].failed(error)
            return
        what, number = divmod(key, KIND)
        transport = self.transports.get(number)
        if what == Report.READY:
            self._ready()
        elif what == Report.LOG:
            log.log(number, "%s", str(data, "utf-8", "replace"), extra={"worker": self._name})
        elif what not in _OF_ONE:
            raise ProtocolError(f"no such report: {what}")
        elif transport is not None:
            if what == Report.CLOSED:
                del self.transports[number]
            try:
                _OF_ONE[what](transport, data)
            except Exception as error:
                transport.failed(error)

    def lose_all(self) -> None:
        """The worker is gone, and every connection with it."""
        transports, self.transports = self.transports, {}
        for transport in transports.values():
            transport.closed(broken=True)


_OF_ONE: Final[dict[int, Callable[[RemoteTransport, bytes], None]]] = {
    Report.OPENED: lambda transport, data: transport.opened(data),
    Report.CLOSED: lambda transport, data: transport.closed(broken=data == BROKEN),
    Report.STALLED: lambda transport, _: transport.stalled(),
    Report.FLOWING: lambda transport, _: transport.flowing(),
}
