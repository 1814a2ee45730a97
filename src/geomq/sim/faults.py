"""A simulation in which things go wrong: frames are lost, repeated and late, links are cut, brokers crash and return.

Between brokers runs the real link protocol. A crashed broker comes back with what a broker keeps on disk: its
clients' sessions, the subscriptions it holds for others, the events it has seen, and what its links had still to
send. Clients of a crashed broker wait until it is back.
"""

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from geomq.routing.core.events import PeerDown, PeerSaid, PeerUp, RoutingEvent
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.federation.edition_messages import unwrapped
from geomq.routing.node import Node
from geomq.routing.wire.link import Data, Frame, Link, LinkOutput
from geomq.sim.engine import FIFO_PHASE, Origin, Simulation


class Disturbance(NamedTuple):
    """What happens to frames on the wire."""

    loss: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    late_ms: int = 300


CALM = Disturbance()


class Cut(NamedTuple):
    """The link between two brokers is gone for a while."""

    from_ms: int
    until_ms: int
    a: BrokerId
    b: BrokerId


class Crash(NamedTuple):
    """A broker is gone for a while."""

    from_ms: int
    until_ms: int
    broker: BrokerId


class _OnWire(NamedTuple):
    """A frame under way."""

    source: BrokerId
    frame: Frame
    origin: Origin
    connection: int


class _Fault(NamedTuple):
    """Something that is about to break or to heal."""

    action: str
    brokers: tuple[BrokerId, ...]


class _Flush(NamedTuple):
    """What is to be sent once all that was sent before has arrived, and the last of that on each link."""

    message: Message
    behind: list[tuple[BrokerId, Link, int]]
    origin: Origin


