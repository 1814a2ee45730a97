"""The one readable form of what a node did: a line for what happened, an indented line for each action.

Golden tests, `geomq simulate --explain` and the docs all print it.
"""

from collections.abc import Iterable

from geomq.geo import Circle, Fence, Location, MultiPolygon, Polygon, fence_text
from geomq.routing.core.actions import Action, DeliverToClients, DeliverToOne, DropEvent, SendToPeer
from geomq.routing.core.events import PeerSaid, RoutingEvent
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, Event, EventId, Match


def explain(now: float, broker: BrokerId, event: RoutingEvent | str, actions: Iterable[Action]) -> list[str]:
    """The lines for one step of one broker; a plain string stands for something other than an input (a deadline)."""
    lines = [f"{now:>8.0f} {broker}: {event if isinstance(event, str) else describe(event)}"]
    lines += [f"{'':>8}   -> {describe_action(action)}" for action in actions]
    return lines


def describe_action(action: Action) -> str:
    match action:
        case SendToPeer(peer=peer, message=message):
            return f"to {peer}: {describe(message)}"
        case DeliverToClients(event=event, matches=matches):
            clients = ", ".join(dict.fromkeys(m.client for m in matches))
            return f"deliver {event.id} to {clients}"
        case DeliverToOne(event=event, share=share, members=members):
            return f"deliver {event.id} to {members[0]} of {share}"
        case DropEvent(event_id=event_id, reason=reason):
            return f"drop {event_id}: {reason}"
    return repr(action)


def describe(thing: RoutingEvent | Message) -> str:
    """An input or a message as `Name field=value ...`, empty fields left out."""
    if isinstance(thing, PeerSaid):
        return f"from {thing.peer}: {describe(thing.message)}"
    fields = ((name, getattr(thing, name)) for name in thing.__struct_fields__)
    words = [f"{name}={_value(value)}" for name, value in fields if value not in (None, b"", (), 0, False)]
    return " ".join([type(thing).__name__, *words])


def _value(value: object) -> str:
    match value:
        case Event():
            fence = f" to {_fence(value.fence)}" if value.fence is not None else ""
            place = f" at {_place(value.location)}" if value.location is not None else ""
            return f"{value.id}({value.publisher} {value.topic}{place}{fence})"
        case EventId():
            return str(value)
        case Location():
            return _place(value)
        case tuple() if value and isinstance(value[0], Match):
            return "[" + ", ".join(f"{client}:{topic_filter}" for client, topic_filter in value) + "]"
        case tuple() | list():
            return "[" + ", ".join(_value(item) for item in value) + "]"
        case bytes():
            return f"{len(value)} bytes"
        case float():
            return f"{value:g}"
        case str() | int():
            return str(value)
    return _fence(value) if isinstance(value, Circle | Polygon | MultiPolygon) else str(value)


def _place(location: Location) -> str:
    return f"{location.lat:g},{location.lon:g}"


def _fence(fence: Fence) -> str:
    if isinstance(fence, Circle):
        return f"circle({_place(fence.center)} {fence.radius_m / 1000:g} km)"
    return fence_text(fence)
