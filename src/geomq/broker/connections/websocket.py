"""MQTT over WebSocket (RFC 6455): the upgrade request, frames in, frames out.

Payloads are fed to an ordinary connection as a byte stream, as MQTT wants it. Memory is bounded by the request head and
the control frames; data frames are passed on piece by piece, whatever length they claim. docs/decisions/013 says why
the frames are not those of the `websockets` library, whose masking this uses.
"""

import base64
import hashlib
from typing import Any, Final
from urllib.parse import urlsplit

from geomq.broker.config.settings import Listener
from geomq.broker.connections.connection import Connection
from geomq.broker.security.own_names import is_loopback_name
from geomq.broker.state.turns import Turns

try:
    from websockets.speedups import apply_mask
except ImportError:  # not compiled for this machine
    from websockets.utils import apply_mask

HEAD_MAX: Final = 8_192
SLICE_BYTES: Final = 16_384
"""So much of what came is unmasked and handed on at once."""
SLICES: Final = 4
"""So often in one turn."""
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_PROTOCOLS: Final = ("mqtt", "mqttv3.1")


class BadRequest(Exception):  # noqa: N818
    """The upgrade request is refused; `args` are the status line and one line with the reason."""


class BadFrame(Exception):  # noqa: N818
    """The frames break RFC 6455; the argument is the close code."""


def accept_upgrade(head: bytes, listener: Listener) -> bytes:
    """The answer to an upgrade request, or BadRequest."""
    try:
        request, *lines = head.decode("ascii").split("\r\n")
        method, target, version = request.split(" ")
    except ValueError:
        raise BadRequest("400 Bad Request", "not an HTTP request") from None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or " " in name or "\t" in name:
            raise BadRequest("400 Bad Request", "a header line without a name")
        key = name.lower()
        headers[key] = f"{headers[key]},{value.strip()}" if key in headers else value.strip()
    if method != "GET" or version != "HTTP/1.1":
        raise BadRequest("405 Method Not Allowed", "only GET over HTTP/1.1")
    try:
        path, host = urlsplit(target).path, urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        raise BadRequest("400 Bad Request", "the target and host are not a valid URL") from None
    if listener.path is not None and path != listener.path:
        raise BadRequest("404 Not Found", "nothing here")
    if "websocket" not in headers.get("upgrade", "").lower() or "upgrade" not in _tokens(
        headers.get("connection", "").lower()
    ):
        raise BadRequest("426 Upgrade Required", "only WebSocket connections are accepted")
    if headers.get("sec-websocket-version") != "13":
        raise BadRequest("426 Upgrade Required", "only WebSocket version 13 is supported")
    _check_origin(headers, host, listener)
    offered = _tokens(headers.get("sec-websocket-protocol", ""))
    chosen = next((name for name in _PROTOCOLS if name in offered), None)
    if chosen is None:
        raise BadRequest("400 Bad Request", "the subprotocol mqtt must be offered")
    key = headers.get("sec-websocket-key", "")
    if len(key) != 24:
        raise BadRequest("400 Bad Request", "Sec-WebSocket-Key is missing")
    digest = base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\nSec-WebSocket-Protocol: %b\r\n\r\n" % (digest, chosen.encode())
    )


def _tokens(value: str) -> list[str]:
    return [token.strip() for token in value.split(",")]


def _check_origin(headers: dict[str, str], host: str | None, listener: Listener) -> None:
    """Programs send no origin; pages must come from an allowed one, by default from the same host. On loopback that
    has to be a name of this machine: any other may have been pointed here by the page's own site."""
    origin = headers.get("origin")
    if origin is None or "*" in listener.origins or origin in listener.origins:
        return
    try:
        same = urlsplit(origin).hostname == host and host is not None
    except ValueError:
        same = False
    if listener.origins or not same or (listener.loopback and not is_loopback_name(headers.get("host"))):
        raise BadRequest("403 Forbidden", "this origin is not allowed")


class FrameReader:
    """Bytes of a client's frames to pieces of payload and control frames."""

    __slots__ = ("_buffer", "_fragmented", "_left", "_mask", "_opcode")

    def __init__(self) -> None:
        self._buffer = b""
        self._left = -1
        self._mask = b""
        self._opcode = 0
        self._fragmented = False

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Pairs of opcode and unmasked bytes: all data comes as BINARY in pieces, control frames come whole."""
        found: list[tuple[int, bytes]] = []
        data = self._buffer + data
        self._buffer = b""
        pos = 0
        while pos < len(data):
            if self._left < 0:
                after = self._header(data, pos)
                if after < 0:
                    self._buffer = data[pos:]
                    break
                pos = after
            if self._opcode >= _CLOSE and len(data) - pos < self._left:
                self._buffer = data[pos:]
                break
            piece = data[pos : pos + self._left]
            pos += len(piece)
            self._left -= len(piece)
            if piece or self._opcode >= _CLOSE:
                found.append((self._opcode, apply_mask(piece, self._mask)))
            turn = len(piece) % 4
            self._mask = self._mask[turn:] + self._mask[:turn]
            if not self._left:
                self._left = -1
        return found

    def _header(self, data: bytes, pos: int) -> int:
        """Read a frame's header; the position after it, or -1 while it is incomplete."""
        if len(data) - pos < 2:
            return -1
        first, second = data[pos], data[pos + 1]
        if first & 0x70 or not second & 0x80:
            raise BadFrame(1002)
        length, pos = second & 0x7F, pos + 2
        wide = {126: 2, 127: 8}.get(length, 0)
        if len(data) - pos < wide + 4:
            return -1
        if wide:
            length = int.from_bytes(data[pos : pos + wide], "big")
        self._open(first & 0x0F, final=first & 0x80 != 0, length=length)
        pos += wide
        self._mask = data[pos : pos + 4]
        self._left = length
        return pos + 4

    def _open(self, opcode: int, *, final: bool, length: int) -> None:
        if opcode in (_CLOSE, _PING, _PONG):
            if not final or length > 125:
                raise BadFrame(1002)
            self._opcode = opcode
            return
        if opcode == _TEXT:
            raise BadFrame(1003)
        if opcode != (_CONTINUATION if self._fragmented else _BINARY) or length >> 63:
            raise BadFrame(1002)
        self._fragmented = not final
        self._opcode = _BINARY


