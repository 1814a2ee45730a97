"""A small deterministic world for broadcast groups: nodes and a cloud on FIFO links of given latencies.

Links that are cut keep what is sent until they are healed; a broker that crashes loses what is under way to it. Every
link that works is probed again and again.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Any

from geomq.geo import Location, NearestAreas
from geomq.routing.core.actions import Action, DeliverToClients, SendToPeer
from geomq.routing.core.events import (
    ClientPublished,
    ClientSubscribed,
    LatencyMeasured,
    PeerDown,
    PeerSaid,
    PeerUp,
    RoutingEvent,
)
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.routing.node import Node
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.strategies.groups.cloud import CloudNode
from geomq.routing.trace.transcript import explain

STRATEGY = "geomq.routing.strategies.groups.broadcast_groups:BroadcastGroups"
CLOUD = BrokerId("cloud")
PROBE_MS = 100.0
QUIET = ("Beat", "CloudAnnounce", "LatencyMeasured")


def federation_of(names: list[str]) -> Federation:
    brokers = [BrokerSite(BrokerId(name), Location(0.0, float(i))) for i, name in enumerate(names)]
    return Federation(brokers, NearestAreas([broker.location for broker in brokers]))


class OneBroker:
    """A single node, fed by hand: what its strategy answers, as a transcript."""

    def __init__(self, me: str, others: str, *, lcm: float = 0.0, **options: Any) -> None:
        self.node = Node(
            me=BrokerId(me),
            federation=federation_of([me, *others.split()]),
            strategy=STRATEGY,
            options={"lcm": {me: lcm}, "request_probability": 1.0, **options},
            rng=random.Random(0),
        )
        assert isinstance(self.node.strategy, BroadcastGroups)
        self.strategy = self.node.strategy
        self.lines: list[str] = []

    def hear(self, now: float, peer: str, message: Message) -> list[Action]:
        return self.take(now, PeerSaid(BrokerId(peer), message))

    def take(self, now: float, event: RoutingEvent) -> list[Action]:
        actions = self.node.handle(event, now=now)
        self.lines += explain(now, self.node.me, event, actions)
        return actions

    def wake(self, now: float) -> list[Action]:
        deadline = self.node.next_deadline()
        assert deadline is not None
        assert deadline <= now
        actions = self.node.on_deadline(now=now)
        self.lines += explain(now, self.node.me, "deadline", actions)
        return actions

    def measure(self, **latency_ms: float) -> None:
        for peer, ms in latency_ms.items():
            assert self.node.handle(LatencyMeasured(BrokerId(peer), ms), now=0.0) == []

    def transcript(self) -> str:
        lines, self.lines = self.lines, []
        return "\n".join(lines)


class GroupWorld:
    """Brokers named by the keys of `lcm`, and the cloud. `latency_ms` maps unordered pairs, default `far_ms`."""

    def __init__(
        self,
        lcm: Mapping[str, float],
        latency_ms: Mapping[tuple[str, str], float],
        *,
        far_ms: float = 50.0,
        cloud_ms: Mapping[str, float] | None = None,
        seed: int = 0,
        record: bool = False,
        **options: Any,
    ) -> None:
        self.record = record
        self.federation = federation_of(list(lcm))
        self.options = {"lcm": dict(lcm), "join_ms": 5.0, **options}
        self.seed = seed
        self.far_ms = far_ms
        self.latency_ms = {frozenset(pair): ms for pair, ms in latency_ms.items()}
        for name in lcm:
            self.latency_ms[frozenset((name, CLOUD))] = (cloud_ms or {}).get(name, 20.0)
        self.now = 0.0
        self.lines: list[str] = []
        self.sent: Counter[str] = Counter()
        self.delivered: dict[EventId, Counter[tuple[BrokerId, ClientId]]] = {}
        self.events: list[Event] = []
        self.lose: Callable[[BrokerId, BrokerId, Message], bool] = lambda source, target, message: False
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._busy_until: dict[tuple[BrokerId, BrokerId], float] = {}
        self._outbox: dict[tuple[BrokerId, BrokerId], list[Message]] = {}
        self._cut: set[frozenset[str]] = set()
        self._epoch: dict[BrokerId, int] = {}
        self.nodes: dict[BrokerId, Node | CloudNode] = {}
        for name in (CLOUD, *self.federation.ids):
            self.nodes[name] = self._new(name)
        for name in self.nodes:
            for peer in self.nodes:
                if peer != name:
                    self._feed(name, PeerUp(peer))
        self._later(0.0, self._probe)

    def _new(self, name: BrokerId) -> Node | CloudNode:
        epoch = self._epoch[name] = self._epoch.get(name, -1) + 1
        if name == CLOUD:
            return CloudNode(CLOUD, epoch=epoch)
        rng = random.Random(f"{self.seed}/{name}/{epoch}")
        return Node(me=name, federation=self.federation, strategy=STRATEGY, options=self.options, epoch=epoch, rng=rng)

    def latency(self, a: str, b: str) -> float:
        return self.latency_ms.get(frozenset((a, b)), self.far_ms)

    def strategy(self, name: str) -> BroadcastGroups:
        node = self.nodes[BrokerId(name)]
        assert isinstance(node, Node)
        assert isinstance(node.strategy, BroadcastGroups)
        return node.strategy

    @property
    def cloud(self) -> CloudNode:
        node = self.nodes[CLOUD]
        assert isinstance(node, CloudNode)
        return node

    def leader_of(self) -> dict[BrokerId, BrokerId]:
        return {name: self.strategy(name).seat.leader for name in self.federation.ids if name in self.nodes}

    def last_id(self, name: str) -> EventId:
        """The id of the event a broker's client published last."""
        node = self.nodes[BrokerId(name)]
        return EventId(node.me, node.epoch, node._sequence)

    def groups(self) -> dict[str, list[str]]:
        """Leader to members, both sorted; every leader's own list must agree."""
        found: dict[str, list[str]] = {}
        for name, its_leader in sorted(self.leader_of().items()):
            found.setdefault(its_leader, [])
            if name != its_leader:
                found[its_leader].append(name)
        for leader, members in found.items():
            assert sorted(self.strategy(leader).members) == members, leader
        return found

    def run(self, for_ms: float) -> None:
        until = self.now + for_ms
        while self._queue and self._queue[0][0] <= until:
            self.now, _, happen = heappop(self._queue)
            happen()
        self.now = until

    def act(self, name: str, event: RoutingEvent) -> None:
        self._feed(BrokerId(name), event)

    def subscribe(self, name: str, client: str, topic_filter: str) -> None:
        self.act(name, ClientSubscribed(ClientId(client), topic_filter))

    def publish(self, name: str, topic: str, payload: bytes = b"", **more: Any) -> None:
        self.act(name, ClientPublished(ClientId(f"p-{name}"), topic, payload=payload, **more))

    def say(self, source: str, target: str, message: Message) -> None:
        """A message nobody's strategy asked for."""
        self._feed(BrokerId(target), PeerSaid(BrokerId(source), message))

    def receivers(self, event_id: EventId) -> dict[str, int]:
        """How often each client had the event."""
        return {f"{home}/{client}": n for (home, client), n in sorted(self.delivered.get(event_id, {}).items())}

    def cut(self, a: str, b: str) -> None:
        self._cut.add(frozenset((a, b)))
        for one, other in ((a, b), (b, a)):
            if BrokerId(one) in self.nodes:
                self._feed(BrokerId(one), PeerDown(BrokerId(other)))

    def heal(self, a: str, b: str) -> None:
        self._cut.discard(frozenset((a, b)))
        for one, other in ((a, b), (b, a)):
            waiting = self._outbox.pop((BrokerId(one), BrokerId(other)), [])
            for message in waiting:
                self._transmit(BrokerId(one), BrokerId(other), message)
        for one, other in ((a, b), (b, a)):
            self._feed(BrokerId(one), PeerUp(BrokerId(other)))

    def crash(self, name: str) -> None:
        del self.nodes[BrokerId(name)]
        self._epoch[BrokerId(name)] += 1
        for pair in [pair for pair in self._outbox if BrokerId(name) in pair]:
            del self._outbox[pair]
        for peer in self.nodes:
            self._feed(peer, PeerDown(BrokerId(name)))

    def restart(self, name: str) -> None:
        broker = BrokerId(name)
        self.nodes[broker] = self._new(broker)
        for peer in self.nodes:
            if peer != broker:
                self._feed(broker, PeerUp(peer))
                self._feed(peer, PeerUp(broker))

    def _later(self, at: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (at, self._count, happen))

    def _probe(self) -> None:
        for name in self.federation.ids:
            for peer in self.federation.ids:
                if peer != name and name in self.nodes and peer in self.nodes and not self._is_cut(name, peer):
                    self._feed(name, LatencyMeasured(peer, self.latency(name, peer)))
        self._later(self.now + PROBE_MS, self._probe)

    def _is_cut(self, a: str, b: str) -> bool:
        return frozenset((a, b)) in self._cut

    def _feed(self, name: BrokerId, event: RoutingEvent) -> None:
        self._carry_out(name, event, self.nodes[name].handle(event, now=self.now))

    def _carry_out(self, name: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        if self.record:
            self._note(explain(self.now, name, event, actions))
        for action in actions:
            if isinstance(action, SendToPeer):
                self.sent[type(action.message).__name__] += 1
                self._transmit(name, action.peer, action.message)
            elif isinstance(action, DeliverToClients):
                had = self.delivered.setdefault(action.event.id, Counter())
                had.update({(name, client): 1 for client in dict.fromkeys(m.client for m in action.matches)})
                self.events.append(action.event)
        deadline = self.nodes[name].next_deadline()
        if deadline is not None:
            self._later(max(self.now, deadline), lambda epoch=self._epoch[name]: self._wake(name, epoch))  # type: ignore[misc]

    def _note(self, step: list[str]) -> None:
        """Keep a step for the transcript, without what is said again and again."""
        if not any(word in step[0] for word in QUIET):
            kept = [line for line in step if not any(word in line for word in QUIET)]
            self.lines += kept if len(kept) > 1 or "deadline" not in step[0] else []

    def _wake(self, name: BrokerId, epoch: int) -> None:
        node = self.nodes.get(name)
        if node is None or epoch != self._epoch[name]:
            return
        deadline = node.next_deadline()
        if deadline is not None and deadline <= self.now:
            self._carry_out(name, "deadline", node.on_deadline(now=self.now))

    def _transmit(self, source: BrokerId, target: BrokerId, message: Message) -> None:
        link = (source, target)
        if target not in self.nodes or self.lose(source, target, message):
            return
        if self._is_cut(source, target):
            self._outbox.setdefault(link, []).append(message)
            return
        at = max(self._busy_until.get(link, 0.0), self.now + self.latency(source, target))
        self._busy_until[link] = at
        epochs = (self._epoch[source], self._epoch[target])

        def arrive() -> None:
            if target in self.nodes and epochs == (self._epoch[source], self._epoch[target]):
                self._feed(target, PeerSaid(source, message))

        self._later(at, arrive)
