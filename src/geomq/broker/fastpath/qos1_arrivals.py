"""Plain events of QoS 1 that peers sent in batches: to own clients where that is known, else one by one to the node."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from geomq.broker.core import Core
from geomq.broker.fastpath.publishing import FastPath
from geomq.broker.fastpath.qos1 import Audience, FastQos1
from geomq.broker.peers.store import PeerStore
from geomq.mqtt.codec.cutter import plain_publish
from geomq.mqtt.codec.topics import REMEMBERED_CHARS_MAX
from geomq.mqtt.codec.types import V5, V311
from geomq.mqtt.session.message import ApplicationMessage
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.model import BrokerId, ClientId, Edition, EventId, Match
from geomq.routing.core.plan import Batched, EventBatch, singly, spread
from geomq.routing.core.seen import History

ROUTES_MAX = 65_536

Source = tuple[BrokerId, Edition | None, tuple[Match, ...] | None, bool]
"""Whose events they are, of which edition, what matched there, and whether they are of MQTT 5."""


class Route(NamedTuple):
    """Who gets the events of a topic, by their connections and by their names."""

    topic: str
    audience: Audience
    clients: frozenset[ClientId]


Routes = dict[bytes, Route | Literal[False]]
"""By the bytes of the topic in a packet; False if its events have no route."""


class Qos1Arrivals:
    """Remembers the routes of each peer's events. What is given to own clients is noted, as the node would."""

    def __init__(self, core: Core, fast: FastPath, qos1: FastQos1, kept: PeerStore | None) -> None:
        self._core = core
        self._fast = fast
        self._qos1 = qos1
        self._kept = kept
        self._routes: dict[Source, Routes] = {}
        self._count = 0
        self._generation = 0

    def arrive(self, said: PeerSaid, batch: EventBatch, handle: Callable[[PeerSaid], object]) -> None:
        """Take in what a peer sent; what has no route goes to `handle`. Raises ProtocolError if it makes no sense."""
        self._fast.check_plans()
        self._fast.drain()
        self._qos1.begin()
        if self._count >= ROUTES_MAX or self._generation != self._fast.generation:
            self._generation = self._fast.generation
            self._routes.clear()
            self._count = 0
        data, followed = b"".join(batch.packets), self._fast.is_followed()
        history = self._core.node.routings.publishing.seen.history((said.peer, batch.epoch))
        outbox = self._core.outbox
        outbox.arrive()
        try:
            for entry, start, end in spread(batch, len(data)):
                taken, pos = 0, start
                if not followed and entry.sequence > history.highest:
                    taken, pos = self._arrive(said, batch.epoch, entry, data, start, end, history)
                if taken != entry.events or pos != end:
                    for message in singly(said.peer, batch, entry, data[start:end], skip=taken):
                        handle(PeerSaid(said.peer, message, said.edition))
                if taken:
                    outbox.promised(entry.publisher)
        finally:
            outbox.arrived()

    def _arrive(
        self, said: PeerSaid, epoch: int, entry: Batched, data: bytes, pos: int, end: int, history: History
    ) -> tuple[int, int]:
        """How many events of the entry have been given to those who get them, and where the first of the others
        begins."""
        new, taken = entry.is_v5, 0
        between = 2 + new
        source = (said.peer, said.edition, entry.matches, new)
        routes = self._routes.get(source)
        if routes is None:
            routes = self._routes[source] = {}
            self._count += 1 + len(entry.matches or ())
        while pos < end and data[pos] == 0x32 and taken < entry.events:
            body, id_at, payload_at, stop = plain_publish(data, pos, end, new, between)
            if not stop or data[id_at : id_at + 2] == b"\0\0":
                break
            key = data[body:id_at]
            route = routes.get(key)
            if route is None:
                route = self._learn(source, key, routes)
            if not route:
                break
            event_id = EventId(said.peer, epoch, entry.sequence + taken)
            history.run(event_id.sequence, 1, route.clients)
            if route.clients and self._kept is not None:
                self._kept.note_run(event_id, 1, route.clients)
            message = ApplicationMessage(route.topic, data[payload_at:stop], 1, event_id=event_id)
            self._qos1.deliver(message, route.audience, data[pos:id_at], data[id_at + 2 : stop])
            taken += 1
            pos = stop
        return taken, pos

    def _learn(self, source: Source, key: bytes, routes: Routes) -> Route | Literal[False]:
        peer, edition, matches, is_v5 = source
        topic = None if len(key) > REMEMBERED_CHARS_MAX else self._fast.topic_from(peer, key)
        here = None if topic is None else self._core.node.plan_arrival(topic, peer, matches, edition)
        receivers = None if topic is None or here is None else self._qos1.receivers_of(topic, here)
        if topic is None or here is None or receivers is None:
            route: Route | Literal[False] = False
        else:
            audience = self._qos1.audience(topic, receivers, V5 if is_v5 else V311)
            route = Route(topic, audience, self._fast.clients_of(here))
        routes[key] = route
        self._count += 1
        return route
