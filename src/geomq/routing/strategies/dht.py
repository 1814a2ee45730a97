"""`dht`: the broker that a topic hashes to is the rendezvous of its events and of its subscriptions.

The key is the first topic level, so that wildcards in later levels work; a filter that starts with a wildcard is
held by every broker. Nothing is matched at home, as in the systems this stands for.
"""

from geomq.geo import Fence
from geomq.mqtt.codec.topics import first_level
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.rendezvous import RendezvousStrategy
from geomq.routing.strategies.ring import HashRing


class Dht(RendezvousStrategy):
    """Consistent hashing of topics to brokers."""

    plans = True
    places_directly = True

    def __init__(self, **context: object) -> None:
        super().__init__(**context)
        self._ring = HashRing(self.federation.ids)

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        return (self._owner(first_level(event.topic) or ""),)

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        key = first_level(topic_filter)
        return self.federation.ids if key is None else (self._owner(key),)

    def federation_changed(self, before: Federation, *, now: float) -> None:
        self._ring = HashRing(self.federation.ids)
        super().federation_changed(before, now=now)

    def _owner(self, key: str) -> BrokerId:
        return self.federation.ids[self._ring.owner(key)]
