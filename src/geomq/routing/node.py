"""A broker's core: its clients' locations and subscriptions, and one strategy. The only door a driver uses.

    actions = node.handle(event, now=...)      # something happened
    deadline = node.next_deadline()            # call on_deadline then
    actions = node.on_deadline(now=...)

A driver that carries these actions out, in order, is all a strategy needs to run: live, simulated or in a test.

Topics under `$SYS/` are about one broker: no strategy hears of them, and their events never leave home.
"""

from collections.abc import Callable, Mapping
from typing import Any

from geomq.errors import GeomqError
from geomq.routing.actions import Action
from geomq.routing.events import (
    ClientGone,
    ClientMoved,
    ClientPublished,
    ClientSubscribed,
    ClientUnsubscribed,
    FederationChanged,
    LatencyMeasured,
    PeerDown,
    PeerSaid,
    PeerUp,
    RoutingEvent,
)
from geomq.routing.federation import Federation
from geomq.routing.model import BrokerId, ClientId, Event, EventId, Subscriber
from geomq.routing.registry import strategy_class
from geomq.routing.strategy import ClientState, Dice, Strategy
from geomq.routing.table import SubscriptionTable


def is_own(topic: str) -> bool:
    """Whether a topic or filter is about the broker itself."""
    return topic.startswith("$SYS/")


class Node:
    """One broker of a federation, without its sockets."""

    def __init__(
        self,
        *,
        me: BrokerId,
        federation: Federation,
        strategy: str,
        options: Mapping[str, Any] | None = None,
        epoch: int = 0,
        rng: Dice,
    ) -> None:
        if me not in federation.position:
            raise GeomqError(f"broker {me} is not in its own federation")
        chosen = strategy_class(strategy)
        chosen.check(federation)
        self.me = me
        self.epoch = epoch
        self.clients: dict[ClientId, ClientState] = {}
        self.strategy: Strategy = chosen(
            me=me,
            federation=federation,
            clients=self.clients,
            options=chosen.parse_options(options or {}),
            rng=rng,
        )
        self.latest: Event | None = None
        """The event that an own client published last."""
        self._sequence = 0
        self._own = SubscriptionTable()
        """Subscriptions to what is about this broker."""
        self._handlers: dict[type[RoutingEvent], Callable[[Any, float], None]] = {
            ClientPublished: self._published,
            ClientMoved: self._moved,
            ClientSubscribed: self._subscribed,
            ClientUnsubscribed: self._unsubscribed,
            ClientGone: self._gone,
            PeerSaid: lambda e, now: self.strategy.said(e.peer, e.message, now=now),
            PeerUp: lambda e, now: self.strategy.peer_up(e.peer, now=now),
            PeerDown: lambda e, now: self.strategy.peer_down(e.peer, now=now),
            LatencyMeasured: lambda e, now: self.strategy.latency_measured(e.peer, e.latency_ms, now=now),
            FederationChanged: self._federation_changed,
        }

    def handle(self, event: RoutingEvent, *, now: float) -> list[Action]:
        """Take in what happened; return what is to be done."""
        self._handlers[type(event)](event, now)
        return self.strategy.take_actions()

    def next_deadline(self) -> float | None:
        return self.strategy.next_deadline()

    def on_deadline(self, *, now: float) -> list[Action]:
        self.strategy.on_deadline(now=now)
        return self.strategy.take_actions()

    def _published(self, happened: ClientPublished, now: float) -> None:
        if happened.location is not None:
            self._moved(ClientMoved(happened.client, happened.location), now)
        state = self.clients.get(happened.client)
        self._sequence += 1
        event = self.latest = Event(
            EventId(self.me, self.epoch, self._sequence),
            happened.topic,
            happened.client,
            None if state is None else state.location,
            happened.fence,
            happened.payload,
            happened.qos,
            happened.retain,
            happened.properties,
            happened.at_ms,
        )
        if is_own(event.topic):
            self.strategy.deliver(event, self._own.match(event).get(self.me, ()))
        else:
            self.strategy.published(event, now=now)

    def _moved(self, happened: ClientMoved, now: float) -> None:
        state = self.clients.setdefault(happened.client, ClientState())
        if state.location != happened.location:
            state.location = happened.location
            self._own.move(Subscriber(self.me, happened.client), happened.location)
            self.strategy.moved(happened.client, happened.location, now=now)

    def _subscribed(self, happened: ClientSubscribed, now: float) -> None:
        state = self.clients.setdefault(happened.client, ClientState())
        if is_own(happened.topic_filter):
            subscriber = Subscriber(self.me, happened.client)
            self._own.put(subscriber, happened.topic_filter, happened.fence, state.location)
            return
        state.subscriptions[happened.topic_filter] = happened.fence
        self.strategy.subscribed(happened.client, happened.topic_filter, happened.fence, now=now)

    def _unsubscribed(self, happened: ClientUnsubscribed, now: float) -> None:
        self._own.drop(Subscriber(self.me, happened.client), happened.topic_filter)
        state = self.clients.get(happened.client)
        if state is not None and happened.topic_filter in state.subscriptions:
            del state.subscriptions[happened.topic_filter]
            self.strategy.unsubscribed(happened.client, happened.topic_filter, now=now)

    def _gone(self, happened: ClientGone, now: float) -> None:
        self._own.drop_subscriber(Subscriber(self.me, happened.client))
        state = self.clients.pop(happened.client, None)
        if state is not None:
            self.strategy.gone(happened.client, state, now=now)

    def _federation_changed(self, happened: FederationChanged, now: float) -> None:
        type(self.strategy).check(happened.federation)
        before, self.strategy.federation = self.strategy.federation, happened.federation
        self.strategy.federation_changed(before, now=now)
