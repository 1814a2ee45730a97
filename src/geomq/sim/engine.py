"""The event loop: nodes of the routing core, a queue of what will happen, virtual milliseconds.

It decides nothing about routing. Two orders inside one millisecond: `fifo` (as sent) and `published`, the order of
the DisGB simulation: all brokers finish a kind of message before the next kind, and inside a kind messages go by the
client and the tick they stem from. Of what that simulation does not have, control messages and timers go as they
were made, and a link that speaks of the same client twice in a tick is understood in that order.
"""

import math
import random
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, Literal, Protocol

from geomq.routing.core.actions import (
    Action,
    DeliverToClients,
    DeliverToOne,
    DropEvent,
    ForgetNote,
    KeepNote,
    SendOnceFlushed,
    SendRetained,
    SendToPeer,
    SessionAction,
    StoreRetained,
)
from geomq.routing.core.events import (
    ClientGone,
    ClientMoved,
    ClientPublished,
    ClientSubscribed,
    ClientUnsubscribed,
    LatencyMeasured,
    PeerSaid,
    PeerUp,
    RoutingEvent,
)
from geomq.routing.core.messages import (
    DeliverEvent,
    DropClient,
    DropSubscription,
    ForwardEvent,
    Message,
    PutLocation,
    PutSubscription,
)
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.core.plan import EventBatch
from geomq.routing.core.topology import Federation
from geomq.routing.federation.description import Description, describe
from geomq.routing.federation.edition_messages import unwrapped, wrapped
from geomq.routing.node import Node
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.strategies.groups.cloud import CloudNode
from geomq.routing.strategies.groups.messages import (
    CloudPublish,
    CloudPublished,
    CloudSubscribe,
    CloudUnsubscribe,
    DropInterest,
    PutInterest,
    RelayEvent,
)
from geomq.routing.strategies.registry import strategy_class
from geomq.sim.fast_paths import FastPaths
from geomq.sim.network import CLIENT_LATENCY_MS, CLOUD, Latencies
from geomq.sim.retained import RetainedDisks
from geomq.sim.script import Step
from geomq.sim.sessions import SessionDisks

Order = Literal["fifo", "published"]

FORWARDED_PHASE: dict[type[Message], int] = {
    PutLocation: 0,
    PutSubscription: 1,
    PutInterest: 1,
    CloudSubscribe: 1,
    DropSubscription: 2,
    DropClient: 2,
    DropInterest: 2,
    CloudUnsubscribe: 2,
    ForwardEvent: 3,
    RelayEvent: 3,
    CloudPublish: 3,
    CloudPublished: 3,
    DeliverEvent: 4,
}
CONTROL_PHASE = 5
CLIENT_PHASE: dict[type[RoutingEvent], int] = {
    ClientMoved: 6,
    ClientSubscribed: 7,
    ClientUnsubscribed: 8,
    ClientGone: 8,
    ClientPublished: 9,
}
ARRIVAL_PHASE = 10
FIFO_PHASE = 0

Place = tuple[int, tuple[int, str], int]
"""Where something stands inside its tick: its phase, and there by the client and the tick it stems from."""
AS_MADE = ((0, ""), 0)


class Origin:
    """Where a chain of messages began: the client and the tick of its action."""

    __slots__ = ("client", "rank", "t_ms")

    def __init__(self, client: ClientId | None, t_ms: int) -> None:
        self.client = client
        self.rank = (0, "") if client is None else (len(client), str(client))
        self.t_ms = t_ms


class Observer:
    """Sees everything that happens in a run; statistics, checkers, traces and transcripts are observers."""

    def acted(self, t_ms: int, home: BrokerId, event: RoutingEvent) -> None:
        """A client acted (its home has not heard of it yet)."""

    def accepted(self, t_ms: int, home: BrokerId, event: Event) -> None:
        """A home gave an event its id; `t_ms` is when its client published it."""

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        """A broker took something in and asked for these actions."""

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        """A message left a broker."""

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        """A client received an event."""

    def dropped(self, t_ms: int, broker: BrokerId, event_id: EventId, reason: str) -> None:
        """An event ended at a broker."""


