"""Plain events on their way to peers: gathered through a tick, then one message to each peer.

They were never in the routing node, so they are given ids here, and who of the own clients got them is noted.
"""

from typing import NamedTuple

from geomq.broker.core import Core
from geomq.broker.state.client import ClientConnection as Connection
from geomq.mqtt.codec.types import V5
from geomq.routing.core.model import BrokerId, ClientId, Edition
from geomq.routing.core.plan import BATCH_BYTES_MAX, Batched, DurableBatch, EventBatch, ToPeer, all_singly
from geomq.routing.federation.edition_messages import wrapped


class PeerTargets(NamedTuple):
    """Peers that get events, and the own clients that get them, too; how many bytes it takes to list for whom."""

    peers: tuple[ToPeer, ...]
    own: frozenset[ClientId]
    weight: int


def peer_targets(peers: tuple[ToPeer, ...], own: frozenset[ClientId]) -> PeerTargets:
    matches = (match for _, matches in peers for match in matches or ())
    return PeerTargets(peers, own, sum(len(client) + len(topic_filter) for client, topic_filter in matches))


class PeerBatch(NamedTuple):
    """What waits for one peer."""

    entries: list[Batched]
    packets: list[bytes]


class FastLinks:
    """What waits for peers, in `waiting`; of QoS 1, which goes first, in `durable`. Batches are marked with the edition
    in `use`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._edition: Edition | None = None
        self.waiting: dict[BrokerId, PeerBatch] = {}
        self.durable: dict[BrokerId, PeerBatch] = {}
        self._bytes = self._durable_events = 0

    def gather(self, connection: Connection, targets: PeerTargets, data: bytes, count: int) -> None:
        """Take `count` events of a client."""
        first = self._core.node.take_ids(count, targets.own)
        self._gather(self.waiting, connection, targets, data, count, first)

    def gather_durable(self, connection: Connection, targets: PeerTargets, data: bytes, count: int, first: int) -> None:
        """Take `count` events of QoS 1 of a client, which have ids from `first` on; nothing else may wait."""
        self._durable_events += count
        self._gather(self.durable, connection, targets, data, count, first)

    def _gather(
        self,
        waiting: dict[BrokerId, PeerBatch],
        connection: Connection,
        targets: PeerTargets,
        data: bytes,
        count: int,
        first: int,
    ) -> None:
        client, size = connection.client, len(data)
        assert client is not None
        if not waiting:
            self._core.outbox.schedule()
        for peer, matches in targets.peers:
            batch = waiting.get(peer)
            if batch is None:
                batch = waiting[peer] = PeerBatch([], [])
            batch.entries.append(
                Batched(client.id, client.location, first, count, connection.version == V5, matches, size)
            )
            batch.packets.append(data)
        self._bytes += size + targets.weight
        if self._bytes >= BATCH_BYTES_MAX:
            self.send()

    def room(self, targets: PeerTargets, size: int) -> int:
        """How many events of QoS 1 may be taken for all of these peers, of so many bytes together."""
        room, size = self._core.links.room, size + self._bytes
        return min([room(peer, size) for peer, _ in targets.peers]) - self._durable_events

    def use(self, edition: Edition | None) -> None:
        """What is gathered from now on is of this edition."""
        self._edition = edition

    def send(self) -> None:
        """Let everything go that waits."""
        self._bytes = self._durable_events = 0
        core = self._core
        at_ms = int(core.wall_s() * 1000)
        if self.durable:
            durable, self.durable = self.durable, {}
            for peer, (entries, packets) in durable.items():
                self._send_durable(peer, DurableBatch(core.node.epoch, at_ms, tuple(entries), tuple(packets)))
        waiting, self.waiting = self.waiting, {}
        if core.links.active:
            for peer, (entries, packets) in waiting.items():
                batch = EventBatch(core.node.epoch, at_ms, tuple(entries), tuple(packets))
                core.links.send_batch(peer, batch, self._edition)

    def _send_durable(self, peer: BrokerId, batch: DurableBatch) -> None:
        """A peer that is not there gets them one by one, as each of them counts among those that wait for it."""
        node, send, edition = self._core.node, self._core.links.send, self._edition
        for message in (batch,) if peer in node.routings.linked else all_singly(node.me, batch):
            send(peer, message if edition is None else wrapped(message, edition))
