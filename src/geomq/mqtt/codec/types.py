"""The numbers that name protocol versions and packet types."""

from enum import IntEnum
from typing import Final

V31: Final = 3
V311: Final = 4
V5: Final = 5

PACKET_SIZE_MAX: Final = 268_435_460
VARINT_MAX: Final = 268_435_455
NEVER_EXPIRES: Final = 0xFFFF_FFFF


class PacketType(IntEnum):
    """The high four bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15
