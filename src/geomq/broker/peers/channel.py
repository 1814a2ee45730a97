"""One connection between two brokers: who is there, and frames of bounded length in both directions.

The two sides first send their names and prove them: with a shared key, by a code over both sides' random numbers; with
certificates, by the name in the certificate. Nothing else is listened to before that. Frames written in one turn of
the event loop leave in one write; acknowledgements wait a moment for others to go with.
"""

import asyncio
import hashlib
import hmac
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, cast

import msgspec

from geomq.broker.config.settings import is_loopback
from geomq.broker.peers.frames import FrameBuffer
from geomq.broker.platform import SYSTEM, Platform
from geomq.broker.security.broker_certificate import certificate_problem
from geomq.broker.state.turns import Turns
from geomq.errors import UNREADABLE, ProtocolError
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, Edition, Number
from geomq.routing.core.plan import NOTHING, EventBatch
from geomq.routing.wire.frames import PROTOCOL_VERSION, Aside, batch_parts, decode_frame, encode_frame, loose_parts
from geomq.routing.wire.link import Ack, Data, Frame, Run

log = logging.getLogger("geomq.peers")

GREETING_BYTES_MAX = 1024
GREETING_S_MAX = 5.0
NONCE_BYTES = 16
UNSENT_BYTES_MAX = 1 << 28
"""A peer that lets more than this wait is taken for gone; what it missed is sent when it is back."""
UNREAD_BYTES_MAX = 1 << 24
"""While the peer lets more than this wait, events are numbered, so that no more of them are sent than it takes in."""
JOINED_BYTES_MAX = 1 << 12
"""So few bytes are quicker copied than written in pieces."""
ACK_S = 0.005
"""How long an acknowledgement may wait for company, or for a later one that replaces it."""


