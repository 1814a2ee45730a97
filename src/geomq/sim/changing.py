"""A simulation in which the federation itself changes: brokers join and leave, areas and strategy change, among faults.

The description travels over the simulated links, a crashed broker comes back with what it kept of it, and links exist
between exactly those brokers that want them.
"""

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from geomq.errors import ConfigError
from geomq.routing.core.actions import Action
from geomq.routing.core.events import RoutingEvent
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.federation.changes import AddBroker, Change
from geomq.routing.federation.description import BrokerEntry, Description, federation_of
from geomq.routing.federation.editions import ChangeAsked, DescriptionLearned, KeepEditions, Kept
from geomq.routing.node import Node
from geomq.routing.strategies.groups.cloud import CloudNode
from geomq.routing.wire.link import Link
from geomq.sim.engine import FIFO_PHASE, Origin
from geomq.sim.faults import FaultySimulation
from geomq.sim.network import CLOUD, Latencies


class Ask(NamedTuple):
    """At a time somebody asks a broker to change the federation."""

    t_ms: int
    broker: BrokerId
    change: Change


class Join(NamedTuple):
    """At a time a new broker starts and asks another to let it in."""

    t_ms: int
    entry: BrokerEntry
    seed: BrokerId


class _Planned(NamedTuple):
    what: Ask | Join


class ChangingSimulation(FaultySimulation):
    """Drives nodes that follow a description; `kept` is what each has on disk of the federation."""

    def __init__(
        self, description: Description, *, late: Mapping[BrokerId, BrokerEntry] | None = None, **more: Any
    ) -> None:
        self.kept: dict[BrokerId, Kept] = {}
        self.refused: list[str] = []
        self._entries = {BrokerId(entry.name): entry for entry in description.brokers} | dict(late or {})
        federation = federation_of(description)
        everyone = Description(tuple(self._entries[name] for name in sorted(self._entries)))
        latencies = Latencies(federation_of(everyone))
        super().__init__(federation, description.strategy, description=description, latencies=latencies, **more)
        self._add_node(CLOUD, CloudNode(CLOUD))

    def _add_node(self, broker: BrokerId, node: Any) -> None:
        self.nodes[broker] = node
        self._epochs.setdefault(broker, 0)
        self._waiting.setdefault(broker, [])

    def make_node(self, broker: BrokerId, epoch: int = 0) -> Node:
        entry = self._entries[broker]
        alone = Description((entry,), strategy=self.description.strategy, options=self.description.options)
        configured = self.description if broker in self.description.names else alone
        return Node(
            me=broker,
            description=configured,
            federation=self.federation if configured is self.description else None,
            epoch=epoch,
            rng=random.Random(f"{self.seed}/{broker}/{epoch}"),
            kept=self.kept.get(broker),
            own_strategy=self.strategy,
        )

    def node(self, broker: BrokerId) -> Node:
        found = self.nodes[broker]
        assert isinstance(found, Node)
        return found

    def plan_changes(self, *changes: Ask | Join) -> None:
        for what in changes:
            first = what.broker if isinstance(what, Ask) else what.seed
            self._push(what.t_ms, FIFO_PHASE, Origin(None, what.t_ms), first, _Planned(what))

    def connect_all(self) -> None:
        for broker, node in self.nodes.items():
            if isinstance(node, Node):
                self._hold_links(broker, node)

    def feed(self, broker: BrokerId, event: Any, origin: Origin) -> None:
        if isinstance(event, _Planned):
            if broker in self._crashed:
                self._push(self.now_ms + 500, FIFO_PHASE, origin, broker, event)
            else:
                self._change(broker, event.what, origin)
        else:
            super().feed(broker, event, origin)

    def _change(self, broker: BrokerId, what: Ask | Join, origin: Origin) -> None:
        change = what.change if isinstance(what, Ask) else AddBroker(what.entry)
        try:
            super().feed(broker, ChangeAsked(change), origin)
        except ConfigError as error:
            self.refused.append(str(error))
            return
        if isinstance(what, Join):
            joining = BrokerId(what.entry.name)
            self._add_node(joining, self._start_node(joining))
            self._hold_links(broker, self.node(broker))
            super().feed(joining, DescriptionLearned(self.node(broker).editions.description), origin)

    def _carry_out(self, broker: BrokerId, event: RoutingEvent | str, actions: list[Action], origin: Origin) -> None:
        for action in actions:
            if isinstance(action, KeepEditions):
                self.kept[broker] = action.kept
        if any(isinstance(action, KeepEditions) for action in actions):
            self._hold_links(broker, self.node(broker))
        super()._carry_out(broker, event, actions, origin)

    def _hold_links(self, broker: BrokerId, node: Node) -> None:
        """Links work as soon as both ends want them, and only so long."""
        wanted = {*node.editions.peers, *(peer for each in node.routings.strategies for peer in each.outside)}
        for peer in [peer for me, peer in self._links if me == broker and peer not in wanted]:
            self._disconnect(broker, peer)
            self._disconnect(peer, broker)
            del self._links[broker, peer]
        for peer in sorted(wanted):
            if (broker, peer) not in self._links and peer in self.nodes:
                self._links[broker, peer] = Link(epoch=self._epochs[broker])
                if peer == CLOUD:
                    self._links[peer, broker] = Link(epoch=self._epochs[peer])
            if (peer, broker) in self._links:
                self._connect((broker, peer))
                self._connect((peer, broker))

    def _disconnect(self, me: BrokerId, peer: BrokerId) -> None:
        if (me, peer) in self._links:
            super()._disconnect(me, peer)

    def _connect(self, pair: tuple[BrokerId, BrokerId]) -> None:
        if pair in self._links and (pair[1], pair[0]) in self._links:
            super()._connect(pair)

    def _schedule_link(self, pair: tuple[BrokerId, BrokerId]) -> None:
        if pair in self._links:  # what it brought may have made it superfluous
            super()._schedule_link(pair)

    def _wake_link(self, pair: tuple[BrokerId, BrokerId]) -> None:
        if pair in self._links:
            super()._wake_link(pair)
        else:
            self._timers -= 1
            self._link_wakes.pop(pair, None)

    def _is_cut(self, a: BrokerId, b: BrokerId) -> bool:
        return (a, b) not in self._links or super()._is_cut(a, b)

    def transmit(self, source: BrokerId, target: BrokerId, message: Message, origin: Origin) -> None:
        if (source, target) in self._links:
            super().transmit(source, target, message, origin)
