"""A broker's core: its clients' locations and subscriptions, and its strategy. The only door a driver uses.

    actions = node.handle(event, now=...)      # something happened
    deadline = node.next_deadline()            # call on_deadline then
    actions = node.on_deadline(now=...)

A driver that carries these actions out, in order, is all a strategy needs to run: live, simulated or in a test.

The node owns the clients and hands what happened to its parts: `routings` (the strategies, one for each live edition of
the federation description), `editions` (how that description changes), `shared` (share groups), `session_moves` (events
of clients that change brokers), `session_searches` (their sessions), `retained` (retained events, the same everywhere).
Each part answers with actions; what a broker sends about its editions comes after what its strategies sent to get
there.

Topics under `$SYS/` are about one broker: no strategy hears of them, and their events never leave home. Nor do
strategies hear of share groups, which are the same under all of them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import msgspec

from geomq.errors import UsageError
from geomq.geo import Fence, Location
from geomq.routing.core.actions import Action, DeliverToClients
from geomq.routing.core.events import (
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
    RoutingEvent,
    SharedReturned,
)
from geomq.routing.core.messages import OF_EVENTS
from geomq.routing.core.model import CONFIGURED, BrokerId, ClientId, Edition, Event, EventId, Match
from geomq.routing.core.plan import Plan
from geomq.routing.core.strategy import ClientState, Dice, Strategy
from geomq.routing.core.topology import Federation
from geomq.routing.federation.description import Description, describe
from geomq.routing.federation.editions import ChangeAsked, DescriptionLearned, Kept, start_of
from geomq.routing.federation.live_editions import LiveEditions
from geomq.routing.federation.routings import Routings
from geomq.routing.retained.sync import OF_RETAINED, RetainedSync
from geomq.routing.sessions.arrivals import HAD_MAX
from geomq.routing.sessions.moves import SessionMoves
from geomq.routing.sessions.searches import OF_SESSIONS, SessionSearches
from geomq.routing.sharing.groups import Group, ServeShared, SharedGroups
from geomq.routing.sharing.own_topics import OwnTopics, is_own

WATCHER = ClientId("\0share")
"""Who subscribes, for share groups, to what publishers outside the federation publish."""


class Node:
    """One broker of a federation, without its sockets."""

    def __init__(
        self,
        *,
        me: BrokerId,
        federation: Federation | None = None,
        strategy: str = "",
        options: Mapping[str, Any] | None = None,
        description: Description | None = None,
        epoch: int = 0,
        rng: Dice,
        kept: Kept | None = None,
        own_strategy: str = "",
    ) -> None:
        """Either a federation as it stands and the strategy it uses, or a description that may change at run time.

        With both, `federation` is what the description describes, made already. `kept` is what the broker had on disk
        of its editions, `own_strategy` the one of the user's own that descriptions may name.
        """
        if description is None:
            if federation is None:
                raise UsageError("a node needs a federation or the description of one")
            description = describe(federation, strategy, options or {})
        start = start_of(me, description, federation) if kept is None else start_of(me, kept.descriptions[0])
        self.me = me
        self.epoch = epoch
        self.clients: dict[ClientId, ClientState] = {}
        self._said: list[Action] = []
        """What the parts beside the strategies ask for."""
        act = self._said.append
        self.routings = Routings(me, self.clients, start, rng=rng, act=act)
        self.latest: Event | None = None
        """The event that an own client published last."""
        self.turns = 0
        """How often anything was taken in: as long as it stays the same, `plans_since` does."""
        self._sequence = 0
        self._own = OwnTopics(me, act)
        self.shared = SharedGroups(me, act, start.federation)
        self.session_moves = SessionMoves(
            me, start.federation, epoch=epoch, clients=self.clients, routings=self.routings, act=act
        )
        self.session_searches = SessionSearches(me, self.session_moves, act, lambda: self.strategy.federation.ids)
        self.editions = LiveEditions(
            me, start.description, self.routings, act=act, peers_changed=self._peers_changed, own_strategy=own_strategy
        )
        self.retained = RetainedSync(
            me, clients=self.clients, routings=self.routings, act=act, peers=lambda: self.editions.peers
        )
        self._handlers = self._make_handlers()
        if kept is not None:
            self.editions.restore(kept)

    def _make_handlers(self) -> dict[type[RoutingEvent], Callable[[Any, float], None]]:
        handlers: dict[type[RoutingEvent], Callable[[Any, float], None]] = {
            ClientPublished: self._published,
            ClientMoved: self._moved,
            ClientSubscribed: self._subscribed,
            ClientUnsubscribed: self._unsubscribed,
            ClientGone: self._gone,
            ClientReady: self._ready,
            SharedReturned: self._returned,
            ClientDeparted: lambda e, now: self.session_moves.departed(e.client, e.to, now=now),
            ClientArrived: self._arrived,
            PeerSaid: self._peer_said,
            PeerUp: self._peer_up,
            PeerDown: self._peer_down,
            LatencyMeasured: self._measured,
            FederationChanged: self._federation_changed,
            ChangeAsked: lambda e, now: self.editions.change(e.change, now),
            DescriptionLearned: lambda e, now: self.editions.learn(e.description, None, now),
        }
        handlers |= dict.fromkeys(OF_SESSIONS, self.session_searches.handle)
        return handlers | dict.fromkeys(OF_RETAINED, self.retained.handle)

    def ask_rights(self, may_read: Callable[[ClientId, str], bool]) -> None:
        """Have the driver say whether an own client may read a topic, so that those that may get what groups share."""
        for groups in (self.shared, self._own.shared):
            groups.ask_rights(may_read)

    @property
    def strategy(self) -> Strategy:
        """The one that gets own clients' events."""
        return self.routings.publishing

    def handle(self, event: RoutingEvent, *, now: float) -> list[Action]:
        """Take in what happened; return what is to be done."""
        self.turns += 1
        self._handlers[type(event)](event, now)
        if len(self.routings.live) > 1 and not isinstance(event, ClientPublished):
            self.editions.advance(now)
        return self._take_actions(now)

    # Plain events need not be handled one by one: see `plan`.

    def plan(self, topic: str) -> Plan | None:
        """Where plain events of own clients on this topic go as long as `plans_since` stays the same, or None."""
        if not self.routings.is_settled or is_own(topic) or len(self.session_moves) or self.shared.concerns(topic):
            return None
        return self.routings.publishing.plan(topic)

    def plan_arrival(
        self, topic: str, peer: BrokerId, matches: tuple[Match, ...] | None, edition: Edition | None
    ) -> tuple[Match, ...] | None:
        """The own subscriptions that plain events match which a peer forwards, or has matched; None if it depends."""
        routings = self.routings
        if len(routings.live) != 1 or is_own(topic) or len(self.session_moves) or edition != self.plan_edition:
            return None
        strategy = routings.publishing
        if peer not in strategy.federation.position:
            return None
        return strategy.plan_forwarded(topic, peer) if matches is None else strategy.plan_delivered(matches)

    def plans_since(self) -> object:
        """Something that is no longer equal when plans may have changed."""
        routings, strategy = self.routings, self.routings.publishing
        if len(routings.live) != 1 or len(self.session_moves):
            return None
        version = strategy.plans_since() + self.shared.version
        return strategy, strategy.federation, version, routings.is_settled

    @property
    def plan_edition(self) -> Edition | None:
        """What messages that follow a plan are marked with."""
        newest = self.routings.newest
        return None if newest == CONFIGURED else newest

    @property
    def next_id(self) -> EventId:
        """The id of the next event that an own client publishes."""
        return EventId(self.me, self.epoch, self._sequence + 1)

    def take_ids(self, count: int, own: frozenset[ClientId]) -> int:
        """The sequence of the first of this many ids, for events that reach these own clients but do not pass through
        the node."""
        first = self._sequence + 1
        self._sequence += count
        self.routings.publishing.seen.history((self.me, self.epoch)).run(first, count, own)
        return first

    def next_deadline(self) -> float | None:
        parts = (self.routings, self.session_moves, self.session_searches, self.retained, self.editions)
        return min([at for part in parts if (at := part.deadline) is not None], default=None)

    def on_deadline(self, *, now: float) -> list[Action]:
        self.turns += 1
        self.routings.on_deadline(now)
        for part in (self.session_moves, self.session_searches, self.retained):
            wanted = part.deadline
            if wanted is not None and wanted <= now:
                part.on_deadline(now=now)
        self.editions.advance(now)
        return self._take_actions(now)

    def _take_actions(self, now: float) -> list[Action]:
        actions = self.routings.take_actions()
        if self.routings.hears_outsiders:
            actions = self._decided(actions)
        if self._said:
            actions += self._said
            self._said.clear()
        actions = self.session_moves.sort_out(actions, now=now)
        if self._said:  # what is held has to be kept
            actions.extend(self._said)
            self._said.clear()
        return actions

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
            else:
                found.append(action)
        return found

    def _watch(self, now: float) -> None:
        """Hear of events from outside for exactly those share groups that this broker decides for."""
        hears = self.routings.hears_outsiders
        if not hears and WATCHER not in self.clients:
            return
        held, wanted = self.clients.get(WATCHER, ClientState()).subscriptions, self.shared.watched() if hears else {}
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
            happened.due_ms,
        )
        if is_own(event.topic):
            self._own.published(event)
        else:
            self.routings.publishing.published(event, now=now)
            self.shared.published(event)

    def _moved(self, happened: ClientMoved, now: float) -> None:
        self._come_back(happened.client, now)
        state = self.clients.setdefault(happened.client, ClientState())
        if state.location != happened.location:
            state.location = happened.location
            self._own.moved(happened.client, happened.location)
            self.shared.moved(happened.client, happened.location)
            for strategy in self.routings.strategies:
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
            self._own.subscribed(happened.client, happened.topic_filter, happened.fence, state.location)
            return
        if state.subscriptions.get(happened.topic_filter, happened) != happened.fence:
            self.session_moves.subscribed(happened.client, happened.topic_filter)
            self.retained.subscribed(happened.client, happened.topic_filter, now)
        state.subscriptions[happened.topic_filter] = happened.fence
        for strategy in self.routings.strategies:
            strategy.subscribed(happened.client, happened.topic_filter, happened.fence, now=now)

    def _shared_of(self, group: Group) -> SharedGroups:
        return self._own.shared if is_own(group.topic_filter) else self.shared

    def _unsubscribed(self, happened: ClientUnsubscribed, now: float) -> None:
        if happened.share is not None:
            group = Group(happened.share, happened.topic_filter)
            self._shared_of(group).leave(happened.client, group)
            self._watch(now)
            return
        self._own.unsubscribed(happened.client, happened.topic_filter)
        state = self.clients.get(happened.client)
        if state is not None and happened.topic_filter in state.subscriptions:
            del state.subscriptions[happened.topic_filter]
            for strategy in self.routings.strategies:
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
        had = dict.fromkeys((*self.session_moves.had_by(wanted), *self.strategy.seen.had_by(wanted)))
        return tuple(had)[-HAD_MAX:]

    def _arrived(self, happened: ClientArrived, now: float) -> None:
        self._come_back(happened.client, now)
        self.session_moves.arrived(happened.client, happened.had, now=now)

    def _come_back(self, client: ClientId, now: float) -> None:
        """A client that acts here is here: what was kept since it left is void."""
        for each in self.session_moves.left(client):
            self._gone(ClientGone(each), now)

    def _gone(self, happened: ClientGone, now: float) -> None:
        self.session_moves.forget(happened.client)
        self._own.gone(happened.client)
        self.shared.gone(happened.client)
        self._watch(now)
        state = self.clients.pop(happened.client, None)
        if state is not None:
            for strategy in self.routings.strategies:
                strategy.gone(happened.client, state, now=now)

    def _measured(self, happened: LatencyMeasured, now: float) -> None:
        for strategy in self.routings.strategies:
            strategy.latency_measured(happened.peer, happened.latency_ms, now=now)

    def _ready(self, happened: ClientReady, now: float) -> None:
        self.shared.ready(happened.client, happened.ready)
        self._own.shared.ready(happened.client, happened.ready)

    def _returned(self, happened: SharedReturned, now: float) -> None:
        self._sequence += 1
        group = Group(happened.share, happened.topic_filter)
        event_id = EventId(self.me, self.epoch, self._sequence)
        self._shared_of(group).returned(msgspec.structs.replace(happened.event, id=event_id), group)

    def _peer_said(self, happened: PeerSaid, now: float) -> None:
        peer, message = happened.peer, happened.message
        if happened.edition is not None or isinstance(message, OF_EVENTS):
            self.routings.said(happened, now)
        elif self.editions.said(peer, message, now):
            pass
        elif self.session_searches.said(peer, message, now):
            pass  # also of a broker that is about to leave
        elif not self.routings.knows(peer):
            self.routings.said(happened, now)
        elif self.retained.said(peer, message, now=now):
            pass
        elif (forgotten := self.session_moves.said(peer, message, now=now)) is not None:
            for client in forgotten:
                self._gone(ClientGone(client), now)
        elif isinstance(message, ServeShared):
            self.shared.said(peer, message)
        elif self.shared.said(peer, message):
            self._watch(now)
        else:
            self.routings.said(happened, now)

    def _peer_up(self, happened: PeerUp, now: float) -> None:
        self.routings.peer_up(happened.peer, now)
        self.shared.peer_up(happened.peer)
        self.session_moves.peer_up(happened.peer, now=now)
        self.session_searches.peer_up(happened.peer)
        self._watch(now)
        self.retained.peer_up(happened.peer)
        self.editions.peer_up(happened.peer)

    def _peer_down(self, happened: PeerDown, now: float) -> None:
        self.routings.peer_down(happened.peer, now)
        self.shared.peer_down(happened.peer)
        self.session_moves.peer_down(happened.peer)
        self.session_searches.peer_down(happened.peer, now)
        self._watch(now)
        self.retained.peer_down(happened.peer)
        self.editions.peer_down(happened.peer)

    def _federation_changed(self, happened: FederationChanged, now: float) -> None:
        type(self.strategy).check(happened.federation)
        self.editions.replace(happened.federation, now)

    def _peers_changed(self, now: float) -> None:
        """Share groups and sessions that move span all brokers of live descriptions."""
        brokers = (self.me, *self.editions.peers)
        self.shared.federation_changed(brokers)
        self.session_searches.federation_changed(brokers)
        for client in self.session_moves.federation_changed(brokers, now=now):
            self._gone(ClientGone(client), now)
        self._watch(now)
        for peer in self.routings.linked:
            self.shared.peer_up(peer)
            self.session_moves.peer_up(peer, now=now)
            self.retained.peer_up(peer)

    def inherit(self, before: Self, *, now: float) -> None:
        """Take over what a broker keeps on disk from the node that ran before a restart."""
        self.routings.inherit(before.routings)
        self.shared.inherit(before.shared)
        for client, state in before.clients.items():
            self.handle(ClientMoved(client, state.location), now=now)
            for topic_filter, fence in state.subscriptions.items():
                self.handle(ClientSubscribed(client, topic_filter, fence), now=now)
        for member, (share, topic_filter), fence in before.shared.own():
            self.handle(ClientSubscribed(member.client, topic_filter, fence, share), now=now)
        self.session_moves.inherit(before.session_moves)
