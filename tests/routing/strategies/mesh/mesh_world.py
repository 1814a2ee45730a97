"""A small deterministic driver for mesh tests: nodes on an overlay graph, links that keep order, virtual time.

A link that is cut loses what is on its way; what is sent meanwhile waits until it is mended.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from geomq.geo import Location, NearestAreas
from geomq.routing.core.actions import Action, DeliverToClients, SendToPeer
from geomq.routing.core.events import (
    ClientPublished,
    ClientSubscribed,
    ClientUnsubscribed,
    PeerDown,
    PeerSaid,
    PeerUp,
    RoutingEvent,
)
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.routing.node import Node
from geomq.routing.strategies.mesh.group import MeshGroup
from geomq.routing.strategies.mesh.mesh import Mesh
from geomq.routing.strategies.mesh.messages import Announcement, CoreAnnouncements, Membership, MembershipAnnouncements
from geomq.routing.trace.transcript import explain

Link = tuple[str, str]

SIX_LINKS: list[Link] = [
    ("0", "1"),
    ("0", "2"),
    ("1", "3"),
    ("1", "4"),
    ("2", "3"),
    ("3", "4"),
    ("3", "5"),
    ("4", "5"),
]
"""The overlay of the paper's figures. Its text names the links 1-3, 1-4, 3-4, 3-5 and 4-5; those of brokers 0 and 2
are the ones under which all it says of the management mesh comes true."""


def federation_of(brokers: Sequence[str]) -> Federation:
    places = [Location(0.0, float(number)) for number in range(len(brokers))]
    return Federation([BrokerSite(BrokerId(b), p) for b, p in zip(brokers, places, strict=True)], NearestAreas(places))


class MeshWorld:
    """Brokers that run `mesh`, driven by hand."""

    def __init__(
        self,
        links: Sequence[Link],
        *,
        brokers: Sequence[str] = (),
        delay_ms: float = 10.0,
        delays: dict[Link, float] | None = None,
        **options: Any,
    ) -> None:
        self.ids = [BrokerId(b) for b in brokers or sorted({end for link in links for end in link})]
        self.links = list(links)
        self.federation = federation_of(self.ids)
        self.options = {"links": [list(link) for link in links], **options}
        self.now = 0.0
        self.nodes = {broker: self._make(broker, 0) for broker in self.ids}
        self.epochs = dict.fromkeys(self.ids, 0)
        self.sent: list[tuple[float, BrokerId, BrokerId, Message]] = []
        self.received: Counter[tuple[str, ClientId]] = Counter()
        """How often each client got each event, by the event's payload, or its id if it has none."""
        self.lines: list[str] = []
        self._delay_ms = delay_ms
        self._delays = delays or {}
        self._queue: list[tuple[float, int, BrokerId, RoutingEvent, int]] = []
        self._count = 0
        self._cut: dict[frozenset[BrokerId], list[tuple[BrokerId, BrokerId, Message]]] = {}
        self._eras: Counter[frozenset[BrokerId]] = Counter()

    def _make(self, broker: BrokerId, epoch: int) -> Node:
        return Node(
            me=broker,
            federation=self.federation,
            strategy="geomq.routing.strategies.mesh.mesh:Mesh",
            options=self.options,
            epoch=epoch,
            rng=random.Random(0),
        )

    def mesh(self, broker: str) -> Mesh:
        strategy = self.nodes[BrokerId(broker)].strategy
        assert isinstance(strategy, Mesh)
        return strategy

    def group(self, broker: str, name: str) -> MeshGroup:
        return self.mesh(broker).groups[name]

    def cores(self, name: str) -> set[str | None]:
        """The cores the brokers believe in; None for a broker that knows none."""
        known = (self.mesh(b).groups.get(name) for b in self.nodes)
        return {None if group is None else group.core for group in known}

    def edges(self, name: str) -> set[Link]:
        """The links that members send events over."""
        found: set[Link] = set()
        for broker in self.nodes:
            group = self.mesh(broker).groups.get(name)
            if group is not None and group.is_member:
                found |= {(min(broker, n), max(broker, n)) for n in group.mesh_neighbours()}
        return found

    def members(self, name: str) -> set[str]:
        return {b for b in self.nodes if name in self.mesh(b).groups and self.group(b, name).is_member}

    def subscribe(self, broker: str, client: str, topic_filter: str) -> None:
        self.feed(broker, ClientSubscribed(ClientId(client), topic_filter))

    def unsubscribe(self, broker: str, client: str, topic_filter: str) -> None:
        self.feed(broker, ClientUnsubscribed(ClientId(client), topic_filter))

    def publish(self, broker: str, topic: str, *, payload: str = "", client: str = "p") -> None:
        self.feed(broker, ClientPublished(ClientId(client), topic, payload=payload.encode()))

    def feed(self, broker: str, event: RoutingEvent) -> None:
        node = self.nodes[BrokerId(broker)]
        self._carry_out(BrokerId(broker), event, node.handle(event, now=self.now))

    def run(self, duration_ms: float) -> None:
        """Let time pass: messages arrive and deadlines are kept."""
        until = self.now + duration_ms
        while True:
            due, broker = min(
                ((n.next_deadline(), b) for b, n in self.nodes.items()),
                key=lambda pair: (float("inf") if pair[0] is None else max(pair[0], self.now), pair[1]),
            )
            if self._queue and (due is None or self._queue[0][0] <= max(due, self.now)):
                if self._queue[0][0] > until:
                    break
                self._arrive()
            elif due is not None and due <= until:
                self.now = max(due, self.now)
                self._carry_out(broker, "deadline", self.nodes[broker].on_deadline(now=self.now))
            else:
                break
        self.now = until

    def settle(self) -> None:
        """Let messages arrive, without deadlines, until none is under way."""
        while self._queue:
            self._arrive()

    def _arrive(self) -> None:
        self.now, _, broker, event, era = heappop(self._queue)
        assert isinstance(event, PeerSaid)
        link = frozenset((broker, event.peer))
        if era == self._eras[link] and link not in self._cut and broker in self.nodes:
            self.feed(broker, event)

    def _carry_out(self, broker: BrokerId, event: RoutingEvent | str, actions: Iterable[Action]) -> None:
        actions = list(actions)
        if actions or not isinstance(event, str):
            self.lines += explain(self.now, broker, event, actions)
        for action in actions:
            match action:
                case SendToPeer(peer=peer, message=message):
                    self._transmit(broker, peer, message)
                case DeliverToClients(event=delivered, matches=matches):
                    name = delivered.payload.decode() or str(delivered.id)
                    for client in dict.fromkeys(match.client for match in matches):
                        self.received[name, client] += 1

    def _transmit(self, source: BrokerId, target: BrokerId, message: Message) -> None:
        assert (source, target) in self.links or (target, source) in self.links, "spoke to a stranger"
        self.sent.append((self.now, source, target, message))
        link = frozenset((source, target))
        if link in self._cut:
            self._cut[link].append((source, target, message))
            return
        delay = self._delays.get((min(source, target), max(source, target)), self._delay_ms)
        self._count += 1
        heappush(self._queue, (self.now + delay, self._count, target, PeerSaid(source, message), self._eras[link]))

    def cut(self, a: str, b: str) -> None:
        """The link breaks and both ends notice."""
        link = frozenset((BrokerId(a), BrokerId(b)))
        self._cut[link] = []
        self._eras[link] += 1
        for end, other in ((a, b), (b, a)):
            if BrokerId(end) in self.nodes:
                self.feed(end, PeerDown(BrokerId(other)))

    def mend(self, a: str, b: str) -> None:
        """The link works again."""
        waiting = self._cut.pop(frozenset((BrokerId(a), BrokerId(b))))
        for end, other in ((a, b), (b, a)):
            self.feed(end, PeerUp(BrokerId(other)))
        for source, target, message in waiting:
            self._transmit(source, target, message)

    def crash(self, broker: str) -> None:
        del self.nodes[BrokerId(broker)]
        for a, b in self._links_of(broker):
            self.cut(a, b)

    def restart(self, broker: str) -> None:
        """The broker comes back knowing nothing."""
        self.epochs[BrokerId(broker)] += 1
        self.nodes[BrokerId(broker)] = self._make(BrokerId(broker), self.epochs[BrokerId(broker)])
        for a, b in self._links_of(broker):
            self._cut[frozenset((BrokerId(a), BrokerId(b)))].clear()
            self.mend(a, b)

    def _links_of(self, broker: str) -> list[Link]:
        return [link for link in self.links if broker in link]

    def announcements(self, group: str, since_ms: float = 0.0) -> list[tuple[str, str, Announcement]]:
        """Who announced a group's core to whom, in the order of sending."""
        return [
            (source, target, item)
            for t, source, target, message in self.sent
            if isinstance(message, CoreAnnouncements) and t >= since_ms
            for item in message.items
            if item.group == group
        ]

    def memberships(self, group: str, since_ms: float = 0.0) -> list[tuple[str, str, Membership]]:
        return [
            (source, target, item)
            for t, source, target, message in self.sent
            if isinstance(message, MembershipAnnouncements) and t >= since_ms
            for item in message.items
            if item.group == group
        ]
