"""What can be told of a CONNECT that was not read: whether the client would understand an answer of MQTT 5."""

from geomq.mqtt.codec.types import PacketType

_V5 = b"\0\4MQTT\5"


def speaks_v5(data: bytes) -> bool:
    """Whether these bytes begin a CONNECT of MQTT 5, however long it is and however it goes on."""
    if data[:1] != bytes((PacketType.CONNECT << 4,)):
        return False
    length_bytes = next((number for number, byte in enumerate(data[1:5], 1) if byte < 0x80), 4)
    return data[1 + length_bytes :].startswith(_V5)
