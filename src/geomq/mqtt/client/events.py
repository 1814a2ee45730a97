"""What a client session reports to the program that drives it, beside the messages that arrive.

A message that arrives is reported as its Publish packet, with the topic filled in where the server sent an alias.
"""

from enum import IntEnum
from typing import Final

import msgspec

from geomq.mqtt.codec.packets import Connack, Pingreq, Publish, Subscribe, Unsubscribe
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.reasons import ReasonCode

OVERHEAD_BYTES: Final = 256
"""What a request occupies beside its payload, its topic and its properties."""
QUEUE_FULL: Final = "the queue is full"
"""Why a message was dropped that had waited longer than all others."""
REDIRECTS = frozenset({ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED})


class State(IntEnum):
    """How far a request is."""

    QUEUED = 0
    SENT = 1
    RELEASED = 2
    DONE = 3


class Request(msgspec.Struct, eq=False):
    """Something asked of the server; `tag` is whatever the program wants to recognise it by."""

    packet: Publish | Subscribe | Unsubscribe | Pingreq
    tag: object = None
    size: int = 0
    expires_at: float | None = None
    state: State = State.QUEUED
    packet_id: int = 0
    qos: int = 0
    """As it was sent; a server may take less than was asked for."""
    place: int = 0
    """Counts requests in the order they were sent."""
    counted: bool = False
    """Whether it takes part of the server's receive maximum on this connection."""

    @property
    def subject(self) -> str:
        """The first topic filter it is about, or the beginning of the topic."""
        match self.packet:
            case Publish(topic=topic):
                return topic[:80]
            case Subscribe(requests=requests):
                return requests[0].topic_filter
            case Unsubscribe(topic_filters=topic_filters):
                return topic_filters[0]
        return "ping"


def request_of(packet: Publish, expires_at: float | None = None, tag: object = None) -> Request:
    """The request to send a message."""
    size = len(packet.payload) + len(packet.topic) + OVERHEAD_BYTES
    if packet.properties is not NO_PROPERTIES:
        size += packet.properties.size
    return Request(packet, tag, size, expires_at)


class Connected(msgspec.Struct, frozen=True):
    """The server accepted the connection. `lost` says it no longer has the session it is known to have had."""

    connack: Connack
    lost: bool


class ConnectRefused(msgspec.Struct, frozen=True):
    """The server refused the connection."""

    reason: ReasonCode
    properties: Properties = NO_PROPERTIES


class Ended(msgspec.Struct, frozen=True):
    """The server sent DISCONNECT."""

    reason: ReasonCode
    properties: Properties = NO_PROPERTIES


class Accepted(msgspec.Struct, frozen=True):
    """The server has a QoS 2 message; the rest of the exchange follows."""

    request: Request


class Acknowledged(msgspec.Struct, frozen=True):
    """The server answered: the request is finished. Reasons from 0x80 on are refusals."""

    request: Request
    reasons: tuple[ReasonCode, ...] = (ReasonCode.SUCCESS,)
    properties: Properties = NO_PROPERTIES

    @property
    def refusal(self) -> ReasonCode | None:
        """The first reason that is a refusal."""
        return next((reason for reason in self.reasons if reason >= ReasonCode.UNSPECIFIED_ERROR), None)


class Dropped(msgspec.Struct, frozen=True):
    """A request that will never be sent, and why."""

    request: Request
    why: str


class Answered(msgspec.Struct, frozen=True):
    """The server answered this ping, and everything sent before it is finished."""

    request: Request


class Repeated(msgspec.Struct, frozen=True):
    """A QoS 2 message that was acknowledged before; with manual acknowledgements it needs its answer once more."""

    publish: Publish


Event = Publish | Connected | ConnectRefused | Ended | Accepted | Acknowledged | Dropped | Answered | Repeated


def words(reason: ReasonCode, properties: Properties = NO_PROPERTIES) -> str:
    """A reason in one line: the server's own words, or for want of them those of MQTT."""
    text = " ".join((properties.reason_string or "").split())
    return text or reason.name.capitalize().replace("_", " ")


def server_references(reason: ReasonCode, properties: Properties) -> tuple[str, ...]:
    """The servers a client is sent to by this refusal or DISCONNECT, the first choice first."""
    return tuple((properties.server_reference or "").split()) if reason in REDIRECTS else ()
