"""A byte stream to packets, decoded, and which packets may come from the other side at all.

Memory is bounded by `size_max` (checked on the fixed header, before the body is buffered) and time is linear
in the bytes fed, however they are cut. The first packet a server sees must be CONNECT.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final

from geomq.mqtt.codec.cutter import Reassembly, body_bounds, check_first_byte
from geomq.mqtt.codec.decode import BODIES, decode_publish
from geomq.mqtt.codec.decode_connect import UnsupportedVersion, decode_connect
from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.packets import Packet
from geomq.mqtt.codec.topics import TopicNames
from geomq.mqtt.codec.types import PACKET_SIZE_MAX, V5, PacketType


class Side(Enum):
    """Who is reading."""

    SERVER = "server"
    CLIENT = "client"


_P = PacketType
_SHARED = {_P.PUBLISH, _P.PUBACK, _P.PUBREC, _P.PUBREL, _P.PUBCOMP, _P.DISCONNECT, _P.AUTH}
_READABLE: Final[dict[Side, frozenset[int]]] = {
    Side.SERVER: frozenset(_SHARED | {_P.CONNECT, _P.SUBSCRIBE, _P.UNSUBSCRIBE, _P.PINGREQ}),
    Side.CLIENT: frozenset(_SHARED | {_P.CONNACK, _P.SUBACK, _P.UNSUBACK, _P.PINGRESP}),
}


class Decoder:
    """Feed it chunks; iterate the packets. After a fault it must not be fed again."""

    __slots__ = ("_names", "_readable", "_reassembly", "side", "size_max", "version")

    def __init__(
        self,
        side: Side = Side.SERVER,
        *,
        version: int | None = None,
        size_max: int = PACKET_SIZE_MAX,
        names: TopicNames | None = None,
    ) -> None:
        self.side = side
        self.version = version
        self.size_max = size_max
        self._names = TopicNames() if names is None else names
        self._readable = _READABLE[side]
        self._reassembly: Reassembly | None = None

    def feed(self, data: bytes) -> Iterator[Packet]:
        """The packets completed by `data`, in order; exhaust the iterator before feeding again.

        `size_max` and `version` may be changed between two packets.
        """
        if self._reassembly is not None:
            joined = self._reassembly.join(data)
            if joined is None:
                return
            data, self._reassembly = joined, None
        pos = 0
        while pos < len(data):
            self._admit(data[pos])
            bounds = body_bounds(data, pos, self.size_max, strict=self.version == V5)
            if bounds is None or bounds[1] > len(data):
                self._reassembly = Reassembly(data[pos:], 0 if bounds is None else bounds[1] - pos)
                return
            yield self.decode_body(data, data[pos], *bounds)
            pos = bounds[1]

    def decode_body(self, buf: bytes, first: int, start: int, end: int) -> Packet:
        """One packet whose first byte was admitted and whose body is buf[start:end]."""
        packet_type = first >> 4
        if packet_type == _P.CONNECT:
            return self._connect(buf, start, end)
        version = self.version
        if version is None:
            raise ProtocolViolation("the first packet is not CONNECT")
        if packet_type != _P.PUBLISH:
            return BODIES[packet_type](buf, first & 15, start, end, version)
        publish = decode_publish(buf, first & 15, start, end, version, self._names)
        if self.side is Side.SERVER and publish.properties.subscription_identifiers:
            raise ProtocolViolation("a client must not publish with a subscription identifier")
        return publish

    def _admit(self, first: int) -> None:
        check_first_byte(first)
        packet_type = first >> 4
        if packet_type not in self._readable:
            raise ProtocolViolation(f"{PacketType(packet_type).name} must not be sent to a {self.side.value}")
        if self.version is None and packet_type != _P.CONNECT:
            raise ProtocolViolation("the first packet is not CONNECT")

    def _connect(self, buf: bytes, start: int, end: int) -> Packet:
        if self.version is not None:
            raise ProtocolViolation("a second CONNECT on one connection")
        try:
            connect = decode_connect(buf, start, end)
        except UnsupportedVersion as fault:
            self.version = fault.answer_version
            raise
        self.version = connect.version
        return connect
