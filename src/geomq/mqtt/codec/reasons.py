"""Reason codes of MQTT 5, which packets may carry them, and what remains of them in MQTT 3.1.1.

Owns the numbers and names only; who answers with which code is decided elsewhere.
"""

from enum import IntEnum

from geomq.mqtt.codec.types import PacketType


class ReasonCode(IntEnum):
    """The one-byte result that MQTT 5 puts into answers and DISCONNECT."""

    SUCCESS = 0x00
    NORMAL_DISCONNECTION = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


_CONNACK, _DISCONNECT = PacketType.CONNACK, PacketType.DISCONNECT
_PUBACK, _PUBREC, _PUBREL, _PUBCOMP = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
)
_SUBACK, _UNSUBACK, _AUTH = PacketType.SUBACK, PacketType.UNSUBACK, PacketType.AUTH

# Table 2-6 of the MQTT 5 specification.
_CARRIERS: dict[int, tuple[PacketType, ...]] = {
    0x00: (
        _CONNACK,
        _PUBACK,
        _PUBREC,
        _PUBREL,
        _PUBCOMP,
        _SUBACK,
        _UNSUBACK,
        _DISCONNECT,
        _AUTH,
    ),
    0x01: (_SUBACK,),
    0x02: (_SUBACK,),
    0x04: (_DISCONNECT,),
    0x10: (_PUBACK, _PUBREC),
    0x11: (_UNSUBACK,),
    0x18: (_AUTH,),
    0x19: (_AUTH,),
    0x80: (_CONNACK, _PUBACK, _PUBREC, _SUBACK, _UNSUBACK, _DISCONNECT),
    0x81: (_CONNACK, _DISCONNECT),
    0x82: (_CONNACK, _DISCONNECT),
    0x83: (_CONNACK, _PUBACK, _PUBREC, _SUBACK, _UNSUBACK, _DISCONNECT),
    0x84: (_CONNACK,),
    0x85: (_CONNACK,),
    0x86: (_CONNACK,),
    0x87: (_CONNACK, _PUBACK, _PUBREC, _SUBACK, _UNSUBACK, _DISCONNECT),
    0x88: (_CONNACK,),
    0x89: (_CONNACK, _DISCONNECT),
    0x8A: (_CONNACK,),
    0x8B: (_DISCONNECT,),
    0x8C: (_CONNACK, _DISCONNECT),
    0x8D: (_DISCONNECT,),
    0x8E: (_DISCONNECT,),
    0x8F: (_SUBACK, _UNSUBACK, _DISCONNECT),
    0x90: (_CONNACK, _PUBACK, _PUBREC, _DISCONNECT),
    0x91: (_PUBACK, _PUBREC, _SUBACK, _UNSUBACK),
    0x92: (_PUBREL, _PUBCOMP),
    0x93: (_DISCONNECT,),
    0x94: (_DISCONNECT,),
    0x95: (_CONNACK, _DISCONNECT),
    0x96: (_DISCONNECT,),
    0x97: (_CONNACK, _PUBACK, _PUBREC, _SUBACK, _DISCONNECT),
    0x98: (_DISCONNECT,),
    0x99: (_CONNACK, _PUBACK, _PUBREC, _DISCONNECT),
    0x9A: (_CONNACK, _DISCONNECT),
    0x9B: (_CONNACK, _DISCONNECT),
    0x9C: (_CONNACK, _DISCONNECT),
    0x9D: (_CONNACK, _DISCONNECT),
    0x9E: (_SUBACK, _DISCONNECT),
    0x9F: (_CONNACK, _DISCONNECT),
    0xA0: (_DISCONNECT,),
    0xA1: (_SUBACK, _DISCONNECT),
    0xA2: (_SUBACK, _DISCONNECT),
}

ALLOWED: dict[int, dict[int, ReasonCode]] = {
    packet: {code: ReasonCode(code) for code, packets in _CARRIERS.items() if packet in packets}
    for packet in PacketType
}

_BEFORE_CONNACK = {
    ReasonCode.SERVER_SHUTTING_DOWN: ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.SESSION_TAKEN_OVER: ReasonCode.SERVER_BUSY,
}

_CONNACK_V311 = {
    ReasonCode.SUCCESS: 0,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
    ReasonCode.BANNED: 5,
    ReasonCode.BAD_AUTHENTICATION_METHOD: 5,
}
_SERVER_UNAVAILABLE_V311 = 3

FROM_CONNACK_V311 = {
    0: ReasonCode.SUCCESS,
    1: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    2: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    3: ReasonCode.SERVER_UNAVAILABLE,
    4: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    5: ReasonCode.NOT_AUTHORIZED,
}


def to_connack(reason: ReasonCode) -> ReasonCode:
    """The reason nearest in meaning that CONNACK may carry."""
    return ALLOWED[_CONNACK].get(_BEFORE_CONNACK.get(reason, reason), ReasonCode.UNSPECIFIED_ERROR)


def to_connack_v311(reason: int) -> int:
    """The MQTT 3.1.1 return code nearest in meaning to an MQTT 5 CONNACK reason."""
    return _CONNACK_V311.get(ReasonCode(reason), _SERVER_UNAVAILABLE_V311)
