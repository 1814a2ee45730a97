"""`single`, `flood_events`, `flood_subscriptions`: the baselines every other strategy is measured against."""

from geomq.errors import ConfigError
from geomq.geo import Fence
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.rendezvous import RendezvousStrategy


class Single(RendezvousStrategy):
    """One broker: every event meets every subscription at home."""

    plans = True
    places_directly = True

    @classmethod
    def check(cls, federation: Federation) -> None:
        if len(federation.ids) != 1:
            raise ConfigError(f"strategy single serves one broker; this federation has {len(federation.ids)}")

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        return (self.me,)

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        return (self.me,)


class FloodEvents(RendezvousStrategy):
    """Every broker is a rendezvous of every event; subscriptions stay at home."""

    plans = True
    places_directly = True

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        return self.federation.ids

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        return (self.me,)


class FloodSubscriptions(RendezvousStrategy):
    """The publisher's home is the only rendezvous of its events; it knows every subscription."""

    plans = True
    places_directly = True

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        return (self.me,)

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        return self.federation.ids
