"""An application message inside a broker, and its encodings shared by everyone who receives it.

A Message is what was published, free of any one connection (no packet identifier, no alias). A Fanout lives
for one delivery round and encodes the message once per (version, QoS, retain flag) however many subscribers
there are.
"""

from math import ceil
from typing import NamedTuple

import msgspec

from geomq.mqtt.codec.encode import publish_parts
from geomq.mqtt.codec.packets import Publish, Will
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.types import NEVER_EXPIRES, V5


class Shared(NamedTuple):
    """For which shared subscription a message was taken, and what it takes to find another member for it: who
    published it and where, and the fence it is for, as text."""

    topic_filter: str
    publisher: str
    place: tuple[float, float] | None = None
    fence: str | None = None


class ApplicationMessage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`properties` holds only what MQTT 5 forwards; `expires_at` is the end of the message expiry.

    `event_id` is what its driver calls it, if it wants to know it again; `shared` is there if somebody else may get it
    should its receiver never come back.
    """

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES
    expires_at: float | None = None
    event_id: tuple[str, int, int] | None = None
    shared: Shared | None = None

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    @property
    def wire_size(self) -> int:
        """Bytes of topic, payload and properties, as in a packet: what it counts for in a queue."""
        topic = self.topic
        plain = len(self.payload) + (len(topic) if topic.isascii() else len(topic.encode("utf-8", "surrogatepass")))
        return plain if self.properties is NO_PROPERTIES else plain + self.properties.wire_size

    @property
    def size(self) -> int:
        """Bytes it roughly occupies in memory."""
        plain = len(self.payload) + len(self.topic) + 128
        return plain if self.properties is NO_PROPERTIES else plain + self.properties.size


def message_of(publish: Publish, *, topic: str, now: float) -> ApplicationMessage:
    """The message a PUBLISH carries; `topic` is the real one after resolving an alias."""
    properties = publish.properties
    if properties is NO_PROPERTIES:
        return ApplicationMessage(topic, publish.payload, publish.qos, publish.retain)
    if properties.topic_alias is not None or properties.subscription_identifiers:
        properties = msgspec.structs.replace(properties, topic_alias=None, subscription_identifiers=())
    return ApplicationMessage(
        topic, publish.payload, publish.qos, publish.retain, properties, _expires_at(properties, now)
    )


def message_of_will(will: Will, now: float) -> ApplicationMessage:
    """The message a will becomes when it is published."""
    properties = will.properties
    if properties.will_delay_interval is not None:
        properties = msgspec.structs.replace(properties, will_delay_interval=None)
    return ApplicationMessage(will.topic, will.payload, will.qos, will.retain, properties, _expires_at(properties, now))


def _expires_at(properties: Properties, now: float) -> float | None:
    interval = properties.message_expiry_interval
    return None if interval is None else now + interval


class Fanout:
    """One message being delivered at `now`, with the encodings made so far."""

    __slots__ = ("_encoded", "_remaining", "_size", "message")

    def __init__(self, message: ApplicationMessage, now: float) -> None:
        self.message = message
        self._encoded: dict[int, tuple[bytes, bytes]] = {}
        self._size: int | None = None
        left_s = None if message.expires_at is None else ceil(message.expires_at - now)
        self._remaining = None if left_s is None else max(0, min(left_s, NEVER_EXPIRES))

    @property
    def size(self) -> int:
        """What the message counts for in a queue, found out once for all who receive it."""
        if self._size is None:
            self._size = self.message.wire_size
        return self._size

    def publish(
        self,
        version: int,
        qos: int,
        *,
        retain: bool,
        identifiers: tuple[int, ...] = (),
        alias: int | None = None,
        topic: str | None = None,
    ) -> Publish:
        """The PUBLISH for one receiver, still without identifier; `topic` is what this one calls it, nothing where its
        alias says it."""
        message = self.message
        properties = NO_PROPERTIES
        if version == V5:
            properties = message.properties
            if self._remaining is not None or identifiers or alias is not None:
                properties = msgspec.structs.replace(
                    properties,
                    message_expiry_interval=self._remaining,
                    subscription_identifiers=identifiers,
                    topic_alias=alias,
                )
        return Publish(message.topic if topic is None else topic, message.payload, qos, retain, properties=properties)

    def preset(self, version: int, qos: int, head: bytes, tail: bytes) -> None:
        """Use a received PUBLISH, not retained, for receivers of that version and QoS: what is before and after its
        packet identifier."""
        self._encoded[version << 3 | qos << 1] = (head, tail)

    def qos0(self, version: int, *, retain: bool) -> bytes:
        """The whole QoS 0 packet, the same object for every caller."""
        key = version << 3 | retain
        found = self._encoded.get(key)
        if found is None:
            head, tail = publish_parts(self.publish(version, 0, retain=retain), version)
            found = self._encoded[key] = (head + tail, b"")
        return found[0]

    def parts(self, version: int, qos: int, *, retain: bool) -> tuple[bytes, bytes]:
        """The pieces before and after the packet identifier of a QoS 1 or 2 packet."""
        key = version << 3 | qos << 1 | retain
        found = self._encoded.get(key)
        if found is None:
            found = publish_parts(self.publish(version, qos, retain=retain), version)
            self._encoded[key] = found
        return found
