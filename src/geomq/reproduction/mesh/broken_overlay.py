"""A simulation on an overlay of which brokers and links vanish for good.

Owns what the loss of a broker or a link means: what is under way there is lost, and the brokers at its ends notice
some time later. For losses that heal, with the real link protocol between brokers, there is `faults`.
"""

from collections.abc import Iterable
from typing import Any

from geomq.routing.core.events import PeerDown, PeerSaid, PeerUp, RoutingEvent
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.sim.engine import FIFO_PHASE, Origin, Simulation
from geomq.sim.overlay import Links, neighbours_in

NOTICE_MS = 1_000
"""How long after a link or its other end is gone a broker notices."""


class BrokenOverlay(Simulation):
    """Links exist along the overlay only, until they break."""

    def __init__(self, *context: Any, links: Links, **more: Any) -> None:
        super().__init__(*context, **more)
        self.neighbours = neighbours_in(self.federation.ids, links)
        self.dead: dict[BrokerId, None] = {}
        self._cut: set[frozenset[BrokerId]] = set()

    def connect_all(self) -> None:
        for broker, neighbours in self.neighbours.items():
            for neighbour in neighbours:
                self.feed(broker, PeerUp(neighbour), Origin(None, self.now_ms))

    def lose(self, brokers: Iterable[BrokerId] = (), links: Iterable[tuple[BrokerId, BrokerId]] = ()) -> None:
        """Brokers and links vanish now; who is left at their ends notices later."""
        lost = [*links, *((broker, n) for broker in brokers for n in self.neighbours[broker])]
        self.dead.update(dict.fromkeys(brokers))
        for a, b in lost:
            self._cut.add(frozenset((a, b)))
            for end, other in ((a, b), (b, a)):
                self._push(self.now_ms + NOTICE_MS, FIFO_PHASE, Origin(None, self.now_ms), end, PeerDown(other))

    def left(self) -> dict[BrokerId, list[BrokerId]]:
        """The overlay as it is: who is linked with whom, without what vanished."""
        return {
            broker: [n for n in neighbours if n not in self.dead and frozenset((broker, n)) not in self._cut]
            for broker, neighbours in self.neighbours.items()
            if broker not in self.dead
        }

    def transmit(self, source: BrokerId, target: BrokerId, message: Message, origin: Origin) -> None:
        if frozenset((source, target)) not in self._cut:
            super().transmit(source, target, message, origin)

    def feed(self, broker: BrokerId, event: RoutingEvent, origin: Origin) -> None:
        over_lost_link = isinstance(event, PeerSaid) and frozenset((broker, event.peer)) in self._cut
        if broker not in self.dead and not over_lost_link:
            super().feed(broker, event, origin)

    def _wake(self, broker: BrokerId) -> None:
        if broker in self.dead:
            self._timers -= 1
            self._wakes.pop(broker, None)
        else:
            super()._wake(broker)
