"""Bodies of MQTT packets to packet values, for both versions and both directions.

Every function takes the buffer, the low four bits of the first byte and the body's offsets, and either
returns a packet or raises MalformedPacket or ProtocolViolation. Framing, packet order and session state
belong to others.
"""

from collections.abc import Callable, Sequence
from typing import Final

from geomq.errors import TopicError
from geomq.mqtt.codec.faults import MalformedPacket, MqttError, ProtocolViolation
from geomq.mqtt.codec.packets import (
    Auth,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties, decode_properties
from geomq.mqtt.codec.reasons import ALLOWED, FROM_CONNACK_V311, ReasonCode
from geomq.mqtt.codec.topics import LEVELS_MAX, TopicNames, check_filter, check_topic, split_shared
from geomq.mqtt.codec.types import V5, PacketType
from geomq.mqtt.codec.wire import read_text, read_u16, text_from, truncated

FILTERS_MAX: Final = 10_000
"""So many filters may stand in one packet."""

BodyDecoder = Callable[[bytes, int, int, int, int], Packet]


def decode_publish(buf: bytes, flags: int, pos: int, end: int, version: int, names: TopicNames) -> Publish:
    """The hot path: parse one PUBLISH body in place; `names` remembers topics already checked."""
    qos = flags >> 1 & 3
    if qos == 3:
        raise MalformedPacket("PUBLISH with QoS 3")
    if flags & 8 and not qos:
        raise MalformedPacket("PUBLISH with QoS 0 is marked as a duplicate")
    start = pos + 2
    if start > end:
        raise truncated()
    pos = start + (buf[pos] << 8 | buf[pos + 1])
    if pos > end:
        raise truncated()
    raw = buf[start:pos]
    topic = _topic_name(raw, names) if raw or version != V5 else ""
    packet_id = 0
    if qos:
        if pos + 2 > end:
            raise truncated()
        packet_id = buf[pos] << 8 | buf[pos + 1]
        if not packet_id:
            raise ProtocolViolation("PUBLISH with packet identifier 0")
        pos += 2
    properties = NO_PROPERTIES
    if version == V5:
        properties, pos = decode_properties(buf, pos, end, 3)
        if properties is not NO_PROPERTIES:
            check_response_topic(properties)
        if not topic and properties.topic_alias is None:
            raise ProtocolViolation("PUBLISH has neither a topic nor a topic alias")
    return Publish(topic, buf[pos:end], qos, flags & 1 == 1, flags & 8 == 8, packet_id, properties)


def _topic_name(raw: bytes, names: TopicNames) -> str:
    try:
        return names[raw]
    except TopicError as error:
        raise _unacceptable(error, text_from(raw), ReasonCode.TOPIC_NAME_INVALID) from None


def check_topic_name(topic: str) -> str:
    """`topic` if it may be published to, a fault otherwise."""
    try:
        return check_topic(topic)
    except TopicError as error:
        raise _unacceptable(error, topic, ReasonCode.TOPIC_NAME_INVALID) from None


def _unacceptable(error: TopicError, text: str, reason: ReasonCode) -> MqttError:
    """MQTT 5 (2.4) keeps the reasons about topics for those that are well formed but not accepted, as with too many
    levels; what is empty or has a wildcard where none may be is a malformed packet."""
    return ProtocolViolation(str(error), reason) if text.count("/") >= LEVELS_MAX else MalformedPacket(str(error))


def check_response_topic(properties: Properties) -> None:
    """A response topic must be a topic name; anything else breaks the protocol."""
    if properties.response_topic is None:
        return
    try:
        check_topic(properties.response_topic)
    except TopicError as error:
        raise ProtocolViolation(f"response {error}") from None


def _publish(buf: bytes, flags: int, pos: int, end: int, version: int) -> Publish:
    return decode_publish(buf, flags, pos, end, version, TopicNames())


def _connack(buf: bytes, _flags: int, pos: int, end: int, version: int) -> Connack:
    if pos + 2 > end:
        raise truncated()
    acknowledge, code = buf[pos], buf[pos + 1]
    if acknowledge > 1:
        raise MalformedPacket("CONNACK with reserved flags set")
    if version != V5:
        _finish(pos + 2, end)
        if code not in FROM_CONNACK_V311:
            raise MalformedPacket(f"CONNACK return code {code} does not exist")
        return Connack(acknowledge == 1, FROM_CONNACK_V311[code])
    properties, pos = decode_properties(buf, pos + 2, end, PacketType.CONNACK)
    _finish(pos, end)
    return Connack(acknowledge == 1, _reason(code, PacketType.CONNACK), properties)


_ACKS: Final[dict[int, type[Puback] | type[Pubrec] | type[Pubrel] | type[Pubcomp]]] = {
    PacketType.PUBACK: Puback,
    PacketType.PUBREC: Pubrec,
    PacketType.PUBREL: Pubrel,
    PacketType.PUBCOMP: Pubcomp,
}


def _ack_decoder(packet_type: PacketType) -> BodyDecoder:
    make = _ACKS[packet_type]

    def decode(buf: bytes, _flags: int, pos: int, end: int, version: int) -> Packet:
        packet_id = _packet_id(buf, pos, end)
        pos += 2
        if pos == end:
            return make(packet_id)
        if version != V5:
            raise MalformedPacket(f"{packet_type.name} is longer than two bytes")
        reason = _reason(buf[pos], packet_type)
        pos += 1
        properties = NO_PROPERTIES
        if pos < end:
            properties, pos = decode_properties(buf, pos, end, packet_type)
            _finish(pos, end)
        return make(packet_id, reason, properties)

    return decode


def _subscribe(buf: bytes, _flags: int, pos: int, end: int, version: int) -> Subscribe:
    packet_id = _packet_id(buf, pos, end)
    pos += 2
    properties = NO_PROPERTIES
    if version == V5:
        properties, pos = decode_properties(buf, pos, end, PacketType.SUBSCRIBE)
    if pos == end:
        raise ProtocolViolation("SUBSCRIBE without a topic filter")
    requests: list[SubscribeRequest] = []
    while pos < end:
        _check_count(requests)
        topic_filter, pos = _topic_filter(buf, pos, end)
        if pos >= end:
            raise truncated()
        requests.append(_request(topic_filter, buf[pos], version))
        pos += 1
    return Subscribe(packet_id, tuple(requests), properties)


def _check_count(filters: Sequence[object]) -> None:
    """Before one more is read."""
    if len(filters) >= FILTERS_MAX:
        raise ProtocolViolation(f"more than {FILTERS_MAX} filters in one packet", ReasonCode.QUOTA_EXCEEDED)


def _request(topic_filter: str, options: int, version: int) -> SubscribeRequest:
    if options & (0xC0 if version == V5 else 0xFC):
        raise MalformedPacket("SUBSCRIBE with reserved option bits set")
    qos, handling, no_local = options & 3, options >> 4 & 3, options & 4 == 4
    if qos == 3:
        raise MalformedPacket("SUBSCRIBE with QoS 3")
    if handling == 3:
        raise ProtocolViolation("SUBSCRIBE with retain handling 3")
    if no_local and topic_filter.startswith("$share/"):
        raise ProtocolViolation("a shared subscription must not set No Local")
    return SubscribeRequest(topic_filter, qos, no_local, options & 8 == 8, handling)


def _topic_filter(buf: bytes, pos: int, end: int) -> tuple[str, int]:
    topic_filter, pos = read_text(buf, pos, end)
    try:
        check_filter(split_shared(topic_filter).topic_filter)
    except TopicError as error:
        raise _unacceptable(error, topic_filter, ReasonCode.TOPIC_FILTER_INVALID) from None
    return topic_filter, pos


def _suback(buf: bytes, _flags: int, pos: int, end: int, version: int) -> Suback:
    packet_id = _packet_id(buf, pos, end)
    pos += 2
    properties = NO_PROPERTIES
    if version == V5:
        properties, pos = decode_properties(buf, pos, end, PacketType.SUBACK)
    if pos == end:
        raise ProtocolViolation("SUBACK without a reason code")
    return Suback(packet_id, _reasons(buf[pos:end], PacketType.SUBACK), properties)


def _unsubscribe(buf: bytes, _flags: int, pos: int, end: int, version: int) -> Unsubscribe:
    packet_id = _packet_id(buf, pos, end)
    pos += 2
    properties = NO_PROPERTIES
    if version == V5:
        properties, pos = decode_properties(buf, pos, end, PacketType.UNSUBSCRIBE)
    if pos == end:
        raise ProtocolViolation("UNSUBSCRIBE without a topic filter")
    filters: list[str] = []
    while pos < end:
        _check_count(filters)
        topic_filter, pos = _topic_filter(buf, pos, end)
        filters.append(topic_filter)
    return Unsubscribe(packet_id, tuple(filters), properties)


def _unsuback(buf: bytes, _flags: int, pos: int, end: int, version: int) -> Unsuback:
    packet_id = _packet_id(buf, pos, end)
    pos += 2
    if version != V5:
        _finish(pos, end)
        return Unsuback(packet_id)
    properties, pos = decode_properties(buf, pos, end, PacketType.UNSUBACK)
    if pos == end:
        raise ProtocolViolation("UNSUBACK without a reason code")
    return Unsuback(packet_id, _reasons(buf[pos:end], PacketType.UNSUBACK), properties)


def _pingreq(_buf: bytes, _flags: int, pos: int, end: int, _version: int) -> Pingreq:
    _finish(pos, end)
    return Pingreq()


def _pingresp(_buf: bytes, _flags: int, pos: int, end: int, _version: int) -> Pingresp:
    _finish(pos, end)
    return Pingresp()


def _disconnect(buf: bytes, _flags: int, pos: int, end: int, version: int) -> Disconnect:
    if pos == end:
        return Disconnect()
    if version != V5:
        raise MalformedPacket("DISCONNECT has a body")
    reason = _reason(buf[pos], PacketType.DISCONNECT)
    pos += 1
    properties = NO_PROPERTIES
    if pos < end:
        properties, pos = decode_properties(buf, pos, end, PacketType.DISCONNECT)
        _finish(pos, end)
    return Disconnect(reason, properties)


def _auth(buf: bytes, _flags: int, pos: int, end: int, version: int) -> Auth:
    if version != V5:
        raise MalformedPacket("AUTH does not exist in MQTT 3.1.1")
    if pos == end:
        return Auth()
    reason = _reason(buf[pos], PacketType.AUTH)
    properties, pos = decode_properties(buf, pos + 1, end, PacketType.AUTH)
    _finish(pos, end)
    if properties.authentication_method is None:
        raise ProtocolViolation("AUTH without an authentication method")
    return Auth(reason, properties)


def _packet_id(buf: bytes, pos: int, end: int) -> int:
    packet_id = read_u16(buf, pos, end)
    if not packet_id:
        raise ProtocolViolation("packet identifier 0 is not allowed")
    return packet_id


def _reason(code: int, packet_type: PacketType) -> ReasonCode:
    reason = ALLOWED[packet_type].get(code)
    if reason is None:
        raise MalformedPacket(f"{packet_type.name} must not have reason code 0x{code:02X}")
    return reason


def _reasons(codes: bytes, packet_type: PacketType) -> tuple[ReasonCode, ...]:
    return tuple(_reason(code, packet_type) for code in codes)


def _finish(pos: int, end: int) -> None:
    if pos != end:
        raise MalformedPacket("packet has bytes after its last field")


BODIES: Final[dict[int, BodyDecoder]] = {
    PacketType.CONNACK: _connack,
    PacketType.PUBLISH: _publish,
    PacketType.PUBACK: _ack_decoder(PacketType.PUBACK),
    PacketType.PUBREC: _ack_decoder(PacketType.PUBREC),
    PacketType.PUBREL: _ack_decoder(PacketType.PUBREL),
    PacketType.PUBCOMP: _ack_decoder(PacketType.PUBCOMP),
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: _pingreq,
    PacketType.PINGRESP: _pingresp,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
"""Decoders of every body but CONNECT's, which has a module of its own."""
