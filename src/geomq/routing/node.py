"""A broker's core: its clients' locations and subscriptions, and one strategy. The only door a driver uses.

    actions = node.handle(event, now=...)      # something happened
    deadline = node.next_deadline()            # call on_deadline then
    actions = node.on_deadline(now=...)

A driver that carries these actions out, in order, is all a strategy needs to run: live, simulated or in a test.

Topics under `$SYS/` are about one broker: no strategy hears of them, and their events never leave home. Nor do
strategies hear of share groups, which are the same under all of them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from geomq.errors import GeomqError
from geomq.geo import Fence, Location
from geomq.routing.actions import Action, DeliverToClients, SendToPeer
from geomq.routing.events import (
    ClientArrived,
    ClientDeparted,
    ClientGone,
    ClientMoved,
    ClientPublished,
    ClientReady,
    ClientSubscribed,
    ClientUnsubscribed,
    FederationChanged,
    LatencyMeasured,
    PeerDown,
    PeerSaid,
    PeerUp,
    RetainedHeard,
    RoutingEvent,
)
from geomq.routing.federation import Federation
from geomq.routing.model import CONFIGURED, BrokerId, ClientId, Edition, Event, EventId, Match, Subscriber
from geomq.routing.plan import Plan
from geomq.routing.registry import strategy_class
from geomq.routing.shared import Group, ServeShared, SharedGroups
from geomq.routing.strategy import ClientState, Dice, Strategy
from geomq.routing.table import SubscriptionTable
from geomq.routing.travellers import HAD_MAX, DeliverMoved, Travellers
from geomq.routing.young import YoungSubscriptions

WATCHER = ClientId("\0share")
"""Who subscribes, for share groups, to what publishers outside the federation publish."""


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
        self.strategies: list[Strategy] = [self.strategy]
        """All that hear of the clients; `strategy` is the one that gets their events."""
        self.turns = 0
        """How often anything was taken in: as long as it stays the same, `plans_since` does."""
        self._sequence = 0
        self._own = SubscriptionTable()
        """Subscriptions to what is about this broker."""
        self.shared = SharedGroups(me, self.strategy.act, federation)
        self._own_shared = SharedGroups(me, self.strategy.act)
        self._young = YoungSubscriptions(me, self.clients)
        self.travellers = Travellers(me, federation, self.strategy.act)
        self._hops = 0
        """How many brokers that a client left the event in hand has passed."""
        self._handlers: dict[type[RoutingEvent], Callable[[Any, float], None]] = {
            ClientPublished: self._published,
            ClientMoved: self._moved,
            ClientSubscribed: self._subscribed,
            ClientUnsubscribed: self._unsubscribed,
            ClientGone: self._gone,
            ClientReady: self._ready,
            RetainedHeard: self._retained_heard,
            ClientDeparted: lambda e, now: self.travellers.departed(e.client, e.to, now=now),
            ClientArrived: self._arrived,
            PeerSaid: self._peer_said,
            PeerUp: self._peer_up,
            PeerDown: self._peer_down,
            LatencyMeasured: self._measured,
            FederationChanged: self._federation_changed,
        }

    def ask_rights(self, may_read: Callable[[ClientId, str], bool]) -> None:
        """Have the driver say whether an own client may read a topic, so that those that may get what groups share."""
        for shared in (self.shared, self._own_shared):
            shared.may_read = may_read

    @property
    def editions(self) -> tuple[Edition, ...]:
        """Of which editions of the federation description there is a routing."""
        return (CONFIGURED,)

    def handle(self, event: RoutingEvent, *, now: float) -> list[Action]:
        """Take in what happened; return what is to be done."""
        self.turns += 1
        self._hops = 0
        self._handlers[type(event)](event, now)
        return self._take_actions()

    # Plain events need not be handled one by one: see `plan`.

    def plan(self, topic: str) -> Plan | None:
        """Where plain events of own clients on this topic go as long as `plans_since` stays the same, or None."""
        if is_own(topic) or len(self.travellers) or self.shared.concerns(topic):
            return None
        return self.strategy.plan(topic)

    def plan_arrival(
        self, topic: str, peer: BrokerId, matches: tuple[Match, ...] | None, edition: Edition | None
    ) -> tuple[Match, ...] | None:
        """The own subscriptions that plain events match which a peer forwards, or has matched; None if it depends."""
        if is_own(topic) or len(self.travellers) or edition != self.plan_edition:
            return None
        if peer not in self.strategy.federation.position:
            return None
        if matches is None:
            return self.strategy.plan_forwarded(topic, peer)
        return self.strategy.plan_delivered(matches)

    def plans_since(self) -> object:
        """Something that is no longer equal when plans may have changed."""
        if len(self.travellers):
            return None
        return self.strategy, self.strategy.federation, self.strategy.plans_since() + self.shared.version

    @property
    def plan_edition(self) -> Edition | None:
        """What messages that follow a plan are marked with."""
        return None

    @property
    def next_id(self) -> EventId:
        """The id of the next event that an own client publishes."""
        return EventId(self.me, self.epoch, self._sequence + 1)

    def take_ids(self, count: int, own: frozenset[ClientId]) -> int:
        """The sequence of the first of this many ids, for events that reach these own clients but do not pass through
        the node."""
        first = self._sequence + 1
        self._sequence += count
        self.strategy.seen.history((self.me, self.epoch)).run(first, count, own)
        return first

    def next_deadline(self) -> float | None:
        deadline, other = self.strategy.next_deadline(), self.travellers.next_deadline()
        if deadline is None or other is None:
            return other if deadline is None else deadline
        return min(deadline, other)

    def on_deadline(self, *, now: float) -> list[Action]:
        self.turns += 1
        self._hops = 0
        wanted = self.strategy.next_deadline()
        if wanted is not None and wanted <= now:
            self.strategy.on_deadline(now=now)
        wanted = self.travellers.next_deadline()
        if wanted is not None and wanted <= now:
            self.travellers.on_deadline(now=now)
        return self._take_actions()

    def _take_actions(self) -> list[Action]:
        actions = self.strategy.take_actions()
        if self._hears_outsiders:
            actions = self._decided(actions)
        return self._sort_out(actions) if len(self.travellers) else actions

    def _sort_out(self, actions: list[Action]) -> list[Action]:
        """Let events follow clients that left; what is sent after them they have not had yet."""
        actions = self.travellers.sort_out(actions, hops=self._hops)
        for action in actions:
            if isinstance(action, SendToPeer) and isinstance(action.message, DeliverMoved):
                for match in action.message.matches:
                    for strategy in self.strategies:
                        strategy.seen.forget(action.message.event.id, match.client)
        return actions

    @property
    def _hears_outsiders(self) -> bool:
        for strategy in self.strategies:  # noqa: SIM110 - asked for every event; a generator costs more
            if strategy.hears_outsiders:
                return True
        return False

    def _decided(self, actions: list[Action]) -> list[Action]:
        """Let share groups decide on events from outside that were matched for them."""
        found: list[Action] = []
        for action in actions:
            if isinstance(action, DeliverToClients) and any(m.client == WATCHER for m in action.matches):
                event, matches = action.event, tuple(m for m in action.matches if m.client != WATCHER)
                if matches:
                    found.append(DeliverToClients(event, matches))
                fetched = event.retain and event.id.epoch == 0  # retained at the cloud: an old event, heard again
                if event.id.origin not in self.strategy.federation.position and not fetched:
                    self.shared.came_from_outside(event)
                    found += self.strategy.take_actions()
            else:
                found.append(action)
        return found

    def _watch(self, now: float) -> None:
        """Hear of events from outside for exactly those share groups that this broker decides for."""
        if not self._hears_outsiders:
            return
        held, wanted = self.clients.get(WATCHER, ClientState()).subscriptions, self.shared.watched()
        for topic_filter in wanted:
            if topic_filter not in held:
                self._subscribed(ClientSubscribed(WATCHER, topic_filter), now)
        for topic_filter in tuple(held):
            if topic_filter not in wanted:
                self._unsubscribed(ClientUnsubscribed(WATCHER, topic_filter), now)

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
            self._own_shared.published(event)
        else:
            self.strategy.published(event, now=now)
            self.shared.published(event)

    def _moved(self, happened: ClientMoved, now: float) -> None:
        self._come_back(happened.client, now)
        state = self.clients.setdefault(happened.client, ClientState())
        if state.location != happened.location:
            state.location = happened.location
            self._own.move(Subscriber(self.me, happened.client), happened.location)
            for shared in (self.shared, self._own_shared):
                shared.moved(happened.client, happened.location)
            for strategy in self.strategies:
                strategy.moved(happened.client, happened.location, now=now)

    def _subscribed(self, happened: ClientSubscribed, now: float) -> None:
        self._come_back(happened.client, now)
        state = self.clients.setdefault(happened.client, ClientState())
        if happened.share is not None:
            group = Group(happened.share, happened.topic_filter)
            self._shared_of(group).join(happened.client, group, happened.fence, state.location)
            self._watch(now)
            return
        if is_own(happened.topic_filter):
            subscriber = Subscriber(self.me, happened.client)
            self._own.put(subscriber, happened.topic_filter, happened.fence, state.location)
            return
        state.subscriptions[happened.topic_filter] = happened.fence
        self._young.put(happened.client, happened.topic_filter, now=now)
        for strategy in self.strategies:
            strategy.subscribed(happened.client, happened.topic_filter, happened.fence, now=now)

    def _retained_heard(self, happened: RetainedHeard, now: float) -> None:
        """Clients that subscribed too late for its publisher's broker to know get it from here."""
        event = happened.event
        matches = self._young.match(event, now=now)
        for strategy in self.strategies:
            matches = strategy.seen.unseen(event.id, matches) if matches else ()
        if matches:
            self.strategy.deliver(event, matches)

    def _shared_of(self, group: Group) -> SharedGroups:
        return self._own_shared if is_own(group.topic_filter) else self.shared

    def _unsubscribed(self, happened: ClientUnsubscribed, now: float) -> None:
        if happened.share is not None:
            group = Group(happened.share, happened.topic_filter)
            self._shared_of(group).leave(happened.client, group)
            self._watch(now)
            return
        self._own.drop(Subscriber(self.me, happened.client), happened.topic_filter)
        state = self.clients.get(happened.client)
        if state is not None and happened.topic_filter in state.subscriptions:
            del state.subscriptions[happened.topic_filter]
            for strategy in self.strategies:
                strategy.unsubscribed(happened.client, happened.topic_filter, now=now)

    def fence_of(self, client: ClientId, topic_filter: str, share: str | None) -> Fence | None:
        """The fence of an own client's subscription."""
        if share is not None:
            group = Group(share, topic_filter)
            return self._shared_of(group).fence_of(client, group)
        state = self.clients.get(client)
        return None if state is None else state.subscriptions.get(topic_filter)

    def better_home(self, location: Location | None) -> BrokerId | None:
        """The broker in whose area a client is, if that is another."""
        home = None if location is None else self.strategy.federation.owner(location)
        return None if home == self.me else home

    def had_by(self, clients: Iterable[ClientId]) -> tuple[EventId, ...]:
        """The latest events that any of these had, here or at a former home."""
        wanted = frozenset(clients)
        had = dict.fromkeys((*self.travellers.had_by(wanted), *self.strategy.seen.had_by(wanted)))
        return tuple(had)[-HAD_MAX:]

    def _arrived(self, happened: ClientArrived, now: float) -> None:
        self._come_back(happened.client, now)
        self.travellers.arrived(happened.client, happened.had, now=now)

    def _come_back(self, client: ClientId, now: float) -> None:
        """A client that acts here is here: what was kept since it left is void."""
        for each in self.travellers.left(client):
            self._gone(ClientGone(each), now)

    def _gone(self, happened: ClientGone, now: float) -> None:
        self.travellers.forget(happened.client)
        self._own.drop_subscriber(Subscriber(self.me, happened.client))
        for shared in (self.shared, self._own_shared):
            shared.gone(happened.client)
        self._watch(now)
        state = self.clients.pop(happened.client, None)
        if state is not None:
            for strategy in self.strategies:
                strategy.gone(happened.client, state, now=now)

    def _measured(self, happened: LatencyMeasured, now: float) -> None:
        for strategy in self.strategies:
            strategy.latency_measured(happened.peer, happened.latency_ms, now=now)

    def _ready(self, happened: ClientReady, now: float) -> None:
        for shared in (self.shared, self._own_shared):
            shared.ready(happened.client, happened.ready)

    def _peer_said(self, happened: PeerSaid, now: float) -> None:
        peer, message = happened.peer, happened.message
        if happened.edition is not None or not self._is_broker(peer):
            self._pass_on(happened, now)
        elif isinstance(message, DeliverMoved):
            self._deliver_moved(message)
        elif (forgotten := self.travellers.said(peer, message, now=now)) is not None:
            for client in forgotten:
                self._gone(ClientGone(client), now)
        elif isinstance(message, ServeShared):
            self.shared.said(peer, message)
        elif self.shared.said(peer, message):
            self._watch(now)
        else:
            self._pass_on(happened, now)

    def _is_broker(self, peer: BrokerId) -> bool:
        return peer in self.strategy.federation.position

    def _pass_on(self, happened: PeerSaid, now: float) -> None:
        """A message for the strategy."""
        self.strategy.said(happened.peer, happened.message, now=now)

    def _deliver_moved(self, message: DeliverMoved) -> None:
        """A former home of some clients matched an event for them."""
        self._hops = max(1, message.hops)
        live = tuple(
            match
            for match in message.matches
            if match.client in self.clients and match.topic_filter in self.clients[match.client].subscriptions
        )
        fresh = self.strategy.seen.unseen(message.event.id, live)
        if fresh:
            self.strategy.deliver(message.event, fresh)
        else:
            self.strategy.drop(message.event.id, "duplicate" if live else "no longer subscribed")

    def _peer_up(self, happened: PeerUp, now: float) -> None:
        self.strategy.peer_up(happened.peer, now=now)
        self.shared.peer_up(happened.peer)
        self.travellers.peer_up(happened.peer, now=now)
        self._watch(now)

    def _peer_down(self, happened: PeerDown, now: float) -> None:
        self.strategy.peer_down(happened.peer, now=now)
        self.shared.peer_down(happened.peer)
        self.travellers.peer_down(happened.peer)
        self._watch(now)

    def inherit(self, before: Self, *, now: float) -> None:
        """Take over what a broker keeps on disk from the node that ran before a restart."""
        self.strategy.inherit(before.strategy)
        self.shared.inherit(before.shared)
        for client, state in before.clients.items():
            self.handle(ClientMoved(client, state.location), now=now)
            for topic_filter, fence in state.subscriptions.items():
                self.handle(ClientSubscribed(client, topic_filter, fence), now=now)
        for member, (share, topic_filter), fence in before.shared.own():
            self.handle(ClientSubscribed(member.client, topic_filter, fence, share), now=now)
        self.travellers.inherit(before.travellers)

    def _federation_changed(self, happened: FederationChanged, now: float) -> None:
        type(self.strategy).check(happened.federation)
        before, self.strategy.federation = self.strategy.federation, happened.federation
        self.strategy.federation_changed(before, now=now)
        self._brokers_changed(happened.federation.ids, now)

    def _brokers_changed(self, brokers: tuple[BrokerId, ...], now: float) -> None:
        """What all strategies have in common hears who the brokers are."""
        self.shared.federation_changed(brokers)
        for client in self.travellers.federation_changed(brokers, now=now):
            self._gone(ClientGone(client), now)
        self._watch(now)
