"""MQTT's primitive data types on the wire: integers, variable byte integers, text, binary data.

Readers take a buffer and offsets and never look past `end`; writers append to a bytearray.
"""

from geomq.errors import ProtocolError
from geomq.mqtt.codec.faults import MalformedPacket
from geomq.mqtt.codec.types import VARINT_MAX


def truncated() -> MalformedPacket:
    return MalformedPacket("packet ends in the middle of a field")


def read_u16(buf: bytes, pos: int, end: int) -> int:
    if pos + 2 > end:
        raise truncated()
    return buf[pos] << 8 | buf[pos + 1]


def read_u32(buf: bytes, pos: int, end: int) -> int:
    if pos + 4 > end:
        raise truncated()
    return int.from_bytes(buf[pos : pos + 4], "big")


def read_varint(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    """The value at `pos` and the position after it; at most four bytes, shortest form only."""
    value = shift = 0
    while shift < 28:
        if pos >= end:
            raise truncated()
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise MalformedPacket("variable byte integer is not in its shortest form")
            return value, pos
        shift += 7
    raise MalformedPacket("variable byte integer is longer than four bytes")


def read_binary(buf: bytes, pos: int, end: int) -> tuple[bytes, int]:
    if pos + 2 > end:
        raise truncated()
    start = pos + 2
    stop = start + (buf[pos] << 8 | buf[pos + 1])
    if stop > end:
        raise truncated()
    return buf[start:stop], stop


def text_from(raw: bytes) -> str:
    """Decode a UTF-8 string as MQTT wants it: no surrogates, no overlong forms, no U+0000."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("text is not valid UTF-8") from None
    if "\0" in text:
        raise MalformedPacket("text contains U+0000")
    return text


def read_text(buf: bytes, pos: int, end: int) -> tuple[str, int]:
    raw, pos = read_binary(buf, pos, end)
    return text_from(raw), pos


def varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value > VARINT_MAX:
        raise ProtocolError(f"{value} does not fit into a variable byte integer")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def binary(data: bytes) -> bytes:
    """Length-prefixed bytes."""
    if len(data) > 0xFFFF:
        raise ProtocolError(f"a field of {len(data)} bytes is longer than the 65,535 MQTT allows")
    return len(data).to_bytes(2, "big") + data


def text(value: str) -> bytes:
    """Length-prefixed UTF-8."""
    try:
        return binary(value.encode())
    except UnicodeEncodeError:
        raise ProtocolError("text with surrogates cannot be sent over MQTT") from None
