"""Plain events on the fast path: along the plans that nodes give out and in batches, as the live broker sends them.

Whether a plain event takes it, or goes event by event, falls by dice; so does how the entry of a batch that arrives is
taken in. A plan is remembered until the node says that plans have changed: one that still holds then is a fault.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.core.actions import DeliverToClients, SendToPeer
from geomq.routing.core.events import ClientPublished, PeerSaid
from geomq.routing.core.model import BrokerId, ClientId, Edition, Event, EventId, Match
from geomq.routing.core.plan import Batched, DurableBatch, EventBatch, Plan, all_singly, singly, spread
from geomq.routing.node import Node

Arrival = tuple[str, BrokerId, tuple[Match, ...] | None, Edition | None]


class Gathered(NamedTuple):
    """What waits for one peer, of one QoS: the entries of a batch, and the packets of each."""

    entries: list[Batched]
    packets: list[bytes]


class Plans:
    """What one node has planned, as long as it holds, and the batches that wait for its peers."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.waiting: dict[tuple[BrokerId, int], Gathered] = {}
        self._since: object = None
        self._turns = -1
        self._by_topic: dict[str, Plan | None] = {}
        self._arrivals: dict[Arrival, tuple[Match, ...] | None] = {}

    def _check(self) -> None:
        """Forget what was planned if the node would plan otherwise now."""
        if self.node.turns != self._turns:
            self._turns, since = self.node.turns, self.node.plans_since()
            if since != self._since:
                self._since = since
                self._by_topic.clear()
                self._arrivals.clear()

    def of_topic(self, topic: str) -> Plan | None:
        self._check()
        if topic not in self._by_topic:
            self._by_topic[topic] = self.node.plan(topic)
        return self._by_topic[topic]

    def of_arrival(self, arrival: Arrival) -> tuple[Match, ...] | None:
        self._check()
        if arrival not in self._arrivals:
            self._arrivals[arrival] = self.node.plan_arrival(*arrival)
        return self._arrivals[arrival]


class FastPaths:
    """Takes plain events along the plans of all nodes of a simulation."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(f"{seed}/fast paths")
        self._plans: dict[BrokerId, Plans] = {}

    def _plans_of(self, node: Node) -> Plans:
        plans = self._plans.get(node.me)
        if plans is None or plans.node is not node:  # it was restarted: what waited is lost
            plans = self._plans[node.me] = Plans(node)
        return plans

    def publish(self, node: Node, happened: ClientPublished) -> DeliverToClients | None:
        """What own clients get of an event; its batches wait for `send`. None if it is to go event by event."""
        plain = happened.qos < 2 and not happened.retain and happened.fence is None and happened.location is None
        if not plain or happened.properties or self._dice.random() < 0.3:
            return None
        plans = self._plans_of(node)
        plan = plans.of_topic(happened.topic)
        if plan is None:
            return None
        own = frozenset(match.client for match in plan.own)
        state, sequence = node.clients.get(happened.client), node.take_ids(1, own)
        location = None if state is None else state.location
        is_v5 = self._dice.random() < 0.5
        qos = happened.qos
        packet = encode(Publish(happened.topic, happened.payload, qos, packet_id=qos), V5 if is_v5 else V311)
        for peer, matches in plan.peers:
            entry = Batched(happened.client, location, sequence, 1, is_v5, matches, len(packet))
            _gather(plans.waiting.setdefault((peer, qos), Gathered([], [])), entry, packet)
        event_id = EventId(node.me, node.epoch, sequence)
        event = Event(event_id, happened.topic, happened.client, location, None, happened.payload, qos)
        return DeliverToClients(event, plan.own)

    def send(self, node: Node) -> list[SendToPeer]:
        """The batches that wait, before anything else is sent."""
        plans = self._plans.get(node.me)
        if plans is None or plans.node is not node or not plans.waiting:
            return []
        waiting, plans.waiting = plans.waiting, {}
        found: list[SendToPeer] = []
        for (peer, qos), (entries, packets) in waiting.items():
            batch = (DurableBatch if qos else EventBatch)(node.epoch, 0, tuple(entries), tuple(packets))
            apart = qos and peer not in node.routings.linked
            messages = all_singly(node.me, batch) if apart else (batch,)
            found += [SendToPeer(peer, message, node.plan_edition) for message in messages]
        return found

    def arrive(self, node: Node, said: PeerSaid, batch: EventBatch) -> Iterator[DeliverToClients | PeerSaid]:
        """What becomes of the events of a batch: deliveries, or single messages for the node to handle."""
        data = b"".join(batch.packets)
        for entry, start, end in spread(batch, len(data)):
            fast = self._dice.random() < 0.7
            for message in singly(said.peer, batch, entry, data[start:end]):
                delivery = self._planned(node, said, entry, message.event) if fast else None  # type: ignore[attr-defined]
                fast = delivery is not None
                yield delivery or PeerSaid(said.peer, message, said.edition)

    def _planned(self, node: Node, said: PeerSaid, entry: Batched, event: Event) -> DeliverToClients | None:
        here = self._plans_of(node).of_arrival((event.topic, said.peer, entry.matches, said.edition))
        if here is None:
            return None
        clients: frozenset[ClientId] = frozenset(match.client for match in here)
        history = node.routings.publishing.seen.history((said.peer, event.id.epoch))
        return DeliverToClients(event, here) if history.run(event.id.sequence, 1, clients) else None


def _gather(waiting: Gathered, entry: Batched, packet: bytes) -> None:
    """Add a packet: to the last entry if it is its next, as a connection that reads several at once does."""
    entries, packets = waiting
    last = entries[-1] if entries else None
    if last is not None and last.sequence + last.events == entry.sequence and _alike(last, entry):
        size, events = last.size + entry.size, last.events + 1
        entries[-1] = Batched(last.publisher, last.place, last.sequence, events, last.is_v5, last.matches, size)
        packets[-1] += packet
    else:
        entries.append(entry)
        packets.append(packet)


def _alike(a: Batched, b: Batched) -> bool:
    return (a.publisher, a.place, a.is_v5, a.matches) == (b.publisher, b.place, b.is_v5, b.matches)
