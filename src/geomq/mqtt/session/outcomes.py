"""What becomes of messages of QoS 1 and 2: who is told, and why one may never be sent."""

from collections.abc import Callable
from typing import Any, Protocol

from geomq.mqtt.session.message import ApplicationMessage

Watch = Callable[[ApplicationMessage, int, str | None], None]
"""Told of a QoS 1 or 2 message and its QoS when it is first sent (None), or why it never will be."""

QUEUE_FULL, EXPIRED, TOO_LARGE = "queue full", "expired", "too large for the client"
"""Why a message of QoS 1 or 2 is never sent."""

OnDrop = Callable[[Any, str], None]
"""Told of each message of QoS 1 or 2 that will never be sent: the session and why."""
OnFull = Callable[[Any, Any, ApplicationMessage, int], bool]
"""Asked about a message of this size for which a session's queue has no room: whether it is taken all the same."""


class Tally(Protocol):
    """Running totals of a server, raised when a message of QoS 1 or 2 is first sent."""

    events_delivered: int


class Uncounted:
    """Totals that nobody reads."""

    events_delivered = 0
