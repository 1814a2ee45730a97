"""MQTT 5 properties: one table of what exists, its type and its place, and the codec that follows it."""

from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from geomq.mqtt.codec.faults import MalformedPacket, ProtocolViolation
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import VARINT_MAX, PacketType
from geomq.mqtt.codec.wire import (
    binary,
    read_binary,
    read_text,
    read_u16,
    read_u32,
    read_varint,
    text,
    truncated,
    varint,
)

WILL: Final = 0
"""The place of properties inside a CONNECT's will, beside the packet types."""

REPEATED_MAX: Final = 1_000
"""So often one packet may carry a property that may be repeated, of which the user properties are one."""

NAME_KEPT_MAX: Final = 64
"""Names of user properties up to this length are encoded once."""


class PropertyType(Enum):
    BYTE = 1
    TWO_BYTES = 2
    FOUR_BYTES = 3
    VARINT = 4
    TEXT = 5
    BINARY = 6
    PAIR = 7


PAIR_BYTES: Final = 160
"""What a user property occupies in memory beside its text."""
PAIRS_FREE: Final = 16
"""So many of them are counted as they are in a packet."""


class Properties(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """All properties a packet may carry; absent ones are None or an empty tuple."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None

    @property
    def size(self) -> int:
        """Bytes that what a message carries roughly occupies."""
        size = len(self.content_type or "") + len(self.response_topic or "") + len(self.correlation_data or b"")
        for name, value in self.user_properties:
            size += len(name) + len(value) + PAIR_BYTES
        return size

    @property
    def wire_size(self) -> int:
        """Bytes that what a message carries takes in a packet; of many user properties, what they occupy in memory, so
        that a heap of empty ones does not count for nothing."""
        size = _text_size(self.content_type) + _text_size(self.response_topic)
        size += 0 if self.correlation_data is None else 3 + len(self.correlation_data)
        for name, value in self.user_properties:
            size += _text_size(name) + _text_size(value) - 1
        return size + PAIR_BYTES * max(0, len(self.user_properties) - PAIRS_FREE)

    def user(self, name: str) -> str | None:
        """The first user property called `name`."""
        for key, value in self.user_properties:
            if key == name:
                return value
        return None


def _text_size(text: str | None) -> int:
    """With the number of the property and the length of the text."""
    return 0 if text is None else 3 + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))


NO_PROPERTIES: Final = Properties()


class PropertyRule(NamedTuple):
    """One row of the table; values outside minimum..maximum break the protocol."""

    number: int
    name: str
    kind: PropertyType
    places: frozenset[int]
    repeatable: frozenset[int] = frozenset()
    minimum: int = 0
    maximum: int = 0xFFFF_FFFF


_P = PacketType
_BOTH = frozenset({_P.PUBLISH, WILL})
_EVERYWHERE = frozenset(set(_P) - {_P.PINGREQ, _P.PINGRESP}) | {WILL}
_ANSWERS = frozenset(
    {
        _P.CONNACK,
        _P.PUBACK,
        _P.PUBREC,
        _P.PUBREL,
        _P.PUBCOMP,
        _P.SUBACK,
        _P.UNSUBACK,
        _P.DISCONNECT,
        _P.AUTH,
    }
)
_IN_CONNECT, _IN_CONNACK, _IN_PUBLISH = (
    frozenset({_P.CONNECT}),
    frozenset({_P.CONNACK}),
    frozenset({_P.PUBLISH}),
)
_HANDSHAKE = _IN_CONNECT | _IN_CONNACK
_AUTHENTICATION = _HANDSHAKE | {_P.AUTH}

RULES: Final = (
    PropertyRule(0x01, "payload_format_indicator", PropertyType.BYTE, _BOTH, maximum=1),
    PropertyRule(0x02, "message_expiry_interval", PropertyType.FOUR_BYTES, _BOTH),
    PropertyRule(0x03, "content_type", PropertyType.TEXT, _BOTH),
    PropertyRule(0x08, "response_topic", PropertyType.TEXT, _BOTH),
    PropertyRule(0x09, "correlation_data", PropertyType.BINARY, _BOTH),
    PropertyRule(
        0x0B,
        "subscription_identifiers",
        PropertyType.VARINT,
        _IN_PUBLISH | {_P.SUBSCRIBE},
        _IN_PUBLISH,
        1,
        VARINT_MAX,
    ),
    PropertyRule(0x11, "session_expiry_interval", PropertyType.FOUR_BYTES, _HANDSHAKE | {_P.DISCONNECT}),
    PropertyRule(0x12, "assigned_client_identifier", PropertyType.TEXT, _IN_CONNACK),
    PropertyRule(0x13, "server_keep_alive", PropertyType.TWO_BYTES, _IN_CONNACK),
    PropertyRule(0x15, "authentication_method", PropertyType.TEXT, _AUTHENTICATION),
    PropertyRule(0x16, "authentication_data", PropertyType.BINARY, _AUTHENTICATION),
    PropertyRule(0x17, "request_problem_information", PropertyType.BYTE, _IN_CONNECT, maximum=1),
    PropertyRule(0x18, "will_delay_interval", PropertyType.FOUR_BYTES, frozenset({WILL})),
    PropertyRule(0x19, "request_response_information", PropertyType.BYTE, _IN_CONNECT, maximum=1),
    PropertyRule(0x1A, "response_information", PropertyType.TEXT, _IN_CONNACK),
    PropertyRule(0x1C, "server_reference", PropertyType.TEXT, _IN_CONNACK | {_P.DISCONNECT}),
    PropertyRule(0x1F, "reason_string", PropertyType.TEXT, _ANSWERS),
    PropertyRule(0x21, "receive_maximum", PropertyType.TWO_BYTES, _HANDSHAKE, minimum=1),
    PropertyRule(0x22, "topic_alias_maximum", PropertyType.TWO_BYTES, _HANDSHAKE),
    PropertyRule(0x23, "topic_alias", PropertyType.TWO_BYTES, _IN_PUBLISH, minimum=1),
    PropertyRule(0x24, "maximum_qos", PropertyType.BYTE, _IN_CONNACK, maximum=1),
    PropertyRule(0x25, "retain_available", PropertyType.BYTE, _IN_CONNACK, maximum=1),
    PropertyRule(0x26, "user_properties", PropertyType.PAIR, _EVERYWHERE, _EVERYWHERE),
    PropertyRule(0x27, "maximum_packet_size", PropertyType.FOUR_BYTES, _HANDSHAKE, minimum=1),
    PropertyRule(0x28, "wildcard_subscription_available", PropertyType.BYTE, _IN_CONNACK, maximum=1),
    PropertyRule(0x29, "subscription_identifier_available", PropertyType.BYTE, _IN_CONNACK, maximum=1),
    PropertyRule(0x2A, "shared_subscription_available", PropertyType.BYTE, _IN_CONNACK, maximum=1),
)

_BY_NUMBER: Final = {rule.number: rule for rule in RULES}
_BY_PLACE: Final = {place: tuple(rule for rule in RULES if place in rule.places) for place in (WILL, *PacketType)}
_LISTS: Final = frozenset(rule.name for rule in RULES if rule.repeatable)


def decode_properties(buf: bytes, pos: int, end: int, place: int) -> tuple[Properties, int]:
    """The properties that start at `pos` and the position after them."""
    if pos < end and buf[pos] == 0:
        return NO_PROPERTIES, pos + 1
    length, pos = read_varint(buf, pos, end)
    stop = pos + length
    if stop > end:
        raise truncated()
    values: dict[str, Any] = {}
    while pos < stop:
        rule = _BY_NUMBER.get(buf[pos])
        if rule is None or place not in rule.places:
            raise MalformedPacket(f"property 0x{buf[pos]:02X} is not allowed in this packet")
        value, pos = _read_value(rule, buf, pos + 1, stop)
        _keep(values, rule, value, place)
    for name in _LISTS & values.keys():
        values[name] = tuple(values[name])
    return Properties(**values), pos


def _keep(values: dict[str, Any], rule: PropertyRule, value: Any, place: int) -> None:
    if rule.name in _LISTS:
        kept = values.setdefault(rule.name, [])
        if kept and place not in rule.repeatable:
            raise ProtocolViolation(f"property {rule.name} appears twice")
        if len(kept) >= REPEATED_MAX:
            raise ProtocolViolation(f"more than {REPEATED_MAX} {rule.name} in one packet", ReasonCode.QUOTA_EXCEEDED)
        kept.append(value)
    elif rule.name in values:
        raise ProtocolViolation(f"property {rule.name} appears twice")
    else:
        values[rule.name] = value


def _read_value(rule: PropertyRule, buf: bytes, pos: int, end: int) -> tuple[Any, int]:
    kind = rule.kind
    if kind is PropertyType.PAIR:
        key, pos = read_text(buf, pos, end)
        value, pos = read_text(buf, pos, end)
        return (key, value), pos
    if kind is PropertyType.TEXT:
        return read_text(buf, pos, end)
    if kind is PropertyType.BINARY:
        return read_binary(buf, pos, end)
    if kind is PropertyType.BYTE:
        if pos >= end:
            raise truncated()
        number, pos = buf[pos], pos + 1
    elif kind is PropertyType.TWO_BYTES:
        number, pos = read_u16(buf, pos, end), pos + 2
    elif kind is PropertyType.FOUR_BYTES:
        number, pos = read_u32(buf, pos, end), pos + 4
    else:
        number, pos = read_varint(buf, pos, end)
    if not rule.minimum <= number <= rule.maximum:
        if rule.name == "topic_alias":
            raise ProtocolViolation("topic alias 0 is not allowed", ReasonCode.TOPIC_ALIAS_INVALID)
        raise ProtocolViolation(f"property {rule.name} cannot be {number}")
    return number, pos


def encode_properties(properties: Properties, place: int) -> bytes:
    """Length and properties as `place` may carry them; those it may not carry are left out."""
    if properties is NO_PROPERTIES:
        return b"\0"
    out = bytearray()
    for rule in _BY_PLACE[place]:
        value = getattr(properties, rule.name)
        if value is None:
            continue
        if rule.name == "user_properties":
            for name, said in value:
                out += _pair_head(name) if len(name) <= NAME_KEPT_MAX else b"&" + text(name)
                out += text(said)
        elif rule.name in _LISTS:
            for item in value:
                _append_value(out, rule, item)
        else:
            _append_value(out, rule, value)
    return varint(len(out)) + bytes(out)


@lru_cache(1_024)
def _pair_head(name: str) -> bytes:
    """A user property up to its value; few names are ever in use."""
    return b"&" + text(name)


def _append_value(out: bytearray, rule: PropertyRule, value: Any) -> None:
    out.append(rule.number)
    kind = rule.kind
    if kind is PropertyType.TEXT:
        out += text(value)
    elif kind is PropertyType.BINARY:
        out += binary(value)
    elif kind is PropertyType.BYTE:
        out.append(value)
    elif kind is PropertyType.TWO_BYTES:
        out += value.to_bytes(2, "big")
    elif kind is PropertyType.FOUR_BYTES:
        out += value.to_bytes(4, "big")
    else:
        out += varint(value)
