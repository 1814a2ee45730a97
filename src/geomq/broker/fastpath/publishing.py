"""The fast path of the most common publish: QoS 0, not retained, no properties, to plain subscriptions.

The routing core is asked once per topic; its answer holds until who is connected or subscribed changes, or if it
could depend on the publisher's place it is never kept. The received bytes go on as they came. While arrivals come
one to a tick, each is written at once; when several share a tick they are gathered, so that a receiver costs one
write a tick. In a federation the routing core is asked for its plan of a topic, and what is for peers is gathered, too.
Everything that is not exactly this case takes the normal path and is delivered in order after it.
"""

from geomq.broker.clients.fenced import FencedFilters
from geomq.broker.clients.following import Following
from geomq.broker.core import Core
from geomq.broker.fastpath.links import FastLinks, PeerTargets, peer_targets
from geomq.broker.fastpath.packet_runs import as_old, as_v5, end_of_run
from geomq.broker.state.client import Client
from geomq.broker.state.client import ClientConnection as Connection
from geomq.broker.state.drops import Reason
from geomq.errors import TopicError
from geomq.mqtt.codec.cutter import plain_publish
from geomq.mqtt.codec.topics import REMEMBERED_CHARS_MAX
from geomq.mqtt.codec.types import PACKET_SIZE_MAX, V5
from geomq.mqtt.codec.wire import text
from geomq.routing.core.model import BrokerId, ClientId, Match
from geomq.routing.core.plan import Plan

ROUTES_MAX = 65_536
WEIGHT_MAX = 1 << 26
"""Bytes that the names of receivers take, in all routes together."""
CLIENT_BYTES = 64
STEPS = range(1_024)
"""So many events, or runs of equal ones, are sent at most before it may be the turn of another connection."""
Chunk = bytes | memoryview
"""A view is of something larger."""


class Receivers:
    """Connections of one version that get the same events, and what has gathered for them in this tick."""

    __slots__ = ("chunks", "connections", "count")

    def __init__(self, connections: tuple[Connection, ...]) -> None:
        self.connections = connections
        self.chunks: list[Chunk] = []
        self.count = 0


class Route:
    """Who gets the events of one topic, by version, which clients these are, and which peers get them.

    Events of topics with the same `audience` can go, one after the other, to the same receivers in one piece.
    """

    __slots__ = ("audience", "clients", "old", "targets", "topic", "v5")

    def __init__(self, topic: str, old: Receivers | None, v5: Receivers | None, clients: frozenset[ClientId]) -> None:
        self.topic = topic
        self.old = old
        self.v5 = v5
        self.clients = clients
        self.audience: object = self
        self.targets: PeerTargets | None = None


class LastRoute:
    """How the last publish of a connection began, its size, and where it went: the next is often like it."""

    __slots__ = ("generation", "head", "receivers", "size")

    def __init__(self, head: bytes, size: int, receivers: Receivers | None, generation: int) -> None:
        self.head = head
        self.size = size
        self.receivers = receivers
        self.generation = generation


