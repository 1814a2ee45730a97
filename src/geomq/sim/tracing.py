"""Observers that write things down: the transcript a person reads, the trace a program reads, and its hash."""

import hashlib
from collections.abc import Callable

from geomq.routing.core.actions import Action
from geomq.routing.core.events import PeerSaid, RoutingEvent
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.trace.recorder import Recorder, Sink
from geomq.routing.trace.records import TraceRecord
from geomq.routing.trace.transcript import explain
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
    """Turns the run into trace records. What clients do is recorded when they do it, not when their home hears."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._recorders: dict[BrokerId, Recorder] = {}

    def _at(self, broker: BrokerId) -> Recorder:
        recorder = self._recorders.get(broker)
        if recorder is None:
            recorder = self._recorders[broker] = Recorder(broker, self._sink)
        return recorder

    def acted(self, t_ms: int, home: BrokerId, event: RoutingEvent) -> None:
        self._at(home).acted(t_ms, event)

    def accepted(self, t_ms: int, home: BrokerId, event: Event) -> None:
        self._at(home).published(t_ms, event)

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        recorder = self._at(broker)
        if isinstance(event, PeerSaid):
            recorder.passed(t_ms, "received", event.peer, event.message)
        recorder.decided(t_ms, None if isinstance(event, str) else event, actions)

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        record = TraceRecord(t_ms, home, "delivered", "event", event.id, client=client, topic=event.topic)
        self._sink(record._replace(qos=event.qos, size=len(event.payload)))


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
