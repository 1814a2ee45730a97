"""When a will is published: at once, after its delay, or never."""

from typing import NamedTuple

from geomq.mqtt.codec.packets import Disconnect, Will
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.session.message import ApplicationMessage, message_of_will


class DueWill(NamedTuple):
    """A will waiting for its time; dropped if the client returns before."""

    will: Will
    due_at: float

    def message(self, now: float) -> ApplicationMessage:
        return message_of_will(self.will, now)


def due_will(
    will: Will | None, farewell: Disconnect | None, *, session_expires_at: float | None, now: float
) -> DueWill | None:
    """What becomes of the will when the connection ends, with or without a DISCONNECT from the client."""
    if will is None:
        return None
    if farewell is not None and farewell.reason == ReasonCode.NORMAL_DISCONNECTION:
        return None
    due_at = now + (will.properties.will_delay_interval or 0)
    if session_expires_at is not None:
        due_at = min(due_at, session_expires_at)
    return DueWill(will, due_at)
