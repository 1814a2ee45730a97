"""From what a broker's node took in and asked for to trace records: the same for the live broker and the simulator.

Owns what each step's record says. Where records go, and what clients did with what they were handed, is the driver's.
Routing may know a client under several keys (its id, a NUL, a prefix); its records carry the plain id, and the
prefix stands before the filter.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache

from geomq.geo import Circle, Fence, Location, fence_text
from geomq.routing.core.actions import Action, DeliverToClients, DeliverToOne, DropEvent, SendToPeer
from geomq.routing.core.events import (
    ClientGone,
    ClientMoved,
    ClientSubscribed,
    ClientUnsubscribed,
    PeerSaid,
    RoutingEvent,
)
from geomq.routing.core.messages import DeliverEvent, Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.trace.records import Step, TraceRecord

SESSION_KEPT = "session kept"
SESSION_ENDED = "session ended"

Sink = Callable[[TraceRecord], object]
Named = tuple[ClientId | None, str | None]

_circle_words = lru_cache(maxsize=4_096)(fence_text)
_polygon_words = lru_cache(maxsize=64)(fence_text)
"""A polygon takes a hundred times the memory of a circle, and its publisher decides."""


class Recorder:
    """Hands a sink what happens at one broker."""

    def __init__(self, me: BrokerId, sink: Sink) -> None:
        self.me = me
        self.sink = sink

    def place_of(self, client: ClientId) -> Location | None:
        """Where a client is, if the driver knows."""
        return None

    def qos_of(self, client: ClientId, topic_filter: str) -> int | None:
        """The QoS of a subscription, if the driver knows."""
        return None

    def acted(self, t_ms: float, event: RoutingEvent) -> None:
        """An own client did something other than publish."""
        match event:
            case ClientMoved(client=client, location=location):
                if "\0" not in client:
                    self._client(t_ms, "moved", "location", client, location)
            case ClientSubscribed(client=client, topic_filter=topic_filter, fence=fence, share=share):
                self._subscription(t_ms, "subscribed", _named(client, topic_filter, share), fence)
            case ClientUnsubscribed(client=client, topic_filter=topic_filter, share=share):
                self._subscription(t_ms, "unsubscribed", _named(client, topic_filter, share), None)
            case ClientGone(client=client):
                if "\0" not in client:
                    self._client(t_ms, "disconnected", "client", client, None, SESSION_ENDED)

    def published(self, t_ms: float, event: Event) -> None:
        """An own client published."""
        self.sink(
            TraceRecord(
                t_ms,
                self.me,
                "published",
                "event",
                event.id,
                None,
                event.publisher.partition("\0")[0] or None,  # type: ignore[arg-type]
                event.topic,
                None,
                *_place(event.location),
                _fence(event.fence),
                event.qos,
                len(event.payload),
            )
        )

    def decided(self, t_ms: float, cause: RoutingEvent | None, actions: Iterable[Action]) -> None:
        """The node took something in and asked for these actions."""
        for action in actions:
            match action:
                case SendToPeer(peer=peer, message=message):
                    if isinstance(message, DeliverEvent):
                        self._matched(t_ms, message.event, message.matches, peer)
                    self.passed(t_ms, "sent", peer, message)
                case DeliverToClients(event=event, matches=matches):
                    if not (isinstance(cause, PeerSaid) and isinstance(cause.message, DeliverEvent)):
                        self._matched(t_ms, event, matches, None)
                case DeliverToOne(event=event, share=share, topic_filter=topic_filter, members=members):
                    matches = tuple(Match(member, topic_filter) for member in members)
                    self._matched(t_ms, event, matches, None, share)
                case DropEvent(event_id=event_id, reason=reason):
                    self.sink(TraceRecord(t_ms, self.me, "dropped", "event", event_id, reason=reason))

    def passed(self, t_ms: float, step: Step, peer: BrokerId, message: Message, reason: str | None = None) -> None:
        """A message went to a peer, came from one, or was dropped on its way there."""
        event = getattr(message, "event", None)
        reason = reason or type(message).__name__
        if isinstance(event, Event):
            event_id = None if message.versioned else event.id
            record = TraceRecord(
                t_ms,
                self.me,
                step,
                message.kind,
                event_id,
                peer,
                None,
                event.topic,
                reason,
                *_place(event.location),
                _fence(event.fence),
                event.qos,
                len(event.payload),
            )
        else:
            client, topic = _named(*(getattr(message, name, None) for name in ("client", "topic_filter", "share")))
            where = _place(getattr(message, "location", None))
            fence = _fence(getattr(message, "fence", None))
            record = TraceRecord(t_ms, self.me, step, message.kind, None, peer, client, topic, reason, *where, fence)
        self.sink(record)

    def _matched(
        self, t_ms: float, event: Event, matches: tuple[Match, ...], home: BrokerId | None, share: str | None = None
    ) -> None:
        for match in matches:
            client, topic_filter = _named(*match, share)
            record = TraceRecord(t_ms, self.me, "matched", "event", event.id, home, client, topic_filter)
            self.sink(record)

    def _client(
        self, t_ms: float, step: Step, kind: str, client: ClientId, at: Location | None, reason: str | None = None
    ) -> None:
        self.sink(TraceRecord(t_ms, self.me, step, kind, None, None, client, None, reason, *_place(at)))

    def _subscription(self, t_ms: float, step: Step, named: Named, fence: Fence | None) -> None:
        client, topic_filter = named
        if not client or topic_filter is None:
            return  # the broker's own
        where, qos = _place(self.place_of(client)), self.qos_of(client, topic_filter)
        record = TraceRecord(t_ms, self.me, step, "subscription", None, None, client, topic_filter, None, *where)
        self.sink(record._replace(fence=_fence(fence), qos=qos))


def event_of(message: Message) -> EventId | None:
    """The id of the event that a message carries to be matched or delivered, if it does."""
    event = getattr(message, "event", None)
    return event.id if isinstance(event, Event) and not message.versioned else None


def _named(client: str | None, topic_filter: str | None, share: str | None = None) -> Named:
    """The client behind a key, and its filter with the key's prefix, or the share group, before it."""
    if client is None:
        return None, topic_filter
    name, _, prefix = client.partition("\0")
    if share is not None and not prefix:
        prefix = f"$share/{share}/"
    return ClientId(name), None if topic_filter is None else prefix + topic_filter


def _place(location: object) -> tuple[float | None, float | None]:
    return (location.lat, location.lon) if isinstance(location, Location) else (None, None)


def _fence(fence: Fence | None) -> str | None:
    if fence is None:
        return None
    return _circle_words(fence) if isinstance(fence, Circle) else _polygon_words(fence)
