"""How long an event has yet to live, on its way between brokers: over a link goes the time that is left.

No two clocks agree, so a moment means nothing to another broker. In memory and on disk `Event.due_ms` is a moment of
the broker's own clock; in a frame it is a duration, from when the frame is written to when it is read.
"""

from collections.abc import Sequence

import msgspec

from geomq.routing.core.messages import Message
from geomq.routing.core.model import TIME_MAX, Event
from geomq.routing.federation.edition_messages import unwrapped, wrapped
from geomq.routing.wire.link import Data


def _expires(message: Message) -> bool:
    event = getattr(message, "event", None)
    return isinstance(event, Event) and event.due_ms is not None


def _moved(message: Message, by_s: float) -> Message:
    """The message with another number for when its event is due."""
    inner, edition = unwrapped(message)
    event: Event = inner.event  # type: ignore[attr-defined]
    assert event.due_ms is not None
    due_ms = min(max(0, event.due_ms + int(by_s * 1000)), TIME_MAX)
    event = msgspec.structs.replace(event, due_ms=due_ms)
    return wrapped(msgspec.structs.replace(inner, event=event), edition)


def for_wire(frames: Sequence[Data], now_s: float) -> Sequence[Data]:
    """The frames as they leave now; the same sequence if nothing in it expires."""
    if not any(_expires(data.message) for data in frames):
        return frames
    return [
        msgspec.structs.replace(data, message=_moved(data.message, -now_s)) if _expires(data.message) else data
        for data in frames
    ]


def from_wire(message: Message, now_s: float) -> Message:
    """The message as it came now."""
    return _moved(message, now_s) if _expires(message) else message
