"""Plain events on their way to peers: gathered through a tick, then one message to each peer.

They were never in the routing node, so they are given ids here, and who of the own clients got them is noted.
"""

from itertools import groupby
from operator import itemgetter
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


Gathered = tuple[frozenset[ClientId], ClientId, Location | None, tuple[ToPeer, ...], int, bool, bytes]
"""Events of one client: the own clients that get them, who and where it is, the peers that hear of them, how many they
are, whether they are of MQTT 5, and their packets."""

_OWN, _COUNT = itemgetter(0), itemgetter(4)


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
        peers, own, weight = far
        self.waiting.append((own, client.id, client.location, peers, count, connection.version == V5, data))
        self._bytes += len(data) + weight
        if self._bytes >= BATCH_BYTES_MAX:
            self.send()

    def send(self) -> None:
        """Let everything go that waits."""
        waiting, self.waiting, self._bytes = self.waiting, [], 0
        core = self._core
        if core.links is None:
            return
        heaps: dict[BrokerId, tuple[list[Batched], list[bytes]]] = {}
        for own, alike in groupby(waiting, _OWN):
            run = list(alike)
            first = core.node.take_ids(sum(map(_COUNT, run)), own)
            for _, client, place, peers, count, is_v5, data in run:
                for peer, matches in peers:
                    heap = heaps.get(peer)
                    if heap is None:
                        heap = heaps[peer] = ([], [])
                    heap[0].append(Batched(client, place, first, count, is_v5, matches, len(data)))
                    heap[1].append(data)
                first += count
        at_ms = int(core.wall_s() * 1000)
        for peer, (entries, packets) in heaps.items():
            batch = EventBatch(core.node.epoch, at_ms, tuple(entries), tuple(packets))
            core.links.send(peer, wrapped(batch, self.edition))
        core.links.push()