class Greeting(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The first frame of each side."""

    magic: str
    version: int
    name: str
    nonce: bytes
    epoch: Number = 0
    """Which start of the broker this is; brokers of other versions may not say it."""


class Proof(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The second frame of each side; empty where certificates prove the name."""

    code: bytes


class Credentials:
    """How this broker proves its name and checks the other's: a shared key, or certificates.

    By the epoch, which is not that of its events, peers know that it is still the same.
    """

    def __init__(self, me: str, key: bytes | None, platform: Platform = SYSTEM) -> None:
        self.me = me
        self.key = key
        self.epoch = platform.new_epoch()
        self._random_bytes = platform.random_bytes

    def greeting(self) -> Greeting:
        """What opens one connection."""
        return Greeting("geomq", PROTOCOL_VERSION, self.me, self._random_bytes(NONCE_BYTES), self.epoch)

    def code(self, speaker: Greeting, listener: Greeting) -> bytes:
        if self.key is None:
            return b""
        return hmac.digest(self.key, msgspec.msgpack.encode([speaker, listener]), hashlib.sha256)


class ChannelOwner(Protocol):
    """Receives what happens on a channel."""

    def made(self, channel: "PeerChannel") -> None:
        """There is a connection; nothing is known of the other side."""

    def opened(self, channel: "PeerChannel") -> bool:
        """The peer proved its name; whether it is wanted."""

    def heard(self, channel: "PeerChannel", frame: Frame | Aside) -> None: ...

    def unsent(self, peer: BrokerId, message: Message, reason: str) -> None:
        """A message cannot go over the link to a peer; only its number does."""

    def closed(self, channel: "PeerChannel", reason: str) -> None: ...


class PeerChannel(asyncio.BufferedProtocol):
    """The connection to one peer until it ends. One with `turns` lets others have theirs between its frames."""

    def __init__(
        self,
        credentials: Credentials,
        listener: ChannelOwner,
        *,
        expected: str | None,
        frame_bytes_max: int,
        turns: Turns | None = None,
    ) -> None:
        self._turns = turns
        self.peer: str | None = None
        self._credentials = credentials
        self._listener = listener
        self.expected = expected
        self._frame_bytes_max = frame_bytes_max
        self._mine = credentials.greeting()
        self._theirs: Greeting | None = None
        self._incoming = FrameBuffer(GREETING_BYTES_MAX)
        self._outgoing: list[bytes | memoryview] = []
        self._ack: Ack | None = None
        self._ack_due: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._reason, self._closed = "connection lost", False
        self._hear: Callable[[memoryview], None] = self._greeted

    def arrived(self, transport: Any) -> bool:
        """Somebody is there; the greetings follow the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(GREETING_S_MAX, self.close, "no greeting within the time limit")
        self._listener.made(self)
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._deadline is None:
            self.arrived(transport)
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, not the base
        if self._closed:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        _let_run(self._transport)
        self._say(self._mine)

    def pause_writing(self) -> None:
        self.close("the peer reads too slowly")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._incoming.space()

    def buffer_updated(self, nbytes: int) -> None:
        if self._turns is not None:
            self._turns.begin()
        self._hear_frames(self._incoming.cut(nbytes))

    def _hear_frames(self, frames: Iterator[memoryview]) -> bool:
        """Take the frames that are there as long as it is this peer's turn; whether nothing is left."""
        try:
            for frame in frames:
                self._hear(frame)
                if self._turns is not None and self._turns.over() and not self._transport.is_closing():
                    # A short frame is where the next read would go.
                    self._transport.pause_reading()
                    self._turns.wait(partial(self._go_on, frames))
                    return False
        except ProtocolError as error:
            self.close(str(error))
        return True

    def _go_on(self, frames: Iterator[memoryview]) -> None:
        if not self._transport.is_closing() and self._hear_frames(frames) and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._ack_due is not None:
            self._ack_due.cancel()
        self._listener.closed(self, self._reason)

    @property
    def epoch(self) -> int | None:
        """Which start of the peer this is."""
        return None if self._theirs is None else self._theirs.epoch

    @property
    def certificate(self) -> bytes | None:
        """That of the other side, as DER, if there is one."""
        tls: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return None if tls is None else tls.getpeercert(binary_form=True)

    @property
    def address(self) -> str:
        """Where the other side is."""
        return self._address("peername")

    @property
    def own_address(self) -> str:
        """Where this side is."""
        return self._address("sockname")

    def _address(self, of: str) -> str:
        host, port, *_ = self._transport.get_extra_info(of) or ("?", 0)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def send_all(self, frames: Sequence[Frame | bytes]) -> None:
        """Write frames, some encoded already, now; but an acknowledgement that is alone waits for company."""
        for frame in frames:
            if not isinstance(frame, bytes):
                self._queue(frame)
            elif len(frame) <= self._frame_bytes_max:
                self._write(len(frame), frame)
            else:
                self._queue(decode_frame(frame))
        if self._outgoing:
            self._flush()

    def send_loose(self, batch: EventBatch, edition: Edition | None) -> bool:
        """Write a batch without a number now, if it is not too long and the peer reads; whether it did."""
        size, parts = loose_parts(batch, edition)
        if size > self._frame_bytes_max or self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            return False
        self._write(size, *parts)
        self._flush()
        return True

    def send(self, frame: Frame | Aside) -> None:
        """Write a frame at the end of this turn of the loop."""
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._queue(frame)

    def _queue(self, frame: Frame | Aside) -> None:
        """A newer acknowledgement replaces an older one."""
        if isinstance(frame, Ack):
            if self._ack is None and not self._outgoing:
                self._ack_due = self._loop.call_later(ACK_S, self._flush)
            self._ack = frame
        elif (of_batch := batch_parts(frame)) is not None:
            size, parts = of_batch
            if size > self._frame_bytes_max:
                parts = [self._instead(frame, _too_long(size))]
                size = len(parts[0])
            self._write(size, *parts)
        else:
            try:
                data = encode_frame(frame)
                problem = None if len(data) <= self._frame_bytes_max else _too_long(len(data))
            except ProtocolError as error:
                data, problem = b"", str(error)
            if problem is None:
                self._write(len(data), data)
            elif isinstance(frame, Run):
                for number, message in enumerate(frame.messages, frame.number):
                    self._queue(Data(frame.epoch, number, message))
            elif data := self._instead(frame, problem):
                self._write(len(data), data)

    def _instead(self, frame: Frame | Aside, problem: str) -> bytes:
        """What the peer gets in place of a frame that cannot be written, or that it would refuse together with the
        connection: a number without a message, or nothing if the frame has none."""
        if isinstance(frame, Data):
            self._listener.unsent(BrokerId(self.peer or ""), frame.message, problem)
            return encode_frame(Data(frame.epoch, frame.number, NOTHING))
        log.error(
            "failed to encode a frame", extra={"peer": self.peer, "frame": type(frame).__name__, "reason": problem}
        )
        return b""

    def close(self, reason: str) -> None:
        """End the connection; `reason` is what the log says."""
        self._reason, self._closed = reason, True
        self._transport.abort()

    def dismiss(self, frame: Aside, reason: str) -> None:
        """End the connection after a last word; `reason` is what the log says."""
        self._reason = reason
        self._queue(frame)
        self._flush()
        self._transport.close()

    def _write(self, size: int, *parts: bytes | memoryview) -> None:
        """Queue a frame of `size` bytes."""
        self._outgoing += (size.to_bytes(4, "big"), *parts)

    def _say(self, opening: Greeting | Proof) -> None:
        data = msgspec.msgpack.encode(opening)
        self._loop.call_soon(self._flush)
        self._write(len(data), data)

    def _flush(self) -> None:
        if self._ack_due is not None:
            self._ack_due.cancel()
            self._ack_due = None
        outgoing, self._outgoing = self._outgoing, []
        if self._ack is not None:
            data = encode_frame(self._ack)
            outgoing += (len(data).to_bytes(4, "big"), data)
            self._ack = None
        if outgoing and not self._transport.is_closing():
            if sum(map(len, outgoing)) <= JOINED_BYTES_MAX:
                self._transport.write(b"".join(outgoing))
            else:
                self._transport.writelines(outgoing)

    def _greeted(self, data: memoryview) -> None:
        try:
            theirs = msgspec.msgpack.decode(data, type=Greeting)
        except UNREADABLE:
            raise ProtocolError("not the greeting of a GeoMQ broker") from None
        if theirs.magic != "geomq" or len(theirs.nonce) != NONCE_BYTES or theirs.nonce == self._mine.nonce:
            raise ProtocolError("not the greeting of a GeoMQ broker")
        if theirs.version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"{theirs.name[:80]!r} uses protocol version {theirs.version}, this broker {PROTOCOL_VERSION}"
            )
        if theirs.epoch == self._mine.epoch:
            raise ProtocolError("this broker is connected to itself")
        if self.expected is not None and theirs.name != self.expected:
            raise ProtocolError(f"expected broker {self.expected}, found {theirs.name[:80]!r}")
        self._check_certificate(theirs.name)
        self._theirs = theirs
        self._say(Proof(self._credentials.code(self._mine, theirs)))
        self._hear = self._proved

    def _check_certificate(self, name: str) -> None:
        """With TLS the certificate must be that of the broker."""
        tls: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        if tls is None:
            return
        problem = certificate_problem(name, tls.getpeercert(binary_form=True) or b"")
        if problem is not None:
            raise ProtocolError(problem)

    def _proved(self, data: memoryview) -> None:
        assert self._theirs is not None
        try:
            proof = msgspec.msgpack.decode(data, type=Proof)
        except UNREADABLE:
            raise ProtocolError("invalid proof of the broker's name") from None
        if not hmac.compare_digest(proof.code, self._credentials.code(self._theirs, self._mine)):
            raise ProtocolError(f"{self._theirs.name[:80]!r} does not know the shared key")
        assert self._deadline is not None
        self._deadline.cancel()
        self.peer = self._theirs.name
        self._hear = self._framed
        self._incoming.allow(self._frame_bytes_max)
        if not self._listener.opened(self):
            raise ProtocolError(f"broker {self.peer[:80]!r} is not expected here")

    def _framed(self, data: memoryview) -> None:
        self._listener.heard(self, decode_frame(data))


def _too_long(size: int) -> str:
    return f"{size} bytes exceed the frame limit"


def _let_run(transport: asyncio.Transport) -> None:
    """Within one machine there is no congestion: pacing by the kernel's congestion control would only cost time."""
    address = transport.get_extra_info("peername")
    if hasattr(socket, "TCP_CONGESTION") and isinstance(address, tuple) and is_loopback(address[0]):
        with suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
