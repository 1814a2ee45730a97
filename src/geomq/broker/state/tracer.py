"""The live trace: who listens to what happens at this broker, and a bounded memory of the latest of it.

`core.trace(sink)` starts it; `core.tracer` is None while nobody listens, and looking at that is all it costs then.
Sinks are called on the broker's event loop and must be quick.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

from geomq.broker.state.client import Client
from geomq.geo import Location
from geomq.mqtt.session.message import ApplicationMessage
from geomq.routing.core.actions import Action
from geomq.routing.core.events import ClientPublished, PeerSaid, RoutingEvent
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.node import Node
from geomq.routing.sharing.own_topics import is_own
from geomq.routing.trace.recorder import SESSION_KEPT, Recorder, Sink, event_of
from geomq.routing.trace.records import STEPS, Step, TraceRecord

OF_EVENTS: frozenset[Step] = frozenset({"published", "matched", "delivered", "dropped"})
"""Steps that every event takes; while one of them is listened to, no event may take a short cut."""

RETAINED = "retained"
RING_RECORDS = 10_000
RING_CHARS = 8_000_000
IDLE_S = 60.0
"""So long after the last question a ring on demand stops recording."""

SinkEntry = tuple[Sink, frozenset[Step]]


class Tracer(Recorder):
    """Hands all sinks what happens at one broker, each the steps it asked for."""

    def __init__(self, node: Node, clients: Mapping[str, Client], wall_s: Callable[[], float]) -> None:
        super().__init__(node.me, self._tell_all)
        self._node = node
        self._clients = clients
        self._wall_s = wall_s
        self._sinks: list[SinkEntry] = []
        self.of_events = False

    def add(self, sink: Sink, steps: Iterable[Step]) -> SinkEntry:
        entry = (sink, frozenset(steps))
        self._sinks.append(entry)
        self._settle()
        return entry

    def remove(self, entry: SinkEntry) -> None:
        self._sinks = [one for one in self._sinks if one is not entry]
        self._settle()

    def _settle(self) -> None:
        self.of_events = any(steps & OF_EVENTS for _, steps in self._sinks)
        alone = len(self._sinks) == 1 and len(self._sinks[0][1]) == len(STEPS)
        self.sink = self._sinks[0][0] if alone else self._tell_all

    @property
    def idle(self) -> bool:
        return not self._sinks

    def _tell_all(self, record: TraceRecord) -> None:
        for sink, steps in self._sinks:
            if record.step in steps:
                sink(record)

    def place_of(self, client: ClientId) -> Location | None:
        known = self._clients.get(client)
        return None if known is None else known.location

    def qos_of(self, client: ClientId, topic_filter: str) -> int | None:
        known = self._clients.get(client)
        subscription = None if known is None else known.session.subscriptions.get(topic_filter)
        return None if subscription is None else subscription.qos

    def handled(self, event: RoutingEvent | None, actions: list[Action]) -> None:
        """The node took this in (None: its deadline) and asked for these actions."""
        t_ms = self._wall_s() * 1000.0
        if isinstance(event, ClientPublished):
            if is_own(event.topic):
                return
            assert self._node.latest is not None
            self.published(t_ms, self._node.latest)
        elif isinstance(event, PeerSaid):
            self.passed(t_ms, "received", event.peer, event.message)
        elif event is not None:
            self.acted(t_ms, event)
        self.decided(t_ms, event, actions)

    def told(self, peer: BrokerId, message: Message) -> None:
        """A message to a peer that is not the node's."""
        self.passed(self._wall_s() * 1000.0, "sent", peer, message)

    def lost(self, peer: BrokerId, message: Message, reason: str) -> None:
        """A message did not get onto the link to a peer; anything but an event is repeated when the link is up."""
        if event_of(message) is not None:
            self.passed(self._wall_s() * 1000.0, "dropped", peer, message, reason)

    def watch(self, client: Client) -> None:
        client.session.watch(partial(self.handed, client.id))

    def connected(self, client: Client) -> None:
        self.watch(client)
        self._client(self._wall_s() * 1000.0, "connected", "client", client.id, client.location)

    def disconnected(self, client: Client) -> None:
        """The connection is gone and the session remains; routing reports its end."""
        self._client(self._wall_s() * 1000.0, "disconnected", "client", client.id, client.location, SESSION_KEPT)

    def refused(self, client: Client, message: ApplicationMessage, reason: str) -> None:
        """A publish went nowhere."""
        self._outcome(client.id, message, message.qos, "dropped", reason)

    def handed(self, client: ClientId, message: ApplicationMessage, qos: int, trouble: str | None) -> None:
        """A client was sent a message, or there was trouble and it will never be."""
        if trouble is None:
            reason = RETAINED if message.retain and message.event_id is None else None
            self._outcome(client, message, qos, "delivered", reason)
        else:
            self._outcome(client, message, qos, "dropped", trouble)

    def _outcome(self, client: ClientId, message: ApplicationMessage, qos: int, step: Step, reason: str | None) -> None:
        event_id = message.event_id
        if event_id is not None and not isinstance(event_id, EventId):
            event_id = EventId(BrokerId(event_id[0]), *event_id[1:])  # it was on disk
        lat, lon = self.place_of(client) or (None, None)
        t_ms, size = self._wall_s() * 1000.0, len(message.payload)
        self.sink(
            TraceRecord(
                t_ms, self.me, step, "event", event_id, None, client, message.topic, reason, lat, lon, None, qos, size
            )
        )


