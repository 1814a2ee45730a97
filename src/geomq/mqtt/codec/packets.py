"""The MQTT control packets as plain immutable values, one class per type, for both versions.

MQTT 3.1.1 packets are the same classes with no properties and reason SUCCESS. No bytes here.
"""

from typing import ClassVar

import msgspec

from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, PacketType


class Will(msgspec.Struct, frozen=True, gc=False):
    """What the server publishes when the client goes without saying goodbye."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(msgspec.Struct, frozen=True, gc=False):
    """`bridge` says that another broker connects, `is_v31` that it speaks MQTT 3.1, which otherwise is as 3.1.1."""

    type: ClassVar[PacketType] = PacketType.CONNECT
    client_id: str
    version: int = V5
    clean_start: bool = True
    keep_alive: int = 60
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: Properties = NO_PROPERTIES
    bridge: bool = False
    is_v31: bool = False


class Connack(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.CONNACK
    session_present: bool = False
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Publish(msgspec.Struct, frozen=True, gc=False):
    """`packet_id` is 0 exactly when `qos` is 0; `topic` may be empty only beside a topic alias."""

    type: ClassVar[PacketType] = PacketType.PUBLISH
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


class Puback(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.PUBACK
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubrec(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.PUBREC
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubrel(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.PUBREL
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubcomp(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.PUBCOMP
    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class SubscribeRequest(msgspec.Struct, frozen=True, gc=False):
    """One topic filter of a SUBSCRIBE with its options."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.SUBSCRIBE
    packet_id: int
    requests: tuple[SubscribeRequest, ...]
    properties: Properties = NO_PROPERTIES


class Suback(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.SUBACK
    packet_id: int
    reasons: tuple[ReasonCode, ...]
    properties: Properties = NO_PROPERTIES


class Unsubscribe(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.UNSUBSCRIBE
    packet_id: int
    topic_filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


class Unsuback(msgspec.Struct, frozen=True, gc=False):
    """MQTT 3.1.1 sends no reasons."""

    type: ClassVar[PacketType] = PacketType.UNSUBACK
    packet_id: int
    reasons: tuple[ReasonCode, ...] = ()
    properties: Properties = NO_PROPERTIES


class Pingreq(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.PINGREQ


class Pingresp(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.PINGRESP


class Disconnect(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.DISCONNECT
    reason: ReasonCode = ReasonCode.NORMAL_DISCONNECTION
    properties: Properties = NO_PROPERTIES


class Auth(msgspec.Struct, frozen=True, gc=False):
    type: ClassVar[PacketType] = PacketType.AUTH
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


Ack = Puback | Pubrec | Pubrel | Pubcomp
Packet = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
