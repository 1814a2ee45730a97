"""The writing half of a connection: bytes gather for its client, and so many may wait until it reads them."""

import logging
from collections.abc import Callable

from geomq.broker.connections.transport import Transport, nowhere, write_pieces
from geomq.broker.core import Core
from geomq.mqtt.codec.encode import encode_within
from geomq.mqtt.codec.packets import Packet
from geomq.mqtt.codec.types import PACKET_SIZE_MAX, V311

log = logging.getLogger("geomq.broker")


class Writing:
    """What has gathered is in `out`; it is `paused` while the client does not read, who takes no answers longer than
    `answer_max`. Without a transport bytes go nowhere."""

    __slots__ = ("_core", "_transport", "address", "answer_max", "out", "paused", "version", "write")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._transport: Transport | None = None
        self.write: Callable[[bytes | memoryview], object] = nowhere
        self.out: list[bytes] = []
        self.paused = False
        self.version = V311
        self.address = ""
        self.answer_max = PACKET_SIZE_MAX

    def bound_buffer(self) -> None:
        """So much may wait for the client to read it, as the settings and the memory are now."""
        if self._transport is not None:
            high = self._core.budget.buffer_bytes(self._core.config.limits.write_buffer_bytes_max)
            self._transport.set_write_buffer_limits(high, high // 4)

    def send(self, data: bytes) -> None:
        """Write at the end of this tick."""
        if not self.out:
            self._core.outbox.mark(self)
        self.out.append(data)

    def short(self, packet: Packet) -> bytes:
        """The packet as short as the client wants it, nothing if that cannot be."""
        return encode_within(packet, self.version, self.answer_max)

    def takes(self, packet: Packet) -> bool:
        """Whether the client takes packets as long as this one, said in the shortest way."""
        fits = bool(self.short(packet))
        if not fits:
            log.info("client at %s takes no packet as long as %s", self.address, packet.type.name)
        return fits

    def write_part(self, data: bytes | memoryview) -> None:
        """Write a part of something larger; a copy of it, where others wait already, so that the rest goes free."""
        waits = self._transport is not None and self._transport.get_write_buffer_size() > 0
        self.write(bytes(data) if waits else data)

    def write_out(self) -> None:
        """Hand over what has gathered."""
        out, self.out = self.out, []
        if out:
            counts = self._core.counts
            counts.bytes_sent += write_pieces(self.write, out)
            answers = [len(piece) for piece in out if piece and piece[0] & 0xF0 != 0x30]
            counts.answers_sent += len(answers)
            counts.answer_bytes_sent += sum(answers)