def named(message: ApplicationMessage, event: Event) -> ApplicationMessage:
    """The message with the id of its event, by which later records of it are known."""
    return ApplicationMessage(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.properties,
        message.expires_at,
        event.id,
    )


def _chars(record: TraceRecord) -> int:
    return len(record.topic or "") + len(record.fence or "")


class RingPage(NamedTuple):
    """Records, the number to ask for next, and how many between were overwritten before they were asked for."""

    items: list[TraceRecord]
    next: int
    missed: int


class Ring:
    """A sink that remembers the latest records, numbered from 0; fewer where clients fill them with long texts."""

    def __init__(self, records_max: int) -> None:
        self._records: deque[TraceRecord] = deque()
        self._records_max = records_max
        self._count = 0
        self._chars = 0

    def __call__(self, record: TraceRecord) -> None:
        self._records.append(record)
        self._count += 1
        self._chars += _chars(record)
        while len(self._records) > self._records_max or self._chars > RING_CHARS:
            self._chars -= _chars(self._records.popleft())

    def since(self, number: int, *, limit: int = 1_000) -> RingPage:
        """At most `limit` records from this number on; a number from the future means from the beginning."""
        oldest = self._count - len(self._records)
        if number > self._count:
            number = 0
        first = max(number, oldest)
        items = list(islice(self._records, first - oldest, first - oldest + limit))
        return RingPage(items, first + len(items), first - number)


class OnDemand:
    """A ring that fills only while somebody asks for it."""

    def __init__(self, trace: Callable[[Sink], Callable[[], None]], loop: asyncio.AbstractEventLoop) -> None:
        self._trace = trace
        self._loop = loop
        self._ring = Ring(RING_RECORDS)
        self._stop: Callable[[], None] | None = None
        self._asked_at = 0.0

    def since(self, number: int, *, limit: int) -> RingPage:
        """The records from this number on; the first question starts the recording."""
        self._asked_at = self._loop.time()
        if self._stop is None:
            self._stop = self._trace(self._ring)
            self._loop.call_later(IDLE_S, self._check)
        return self._ring.since(number, limit=limit)

    def _check(self) -> None:
        left_s = self._asked_at + IDLE_S - self._loop.time()
        if left_s > 0:
            self._loop.call_later(left_s, self._check)
        elif self._stop is not None:
            self._stop()
            self._stop = None
