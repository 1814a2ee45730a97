"""Topics that are about one broker, `$SYS/`: no strategy knows of their subscriptions, and their events stay here."""

from collections.abc import Callable

from geomq.geo import Fence, Location
from geomq.routing.core.actions import Action, DeliverToClients
from geomq.routing.core.model import BrokerId, ClientId, Event, Subscriber
from geomq.routing.core.table import SubscriptionTable
from geomq.routing.sharing.groups import SharedGroups


def is_own(topic: str) -> bool:
    """Whether a topic or filter is about the broker itself."""
    return topic.startswith("$SYS/")


class OwnTopics:
    """Subscriptions of own clients to what is about this broker, and the share groups among them."""

    def __init__(self, me: BrokerId, act: Callable[[Action], None]) -> None:
        self._me = me
        self._act = act
        self._table = SubscriptionTable()
        self.shared = SharedGroups(me, act)

    def published(self, event: Event) -> None:
        matches = self._table.match(event).get(self._me, ())
        if matches:
            self._act(DeliverToClients(event, matches))
        self.shared.published(event)

    def moved(self, client: ClientId, location: Location | None) -> None:
        self._table.move(Subscriber(self._me, client), location)
        self.shared.moved(client, location)

    def subscribed(self, client: ClientId, topic_filter: str, fence: Fence | None, location: Location | None) -> None:
        self._table.put(Subscriber(self._me, client), topic_filter, fence, location)

    def unsubscribed(self, client: ClientId, topic_filter: str) -> None:
        self._table.drop(Subscriber(self._me, client), topic_filter)

    def gone(self, client: ClientId) -> None:
        self._table.drop_subscriber(Subscriber(self._me, client))
        self.shared.gone(client)
