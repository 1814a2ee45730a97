"""What becomes of messages of QoS 1 and 2: who is told, and why one may never be sent."""

from collections.abc import Callable
from typing import Protocol

from geomq.mqtt.session.message import ApplicationMessage

Watch = Callable[[ApplicationMessage, int, str | None], None]
"""Told of a QoS 1 or 2 message and its QoS when it is first sent (None), or why it never will be."""

QUEUE_FULL, EXPIRED, TOO_LARGE = "queue full", "expired", "too large for the client"
"""Why a message of QoS 1 or 2 is never sent."""


class Tally(Protocol):
    """Running totals of a server, raised when a message of QoS 1 or 2 is first sent."""

    events_delivered: int


class Uncounted:
    """Totals that nobody reads."""

    events_delivered = 0
