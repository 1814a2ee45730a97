"""Observers that write things down: the transcript a person reads, the trace a program reads, and its hash."""

import hashlib
from collections.abc import Callable

from geomq.routing.actions import Action
from geomq.routing.events import ClientPublished, PeerSaid, RoutingEvent
from geomq.routing.messages import Message
from geomq.routing.model import BrokerId, ClientId, Event, EventId
from geomq.routing.trace import TraceRecord
from geomq.routing.transcript import describe, explain
from geomq.sim.engine import Observer, Origin


class Transcript(Observer):
    """Prints what every broker did, message by message; what led to nothing at a client's home is left out."""

    def __init__(self, write: Callable[[str], object], *, steps_max: int | None = None) -> None:
        self._write = write
        self._left = steps_max

    @property
    def finished(self) -> bool:
        """Whether all the steps asked for are written."""
        return self._left == 0

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        if self._left == 0 or (not actions and not isinstance(event, PeerSaid)):
            return
        for line in explain(t_ms, broker, event, actions):
            self._write(line)
        if self._left is not None:
            self._left -= 1

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        if self._left != 0:
            self._write(f"{t_ms:>8} {client}: received {event.id} on {event.topic} after {t_ms - published_ms} ms")


class Trace(Observer):
    """Turns the run into trace records."""

    def __init__(self, sink: Callable[[TraceRecord], object]) -> None:
        self._sink = sink

    def acted(self, t_ms: int, home: BrokerId, event: RoutingEvent) -> None:
        if isinstance(event, ClientPublished):
            self._sink(TraceRecord(t_ms, home, "published", "event", client=event.client, topic=event.topic))

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        event = getattr(message, "event", None)
        event_id = event.id if isinstance(event, Event) else None
        reason = None if event_id is not None else describe(message)
        self._sink(TraceRecord(t_ms, source, "sent", message.kind, event_id, target, origin.client, reason=reason))

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        self._sink(TraceRecord(t_ms, home, "delivered", "event", event.id, client=client, topic=event.topic))

    def dropped(self, t_ms: int, broker: BrokerId, event_id: EventId, reason: str) -> None:
        self._sink(TraceRecord(t_ms, broker, "dropped", "event", event_id, reason=reason))


class TraceHash(Observer):
    """The whole run as one number: same seed, same hash."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        if actions:
            self._hash.update(f"{t_ms} {broker} {len(actions)}\n".encode())

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        what = f"{t_ms} {source} {target} {type(message).__name__} {origin.client} {origin.t_ms}\n"
        self._hash.update(what.encode())

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        self._hash.update(f"{t_ms} {client} {event.id}\n".encode())

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
