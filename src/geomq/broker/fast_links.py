"""Plain events on their way to peers: gathered through a tick, then one message to each peer.

They were never in the routing node, so they are given ids here, and who of the own clients got them is noted.
"""

from typing import NamedTuple

from geomq.broker.connection import Connection
from geomq.broker.core import Core
from geomq.geo import Location
from geomq.mqtt.types import V5
from geomq.routing.edition_messages import wrapped
from geomq.routing.model import BrokerId, ClientId, Edition
from geomq.routing.plan import BATCH_BYTES_MAX, Batched, EventBatch, ToPeer


class Far(NamedTuple):
    """Peers that hear of events, and the own clients that get them, too; how many bytes it takes to say for whom."""

    peers: tuple[ToPeer, ...]
    own: frozenset[ClientId]
    weight: int


def far_of(peers: tuple[ToPeer, ...], own: frozenset[ClientId]) -> Far:
    matches = (match for _, matches in peers for match in matches or ())
    return Far(peers, own, sum(len(client) + len(topic_filter) for client, topic_filter in matches))


Gathered = tuple[ClientId, Location | None, Far, int, int, bool, bytes]
"""Events of one client: who and where it is, who hears of them, the first id, how many, whether they are of MQTT 5, and
their packets."""


class FastLinks:
    """What waits for peers, in `waiting`. Batches are marked with `edition`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.edition: Edition | None = None
        self.waiting: list[Gathered] = []
        self._bytes = 0

    def gather(self, connection: Connection, far: Far, data: bytes, count: int) -> None:
        """Take `count` events of a client."""
        client = connection.client
        assert client is not None
        if not self.waiting:
            self._core.outbox.schedule()
        first = self._core.node.take_ids(count, far.own)
        self.waiting.append((client.id, client.location, far, first, count, connection.version == V5, data))
        self._bytes += len(data) + far.weight
        if self._bytes >= BATCH_BYTES_MAX:
            self.send()

    def send(self) -> None:
        """Let everything go that waits."""
        waiting, self.waiting, self._bytes = self.waiting, [], 0
        core = self._core
        if core.links is None:
            return
        heaps: dict[BrokerId, tuple[list[Batched], list[bytes]]] = {}
        for client, place, far, first, count, is_v5, data in waiting:
            for peer, matches in far.peers:
                if peer not in heaps:
                    heaps[peer] = ([], [])
                entries, packets = heaps[peer]
                entries.append(Batched(client, place, first, count, is_v5, matches, len(data)))
                packets.append(data)
        at_ms = int(core.wall_s() * 1000)
        for peer, (entries, packets) in heaps.items():
            batch = EventBatch(core.node.epoch, at_ms, tuple(entries), tuple(packets))
            core.links.send(peer, wrapped(batch, self.edition))
