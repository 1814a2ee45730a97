"""What a subscriber that asks for it is told about each event: its id, when and where it was accepted, by whom.

A client asks with the user property `geo-details` of its CONNECT; the config says which details exist for anybody.
They travel as user properties of the PUBLISH. Publishers cannot forge them: to those who ask, properties of these names
come from the broker or not at all.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from geomq.geo import fence_text, location_text
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.session.message import ApplicationMessage
from geomq.routing.core.model import Event
from geomq.vocabulary import (
    BROKER_PROPERTY,
    EVENT_PROPERTY,
    FENCE_PROPERTY,
    LOCATION_PROPERTY,
    PUBLISHER_PROPERTY,
    TIME_PROPERTY,
)

PROPERTIES: Final[dict[str, str]] = {
    "event": EVENT_PROPERTY,
    "time": TIME_PROPERTY,
    "broker": BROKER_PROPERTY,
    "publisher": PUBLISHER_PROPERTY,
    "location": LOCATION_PROPERTY,
    "fence": FENCE_PROPERTY,
}
"""The user property of each detail."""

TEXT_BYTES_MAX: Final = 65_535

_NAMES: Final = frozenset(PROPERTIES.values())

_SAY: Final[dict[str, Callable[[Event], str | None]]] = {
    "event": lambda event: str(event.id),
    "time": lambda event: str(event.at_ms) if event.at_ms else None,
    "broker": lambda event: event.id.origin,
    "publisher": lambda event: event.publisher,
    "location": lambda event: None if event.location is None else location_text(event.location),
    "fence": lambda event: None if event.fence is None else fence_text(event.fence),
}


def told(message: ApplicationMessage, event: Event | None, details: tuple[str, ...]) -> ApplicationMessage:
    """The message as those get it who asked; `event` is None where only the message was kept."""
    own = message.properties.user_properties
    pairs = [pair for pair in own if pair[0] not in _NAMES] if own else []
    if event is not None:
        for detail in details:
            value = _SAY[detail](event)
            # A publisher's client id may hold what MQTT text may not, and a fence more of it.
            if value is not None and "\0" not in value and len(value) <= TEXT_BYTES_MAX:
                pairs.append((PROPERTIES[detail], value))
    said = tuple(pairs)
    if said == own:
        return message
    if message.properties is NO_PROPERTIES:
        properties = Properties(user_properties=said)
    else:
        properties = msgspec.structs.replace(message.properties, user_properties=said)
    return msgspec.structs.replace(message, properties=properties)
