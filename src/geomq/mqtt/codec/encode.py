"""Packet values to bytes, for both versions and both directions.

What a version cannot say is left out: MQTT 3.1.1 gets no properties and the nearest return code. A value that
fits no packet (text over 65,535 bytes, say) raises ProtocolError.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from geomq.errors import ProtocolError
from geomq.mqtt.codec.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from geomq.mqtt.codec.properties import NO_PROPERTIES, WILL, Properties, encode_properties
from geomq.mqtt.codec.reasons import to_connack_v311
from geomq.mqtt.codec.types import V5, V31, PacketType
from geomq.mqtt.codec.wire import binary, text, varint

_MAY_BE_UNSAID: Final[tuple[dict[str, Any], ...]] = (
    {"reason_string": None, "user_properties": ()},
    {"topic_alias_maximum": None},
)


def encode(packet: Packet, version: int) -> bytes:
    """The whole packet as it goes on the wire."""
    return _ENCODERS[packet.type](packet, version)


def encode_within(packet: Packet, version: int, size_max: int) -> bytes:
    """As `encode`, but never longer: first without what may be left unsaid (reason string, user properties, and in
    CONNACK that topic aliases are taken), then nothing."""
    data = encode(packet, version)
    if len(data) <= size_max or isinstance(packet, Publish):
        return data if len(data) <= size_max else b""
    properties: Properties = getattr(packet, "properties", NO_PROPERTIES)
    for unsaid in _MAY_BE_UNSAID:
        properties = msgspec.structs.replace(properties, **unsaid)
        data = encode(msgspec.structs.replace(packet, properties=properties), version)
        if len(data) <= size_max:
            return data
    return b""


def publish_parts(publish: Publish, version: int) -> tuple[bytes, bytes]:
    """A PUBLISH in two pieces; the packet identifier of QoS 1 and 2 goes between them."""
    topic = text(publish.topic)
    tail = publish.payload
    if version == V5:
        tail = encode_properties(publish.properties, 3) + tail
    length = len(topic) + len(tail)
    first = 0x30 | publish.qos << 1 | publish.retain | publish.dup << 3
    if publish.qos:
        length += 2
    return bytes((first,)) + varint(length) + topic, tail


def _publish(packet: Publish, version: int) -> bytes:
    head, tail = publish_parts(packet, version)
    if packet.qos:
        return head + packet.packet_id.to_bytes(2, "big") + tail
    return head + tail


def _connect(packet: Connect, _version: int) -> bytes:
    version = packet.version
    flags = packet.clean_start << 1
    body = b""
    will = packet.will
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        if version == V5:
            body += encode_properties(will.properties, WILL)
        body += text(will.topic) + binary(will.payload)
    if packet.username is not None:
        flags |= 0x80
        body += text(packet.username)
    if packet.password is not None:
        if version != V5 and packet.username is None:
            raise ProtocolError("MQTT 3.1.1 allows no password without a user name")
        flags |= 0x40
        body += binary(packet.password)
    name, level = (b"MQIsdp", V31) if packet.is_v31 else (b"MQTT", version)
    head = binary(name) + bytes((level | packet.bridge << 7, flags)) + packet.keep_alive.to_bytes(2, "big")
    properties = encode_properties(packet.properties, PacketType.CONNECT) if version == V5 else b""
    return _framed(0x10, head + properties + text(packet.client_id) + body)


def _connack(packet: Connack, version: int) -> bytes:
    if version != V5:
        return bytes((0x20, 2, packet.session_present, to_connack_v311(packet.reason)))
    properties = encode_properties(packet.properties, PacketType.CONNACK)
    return _framed(0x20, bytes((packet.session_present, packet.reason)) + properties)


def _ack(packet: Ack, version: int) -> bytes:
    first = packet.type << 4 | (2 if packet.type == PacketType.PUBREL else 0)
    body = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        body += _reason_and_properties(packet.reason, packet.properties, packet.type)
    return _framed(first, body)


def _reason_and_properties(reason: int, properties: Properties, packet_type: PacketType) -> bytes:
    encoded = encode_properties(properties, packet_type)
    if len(encoded) > 1:
        return bytes((reason,)) + encoded
    return bytes((reason,)) if reason else b""


def _subscribe(packet: Subscribe, version: int) -> bytes:
    body = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        body += encode_properties(packet.properties, PacketType.SUBSCRIBE)
    for request in packet.requests:
        body += text(request.topic_filter) + bytes((_options(request, version),))
    return _framed(0x82, body)


def _options(request: SubscribeRequest, version: int) -> int:
    if version != V5:
        return request.qos
    return request.qos | request.no_local << 2 | request.retain_as_published << 3 | request.retain_handling << 4


def _suback(packet: Suback, version: int) -> bytes:
    body = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        body += encode_properties(packet.properties, PacketType.SUBACK) + bytes(packet.reasons)
    else:
        body += bytes(min(reason, 0x80) for reason in packet.reasons)
    return _framed(0x90, body)


def _unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    body = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        body += encode_properties(packet.properties, PacketType.UNSUBSCRIBE)
    return _framed(0xA2, body + b"".join(text(topic_filter) for topic_filter in packet.topic_filters))


def _unsuback(packet: Unsuback, version: int) -> bytes:
    body = packet.packet_id.to_bytes(2, "big")
    if version == V5:
        body += encode_properties(packet.properties, PacketType.UNSUBACK) + bytes(packet.reasons)
    return _framed(0xB0, body)


def _disconnect(packet: Disconnect, version: int) -> bytes:
    if version != V5:
        return b"\xe0\0"
    return _framed(0xE0, _reason_and_properties(packet.reason, packet.properties, packet.type))


def _auth(packet: Auth, version: int) -> bytes:
    if version != V5:
        raise ProtocolError("AUTH does not exist in MQTT 3.1.1")
    return _framed(0xF0, _reason_and_properties(packet.reason, packet.properties, packet.type))


def _framed(first: int, body: bytes) -> bytes:
    return bytes((first,)) + varint(len(body)) + body


_ENCODERS: Final[dict[PacketType, Callable[[Any, int], bytes]]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBLISH: _publish,
    PacketType.PUBACK: _ack,
    PacketType.PUBREC: _ack,
    PacketType.PUBREL: _ack,
    PacketType.PUBCOMP: _ack,
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: lambda _packet, _version: b"\xc0\0",
    PacketType.PINGRESP: lambda _packet, _version: b"\xd0\0",
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
