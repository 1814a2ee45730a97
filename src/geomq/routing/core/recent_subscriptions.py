"""Subscriptions of own clients that are so recent that other brokers may not know of them yet.

An event published elsewhere at that moment is not sent to such a client's broker. If it is retained its broker sends it
to all, and the client gets it all the same, as it would have if all were one broker.
"""

from collections import deque
from collections.abc import Mapping

from geomq.mqtt.codec.topics import TopicTrie
from geomq.routing.core.model import BrokerId, ClientId, Event, Match, Subscriber
from geomq.routing.core.strategy import ClientState
from geomq.routing.core.table import SubscriptionTable

RECENT_MS = 10_000.0
"""A link over which a message takes longer has been given up."""
RECENT_MAX = 10_000


class RecentSubscriptions:
    """The latest subscriptions, the oldest first. Whether a client still has one, `clients` tells."""

    def __init__(self, me: BrokerId, clients: Mapping[ClientId, ClientState]) -> None:
        self._me = me
        self._clients = clients
        self._since: TopicTrie[dict[ClientId, float]] = TopicTrie()
        self._order: deque[tuple[float, ClientId, str]] = deque()

    def __len__(self) -> int:
        return len(self._order)

    def put(self, client: ClientId, topic_filter: str, *, now: float) -> None:
        """A client subscribed just now."""
        self._forget_old(now)
        if len(self._order) >= RECENT_MAX:
            self._forget_oldest()
        since = self._since.get(topic_filter)
        if since is None:
            since = {}
            self._since.put(topic_filter, since)
        since[client] = now
        self._order.append((now, client, topic_filter))

    def match(self, event: Event, *, now: float) -> tuple[Match, ...]:
        """The recent subscriptions that an event reaches."""
        self._forget_old(now)
        table = SubscriptionTable()
        for topic_filter, since in self._since.match_items(event.topic):
            for client in since:
                state = self._clients.get(client)
                if state is not None and topic_filter in state.subscriptions:
                    fence = state.subscriptions[topic_filter]
                    table.put(Subscriber(self._me, client), topic_filter, fence, state.location)
        return table.match(event).get(self._me, ())

    def _forget_old(self, now: float) -> None:
        while self._order and now - self._order[0][0] > RECENT_MS:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        at, client, topic_filter = self._order.popleft()
        since = self._since.get(topic_filter)
        if since is not None and since.get(client) == at:
            del since[client]
            if not since:
                self._since.remove(topic_filter)
