"""Plain events on their way to peers: gathered through a tick, then one message to each peer.

They were never in the routing node, so they are given ids here, and who of the own clients got them is noted.
"""

from typing import NamedTuple

from geomq.broker.clients import Client
from geomq.broker.core import Core
from geomq.geo import Location
from geomq.routing.edition_messages import wrapped
from geomq.routing.model import BrokerId, ClientId, Edition, Match
from geomq.routing.plan import BATCH_BYTES_MAX, Batched, EventBatch, ToPeer


class Far(NamedTuple):
    """Peers that hear of events, and the own clients that get them, too."""

    peers: tuple[ToPeer, ...]
    own: frozenset[ClientId]


class _Open:
    """An entry of a batch that may still grow."""

    __slots__ = ("client", "count", "is_v5", "matches", "place", "sequence", "size")

    def __init__(self, client: Client, to: ToPeer, sequence: int, *, is_v5: bool) -> None:
        self.client = client
        self.place: Location | None = client.location
        self.matches: tuple[Match, ...] | None = to.matches
        self.sequence = sequence
        self.is_v5 = is_v5
        self.count = self.size = 0

    def entry(self) -> Batched:
        return Batched(self.client.id, self.place, self.sequence, self.count, self.is_v5, self.matches, self.size)


class _Waiting:
    """The batch for one peer."""

    __slots__ = ("entries", "packets")

    def __init__(self) -> None:
        self.entries: list[_Open] = []
        self.packets: list[bytes] = []


class FastLinks:
    """What waits for peers, in `waiting`. Batches are marked with `edition`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.edition: Edition | None = None
        self.waiting: dict[BrokerId, _Waiting] = {}
        self._bytes = 0

    def gather(self, client: Client, far: Far, data: bytes, count: int, *, is_v5: bool) -> None:
        """Take `count` events of a client."""
        node = self._core.node
        first = node.take_ids(count)
        node.strategy.seen.run((node.me, node.epoch), first, count, far.own)
        if not self.waiting:
            self._core.outbox.schedule()
        for to in far.peers:
            waiting = self.waiting.get(to.peer)
            if waiting is None:
                waiting = self.waiting[to.peer] = _Waiting()
            last = waiting.entries[-1] if waiting.entries else None
            if (
                last is None
                or last.client is not client
                or last.matches is not to.matches
                or last.is_v5 is not is_v5
                or last.place is not client.location
                or last.sequence + last.count != first
            ):
                last = _Open(client, to, first, is_v5=is_v5)
                waiting.entries.append(last)
            waiting.packets.append(data)
            last.size += len(data)
            last.count += count
        self._bytes += len(data)
        if self._bytes >= BATCH_BYTES_MAX:
            self.send()

    def send(self) -> None:
        """Let everything go that waits."""
        waiting, self.waiting, self._bytes = self.waiting, {}, 0
        core = self._core
        if core.links is None:
            return
        at_ms = int(core.wall_s() * 1000)
        for peer, gathered in waiting.items():
            entries = tuple([one.entry() for one in gathered.entries])
            batch = EventBatch(core.node.epoch, at_ms, entries, tuple(gathered.packets))
            core.links.send(peer, wrapped(batch, self.edition))
