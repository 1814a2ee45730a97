"""Who should have received what: every subscription asked, one by one, with the definition of "delivered".

It knows nothing of brokers. In a quiet network every strategy has to deliver exactly this.
"""

from geomq.geo import Fence, Location
from geomq.mqtt.codec.topics import topic_matches
from geomq.routing.core.events import (
    ClientGone,
    ClientMoved,
    ClientPublished,
    ClientSubscribed,
    ClientUnsubscribed,
    RoutingEvent,
)
from geomq.routing.core.model import ClientId
from geomq.routing.sharing.groups import Group


class Oracle:
    """Follows the clients' actions and names the receivers of each publish."""

    def __init__(self) -> None:
        self.locations: dict[ClientId, Location | None] = {}
        self.subscriptions: dict[str, dict[ClientId, Fence | None]] = {}
        self.shared: dict[Group, dict[ClientId, Fence | None]] = {}

    def observe(self, event: RoutingEvent) -> frozenset[ClientId] | None:
        """Take in a client's action; for a publish, return who must receive it."""
        self.note(event)
        return self.receivers(event) if isinstance(event, ClientPublished) else None

    def note(self, event: RoutingEvent) -> None:
        """Take in a client's action."""
        match event:
            case ClientMoved(client=client, location=location):
                self.locations[client] = location
            case ClientSubscribed(client=client, topic_filter=topic_filter, fence=fence, share=str(share)):
                self.shared.setdefault(Group(share, topic_filter), {})[client] = fence
            case ClientUnsubscribed(client=client, topic_filter=topic_filter, share=str(share)):
                self.shared.get(Group(share, topic_filter), {}).pop(client, None)
            case ClientSubscribed(client=client, topic_filter=topic_filter, fence=fence):
                self.subscriptions.setdefault(topic_filter, {})[client] = fence
            case ClientUnsubscribed(client=client, topic_filter=topic_filter):
                self.subscriptions.get(topic_filter, {}).pop(client, None)
            case ClientGone(client=client):
                self.locations.pop(client, None)
                for holders in (*self.subscriptions.values(), *self.shared.values()):
                    holders.pop(client, None)
            case ClientPublished(client=client, location=location) if location is not None:
                self.locations[client] = location

    def receivers(self, event: ClientPublished) -> frozenset[ClientId]:
        publisher = self.locations.get(event.client)
        return frozenset(
            client
            for topic_filter, subscribers in self.subscriptions.items()
            if topic_matches(topic_filter, event.topic)
            for client, fence in subscribers.items()
            if inside(event.fence, self.locations.get(client)) and inside(fence, publisher)
        )

    def candidates(self, event: ClientPublished) -> dict[Group, frozenset[ClientId]]:
        """For each share group the event is meant for, the members of whom exactly one must receive it."""
        publisher = self.locations.get(event.client)
        found = {
            group: frozenset(
                client
                for client, fence in members.items()
                if inside(event.fence, self.locations.get(client)) and inside(fence, publisher)
            )
            for group, members in self.shared.items()
            if topic_matches(group.topic_filter, event.topic)
        }
        return {group: members for group, members in found.items() if members}


def inside(fence: Fence | None, location: Location | None) -> bool:
    """Whether a check passes: no fence always, no location never."""
    return fence is None or (location is not None and fence.contains(location))
