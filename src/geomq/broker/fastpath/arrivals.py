"""Plain events of QoS 0 that peers sent in batches: straight to own clients where that is known, else one by one to the
node.

The bytes of an event are checked as far as they are not the same as those of an event before.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from geomq.broker.core import Core
from geomq.broker.fastpath.packet_runs import as_old, as_v5, end_of_run, heads
from geomq.broker.fastpath.publishing import ROUTES_MAX, FastPath, Receivers, Route
from geomq.broker.fastpath.qos1_arrivals import Qos1Arrivals
from geomq.broker.peers.frames import LONG_BYTES_MIN
from geomq.mqtt.codec.cutter import plain_publish
from geomq.mqtt.codec.topics import REMEMBERED_CHARS_MAX
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.model import BrokerId, ClientId, Edition, Match
from geomq.routing.core.plan import Batched, EventBatch, singly, spread
from geomq.routing.core.seen import History

VIEWED_BYTES_MIN = 256
"""Packets that are longer, on average, are looked at where they are."""
LENT_BYTES_MIN = 1 << 13
"""So many bytes of one long frame are not copied to be written."""

MATCHES_MAX = 500_000
"""Matches by which routes are remembered, of all of them together."""

Packets = bytes | memoryview
Matches = tuple[Match, ...] | None
Routes = dict[bytes, Route | Literal[False]]
"""By the bytes of the topic in a packet; False if its events have no route."""


class LastBatch(NamedTuple):
    """The last entry of a publisher whose events all had one topic and one size, and where it went: the next is often
    like it."""

    events: int
    size: int
    is_v5: bool
    matches: Matches
    head: bytes
    clients: frozenset[ClientId]
    receivers: Receivers | None


class RouteCache(NamedTuple):
    """Where events of a peer go: by what the peer had matched and by topic; and by publisher."""

    routes: dict[Matches, Routes]
    last_batches: dict[ClientId, LastBatch]


class Arriving(NamedTuple):
    """Whose events they are, which routes from there are known, and what was seen already."""

    said: PeerSaid
    cache: RouteCache
    history: History
    is_long: bool
    """Whether they are in a long frame, which is there as long as anything of it is held."""


class FastArrivals:
    """Remembers the routes of each peer's events; those of QoS 1 go to `qos1`."""

    def __init__(self, core: Core, fast: FastPath, qos1: Qos1Arrivals) -> None:
        self._core = core
        self._qos1 = qos1
        self._fast = fast
        self._caches: dict[tuple[BrokerId, Edition | None], RouteCache] = {}
        self._count = 0
        self._matches = 0
        self._generation = 0

    def arrive(self, said: PeerSaid, batch: EventBatch, handle: Callable[[PeerSaid], object]) -> None:
        """Take in what a peer sent; what has no route goes to `handle`. Raises ProtocolError if it makes no sense."""
        if batch.durable:
            self._qos1.arrive(said, batch, handle)
            return
        self._fast.check_plans()
        self._fast.make_room()
        full = self._count >= ROUTES_MAX or self._matches >= MATCHES_MAX
        if full or self._generation != self._fast.generation:
            self._generation = self._fast.generation
            self._caches.clear()
            self._count = self._matches = 0
        followed, outbox, data = self._fast.is_followed(), self._core.outbox, _handy(batch)
        cache = self._caches.get((said.peer, said.edition))
        if cache is None:
            cache = self._caches[said.peer, said.edition] = RouteCache({}, {})
        history = self._core.node.routings.publishing.seen.history((said.peer, batch.epoch))
        arriving = Arriving(said, cache, history, len(data) >= LONG_BYTES_MIN)
        outbox.arrive()
        try:
            for entry, start, end in spread(batch, len(data)):
                taken, pos = 0, start
                if not followed and not outbox.is_behind(entry.publisher):
                    if self._arrive_alike(arriving, entry, data, start, end):
                        continue
                    taken, pos = self._arrive(arriving, entry, data, start, end)
                if taken != entry.events or pos != end:
                    for message in singly(said.peer, batch, entry, bytes(data[start:end]), skip=taken):
                        handle(PeerSaid(said.peer, message, said.edition))
        finally:
            outbox.arrived()

    def _arrive_alike(self, arriving: Arriving, entry: Batched, data: Packets, start: int, end: int) -> bool:
        """Whether the entry is like the last of its publisher, and so has been sent."""
        _, (_, last_batches), history, is_long = arriving
        last = last_batches.get(entry.publisher)
        if last is None or entry.sequence <= history.highest:
            return False
        events, size, is_v5, matches, head, clients, receivers = last
        if (
            entry.events != events
            or entry.size != size
            or entry.is_v5 is not is_v5
            or entry.matches != matches
            or heads(data, start, len(head), size // events, events) != head * events
        ):
            return False
        history.run(entry.sequence, events, clients)
        if receivers is not None:
            self._send(receivers, data[start:end], events, is_long)
        return True

    def _arrive(self, arriving: Arriving, entry: Batched, data: Packets, pos: int, end: int) -> tuple[int, int]:
        """How many events of the entry have been sent, and where the first of the others begins.

        Events that follow each other and go to the same receivers go as one piece.
        """
        events, new, matches = entry.events, entry.is_v5, entry.matches
        between = int(new)
        said, (by_matches, last_batches), history, _ = arriving
        if entry.sequence <= history.highest:
            return 0, pos
        routes = by_matches.get(matches)
        if routes is None:
            routes = by_matches[matches] = {}
            self._matches += len(matches or ())
        taken, get = 0, routes.get
        piece: Route | None = None
        audience: object = None
        piece_from = piece_first = 0
        while pos < end and data[pos] == 0x30 and taken < events:
            body, topic_end, payload, stop = plain_publish(data, pos, end, new, between)
            if not stop:
                break
            key = bytes(data[body:topic_end]) if isinstance(data, memoryview) else data[body:topic_end]
            route = get(key)
            if route is None:
                route = self._learn(said, key, matches, routes)
            if not route:
                break
            if route.audience is not audience:
                if piece is not None:
                    self._pass_on(piece, data[piece_from:pos], arriving, entry, piece_first, taken)
                piece, audience, piece_from, piece_first = route, route.audience, pos, taken
            others = route.old if new else route.v5
            if others is not None:
                other = (as_old if new else as_v5)(bytes(data[pos:stop]), body - pos, topic_end - pos)
                self._fast.gather(others, other, 1)
                taken += 1
            elif events == 1 or (stop + 1 < end and data[stop + 1] == data[pos + 1]):
                size, head = stop - pos, bytes(data[pos:payload])
                stop = end_of_run(data, pos, payload, stop, end)
                count = (stop - pos) // size
                if count == events and stop == end:
                    last = LastBatch(
                        count, end - pos, new, matches, head, route.clients, route.v5 if new else route.old
                    )
                    self._remember(last_batches, entry.publisher, last)
                taken += count
            else:
                taken += 1
            pos = stop
        if piece is not None:
            self._pass_on(piece, data[piece_from:pos], arriving, entry, piece_first, taken)
        return taken, pos

    def _pass_on(self, route: Route, data: Packets, arriving: Arriving, entry: Batched, first: int, end: int) -> None:
        """Note these events of the entry and send them to the clients of their version."""
        arriving.history.run(entry.sequence + first, end - first, route.clients)
        receivers = route.v5 if entry.is_v5 else route.old
        if receivers is not None:
            self._send(receivers, data, end - first, arriving.is_long)

    def _send(self, receivers: Receivers, data: Packets, count: int, is_long: bool) -> None:
        if is_long and len(data) >= LENT_BYTES_MIN:
            self._fast.write_long(receivers, data, count)
        else:
            self._fast.gather(receivers, bytes(data), count)

    def _remember(self, last_batches: dict[ClientId, LastBatch], publisher: ClientId, last: LastBatch) -> None:
        before = last_batches.get(publisher)
        self._count += before is None
        if before is None or before.matches is not last.matches:
            self._matches += len(last.matches or ())
        last_batches[publisher] = last

    def _learn(self, said: PeerSaid, key: bytes, matches: Matches, routes: Routes) -> Route | None:
        if len(key) > REMEMBERED_CHARS_MAX:
            return None
        topic = self._fast.topic_from(said.peer, key)
        here = None if topic is None else self._core.node.plan_arrival(topic, said.peer, matches, said.edition)
        route = None if topic is None or here is None else self._fast.route(topic, here)
        routes[key] = route or False
        self._count += 1
        return route


def _handy(batch: EventBatch) -> Packets:
    """The packets of a batch in one piece. Bytes are quicker to look at than a view, but copied once more."""
    if len(batch.packets) == 1:
        (data,) = batch.packets
        if len(data) > VIEWED_BYTES_MIN * sum([entry.events for entry in batch.entries]):
            return data
    return b"".join(batch.packets)
