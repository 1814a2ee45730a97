"""What the rendezvous strategies share: subscriptions are replicated to their rendezvous, events are sent to
theirs, and where both meet the event is matched and the homes of the matching subscribers are notified.

A strategy of this family is two rules: `event_targets` and `subscription_targets`. Everything that keeps replicas
true lives here, once: fence changes, moves, unsubscribes, sessions that end, peers that come back, areas redrawn.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from geomq.geo import Fence, Location
from geomq.routing.core.messages import (
    DeliverEvent,
    DropClient,
    DropSubscription,
    ForwardEvent,
    Message,
    Messages,
    PutLocation,
    PutSubscription,
    SyncBegin,
    SyncEnd,
)
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match, Subscriber
from geomq.routing.core.plan import Plan, ToPeer
from geomq.routing.core.strategy import ClientState, Strategy
from geomq.routing.core.table import SubscriptionTable
from geomq.routing.core.topology import Federation

REPLICAS_MAX = 10_000_000
"""Subscriptions one broker holds at most; what comes after that is not taken in."""


class Replicas(SubscriptionTable):
    """A table that can be brought up to date by repetition: what a peer no longer mentions is swept out."""

    def __init__(self) -> None:
        super().__init__()
        self._unmentioned: dict[BrokerId, dict[Subscriber, dict[str, None]]] = {}

    def begin(self, peer: BrokerId) -> None:
        """The peer starts to repeat what it has here."""
        self._unmentioned[peer] = {
            subscriber: dict.fromkeys(self.filters(subscriber))
            for subscriber in self.subscribers()
            if subscriber.home == peer
        }

    def put(self, subscriber: Subscriber, topic_filter: str, fence: Fence | None, location: Location | None) -> None:
        if len(self) >= REPLICAS_MAX and topic_filter not in self.filters(subscriber):
            return
        unmentioned = self._unmentioned.get(subscriber.home)
        if unmentioned and subscriber in unmentioned:
            unmentioned[subscriber].pop(topic_filter, None)
        super().put(subscriber, topic_filter, fence, location)

    def end(self, peer: BrokerId) -> None:
        """The peer has repeated everything."""
        for subscriber, filters in self._unmentioned.pop(peer, {}).items():
            for topic_filter in filters:
                self.drop(subscriber, topic_filter)

    def drop_home(self, home: BrokerId) -> None:
        """Forget everything of a broker."""
        for subscriber in self.subscribers():
            if subscriber.home == home:
                self.drop_subscriber(subscriber)


class RendezvousStrategy(Strategy, ABC):
    """Replicates subscriptions to rendezvous and matches events there.

    `plans` says that the two rules, and `notifies`, are all that decides about plain events. It holds for the very
    class that says so: one derived from it may see to more.
    """

    messages: ClassVar[Messages] = (
        PutSubscription,
        DropSubscription,
        DropClient,
        PutLocation,
        SyncBegin,
        SyncEnd,
    )
    plans: ClassVar[bool] = False

    @abstractmethod
    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        """The brokers (maybe `me`) that match an event of an own client."""

    @abstractmethod
    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        """The brokers (maybe `me`) that hold a subscription of an own client."""

    def notifies(self, event: Event, home: BrokerId) -> bool:
        """Whether this rendezvous is the one to notify `home` that the event matched."""
        return True

    def __init__(self, **context: object) -> None:
        super().__init__(**context)  # type: ignore[arg-type]
        self.table = Replicas()
        self._placed: dict[ClientId, dict[str, tuple[BrokerId, ...]]] = {}

    def published(self, event: Event, *, now: float) -> None:
        targets = self.event_targets(event)
        for target in targets:
            if target != self.me:
                self.send(target, ForwardEvent(event))
        if self.me in targets:
            self.match_here(event)

    def match_here(self, event: Event) -> None:
        """Match an event against everything this rendezvous holds and notify the homes concerned."""
        for home, matches in self.table.match(event).items():
            if home == self.me:
                self.deliver(event, self.seen.unseen(event.id, matches))
            elif self.notifies(event, home):
                self.send(home, DeliverEvent(event, matches))

    @property
    def _plans(self) -> bool:
        return bool(type(self).__dict__.get("plans", False))

    def plan(self, topic: str) -> Plan | None:
        if not self._plans:
            return None
        event = _plain(self.me, topic)
        targets = self.event_targets(event)
        peers = [ToPeer(target, None) for target in targets if target != self.me]
        if self.me not in targets:
            return Plan((), tuple(peers))
        matched = self.table.match_anywhere(topic)
        if matched is None:
            return None
        peers += [
            ToPeer(home, matches) for home, matches in matched.items() if home != self.me and self.notifies(event, home)
        ]
        return Plan(matched.get(self.me, ()), tuple(peers))

    def plan_forwarded(self, topic: str, origin: BrokerId) -> tuple[Match, ...] | None:
        if not self._plans:
            return None
        matched, event = self.table.match_anywhere(topic), _plain(origin, topic)
        if matched is None or any(home != self.me and self.notifies(event, home) for home in matched):
            return None
        return matched.get(self.me, ())

    def plan_delivered(self, matches: tuple[Match, ...]) -> tuple[Match, ...] | None:
        return tuple(match for match in matches if self._has(match)) if self._plans else None

    def plans_since(self) -> int:
        return self.table.version

    def subscribed(self, client: ClientId, topic_filter: str, fence: Fence | None, *, now: float) -> None:
        self.place(client, topic_filter, changed=True)

    def unsubscribed(self, client: ClientId, topic_filter: str, *, now: float) -> None:
        placed = self._placed.get(client, {})
        for target in placed.pop(topic_filter, ()):
            self._drop_at(target, client, topic_filter)
        if not placed:
            self._placed.pop(client, None)

    def moved(self, client: ClientId, location: Location | None, *, now: float) -> None:
        for holder in self.holders(client):
            if holder == self.me:
                self.table.move(Subscriber(self.me, client), location)
            else:
                self.send(holder, PutLocation(client, location))

    def gone(self, client: ClientId, state: ClientState, *, now: float) -> None:
        for holder in self.holders(client):
            if holder == self.me:
                self.table.drop_subscriber(Subscriber(self.me, client))
            else:
                self.send(holder, DropClient(client))
        self._placed.pop(client, None)

    def holders(self, client: ClientId) -> tuple[BrokerId, ...]:
        """The brokers that hold any subscription of an own client: where its moves have to be sent."""
        return tuple(dict.fromkeys(t for targets in self._placed.get(client, {}).values() for t in targets))

    def place(self, client: ClientId, topic_filter: str, *, changed: bool = False) -> None:
        """Bring a subscription to exactly its rendezvous; with `changed` those that hold it already get it again."""
        state = self.clients[client]
        fence = state.subscriptions[topic_filter]
        before = self._placed.get(client, {}).get(topic_filter, ())
        after = self.subscription_targets(client, topic_filter, fence)
        for target in after:
            if changed or target not in before:
                self._put_at(target, client, topic_filter, fence, state.location)
        for target in before:
            if target not in after:
                self._drop_at(target, client, topic_filter)
        self._placed.setdefault(client, {})[topic_filter] = after

    def replace_all(self) -> None:
        """Targets may have changed: bring every subscription to where it belongs now."""
        for client, state in self.clients.items():
            for topic_filter in state.subscriptions:
                self.place(client, topic_filter)

    def _put_at(
        self, target: BrokerId, client: ClientId, topic_filter: str, fence: Fence | None, at: Location | None
    ) -> None:
        if target == self.me:
            self.table.put(Subscriber(self.me, client), topic_filter, fence, at)
        else:
            self.send(target, PutSubscription(client, topic_filter, fence, at))

    def _drop_at(self, target: BrokerId, client: ClientId, topic_filter: str) -> None:
        if target == self.me:
            self.table.drop(Subscriber(self.me, client), topic_filter)
        elif target in self.federation.position:
            self.send(target, DropSubscription(client, topic_filter))

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        match message:
            case ForwardEvent(event=event):
                self.match_here(event)
            case DeliverEvent(event=event, matches=matches):
                self._deliver_matched(event, matches)
            case PutSubscription(client=client, topic_filter=topic_filter, fence=fence, location=location):
                self.table.put(Subscriber(peer, client), topic_filter, fence, location)
            case DropSubscription():
                self.table.drop(Subscriber(peer, message.client), message.topic_filter)
            case DropClient(client=client):
                self.table.drop_subscriber(Subscriber(peer, client))
            case PutLocation(client=client, location=location):
                self.table.move(Subscriber(peer, client), location)
            case SyncBegin():
                self.table.begin(peer)
            case SyncEnd():
                self.table.end(peer)

    def _deliver_matched(self, event: Event, matches: tuple[Match, ...]) -> None:
        """A rendezvous matched for us; a subscription that ended meanwhile is not served."""
        live = tuple(m for m in matches if self._has(m))
        fresh = self.seen.unseen(event.id, live)
        if fresh:
            self.deliver(event, fresh)
        else:
            self.drop(event.id, "duplicate" if live else "no longer subscribed")

    def _has(self, match: Match) -> bool:
        state = self.clients.get(match.client)
        return state is not None and match.topic_filter in state.subscriptions

    def peer_up(self, peer: BrokerId, *, now: float) -> None:
        self.send(peer, SyncBegin())
        for client, placed in self._placed.items():
            state = self.clients[client]
            for topic_filter, targets in placed.items():
                if peer in targets:
                    fence = state.subscriptions[topic_filter]
                    self.send(peer, PutSubscription(client, topic_filter, fence, state.location))
        self.sync_extras(peer)
        self.send(peer, SyncEnd())

    def sync_extras(self, peer: BrokerId) -> None:
        """Whatever else a strategy has to repeat to a peer that may have forgotten it."""

    def federation_changed(self, before: Federation, *, now: float) -> None:
        for broker in before.ids:
            if broker not in self.federation.position:
                self.table.drop_home(broker)
        self.replace_all()

    def inherit(self, before: Self) -> None:
        super().inherit(before)
        self.table = before.table

    def state_size(self) -> int:
        return len(self.table) + sum(len(placed) for placed in self._placed.values())


def _plain(origin: BrokerId, topic: str) -> Event:
    """Stands for all plain events of a topic."""
    return Event(EventId(origin, 0, 0), topic, ClientId(""), None, None)
