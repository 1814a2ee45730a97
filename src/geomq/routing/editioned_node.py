"""Several routings of one broker side by side: each belongs to an edition of the federation description.

Every routing hears of all clients; the one called `strategy` gets their events. Messages to peers carry the edition of
the routing that sent them, and are heard by that routing alone. A peer counts as linked for a routing once it has said
that it has adopted that edition too. Messages of the routing that the config files describe carry none.
"""

from collections.abc import Mapping
from typing import Any, Self

from geomq.routing.actions import Action, DropEvent, SendToPeer
from geomq.routing.events import ClientPublished, PeerDown, PeerSaid, PeerUp, RoutingEvent
from geomq.routing.federation import Federation
from geomq.routing.link import is_promised
from geomq.routing.messages import Message
from geomq.routing.model import CONFIGURED, BrokerId, Edition, Event, Match
from geomq.routing.node import Node
from geomq.routing.plan import Plan
from geomq.routing.registry import strategy_class
from geomq.routing.shared import SharedGroups
from geomq.routing.strategy import Dice, Strategy
from geomq.routing.travellers import Travellers


class EditionedNode(Node):
    """A node with one routing for every live edition."""

    def __init__(
        self,
        *,
        me: BrokerId,
        federation: Federation,
        strategy: str,
        options: Mapping[str, Any],
        edition: Edition,
        epoch: int,
        rng: Dice,
    ) -> None:
        super().__init__(me=me, federation=federation, strategy=strategy, options=options, epoch=epoch, rng=rng)
        self.live: dict[Edition, Strategy] = {edition: self.strategy}
        """The routings by edition, the oldest first."""
        self.linked: dict[BrokerId, None] = {}
        self.within: dict[Edition, dict[BrokerId, None]] = {}
        """By edition, the linked peers that have adopted it."""
        self._rng = rng
        self._said: list[Action] = []
        self.shared = SharedGroups(me, self._said.append, federation)
        self._own_shared = SharedGroups(me, self._said.append)
        self.travellers = Travellers(me, federation, self._said.append)

    @property
    def newest(self) -> Edition:
        return next(reversed(self.live))

    @property
    def editions(self) -> tuple[Edition, ...]:
        return tuple(self.live)

    def advance(self, now: float) -> None:
        """Something happened: see whether anything else follows from it."""

    def handle(self, event: RoutingEvent, *, now: float) -> list[Action]:
        self.turns += 1
        self._hops = 0
        self._handlers[type(event)](event, now)
        if not isinstance(event, ClientPublished):
            self.advance(now)
        return self._take_actions()

    def next_deadline(self) -> float | None:
        deadlines = [strategy.next_deadline() for strategy in self.strategies]
        deadlines.append(self.travellers.next_deadline())
        return min((each for each in deadlines if each is not None), default=None)

    def on_deadline(self, *, now: float) -> list[Action]:
        self.turns += 1
        self._hops = 0
        timers: list[Strategy | Travellers] = [*self.strategies, self.travellers]
        for timed in timers:
            deadline = timed.next_deadline()
            if deadline is not None and deadline <= now:
                timed.on_deadline(now=now)
        self.advance(now)
        return self._take_actions()

    def _take_actions(self) -> list[Action]:
        """What all routings ask for, and after it what this broker says for itself: how far it is comes after what
        it had to tell to get there."""
        if len(self.live) == 1 and CONFIGURED in self.live:
            actions = self.strategy.take_actions()
        else:
            actions = [action for key in self.live for action in self._tagged(key)]
        if self._hears_outsiders:
            actions = self._decided(actions)
        if self._said:
            actions += self._said
            self._said.clear()
        return self._sort_out(actions) if len(self.travellers) else actions

    def _tagged(self, key: Edition) -> list[Action]:
        """What one routing asks for. Only promised messages wait for a peer that has not adopted the edition."""
        strategy = self.live[key]
        actions = strategy.take_actions()
        if key == CONFIGURED:
            return actions
        tagged: list[Action] = []
        for action in actions:
            if not isinstance(action, SendToPeer) or action.peer in strategy.outside:
                tagged.append(action)
            elif action.peer in self.within.get(key, ()) or is_promised(action.message):
                tagged.append(SendToPeer(action.peer, action.message, key))
        return tagged

    def say(self, peer: BrokerId, message: Message) -> None:
        """Say something that belongs to no routing."""
        self._said.append(SendToPeer(peer, message))

    # Plans, only while there is one routing.

    def plan(self, topic: str) -> Plan | None:
        return super().plan(topic) if self._is_settled else None

    def plan_arrival(
        self, topic: str, peer: BrokerId, matches: tuple[Match, ...] | None, edition: Edition | None
    ) -> tuple[Match, ...] | None:
        return super().plan_arrival(topic, peer, matches, edition) if len(self.live) == 1 else None

    def plans_since(self) -> object:
        return (super().plans_since(), self._is_settled) if len(self.live) == 1 else None

    @property
    def plan_edition(self) -> Edition | None:
        return None if self.newest == CONFIGURED else self.newest

    @property
    def _is_settled(self) -> bool:
        """Whether there is one routing, and all its peers have it too."""
        within = self.within.get(self.newest, ())
        return len(self.live) == 1 and (CONFIGURED in self.live or len(within) == len(self.strategy.federation.ids) - 1)

    # Routings.

    def begin(self, key: Edition, federation: Federation, name: str, options: Mapping[str, Any]) -> Strategy:
        """Make another routing, which knows of no client yet."""
        chosen = strategy_class(name)
        made = chosen(
            me=self.me,
            federation=federation,
            clients=self.clients,
            options=chosen.parse_options(options),
            rng=self._rng,
        )
        made.seen = self.strategy.seen
        made.begin_beside(tuple(self.strategies))
        self.live[key] = made
        self.strategies.append(made)
        return made

    def introduce(self, strategy: Strategy, now: float) -> None:
        """Tell a new routing who is there."""
        for peer in self.linked:
            if peer in strategy.outside:
                strategy.peer_up(peer, now=now)
        for client, state in self.clients.items():
            strategy.moved(client, state.location, now=now)
            for topic_filter, fence in state.subscriptions.items():
                strategy.subscribed(client, topic_filter, fence, now=now)

    def end(self, key: Edition) -> None:
        """Drop a routing that nobody needs; what it still has to say to the world outside is said."""
        strategy = self.live.pop(key)
        self.strategies.remove(strategy)
        self.within.pop(key, None)
        strategy.retire()
        self._said += (a for a in strategy.take_actions() if isinstance(a, SendToPeer) and a.peer in strategy.outside)

    def inherit(self, before: Self, *, now: float) -> None:
        for key, strategy in self.live.items():
            if key in before.live and strategy is not self.strategy:
                strategy.inherit(before.live[key])
        super().inherit(before, now=now)

    # Links.

    def _peer_up(self, happened: PeerUp, now: float) -> None:
        peer = happened.peer
        self.linked[peer] = None
        for strategy in self.strategies:
            if peer in strategy.outside:
                strategy.peer_up(peer, now=now)
        for within in self.within.values():
            within.pop(peer, None)
        if CONFIGURED in self.live and peer in self.live[CONFIGURED].federation.position:
            self.enter(CONFIGURED, peer, now)
        self.shared.peer_up(peer)
        self.travellers.peer_up(peer, now=now)
        self._watch(now)

    def _peer_down(self, happened: PeerDown, now: float) -> None:
        peer = happened.peer
        self.linked.pop(peer, None)
        for key, strategy in self.live.items():
            if self.within.get(key, {}).pop(peer, self) is None or peer in strategy.outside:
                strategy.peer_down(peer, now=now)
        self.shared.peer_down(peer)
        self.travellers.peer_down(peer)
        self._watch(now)

    def enter(self, key: Edition, peer: BrokerId, now: float) -> None:
        """The peer has the edition too: its link works, as far as that edition's routing is concerned."""
        self.within.setdefault(key, {})[peer] = None
        self.live[key].peer_up(peer, now=now)

    def _is_broker(self, peer: BrokerId) -> bool:
        return any(peer in strategy.federation.position for strategy in self.strategies)

    def _pass_on(self, happened: PeerSaid, now: float) -> None:
        """A message for the routing of one edition. The world outside the federation knows no editions."""
        peer, message, edition = happened.peer, happened.message, happened.edition or CONFIGURED
        strategy = self.live.get(edition)
        if strategy is not None and peer in strategy.federation.position:
            strategy.said(peer, message, now=now)
            return
        outside = [each for each in self.strategies if peer in each.outside]
        for each in outside:
            each.said(peer, message, now=now)
        event = getattr(message, "event", None)
        if not outside and isinstance(event, Event):
            self._said.append(DropEvent(event.id, f"no routing of edition {edition}"))
