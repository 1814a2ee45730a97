"""CONNECT, the one packet that names its own version."""

from geomq.mqtt.codec.decode import check_response_topic, check_topic_name
from geomq.mqtt.codec.faults import MalformedPacket, ProtocolViolation
from geomq.mqtt.codec.packets import Connect, Will
from geomq.mqtt.codec.properties import NO_PROPERTIES, WILL, decode_properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V31, V311, PacketType
from geomq.mqtt.codec.wire import read_binary, read_text, read_u16, truncated

_BRIDGE = 0x80
"""In the level: the client is a broker, as Mosquitto's bridges say."""
_LEVELS = {b"MQTT": (V311, V5), b"MQIsdp": (V31,)}
_CLEAN, _WILL, _WILL_RETAIN, _PASSWORD, _USERNAME = 0x02, 0x04, 0x20, 0x40, 0x80


class UnsupportedVersion(ProtocolViolation):
    """The client speaks another protocol; `answer_version` is the one whose CONNACK it may understand."""

    def __init__(self, message: str, answer_version: int) -> None:
        super().__init__(message, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)
        self.answer_version = answer_version


def decode_connect(buf: bytes, pos: int, end: int) -> Connect:
    version, level, pos = _version(buf, pos, end)
    if pos + 3 > end:
        raise truncated()
    flags = buf[pos]
    _check_flags(flags, version)
    keep_alive = read_u16(buf, pos + 1, end)
    pos += 3
    properties = NO_PROPERTIES
    if version == V5:
        properties, pos = decode_properties(buf, pos, end, PacketType.CONNECT)
        if properties.authentication_data is not None and properties.authentication_method is None:
            raise ProtocolViolation("authentication data without an authentication method")
    client_id, pos = read_text(buf, pos, end)
    will = None
    if flags & _WILL:
        will, pos = _will(buf, pos, end, flags, version)
    username = password = None
    if flags & _USERNAME:
        username, pos = read_text(buf, pos, end)
    if flags & _PASSWORD:
        password, pos = read_binary(buf, pos, end)
    if pos != end:
        raise MalformedPacket("CONNECT has bytes after its last field")
    return Connect(
        client_id,
        version,
        flags & _CLEAN != 0,
        keep_alive,
        will,
        username,
        password,
        properties,
        bridge=level & _BRIDGE != 0,
        is_v31=level & ~_BRIDGE == V31,
    )


def _version(buf: bytes, pos: int, end: int) -> tuple[int, int, int]:
    """The version whose packets the client sends, the level that it gave, and where the rest begins."""
    name, pos = read_binary(buf, pos, end)
    if pos >= end:
        raise truncated()
    level = buf[pos]
    levels = _LEVELS.get(name)
    if levels is None:
        raise UnsupportedVersion("CONNECT with an unknown protocol name", V311)
    if level & ~_BRIDGE not in levels:
        answer = V5 if V5 < level < _BRIDGE else V311
        raise UnsupportedVersion(f"protocol level {level} is not supported", answer)
    return V5 if level & ~_BRIDGE == V5 else V311, level, pos + 1


def _check_flags(flags: int, version: int) -> None:
    if flags & 1:
        raise MalformedPacket("CONNECT with its reserved flag set")
    if flags & _WILL:
        if flags >> 3 & 3 == 3:
            raise MalformedPacket("will with QoS 3")
    elif flags & 0x38:
        raise MalformedPacket("will QoS or retain without a will")
    if version != V5 and flags & _PASSWORD and not flags & _USERNAME:
        raise MalformedPacket("password without a user name")


def _will(buf: bytes, pos: int, end: int, flags: int, version: int) -> tuple[Will, int]:
    properties = NO_PROPERTIES
    if version == V5:
        properties, pos = decode_properties(buf, pos, end, WILL)
        check_response_topic(properties)
    topic, pos = read_text(buf, pos, end)
    check_topic_name(topic)
    payload, pos = read_binary(buf, pos, end)
    return Will(topic, payload, flags >> 3 & 3, flags & _WILL_RETAIN != 0, properties), pos