class FastPath:
    """Remembers routes and sends along them.

    `generation` tells routes from before the last change; `_taken` are events not yet counted.
    """

    def __init__(self, core: Core, following: Following, fenced: FencedFilters) -> None:
        self._core = core
        self._counts = core.counts
        self._following = following
        self._fenced = fenced
        self.links = FastLinks(core)
        self._routes: dict[bytes, Route] = {}
        self._plans_since: object = None
        self._turns = -1
        self._sets: dict[frozenset[ClientId], frozenset[ClientId]] = {}
        self._audiences: dict[tuple[tuple[Connection, ...], tuple[Connection, ...], frozenset[ClientId]], Route] = {}
        self._targets: dict[PeerTargets, PeerTargets] = {}
        """Topics with the same targets share one object, so that their events travel together."""
        self._receivers: dict[tuple[Connection, ...], Receivers] = {}
        self._unfit: set[str] = set()
        self._weight = 0
        self.generation = 0
        self._dirty: list[Receivers] = []
        self._overlapping = False
        self._taken = 0
        self._pacing = core.outbox.pacing

    def publish(self, connection: Connection, data: bytes, pos: int) -> int:
        """Send QoS 0 PUBLISH packets on their way as long as their topics have routes, up to a number of them.

        Returns the position after them; the next one takes the normal path.
        """
        if self._core.links.active and self._core.node.turns != self._turns:
            self.check_plans()
        last: LastRoute | None = connection.last_route
        if (
            last is None
            or len(data) != last.size
            or last.generation != self.generation
            or not data.startswith(last.head)
        ):
            outbox = self._core.outbox
            if outbox.arriving:
                return self._publish_runs(connection, data, pos)
            outbox.arrive()
            pos = self._publish_runs(connection, data, pos)
            outbox.arrived()
            return pos
        receivers = last.receivers
        if receivers is None or (self._pacing.credit and not self._dirty):
            counts = self._counts
            counts.events_received += 1
            counts.packets_received += 1
            if receivers is not None:
                self._pacing.credit -= 1
                self._write(receivers.connections, data, 1)
            return last.size
        self._pacing.arrivals += 1
        self._taken += 1
        if receivers.count:
            receivers.count += 1
            receivers.chunks.append(data)
        else:
            self.gather(receivers, data, 1)
        return last.size

    def _publish_runs(self, connection: Connection, data: bytes, pos: int) -> int:
        """Equal heads and sizes that follow each other are sent as one piece."""
        new, start, end = connection.version == V5, pos, len(data)
        between = int(new)
        targets, targets_from, targets_count = None, pos, 0
        client = connection.client
        if client is None or client.publish_bucket is not None or client.rights.fenced:
            return pos
        if self._core.outbox.is_behind(client.id):
            return pos
        all_allowed, may_write = client.rights.all_allowed, client.rights.may_write
        for _ in STEPS:
            if pos == end or data[pos] != 0x30:
                break
            body, topic_end, payload, stop = plain_publish(data, pos, end, new, between)
            route = self._routes.get(data[body:topic_end])
            if route is None or stop - pos > connection.plain_size_max or not (all_allowed or may_write(route.topic)):
                break
            count, alike, others = 1, route.v5 if new else route.old, route.old if new else route.v5
            if others is not None:
                self.gather(others, (as_old if new else as_v5)(data[pos:stop], body - pos, topic_end - pos), 1)
            elif stop < end:
                if stop + 1 < end and data[stop + 1] == data[pos + 1]:
                    size = stop - pos
                    stop = end_of_run(data, pos, payload, stop, end)
                    count = (stop - pos) // size
            elif not pos and route.targets is None:
                connection.last_route = LastRoute(data[:payload], end, alike, self.generation)
            if alike is not None:
                self.gather(alike, data[pos:stop], count)
            if targets is not route.targets:
                if targets is not None:
                    self.links.gather(connection, targets, data[targets_from:pos], targets_count)
                targets, targets_from, targets_count = route.targets, pos, 0
            targets_count += count
            self._taken += count
            pos = stop
        if targets is not None:
            self.links.gather(connection, targets, data[targets_from:pos], targets_count)
        if pos != start and not self._dirty and not self.links.waiting:
            self._count_taken()
        return pos

    def promised(self, client: Client, connection: Connection) -> None:
        """Something was published at QoS 1 or 2: while it waits for the disk QoS 0 takes the normal path, where it
        does not overtake it."""
        connection.last_route = None
        self._core.outbox.promised(client.id)

    def _count_taken(self) -> None:
        taken, self._taken = self._taken, 0
        self._counts.events_received += taken
        self._counts.packets_received += taken

    def gather(self, receivers: Receivers, data: Chunk, count: int) -> None:
        if not receivers.count:
            if not self._dirty:
                self._core.outbox.schedule()
            self._dirty.append(receivers)
            if len(receivers.connections) > 1:
                self._overlapping = True
        receivers.count += count
        receivers.chunks.append(data)

    def write_long(self, receivers: Receivers, data: Chunk, count: int) -> None:
        """Write so much at once that there is no use in gathering more, unless something waits to go before it."""
        connections, connection = receivers.connections, receivers.connections[0]
        if len(connections) > 1 or receivers.count or self._overlapping or connection.paused or connection.out:
            self.gather(receivers, data, count)
        else:
            connection.write_part(data)
            counts = self._counts
            counts.events_delivered += count
            counts.bytes_sent += len(data)

    def write(self) -> None:
        """The tick ends: write what has gathered, to each connection once."""
        self.send_to_peers()
        if not self._dirty:
            return
        if self._overlapping and len(self._dirty) > 1:
            self.drain()
            return
        delivered = sent = 0
        for connections, data, count in self._gathered():
            connection = connections[0]
            if len(connections) == 1 and not connection.paused and not connection.out:
                if isinstance(data, bytes):
                    connection.write(data)
                else:
                    connection.write_part(data)
                delivered += count
                sent += len(data)
            else:
                self._write(connections, bytes(data), count)
        self._counts.events_delivered += delivered
        self._counts.bytes_sent += sent

    def drain(self) -> None:
        """Hand what has gathered to peers and connections, to these to be written at the end of the tick."""
        self.send_to_peers()
        if not self._dirty:
            return
        counts = self._counts
        for connections, chunk, count in self._gathered():
            data = bytes(chunk)
            for connection in connections:
                if connection.paused:
                    self._missed(connection, count)
                else:
                    connection.send(data)
                    counts.events_delivered += count

    def send_to_peers(self) -> None:
        """Hand what has gathered to peers."""
        if self.links.waiting or self.links.durable:
            self.links.send()
            self._count_taken()

    def _gathered(self) -> list[tuple[tuple[Connection, ...], Chunk, int]]:
        dirty, self._dirty, self._overlapping = self._dirty, [], False
        self._count_taken()
        found = []
        for receivers in dirty:
            chunks, receivers.chunks = receivers.chunks, []
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            found.append((receivers.connections, data, receivers.count))
            receivers.count = 0
        return found

    def _write(self, connections: tuple[Connection, ...], data: bytes, count: int) -> None:
        """Write at once, but behind what already waits for the same connection."""
        counts, reached, written = self._counts, len(connections), len(connections)
        for connection in connections:
            if connection.paused:
                self._missed(connection, count)
                reached -= 1
                written -= 1
            elif connection.out:
                connection.out.append(data)
                written -= 1
            else:
                connection.write(data)
        counts.events_delivered += reached * count
        counts.bytes_sent += written * len(data)
        self._core.outbox.weigh(written * len(data))

    def _missed(self, connection: Connection, count: int) -> None:
        """The client reads too slowly; events of QoS 0 do not wait for it."""
        if connection.client is not None:
            self._core.drops.missed(connection.client.session, Reason.SLOW_READER, count)

    def forget(self) -> None:
        """Who receives what may have changed."""
        self.drain()
        self.generation += 1
        if self._routes or self._unfit or self._sets:
            self._weight = 0
            self._routes.clear()
            self._receivers.clear()
            self._unfit.clear()
            self._targets.clear()
            self._audiences.clear()
            self._sets.clear()

    def check_plans(self) -> None:
        """Forget what was learned if the routing core would plan otherwise now."""
        node = self._core.node
        if node.turns == self._turns:
            return
        self._turns, since = node.turns, node.plans_since()
        if since != self._plans_since:
            self._plans_since = since
            self.forget()
            self.links.use(node.plan_edition)

    def learn(self, topic: str, matches: tuple[Match, ...]) -> None:
        """A plain event of QoS 0 just took the normal path: keep its route if the next one would take it, too."""
        if len(topic) > REMEMBERED_CHARS_MAX:
            return
        if topic in self._unfit or self.is_followed():
            return
        if len(self._routes) + len(self._unfit) >= ROUTES_MAX:
            self.forget()
        self.make_room()
        route = self._route_from_here(topic, matches)
        if route is None:
            self._unfit.add(topic)
        else:
            self._routes[text(topic)] = route

    def make_room(self) -> None:
        """Forget all routes if they name too many clients."""
        if self._weight >= WEIGHT_MAX:
            self.forget()

    def is_followed(self) -> bool:
        """Whether somebody wants to know of single events, or of what is sent to peers."""
        tracer = self._core.tracer
        return tracer is not None and (tracer.of_events or self._core.links.active)

    def _route_from_here(self, topic: str, matches: tuple[Match, ...]) -> Route | None:
        plan = self.planned(topic, matches)
        route = None if plan is None else self.route(topic, plan.own)
        if route is not None and plan is not None:
            route.targets = self.targets(plan, route.clients)
        return route

    def planned(self, topic: str, matches: tuple[Match, ...]) -> Plan | None:
        """Where plain events of own clients on this topic go, of which the last matched these here; None if it
        depends."""
        if not self._core.links.active:
            return Plan(matches, ())
        plan, rights_of = self._core.node.plan(topic), self._core.rights_of_peer
        if plan is None or not all(rights_of(peer).may_read(topic) for peer, _ in plan.peers):
            return None
        return plan

    def topic_from(self, peer: BrokerId, key: bytes) -> str | None:
        """The topic that stands so in packets from a peer; None if it is none, or the peer's rights depend on more."""
        try:
            topic = self._core.names[key[2:]]
        except TopicError:
            return None
        rights = self._core.rights_of_peer(peer)
        return topic if rights.all_allowed or (rights.may_write(topic) and not rights.fenced) else None

    def targets(self, plan: Plan, own: frozenset[ClientId]) -> PeerTargets | None:
        """The peers of a plan whose events these own clients get, too."""
        if not plan.peers:
            return None
        targets = peer_targets(plan.peers, own)
        if targets not in self._targets:
            self._weight += targets.weight
        return self._targets.setdefault(targets, targets)

    def clients_of(self, matches: tuple[Match, ...]) -> frozenset[ClientId]:
        """Whose matches they are; the same object for equal ones."""
        names = frozenset(match.client for match in matches)
        if names not in self._sets:
            self._weight += CLIENT_BYTES * len(names)
        return self._sets.setdefault(names, names)

    def route(self, topic: str, matches: tuple[Match, ...]) -> Route | None:
        """The route to the clients of these matches, if it is the same for every event of the topic."""
        clients = self.plain_receivers(topic, matches)
        if clients is None:
            return None
        connections: dict[Connection, bool] = {}
        for client in clients:
            if client.connection is None or not client.rights.may_read(topic):
                continue
            session = client.session
            if session.uses_aliases or session.packet_size_max < PACKET_SIZE_MAX:
                return None
            connections[client.connection] = session.version == V5
        old = tuple(connection for connection, new in connections.items() if not new)
        v5 = tuple(connection for connection, new in connections.items() if new)
        names = self.clients_of(matches)
        route = Route(topic, self._shared(old), self._shared(v5), names)
        if not (old and v5):
            route.audience = self._audiences.setdefault((old, v5, names), route)
        return route

    def plain_receivers(self, topic: str, matches: tuple[Match, ...]) -> dict[Client, int] | None:
        """The clients of these matches and the QoS they asked for; None if not all plain events of the topic go to
        them, or not in the same way."""
        if self._following.watches(topic) or self._fenced.concern(topic):
            return None
        if topic.count("/") >= self._core.config.limits.topic_levels_max:
            return None
        found: dict[Client, int] = {}
        for client_id, topic_filter in matches:
            client = self._core.clients.get(client_id)
            subscription = None if client is None else client.session.subscriptions.get(topic_filter)
            if (
                client is None
                or subscription is None
                or subscription.identifier
                or subscription.no_local
                or client.asks
            ):
                return None
            found[client] = max(found.get(client, 0), subscription.qos)
        return found

    def _shared(self, connections: tuple[Connection, ...]) -> Receivers | None:
        """Topics with the same receivers gather together, in the order of their events."""
        if not connections:
            return None
        receivers = self._receivers.get(connections)
        if receivers is None:
            receivers = self._receivers[connections] = Receivers(connections)
        return receivers