def frame(opcode: int, payload: bytes | memoryview) -> bytes:
    """A whole, unmasked frame, as servers send them."""
    length = len(payload)
    if length < 126:
        head = bytes((0x80 | opcode, length))
    elif length < 65_536:
        head = bytes((0x80 | opcode, 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 127)) + length.to_bytes(8, "big")
    return head + payload


class WebSocketConnection:
    """A protocol towards the socket and a transport towards the MQTT connection."""

    __slots__ = (
        "_connection",
        "_farewell",
        "_frames",
        "_head",
        "_listener",
        "_paused",
        "_rest",
        "_transport",
        "_turns",
        "_waiting",
    )

    def __init__(self, connection: Connection, listener: Listener, turns: Turns) -> None:
        self._connection = connection
        self._listener = listener
        self._turns = turns
        self._head: bytes | None = b""
        self._frames = FrameReader()
        self._transport: Any = None
        self._rest = b""
        self._farewell: bytes | None = None
        self._paused = self._waiting = False

    # Towards the socket.

    def arrived(self, transport: Any) -> bool:
        self._transport = transport
        return self._connection.arrived(self)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._connection.connection_made(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.connection_lost(error)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._read_head(data)
        elif self._is_behind:
            self._rest += data
        else:
            self._take(data)

    @property
    def _is_behind(self) -> bool:
        """Whether something that came is not dealt with; the socket is not read then."""
        return bool(self._rest) or self._farewell is not None

    def _take(self, data: bytes) -> None:
        """Take a turn's worth of what came, as long as the connection takes it."""
        end = min(len(data), SLICE_BYTES * SLICES)
        pos = 0
        while pos < end and not self._paused and self._farewell is None and not self._connection.closed:
            self._take_slice(data[pos : pos + SLICE_BYTES])
            pos += SLICE_BYTES
        if self._connection.closed:
            self._rest = b""
        elif self._farewell is not None and not self._paused:
            self._transport.write(self._farewell)
            self._connection.end()
        else:
            self._rest = data[pos:]
            if self._is_behind:
                self._transport.pause_reading()
                self._wait()
            elif not self._paused:
                self._transport.resume_reading()

    def _take_slice(self, data: bytes) -> None:
        """What a few frames hold together is handed on at once, however small they are."""
        try:
            found = self._frames.feed(data)
        except BadFrame as error:
            self._end(error.args[0])
            return
        payloads, pongs = [], []
        for opcode, payload in found:
            if opcode == _BINARY:
                payloads.append(payload)
            elif opcode == _PING:
                pongs.append(frame(_PONG, payload))
            elif opcode == _CLOSE:
                self._farewell = frame(_CLOSE, payload[:2])
                break
        if pongs:
            self._transport.write(b"".join(pongs))
        if payloads:
            self._connection.data_received(b"".join(payloads))

    def _wait(self) -> None:
        """Go on when others had their turn, unless the connection takes nothing anyway."""
        if not self._waiting and not self._paused:
            self._waiting = True
            self._turns.wait(self._go_on)

    def _go_on(self) -> None:
        self._waiting = False
        if not self._paused and self._is_behind:
            rest, self._rest = self._rest, b""
            self._take(rest)

    def _read_head(self, data: bytes) -> None:
        head, end, rest = ((self._head or b"") + data).partition(b"\r\n\r\n")
        if len(head) > HEAD_MAX:
            self._reject("431 Request Header Fields Too Large", "the request is too long")
            return
        if not end:
            self._head = head
            return
        try:
            answer = accept_upgrade(head, self._listener)
        except BadRequest as error:
            self._reject(*error.args)
            return
        self._head = None
        self._transport.write(answer)
        if rest:
            self._take(rest)

    def _reject(self, status: str, text: str) -> None:
        body = f"{text}\n".encode()
        head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        self._head = b""
        self._transport.write(head.encode() + b"\r\n" + body)
        self._connection.end()

    def _end(self, code: int) -> None:
        self._transport.write(frame(_CLOSE, code.to_bytes(2, "big")))
        self._connection.end()

    # Towards the MQTT connection.

    def write(self, data: bytes | memoryview) -> None:
        self._transport.write(frame(_BINARY, data))

    def get_write_buffer_size(self) -> int:
        size: int = self._transport.get_write_buffer_size()
        return size

    def can_write_eof(self) -> bool:
        possible: bool = self._transport.can_write_eof()
        return possible

    def write_eof(self) -> None:
        self._transport.write_eof()

    def set_protocol(self, protocol: Any) -> None:
        """What comes now is no longer taken apart."""
        self._rest, self._farewell = b"", None
        self._transport.set_protocol(protocol)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._is_behind:
            self._wait()
        else:
            self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
