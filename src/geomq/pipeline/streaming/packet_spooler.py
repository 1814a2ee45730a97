"""Takes the PUBLISH packets out of what a broker sends: spools each once, unchanged, and makes its acknowledgement.

Owns what a repeat is. Every other packet is for the session. Knows no sockets; the receiver decides when
acknowledgements are sent.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from geomq.errors import ProtocolError
from geomq.mqtt.codec.cutter import body_bounds
from geomq.mqtt.codec.types import V5
from geomq.mqtt.codec.wire import read_varint
from geomq.pipeline.streaming.connection import PACKET_SIZE_MAX
from geomq.pipeline.streaming.decode import packets_of, topic_end
from geomq.pipeline.streaming.spool import Spool


def _ignore(_packet: bytes) -> None:
    """For whom has no session."""


class SpooledPacket(NamedTuple):
    """A spooled packet, to recognise its repeat by."""

    number: int
    content: int


class Taken(NamedTuple):
    """What became of some bytes: how many were used, the events in them, if any were spooled, and what to answer."""

    end: int
    events: int
    appended: bool
    acks: list[tuple[int, bytes]]


class PacketSpooler:
    """Cuts bytes into packets, spools the PUBLISH packets and makes their acknowledgements. One per connection."""

    def __init__(
        self,
        spool: Spool,
        version: int,
        *,
        holds: bool,
        since: int = 0,
        other: Callable[[bytes], None] = _ignore,
    ) -> None:
        self._spool = spool
        self._version = version
        self._holds = holds
        self._since = since
        self._other = other
        self._kept: dict[int, SpooledPacket] | None = None

    def take(self, data: bytes) -> Taken:
        """Everything whole; runs of new packets become one chunk."""
        pos = run = 0
        size, count, total, appended = len(data), 0, 0, False
        acks: list[bytes] = []
        result: list[tuple[int, bytes]] = []

        def finish(end: int) -> None:
            nonlocal count, appended, acks
            if count:
                chunk = self._spool.append(data[run:end], count)
                if acks:
                    result.append((chunk.end, b"".join(acks)))
                count, acks, appended = 0, [], True

        while pos + 1 < size:
            first, length = data[pos], data[pos + 1]
            body = pos + 2
            if length > 127:
                bounds = body_bounds(data, pos, PACKET_SIZE_MAX, strict=False)
                if bounds is None:
                    break
                body, end = bounds
            else:
                end = body + length
            if end > size:
                break
            if first >> 4 != 3:
                finish(pos)
                self._other(data[pos:end])
                pos = run = end
                continue
            mark = body + 2 + (data[body] << 8 | data[body + 1]) if end - body >= 2 else end + 1
            if mark + (2 if first & 6 else 0) > end or first & 4:
                raise ProtocolError("the broker sent a malformed PUBLISH")
            total += 1
            if first & 8:
                finish(pos)
                appended |= self._repeated(data[pos:end], mark - pos, result)
                pos = run = end
                continue
            count += 1
            if first & 2:
                acks.append(b"\x40\x02" + data[mark : mark + 2])
            pos = end
        finish(pos)
        return Taken(pos, total, appended, result)

    def _repeated(self, packet: bytes, mark: int, result: list[tuple[int, bytes]]) -> bool:
        """A packet the broker marks as perhaps sent before; whether it was spooled."""
        if self._kept is None:
            self._kept = self._read_kept()
        packet_id = packet[mark : mark + 2]
        ack = b"\x40\x02" + packet_id
        kept = self._kept.get(int.from_bytes(packet_id, "big"))
        if kept is not None and self._holds and kept.number >= self._spool.committed:
            # Its acknowledgement was never sent, so the identifier cannot mean anything else.
            result.append((kept.number + 1, ack))
            return False
        repeats = None
        if kept is not None and kept.content == content_of(packet, self._version):
            repeats = kept.number
        chunk = self._spool.append(packet, 1, repeats=repeats)
        result.append((chunk.end, ack))
        return True

    def _read_kept(self) -> dict[int, SpooledPacket]:
        """The last spooled packet of each identifier of this session."""
        found: dict[int, SpooledPacket] = {}
        for chunk, packets in self._spool.tail():
            for number, (start, end) in enumerate(packets_of(packets), chunk.first_id):
                packet = packets[start:end]
                if packet[0] & 6 and number >= self._since:
                    mark = topic_end(packet, 0)[1]
                    packet_id = int.from_bytes(packet[mark : mark + 2], "big")
                    found[packet_id] = SpooledPacket(number, content_of(packet, self._version))
        return found


def content_of(packet: bytes, version: int) -> int:
    """A fingerprint of topic and payload; properties may differ from one sending to the next."""
    begin, end = topic_end(packet, 0)
    start = end + 2
    if version == V5:
        with contextlib.suppress(ProtocolError):
            length, start = read_varint(packet, start, len(packet))
            start += length
    return hash((packet[begin:end], packet[start:]))
