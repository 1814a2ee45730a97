"""`disgb_subscriptions`: rendezvous close to the publishers.

A subscription goes to every broker whose coverage meets its fence, because only there can a publisher be inside it;
not even its home keeps it for matching if the home's coverage does not meet the fence. Events are matched at their
publisher's home and travel only to homes with a match. Moves go wherever any of the client's subscriptions is held.
"""

from geomq.geo import Fence
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.strategies.coverage import CoverageStrategy


class DisgbSubscriptions(CoverageStrategy):
    """Subscriptions are distributed by their fence."""

    plans = True
    places_directly = True

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        return (self.me,)

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        return self.meeting(fence)
