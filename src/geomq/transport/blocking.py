"""A client session on a blocking socket, for programs that have a thread of their own: nothing happens between calls.

Owns the socket of one connection after the other. `step` does what there is to do; who reads the bytes by itself, to
take messages out before the session sees them, uses `receive` and gives the session the rest.
"""

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from geomq.errors import GeomqError, ProtocolError
from geomq.mqtt.client.events import Acknowledged, Connected, ConnectRefused, Ended, Event, Request, words
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.codec.cutter import body_bounds
from geomq.transport.address import Address

READ_BYTES: Final = 1 << 20
PACKET_BYTES_MIN: Final = 2


class RefusedByBroker(GeomqError):  # noqa: N818
    """The broker does not accept the client; trying again will not help."""

    def __init__(self, address: Address, said: ConnectRefused) -> None:
        more = f" ({words(said.reason, said.properties)})" if said.properties.reason_string else ""
        super().__init__(f"broker {address} refused the connection: {words(said.reason).lower()}{more}")


class BlockingLink:
    """Use `connect`, then the other calls; OSError says that the connection is gone, and `connect` makes another."""

    def __init__(
        self, session: ClientSession, address: Address, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.session = session
        self.address = address
        self._clock = clock
        self._socket: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._rest = b""

    def connect(self) -> Connected:
        """Connect and wait for CONNACK: OSError if nobody answers, RefusedByBroker if the broker refuses."""
        self.disconnect()
        self._dial()
        self.session.open(self._clock())
        try:
            self.flush()
            while True:
                self._read_packet()
                for event in self.session.take_events():
                    if isinstance(event, ConnectRefused):
                        raise RefusedByBroker(self.address, event)
                    if isinstance(event, Connected):
                        return event
        except BaseException:
            self.disconnect()
            raise

    def _dial(self) -> None:
        address, timeout_s = self.address, self.session.policy.answer_s
        raw = socket.create_connection((address.host, address.port), timeout_s)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls is not None:
                raw = address.tls.wrap_socket(raw, server_hostname=address.host)
        except BaseException:
            raw.close()
            raise
        self._socket = raw
        self._selector.register(raw, selectors.EVENT_READ)

    @property
    def sock(self) -> socket.socket:
        """What to wait for when several connections are waited for."""
        assert self._socket is not None
        return self._socket

    def watch(self, file: socket.socket) -> None:
        """Let this wake up `receive` too."""
        self._selector.register(file, selectors.EVENT_READ)

    def receive(self, timeout_s: float, size: int = READ_BYTES) -> bytes | None:
        """What has arrived; None if nothing did in time. OSError once the broker has closed."""
        if self._rest:
            data, self._rest = self._rest, b""
            return data
        connection = self.sock
        pending = connection.pending() if isinstance(connection, ssl.SSLSocket) else 0
        if not pending:
            ready = [key.fileobj for key, _ in self._selector.select(timeout_s)]
            if connection not in ready:
                return None
        data = connection.recv(size)
        if not data:
            raise ConnectionResetError(f"broker {self.address} closed the connection")
        return data

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def flush(self) -> None:
        """Send what the session has to send, and see whether the broker is there."""
        now = self._clock()
        self.session.on_deadline(now)
        data = self.session.take_bytes(now)
        if data:
            self.send(data)

    def step(self, timeout_s: float) -> list[Event]:
        """Send what there is, read what arrived, wait for it if there is nothing; what happened."""
        self.flush()
        data = self.receive(timeout_s)
        if data is not None:
            self.session.receive(data, self._clock())
        return self.session.take_events()

    def ask(self, request: Request) -> Acknowledged:
        """Send what waits and return the answer to the request, which must be the next packet."""
        self.flush()
        while True:
            self._read_packet()
            for event in self.session.take_events():
                if isinstance(event, Acknowledged) and event.request is request:
                    return event
                if isinstance(event, Ended):
                    raise self.ended(event)
                raise ProtocolError(f"broker {self.address} sent {type(event).__name__} before its answer")

    def _read_packet(self) -> None:
        """Give the session the next packet; bytes behind it are received later."""
        deadline = self._clock() + self.session.policy.answer_s
        data = b""
        while True:
            end = self._first_end(data)
            if end is not None and end <= len(data):
                data, self._rest = data[:end], data[end:] + self._rest
                self.session.receive(data, self._clock())
                return
            more = self.receive(max(0.0, deadline - self._clock()))
            if more is None:
                raise TimeoutError(f"broker {self.address} does not answer")
            data += more

    def _first_end(self, data: bytes) -> int | None:
        if len(data) < PACKET_BYTES_MIN:
            return None
        bounds = body_bounds(data, 0, self.session.policy.packet_size_max, strict=False)
        return None if bounds is None else bounds[1]

    def ended(self, event: Ended) -> ConnectionError:
        """The error for a broker that ended the connection."""
        why = event.properties.reason_string or words(event.reason).lower()
        return ConnectionResetError(f"broker {self.address} closed the connection: {why}")

    def disconnect(self) -> None:
        """End the connection, if there is one; what waits stays in the session."""
        if self._socket is None:
            return
        connection, self._socket = self._socket, None
        self._selector.unregister(connection)
        self._rest = b""
        self.session.close()
        with contextlib.suppress(OSError):
            connection.close()

    def close(self) -> None:
        """The link is not used any more."""
        self.disconnect()
        self._selector.close()
