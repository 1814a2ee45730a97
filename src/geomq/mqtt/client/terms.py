"""What a client wants of its session, and the terms a server's CONNACK sets for one connection.

Decides how a message must be changed to be taken by the server, or why it cannot be.
"""

from typing import Final

import msgspec

from geomq.mqtt.codec.packets import Connack, Connect, Publish
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.types import PACKET_SIZE_MAX, V5

PACKET_ID_MAX: Final = 65_535


class ClientPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a face wants of its session. Times in seconds, sizes in bytes."""

    in_flight_max: int = PACKET_ID_MAX
    queue_max: int = 1_000
    queue_bytes_max: int = 64 * 1024 * 1024
    drop_oldest: bool = False
    """When the queue is full: give up its oldest message rather than refuse the new one."""
    receive_max: int | None = None
    """Unacknowledged messages at a time; None leaves it to the server."""
    packet_size_max: int = PACKET_SIZE_MAX
    alias_max: int = 0
    manual: bool = False
    """Messages are acknowledged by the program, not on arrival."""
    adapts: bool = False
    """Send with a lower QoS, or not retained, what the server would not take otherwise."""
    retries_quota: bool = False
    """Come again later with a message the server has no room for."""
    halves: bool = False
    """Use half the window of a server that resumed the session: one that lost its last moments counts as open what is
    finished."""
    resubscribes: bool = False
    """Subscribe again to everything when the server has lost the session."""
    ping_s: float | None = None
    """How often to see whether the server is there; half the keep-alive if None."""
    answer_s: float = 10.0
    """How long the server may take for CONNACK and PINGRESP."""
    identifiers: tuple[int, int] = (1, PACKET_ID_MAX)
    """The first packet identifier to use and how many there are."""

    def asked(self, connect: Connect, *, client_id: str, clean_start: bool) -> Connect:
        """The CONNECT to send."""
        properties = connect.properties
        if connect.version == V5:
            properties = msgspec.structs.replace(
                properties,
                receive_maximum=self.receive_max,
                maximum_packet_size=self.packet_size_max if self.packet_size_max < PACKET_SIZE_MAX else None,
                topic_alias_maximum=self.alias_max or None,
            )
        return msgspec.structs.replace(connect, client_id=client_id, clean_start=clean_start, properties=properties)


class ServerTerms:
    """The terms of one connection."""

    __slots__ = ("_adapts", "limits", "packet_max", "ping_s", "window")

    def __init__(self, connect: Connect, connack: Connack, policy: ClientPolicy) -> None:
        limits = self.limits = connack.properties
        self._adapts = policy.adapts
        self.packet_max = limits.maximum_packet_size or PACKET_SIZE_MAX
        keep_alive_s = connect.keep_alive if limits.server_keep_alive is None else limits.server_keep_alive
        ping_s = keep_alive_s / 2 if policy.ping_s is None else policy.ping_s
        self.ping_s = min(ping_s, keep_alive_s / 2) if keep_alive_s else ping_s
        window = min(limits.receive_maximum or PACKET_ID_MAX, policy.in_flight_max)
        self.window = (window + 1) // 2 if policy.halves and connack.session_present else window

    def fit(self, publish: Publish) -> tuple[int, bool] | str:
        """The QoS and the retain flag to send the message with, or why it cannot be sent."""
        qos, retain, limits = publish.qos, publish.retain, self.limits
        if limits is NO_PROPERTIES:
            return qos, retain
        if limits.maximum_qos is not None and qos > limits.maximum_qos:
            if not self._adapts:
                return f"the broker accepts at most QoS {limits.maximum_qos}"
            qos = limits.maximum_qos
        if retain and limits.retain_available == 0:
            if not self._adapts:
                return "the broker does not support retained messages"
            retain = False
        return qos, retain

    def too_large(self, size: int) -> str:
        """Why a packet of that many bytes cannot be sent."""
        return f"the packet has {size:,} bytes; the broker accepts at most {self.packet_max:,}"


def expiry_of(connect: Connect, limits: Properties) -> int:
    """How long the server keeps the session of an MQTT 5 client after its connection, in seconds."""
    granted = limits.session_expiry_interval
    return (connect.properties.session_expiry_interval or 0) if granted is None else granted
