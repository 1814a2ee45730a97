"""What a session answers without having to know anything: PUBREL, and answers without explanations."""

import msgspec

from geomq.mqtt.codec.packets import Auth, Packet, Puback, Pubcomp, Pubrec, Pubrel, Suback, Unsuback

_EXPLAINED = (Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Auth)
"""Packets whose explanations a client can ask to be spared."""


def pubrel(packet_id: int) -> bytes:
    return bytes((0x62, 2, packet_id >> 8, packet_id & 0xFF))


def unexplained(packet: Packet) -> Packet:
    """The packet as clients get it that do not want to be told why."""
    if not isinstance(packet, _EXPLAINED):
        return packet
    plain = msgspec.structs.replace(packet.properties, reason_string=None, user_properties=())
    return msgspec.structs.replace(packet, properties=plain)
