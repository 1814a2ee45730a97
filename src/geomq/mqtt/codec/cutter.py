"""Where packets begin and end: the one place that takes a stream of bytes apart, for the codec and for the fast paths.

It reads fixed headers, and of plain PUBLISH packets where the topic ends. What packets mean is the decoders' business.
"""

from typing import Final

from geomq.mqtt.codec.faults import MalformedPacket, ProtocolViolation
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import PacketType

PUBACKS_AT_ONCE: Final = 256
CRUMB_BYTES: Final = 256
"""Shorter pieces are put together as they come: each for itself takes more memory than it holds."""

_P = PacketType
_FLAGS_OF_TWO: Final = frozenset({_P.PUBREL, _P.SUBSCRIBE, _P.UNSUBSCRIBE})

NOT_PLAIN: Final = (0, 0, 0, 0)


def check_first_byte(first: int) -> None:
    """Refuse reserved packet types and flag bits."""
    packet_type, flags = first >> 4, first & 15
    if packet_type == _P.PUBLISH:
        return
    if packet_type == 0:
        raise MalformedPacket("packet type 0 is reserved")
    if flags != (2 if packet_type in _FLAGS_OF_TWO else 0):
        raise MalformedPacket(f"{PacketType(packet_type).name} has invalid flags")


def body_bounds(buf: bytes, pos: int, size_max: int, *, strict: bool) -> tuple[int, int] | None:
    """Where the body of the packet starting at `pos` begins and ends; None while its header is incomplete.

    The end may lie beyond the buffer. `strict` refuses remaining lengths that are not in their shortest form.
    """
    end = len(buf)
    start = pos
    pos += 1
    length = shift = 0
    while pos < end:
        byte = buf[pos]
        pos += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            if strict and shift and not byte:
                raise MalformedPacket("remaining length is not in its shortest form")
            if pos - start + length > size_max:
                raise ProtocolViolation(
                    f"packet of {length} bytes exceeds the maximum of {size_max}", ReasonCode.PACKET_TOO_LARGE
                )
            return pos, pos + length
        shift += 7
        if shift == 28:
            raise MalformedPacket("remaining length is longer than four bytes")
    return None


def plain_publish(buf: bytes | memoryview, pos: int, end: int, new: bool, between: int) -> tuple[int, int, int, int]:
    """Where the body of the PUBLISH at `pos` begins, where its topic ends, its payload begins, and the packet ends.

    NOT_PLAIN if it is not all there before `end`, is 16 kB or longer, or, `new` being MQTT 5, has properties: then it
    is taken apart by `body_bounds` and decoded. `between` topic and payload are so many bytes: two of a packet
    identifier, one for the length of the properties.
    """
    if end - pos <= 4:
        return NOT_PLAIN
    body, length = pos + 2, buf[pos + 1]
    if length > 127:
        if not 0 < buf[body] < 128:
            return NOT_PLAIN
        body, length = pos + 3, length & 127 | buf[body] << 7
    stop, topic_end = body + length, body + 2 + (buf[body] << 8 | buf[body + 1])
    payload = topic_end + between
    if stop > end or payload > stop or (new and buf[payload - 1]):
        return NOT_PLAIN
    return body, topic_end, payload, stop


def pubacks_at(buf: bytes, pos: int) -> list[int]:
    """The identifiers of the PUBACKs without a reason that follow each other from here on, four bytes each; so many at
    most as are dealt with at a time."""
    found: list[int] = []
    last = min(len(buf), pos + 4 * PUBACKS_AT_ONCE) - 4
    while pos <= last and buf[pos] == 0x40 and buf[pos + 1] == 2:
        packet_id = buf[pos + 2] << 8 | buf[pos + 3]
        if not packet_id:
            break
        found.append(packet_id)
        pos += 4
    return found


class Reassembly:
    """Holds the pieces of an unfinished packet and joins them once, when the packet can be complete."""

    __slots__ = ("_have", "_need", "_parts")

    def __init__(self, rest: bytes, need: int) -> None:
        """Start with `rest`, of which nothing can be parsed before `need` bytes are there."""
        self._parts: list[bytes | bytearray] = [rest]
        self._have = len(rest)
        self._need = need

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self._have

    def join(self, data: bytes) -> bytes | None:
        """All bytes so far, or None if there are still fewer than needed."""
        last = self._parts[-1]
        if len(data) >= CRUMB_BYTES:
            self._parts.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._parts.append(bytearray(data))
        self._have += len(data)
        if self._have < self._need:
            return None
        return b"".join(self._parts)
