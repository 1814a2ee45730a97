"""What a client is told when the broker ends its connection."""

from geomq.mqtt.codec.packets import Connack, Disconnect
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.reasons import ReasonCode, to_connack

TEXT_MAX = 1_000


def farewell(reason: ReasonCode, text: str | None, go_to: str | None, *, admitted: bool) -> Connack | Disconnect:
    """DISCONNECT for a client that was let in, CONNACK for one that was not, with the reason and where to go."""
    properties = NO_PROPERTIES
    if text is not None or go_to is not None:
        text = None if text is None else text[:TEXT_MAX]
        properties = Properties(reason_string=text, server_reference=go_to)
    return Disconnect(reason, properties) if admitted else Connack(False, to_connack(reason), properties)
