"""One blocking MQTT connection: the handshake, a bounded wait for answers, then bytes in and out.

Owns the socket and who is at the other end. What the bytes after the handshake mean is the inlet's and the outlet's
business.
"""

import contextlib
import selectors
import socket
import ssl
import time
from typing import TypeVar

from geomq.errors import GeomqError, ProtocolError
from geomq.mqtt.decoder import Decoder, Side
from geomq.mqtt.encode import encode
from geomq.mqtt.packets import Connack, Connect, Packet
from geomq.mqtt.properties import NO_PROPERTIES, Properties
from geomq.mqtt.reasons import ReasonCode
from geomq.mqtt.types import V5
from geomq.pipeline.streaming.options import Address, Login

CONNECT_TIMEOUT_S = 10.0
PACKET_SIZE_MAX = 64 << 20
ASK = ("geo-details", "1")

P = TypeVar("P", bound=Packet)
Socket = socket.socket


class Refused(GeomqError):  # noqa: N818
    """The broker does not want this connection or subscription; trying again will not help."""


class Connection:
    """Use `open`. `details` are what the broker promised to tell about events; empty for brokers that know none."""

    def __init__(self, address: Address, version: int) -> None:
        self.address = address
        self.version = version
        self.connack = Connack()
        self.rest = b""
        self._socket: socket.socket | None = None
        self._selector = selectors.DefaultSelector()

    @classmethod
    def open(
        cls,
        address: Address,
        login: Login,
        client_id: str,
        *,
        clean: bool,
        keep_alive_s: int,
        properties: Properties = NO_PROPERTIES,
    ) -> "Connection":
        """Connect and shake hands; OSError if nobody answers, Refused if the broker says no."""
        connection = cls(address, login.version)
        try:
            connection._dial(login)
            connection.send(
                encode(
                    Connect(
                        client_id,
                        login.version,
                        clean,
                        keep_alive_s,
                        username=login.username,
                        password=None if login.password is None else login.password.encode(),
                        properties=properties if login.version == V5 else NO_PROPERTIES,
                    ),
                    login.version,
                )
            )
            connection.connack = connection.expect(Connack)
        except BaseException:
            connection.close()
            raise
        if connection.connack.reason != ReasonCode.SUCCESS:
            connection.close()
            reason = connection.connack.properties.reason_string
            raise Refused(
                f"broker {address} refuses the connection: {connection.connack.reason.name.lower().replace('_', ' ')}"
                + (f" ({reason})" if reason else "")
            )
        return connection

    def _dial(self, login: Login) -> None:
        raw = socket.create_connection((self.address.host, self.address.port), CONNECT_TIMEOUT_S)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.address.tls:
                raw = ssl.create_default_context(cafile=login.cafile).wrap_socket(
                    raw, server_hostname=self.address.host
                )
        except ssl.SSLError as error:
            raw.close()
            raise Refused(f"broker {self.address}: TLS fails: {error.reason or error}") from None
        except OSError:
            raw.close()
            raise
        self._socket = raw
        self._selector.register(raw, selectors.EVENT_READ)

    @property
    def details(self) -> tuple[str, ...]:
        return tuple((self.connack.properties.user(ASK[0]) or "").split())

    @property
    def waiting(self) -> int | None:
        """How many messages the broker had for the session at the handshake, if it says so."""
        said = self.connack.properties.user("geo-waiting") or ""
        return int(said) if said.isascii() and said.isdigit() and len(said) < 16 else None

    @property
    def socket(self) -> "Socket":
        """What to wait for when several connections are waited for."""
        assert self._socket is not None
        return self._socket

    def watch(self, file: "Socket") -> None:
        """Let this wake up `receive` too."""
        self._selector.register(file, selectors.EVENT_READ)

    def receive(self, timeout_s: float, size: int = 1 << 20) -> bytes | None:
        """What has arrived; None if nothing did in time. OSError once the broker has closed."""
        assert self._socket is not None
        pending = self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0
        if not pending:
            ready = [key.fileobj for key, _ in self._selector.select(timeout_s)]
            if self._socket not in ready:
                return None
        data = self._socket.recv(size)
        if not data:
            raise ConnectionResetError(f"broker {self.address} closed the connection")
        return data

    def send(self, data: bytes) -> None:
        assert self._socket is not None
        self._socket.sendall(data)

    def expect(self, kind: type[P]) -> P:
        """The next packet, which must be of this kind; bytes behind it stay in `rest`."""
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        decoder = Decoder(Side.CLIENT, version=self.version, size_max=PACKET_SIZE_MAX)
        data, self.rest = self.rest, b""
        while True:
            end = packet_end(data)
            if end is not None and end <= len(data):
                (packet,) = decoder.feed(data[:end])
                self.rest = data[end:]
                if not isinstance(packet, kind):
                    raise ProtocolError(f"broker {self.address} answers {type(packet).__name__}, not {kind.__name__}")
                return packet
            more = self.receive(max(0.0, deadline - time.monotonic()))
            if more is None:
                raise TimeoutError(f"broker {self.address} does not answer")
            data += more

    def close(self) -> None:
        self._selector.close()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()


def packet_end(data: bytes, start: int = 0) -> int | None:
    """Where the packet that begins at `start` ends, perhaps beyond the data; None while its length is incomplete."""
    length = shift = 0
    for pos in range(start + 1, min(start + 5, len(data))):
        byte = data[pos]
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            if length > PACKET_SIZE_MAX:
                raise ProtocolError(f"a packet of {length} bytes is larger than the {PACKET_SIZE_MAX} allowed")
            return pos + 1 + length
        shift += 7
    if len(data) - start > 4:
        raise ProtocolError("a packet's length is longer than four bytes")
    return None
