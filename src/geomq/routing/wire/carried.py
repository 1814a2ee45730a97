"""What a message carries over a link: whether it is events, how many, of which topic, and the bytes it takes."""

from geomq.routing.core.messages import Message
from geomq.routing.core.model import Event
from geomq.routing.core.plan import EventBatch
from geomq.routing.core.sizes import event_bytes
from geomq.routing.federation.edition_messages import OfEdition

MATCH_BYTES = 64


def _inner(message: Message) -> Message:
    return message.message if isinstance(message, OfEdition) else message


def is_event(message: Message) -> bool:
    """Whether it is an event or delivery, or several of them."""
    return _inner(message).kind in ("event", "delivery")


def size_of(message: Message) -> int:
    """The bytes that a message takes on the wire, roughly, beside what each takes."""
    inner = _inner(message)
    if isinstance(inner, EventBatch):
        return sum(map(len, inner.packets))
    event = getattr(inner, "event", None)
    if isinstance(event, Event):
        return event_bytes(event) + MATCH_BYTES * len(getattr(inner, "matches", ()))
    return len(getattr(inner, "data", b""))


def is_batch(message: Message) -> bool:
    """Whether it is several events in one."""
    return isinstance(_inner(message), EventBatch)


def events_in(message: Message) -> int:
    """How many events the message carries."""
    inner = _inner(message)
    if isinstance(inner, EventBatch):
        return sum([entry.events for entry in inner.entries])
    return int(inner.kind in ("event", "delivery"))


def topic_of(message: Message) -> str | None:
    """The topic of an event or delivery; None for anything else, and for several events in one."""
    event = getattr(_inner(message), "event", None)
    return event.topic if isinstance(event, Event) else None