class FaultySimulation(Simulation):
    """Drives nodes over links that misbehave as planned."""

    def __init__(self, *context: Any, disturbance: Disturbance = CALM, **more: Any) -> None:
        super().__init__(*context, **more)
        self.disturbance = disturbance
        self._dice = random.Random(f"{self.seed}/faults")
        self._epochs = dict.fromkeys(self.nodes, 0)
        self._crashed: dict[BrokerId, None] = {}
        self._waiting: dict[BrokerId, list[tuple[RoutingEvent, Origin]]] = {broker: [] for broker in self.nodes}
        self._cuts: dict[frozenset[BrokerId], int] = {}
        self._links: dict[tuple[BrokerId, BrokerId], Link] = {}
        self._connections: dict[frozenset[BrokerId], int] = {}
        """How often two brokers have been connected."""
        self._origins: dict[tuple[BrokerId, BrokerId, int, int], Origin] = {}
        self._link_wakes: dict[tuple[BrokerId, BrokerId], int] = {}
        self._flushing: dict[tuple[BrokerId, BrokerId], _Flush] = {}

    def plan(self, cuts: Iterable[Cut] = (), crashes: Iterable[Crash] = ()) -> None:
        """Schedule what will break."""
        for cut in cuts:
            self._later(cut.from_ms, _Fault("cut", (cut.a, cut.b)))
            self._later(cut.until_ms, _Fault("heal", (cut.a, cut.b)))
        for crash in crashes:
            self._later(crash.from_ms, _Fault("crash", (crash.broker,)))
            self._later(crash.until_ms, _Fault("return", (crash.broker,)))

    def connect_all(self) -> None:
        for a in self.nodes:
            for b in self.nodes:
                if a != b:
                    self._links[a, b] = Link(epoch=self._epochs[a])
        for pair in self._links:
            self._connect(pair)

    def transmit(self, source: BrokerId, target: BrokerId, message: Message, origin: Origin) -> None:
        pair = (source, target)
        self._take(pair, self._links[pair].send(message, now=self.now_ms), origin)

    def transmit_once_flushed(self, source: BrokerId, target: BrokerId, message: Message, origin: Origin) -> None:
        links = {peer: self._links[source, peer] for peer in self._linked(source)}
        behind = [(peer, link, link.latest) for peer, link in links.items()]
        self._flushing[source, target] = _Flush(message, behind, origin)
        self._flush(source)

    def _flush(self, source: BrokerId) -> None:
        """Send what waited until all that its source had sent has arrived."""
        arrived = [
            pair for pair, waiting in self._flushing.items() if pair[0] == source and self._has_arrived(waiting, source)
        ]
        for pair, waiting in [(pair, self._flushing.pop(pair)) for pair in arrived]:
            if pair in self._links:
                self.transmit(*pair, waiting.message, waiting.origin)

    def _has_arrived(self, waiting: _Flush, source: BrokerId) -> bool:
        """What was sent before; nobody waits for a link that is no more."""
        return all(
            link.acknowledged > number or self._links.get((source, peer)) is not link
            for peer, link, number in waiting.behind
        )

    def feed(self, broker: BrokerId, event: Any, origin: Origin) -> None:
        if isinstance(event, _Fault):
            self._break_or_heal(event)
        elif isinstance(event, _OnWire):
            self._receive(broker, event)
        elif isinstance(event, tuple):
            self._wake_link(event)
        elif broker in self._crashed:
            self._waiting[broker].append((event, origin))
        else:
            super().feed(broker, event, origin)

    def _wake(self, broker: BrokerId) -> None:
        if broker in self._crashed:
            self._timers -= 1
            self._wakes.pop(broker, None)
        else:
            super()._wake(broker)

    def _receive(self, broker: BrokerId, wire: _OnWire) -> None:
        pair = (broker, wire.source)
        is_there = broker not in self._crashed and not self._is_cut(*pair)
        if is_there and wire.connection == self._connections.get(frozenset(pair), 0):
            self._take(pair, self._links[pair].receive(wire.frame, now=self.now_ms), wire.origin)

    def _take(self, pair: tuple[BrokerId, BrokerId], output: LinkOutput, origin: Origin) -> None:
        """Put a link's frames on the wire and hand its messages to the node."""
        me, peer = pair
        for frame in output.frames:
            self._put_on_wire(me, peer, frame, origin)
        if output.came_up:
            super().feed(me, PeerUp(peer), Origin(None, self.now_ms))
        for message in output.messages:
            super().feed(me, PeerSaid(peer, *unwrapped(message)), origin)
        self._schedule_link(pair)
        if self._flushing:
            self._flush(me)

    def _put_on_wire(self, me: BrokerId, peer: BrokerId, frame: Frame, origin: Origin) -> None:
        if isinstance(frame, Data):
            key = (me, peer, frame.epoch, frame.number)
            if key not in self._origins:
                self._origins[key] = origin
                arrives = self.now_ms + self.latencies(me, peer)
                for observer in self.observers:
                    observer.sent(self.now_ms, me, peer, unwrapped(frame.message)[0], origin, arrives)
            origin = self._origins[key]
        wire = _OnWire(me, frame, origin, self._connections.get(frozenset((me, peer)), 0))
        if self.disturbance == CALM:
            self._push(self.now_ms + self.latencies(me, peer), FIFO_PHASE, origin, peer, wire)
            return
        if self._dice.random() < self.disturbance.loss:
            return
        for _ in range(2 if self._dice.random() < self.disturbance.repeat else 1):
            late = self._dice.randrange(self.disturbance.late_ms) if self._dice.random() < self.disturbance.late else 0
            arrives = self.now_ms + self.latencies(me, peer) + late
            self._push(arrives, FIFO_PHASE, origin, peer, wire)

    def _schedule_link(self, pair: tuple[BrokerId, BrokerId]) -> None:
        deadline = self._links[pair].next_deadline()
        if deadline is None:
            return
        due = max(self.now_ms + 1, int(deadline))
        if due < self._link_wakes.get(pair, due + 1):
            self._link_wakes[pair] = due
            self._timers += 1
            self._push(due, FIFO_PHASE, Origin(None, self.now_ms), pair[0], pair)

    def _wake_link(self, pair: tuple[BrokerId, BrokerId]) -> None:
        self._timers -= 1
        if self._link_wakes.get(pair) == self.now_ms:
            del self._link_wakes[pair]
            self._take(pair, self._links[pair].on_deadline(now=self.now_ms), Origin(None, self.now_ms))

    def _break_or_heal(self, fault: _Fault) -> None:
        match fault.action, fault.brokers:
            case "cut", (a, b):
                pair = frozenset((a, b))
                self._cuts[pair] = self._cuts.get(pair, 0) + 1
                self._disconnect(a, b)
                self._disconnect(b, a)
            case "heal", (a, b):
                pair = frozenset((a, b))
                self._cuts[pair] -= 1
                if not self._cuts[pair]:
                    del self._cuts[pair]
                self._connect((a, b))
                self._connect((b, a))
            case "crash", (broker,):
                self._crash(broker)
            case "return", (broker,):
                self._return(broker)

    def _is_cut(self, a: BrokerId, b: BrokerId) -> bool:
        if not self._cuts and not self._crashed:
            return False
        return frozenset((a, b)) in self._cuts or a in self._crashed or b in self._crashed

    def _connect(self, pair: tuple[BrokerId, BrokerId]) -> None:
        link = self._links[pair]
        if link.state == "down" and not self._is_cut(*pair):
            self._take(pair, link.connected(now=self.now_ms), Origin(None, self.now_ms))

    def _disconnect(self, me: BrokerId, peer: BrokerId) -> None:
        link = self._links[me, peer]
        if link.state != "down":
            both = frozenset((me, peer))
            self._connections[both] = self._connections.get(both, 0) + 1
            was_up = link.state == "up"
            link.disconnected()
            if was_up and me not in self._crashed:
                super().feed(me, PeerDown(peer), Origin(None, self.now_ms))

    def _crash(self, broker: BrokerId) -> None:
        if broker in self._crashed:
            return
        self._crashed[broker] = None
        self._flushing = {pair: waiting for pair, waiting in self._flushing.items() if pair[0] != broker}
        for peer in self._linked(broker):
            self._disconnect(broker, peer)
            self._disconnect(peer, broker)

    def _return(self, broker: BrokerId) -> None:
        if broker not in self._crashed:
            return
        del self._crashed[broker]
        self._epochs[broker] += 1
        self.nodes[broker] = self._restored(broker)
        for peer in self._linked(broker):
            unsent = self._links[broker, peer].durable()
            self._links[broker, peer] = Link(epoch=self._epochs[broker], unsent=unsent)
        self._schedule_wake(broker)
        for peer in self._linked(broker):
            self._connect((broker, peer))
            self._connect((peer, broker))
        waiting, self._waiting[broker] = self._waiting[broker], []
        for event, origin in waiting:
            super().feed(broker, event, origin)

    def _linked(self, broker: BrokerId) -> list[BrokerId]:
        return [peer for me, peer in self._links if me == broker]

    def _restored(self, broker: BrokerId) -> Any:
        """A new node with what its predecessor had on disk."""
        before = self.nodes[broker]
        if not isinstance(before, Node):
            return before
        node = self.make_node(broker, self._epochs[broker])
        node.inherit(before, now=self.now_ms)
        if self.retained is not None:
            self.retained.load(node)
        if self.sessions is not None:
            self.sessions.load(node, self.now_ms)
        return node

    def _later(self, t_ms: int, what: _Fault) -> None:
        self._push(t_ms, FIFO_PHASE, Origin(None, t_ms), what.brokers[0], what)
