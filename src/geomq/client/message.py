"""What arrives: an event with its payload, its MQTT 5 properties and, if the publisher gave them, its places."""

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from geomq.errors import GeometryError
from geomq.mqtt.codec.packets import Publish
from geomq.vocabulary import FENCE_PROPERTY, LOCATION_PROPERTY

if TYPE_CHECKING:
    from geomq.geo import Fence, Location


@dataclass(frozen=True)
class Message:
    """An event as it was delivered. `user` holds the user properties in order, names may repeat."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    user: tuple[tuple[str, str], ...] = ()
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    expiry_s: int | None = None
    subscription_identifiers: tuple[int, ...] = ()
    payload_format: int | None = None
    packet_id: int = field(default=0, compare=False)

    @property
    def text(self) -> str:
        """The payload as UTF-8; invalid bytes become replacement characters."""
        return self.payload.decode("utf-8", "replace")

    def json(self) -> Any:
        """The payload as JSON."""
        return json.loads(self.payload)

    @cached_property
    def location(self) -> "Location | None":
        """Where the publisher was, if it said so with the event and what it said is a location."""
        text = self.user_property(LOCATION_PROPERTY)
        if text is None:
            return None
        from geomq.geo import parse_location

        try:
            return parse_location(text)
        except GeometryError:
            return None

    @cached_property
    def fence(self) -> "Fence | None":
        """Where the event matters, if it has a fence."""
        text = self.user_property(FENCE_PROPERTY)
        if text is None:
            return None
        from geomq.geo import parse_fence

        try:
            return parse_fence(text)
        except GeometryError:
            return None

    def user_property(self, name: str) -> str | None:
        """The first user property of that name."""
        return next((value for key, value in self.user if key == name), None)


def message_of(publish: Publish) -> Message:
    """The event in a PUBLISH."""
    properties = publish.properties
    return Message(
        publish.topic,
        publish.payload,
        publish.qos,
        publish.retain,
        properties.user_properties,
        properties.content_type,
        properties.response_topic,
        properties.correlation_data,
        properties.message_expiry_interval,
        properties.subscription_identifiers,
        properties.payload_format_indicator,
        publish.packet_id,
    )