class SendBatches(RoutingEvent, frozen=True):
    """The millisecond in which plain events were gathered is over."""


SEND_BATCHES = SendBatches()


class NodeDoor(Protocol):
    """What the engine needs of a node."""

    def handle(self, event: RoutingEvent, *, now: float) -> list[Action]: ...

    def next_deadline(self) -> float | None: ...

    def on_deadline(self, *, now: float) -> list[Action]: ...


class Simulation:
    """One run of one strategy."""

    def __init__(
        self,
        federation: Federation,
        strategy: str,
        *,
        options: Mapping[str, Any] | None = None,
        description: Description | None = None,
        latencies: Latencies | None = None,
        order: Order = "fifo",
        seed: int = 0,
        observers: Iterable[Observer] = (),
        fast_paths: FastPaths | None = None,
        retained: RetainedDisks | None = None,
        sessions: SessionDisks | None = None,
    ) -> None:
        self.federation = federation
        self.strategy = strategy
        self.options = dict(options or {})
        self.description = description or describe(federation, strategy, self.options)
        self.latencies = latencies or Latencies(federation)
        self.order = order
        self.seed = seed
        self.observers = list(observers)
        self.fast_paths = fast_paths
        """How plain events go along plans; without it all go event by event."""
        self.retained = retained
        """What brokers retain; without it nothing is."""
        self.sessions = sessions
        """The sessions of clients that go from broker to broker; without it none do."""
        self.now_ms = 0
        self.nodes: dict[BrokerId, NodeDoor] = {broker: self._start_node(broker) for broker in federation.ids}
        if issubclass(strategy_class(strategy), BroadcastGroups):
            self.nodes[CLOUD] = CloudNode(CLOUD)
        self._queue: list[tuple[int, Place, int, BrokerId | None, Any, Origin]] = []
        self._count = 0
        self._told: dict[tuple[BrokerId, BrokerId, ClientId], Place] = {}
        """The places, at arrival, of what links said about clients in the tick `_told_ms`."""
        self._told_ms = 0
        self._wakes: dict[BrokerId, int] = {}
        self._timers = 0

    def make_node(self, broker: BrokerId, epoch: int = 0) -> Node:
        return Node(
            me=broker,
            federation=self.federation,
            description=self.description,
            epoch=epoch,
            rng=random.Random(f"{self.seed}/{broker}/{epoch}"),
        )

    def _start_node(self, broker: BrokerId) -> Node:
        node = self.make_node(broker)
        if self.retained is not None:
            self.retained.load(node)
        if self.sessions is not None:
            self.sessions.load(node, self.now_ms)
        return node

    def connect_all(self) -> None:
        """Every link comes up."""
        for broker in self.nodes:
            for peer in self.nodes:
                if peer != broker:
                    self.feed(broker, PeerUp(peer), Origin(None, self.now_ms))

    def measure_all(self) -> None:
        """Every broker probes every other once."""
        for broker in self.nodes:
            for peer in self.nodes:
                if peer != broker:
                    measured = LatencyMeasured(peer, float(self.latencies(broker, peer)))
                    self.feed(broker, measured, Origin(None, self.now_ms))

    def run(self, script: Iterable[Step], *, until_ms: int | None = None) -> None:
        """Play a script (in time order), then go on until nothing is under way or `until_ms`."""
        for step in script:
            self.advance(step.t_ms)
            self.act(step)
        self.advance(until_ms)

    def act(self, step: Step) -> None:
        """A client acts now."""
        for observer in self.observers:
            observer.acted(step.t_ms, step.home, step.event)
        origin = Origin(getattr(step.event, "client", None), step.t_ms)
        phase = FIFO_PHASE if self.order == "fifo" else CLIENT_PHASE.get(type(step.event), CONTROL_PHASE)
        self._push(step.t_ms + CLIENT_LATENCY_MS, phase, origin, step.home, step.event)

    def advance(self, until_ms: int | None) -> None:
        """Let everything happen that is due before `until_ms` (None: until only timers are left)."""
        queue = self._queue
        while queue and (until_ms is None or queue[0][0] < until_ms):
            if until_ms is None and len(queue) == self._timers:
                return
            t_ms, _, _, broker, what, origin = heappop(queue)
            self.now_ms = t_ms
            if broker is None:
                self._arrive(*what)
            elif what is None:
                self._wake(broker)
            elif isinstance(what, SendToPeer):
                self.transmit(broker, what.peer, what.message, origin)
            else:
                self.feed(broker, what, origin)
        if until_ms is not None:
            self.now_ms = max(self.now_ms, until_ms)

    def feed(self, broker: BrokerId, event: RoutingEvent, origin: Origin) -> None:
        """Hand an input to a broker's node and carry out what it asks for."""
        node = self.nodes[broker]
        if self.fast_paths is not None and isinstance(node, Node) and self._feed_fast(node, event, origin):
            return
        actions = node.handle(event, now=self.now_ms)
        if isinstance(event, ClientPublished) and isinstance(node, Node):
            assert node.latest is not None
            self._accepted(node, node.latest, origin)
        self._carry_out(broker, event, actions, origin)
        if self.retained is not None and isinstance(event, ClientPublished) and event.retain and isinstance(node, Node):
            assert node.latest is not None
            self.feed(broker, self.retained.published(node, node.latest, self.now_ms), origin)

    def _accepted(self, node: Node, event: Event, origin: Origin) -> None:
        for observer in self.observers:
            observer.accepted(origin.t_ms, node.me, event)

    def _feed_fast(self, node: Node, event: RoutingEvent, origin: Origin) -> bool:
        """Take plain events along the plans of the node; whether this was one, or a batch of them."""
        assert self.fast_paths is not None
        if isinstance(event, ClientPublished) and (planned := self.fast_paths.publish(node, event)) is not None:
            self._accepted(node, planned.event, origin)
            self._carry_out(node.me, event, [planned], origin)
            self._push(self.now_ms, CONTROL_PHASE, origin, node.me, SEND_BATCHES)
            return True
        self._send_batches(node, origin)
        if isinstance(event, PeerSaid) and isinstance(event.message, EventBatch):
            for each in self.fast_paths.arrive(node, event, event.message):
                if isinstance(each, PeerSaid):
                    self.feed(node.me, each, origin)
                else:
                    self._carry_out(node.me, event, [each], origin)
            return True
        return event is SEND_BATCHES

    def _send_batches(self, node: NodeDoor, origin: Origin) -> None:
        """What was gathered goes before anything else that the node sends."""
        if self.fast_paths is not None and isinstance(node, Node) and (batches := self.fast_paths.send(node)):
            self._carry_out(node.me, "batches", [*batches], origin)

    def _wake(self, broker: BrokerId) -> None:
        self._timers -= 1
        if self._wakes.get(broker) != self.now_ms:
            return  # an earlier wake took its place
        del self._wakes[broker]
        deadline = self.nodes[broker].next_deadline()
        if deadline is not None and deadline <= self.now_ms:
            self._send_batches(self.nodes[broker], Origin(None, self.now_ms))
            actions = self.nodes[broker].on_deadline(now=self.now_ms)
            self._carry_out(broker, "deadline", actions, Origin(None, self.now_ms))
        else:
            self._schedule_wake(broker)

    def _carry_out(self, broker: BrokerId, event: RoutingEvent | str, actions: list[Action], origin: Origin) -> None:
        for observer in self.observers:
            observer.handled(self.now_ms, broker, event, actions)
        for action in actions:
            match action:
                case SendToPeer(peer=peer, message=message, edition=edition):
                    self.transmit(broker, peer, wrapped(message, edition), origin)
                case SendOnceFlushed(peer=peer, message=message):
                    self.transmit_once_flushed(broker, peer, message, origin)
                case DeliverToClients(event=delivered, matches=matches):
                    for client in dict.fromkeys(match.client for match in matches):
                        arrival = (broker, client, delivered, origin.t_ms)
                        self._push(self.now_ms + CLIENT_LATENCY_MS, ARRIVAL_PHASE, origin, None, arrival)
                case DeliverToOne(event=delivered, members=members):
                    arrival = (broker, members[0], delivered, origin.t_ms)
                    self._push(self.now_ms + CLIENT_LATENCY_MS, ARRIVAL_PHASE, origin, None, arrival)
                case DropEvent(event_id=event_id, reason=reason):
                    for observer in self.observers:
                        observer.dropped(self.now_ms, broker, event_id, reason)
                case StoreRetained() if self.retained is not None:
                    self.feed(broker, self.retained.store(broker, action), origin)
                case SendRetained() if self.retained is not None:
                    self.transmit(broker, action.peer, self.retained.message(broker, action), origin)
                case KeepNote() | ForgetNote():
                    self._note(broker, action)
                case SessionAction() if self.sessions is not None:
                    node = self.nodes[broker]
                    assert isinstance(node, Node)
                    for happened in self.sessions.carry_out(node, action):
                        self.feed(broker, happened, origin)
        self._schedule_wake(broker)

    def _note(self, broker: BrokerId, action: KeepNote | ForgetNote) -> None:
        if self.retained is not None:
            self.retained.note(broker, action)
        if self.sessions is not None:
            self.sessions.note(broker, action)

    def transmit(self, source: BrokerId, target: BrokerId, message: Message, origin: Origin) -> None:
        """Put a message on a perfect link."""
        arrives = self.now_ms + self.latencies(source, target)
        for observer in self.observers:
            observer.sent(self.now_ms, source, target, unwrapped(message)[0], origin, arrives)
        said = PeerSaid(source, *unwrapped(message))
        if self.order == "fifo":
            self._push(arrives, FIFO_PHASE, origin, target, said)
            return
        place = self._place(FORWARDED_PHASE.get(type(message), CONTROL_PHASE), origin)
        client: ClientId | None = getattr(message, "client", None)
        if client is not None:
            place = self._after_earlier(place, (source, target, client))
        self._put(arrives, place, origin, target, said)

    def transmit_once_flushed(self, source: BrokerId, target: BrokerId, message: Message, origin: Origin) -> None:
        """Put it on the link when all that is under way from its source has arrived."""
        longest = max(self.latencies(source, peer) for peer in self.nodes if peer != source)
        self._push(self.now_ms + longest + 1, CONTROL_PHASE, origin, source, SendToPeer(target, message))

    def _after_earlier(self, place: Place, told: tuple[BrokerId, BrokerId, ClientId]) -> Place:
        """The place of a message about a client, but none before what its link said of the client in this tick."""
        if self._told_ms != self.now_ms:
            self._told.clear()
            self._told_ms = self.now_ms
        place = self._told[told] = max(place, self._told.get(told, place))
        return place

    def _arrive(self, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        for observer in self.observers:
            observer.arrived(self.now_ms, home, client, event, published_ms)

    def _schedule_wake(self, broker: BrokerId) -> None:
        deadline = self.nodes[broker].next_deadline()
        if deadline is None:
            return
        due = max(self.now_ms + 1, math.ceil(deadline))
        if due < self._wakes.get(broker, due + 1):
            self._wakes[broker] = due
            self._timers += 1
            self._push(due, CONTROL_PHASE, Origin(None, self.now_ms), broker, None)

    def _place(self, phase: int, origin: Origin) -> Place:
        if self.order == "fifo" or phase == CONTROL_PHASE:
            return phase, *AS_MADE
        return phase, origin.rank, origin.t_ms

    def _push(self, t_ms: int, phase: int, origin: Origin, broker: BrokerId | None, what: Any) -> None:
        self._put(t_ms, self._place(phase, origin), origin, broker, what)

    def _put(self, t_ms: int, place: Place, origin: Origin, broker: BrokerId | None, what: Any) -> None:
        self._count += 1
        heappush(self._queue, (t_ms, place, self._count, broker, what, origin))
