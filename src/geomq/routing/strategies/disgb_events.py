"""`disgb_events`: rendezvous close to the subscribers.

An event goes to every broker whose coverage meets its fence, because only there can a subscriber be inside it.
Subscriptions stay at home. If the home's own coverage does not meet the fence, the event is not even matched there.
"""

from geomq.geo import Fence
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.strategies.coverage import CoverageStrategy


class DisgbEvents(CoverageStrategy):
    """Events are distributed by their fence."""

    plans = True
    places_directly = True

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        return self.meeting(event.fence)

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        return (self.me,)

    def reaches_all(self, event: Event) -> bool:
        return event.fence is None
