"""The routings of one broker side by side: one strategy for every live edition of the federation description.

Every routing learns of all clients; `publishing` gets the events of own clients. Messages to peers carry the edition of
the routing that sent them, and only that routing receives them. A peer counts as linked for a routing once it has
adopted that edition too. Messages of the routing that the config files describe carry no edition.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

from geomq.routing.core.actions import Action, DropEvent, SendToPeer
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.messages import is_promised
from geomq.routing.core.model import CONFIGURED, BrokerId, ClientId, Edition, Event
from geomq.routing.core.strategy import ClientState, Dice, Strategy
from geomq.routing.core.topology import Federation
from geomq.routing.federation.editions import Start
from geomq.routing.strategies.registry import strategy_class


class Routings:
    """The live strategies by edition, the oldest first. What belongs to none of them is asked for through `act`."""

    def __init__(
        self,
        me: BrokerId,
        clients: Mapping[ClientId, ClientState],
        first: Start,
        *,
        rng: Dice,
        act: Callable[[Action], None],
    ) -> None:
        self._me = me
        self._clients = clients
        self._rng = rng
        self._act = act
        self.live: dict[Edition, Strategy] = {}
        self.strategies: tuple[Strategy, ...] = ()
        self.hears_outsiders = False
        """Whether events of publishers outside the federation come in by any of them."""
        self.linked: dict[BrokerId, None] = {}
        self.within: dict[Edition, dict[BrokerId, None]] = {}
        """By edition, the linked peers that have adopted it."""
        strategy_class(first.strategy).check(first.federation)
        self.publishing = self._make(first.federation, first.strategy, first.options)
        self._put(first.edition, self.publishing)

    @property
    def newest(self) -> Edition:
        return next(reversed(self.live))

    @property
    def is_settled(self) -> bool:
        """Whether there is one routing, and all its peers have it too."""
        if len(self.live) != 1:
            return False
        if CONFIGURED in self.live:
            return True
        return len(self.within.get(self.newest, ())) == len(self.publishing.federation.ids) - 1

    # Which there are.

    def begin(self, key: Edition, federation: Federation, name: str, options: Mapping[str, Any]) -> Strategy:
        """Make another routing, without clients yet."""
        made = self._make(federation, name, options)
        made.seen = self.publishing.seen
        made.begin_beside(self.strategies)
        self._put(key, made)
        return made

    def _make(self, federation: Federation, name: str, options: Mapping[str, Any]) -> Strategy:
        chosen = strategy_class(name)
        return chosen(
            me=self._me,
            federation=federation,
            clients=self._clients,
            options=chosen.parse_options(options),
            rng=self._rng,
        )

    def _put(self, key: Edition, strategy: Strategy) -> None:
        self.live[key] = strategy
        self._count()

    def _count(self) -> None:
        self.strategies = tuple(self.live.values())
        self.hears_outsiders = any(strategy.hears_outsiders for strategy in self.strategies)

    def make_newest(self, key: Edition) -> None:
        """The latest description goes on with a routing that others were begun after."""
        self._put(key, self.live.pop(key))

    def introduce(self, strategy: Strategy, now: float) -> None:
        """Let a new routing know all clients."""
        for peer in self.linked:
            if peer in strategy.outside:
                strategy.peer_up(peer, now=now)
        for client, state in self._clients.items():
            strategy.moved(client, state.location, now=now)
            for topic_filter, fence in state.subscriptions.items():
                strategy.subscribed(client, topic_filter, fence, now=now)

    def end(self, key: Edition) -> None:
        """Drop a routing that nobody needs; what it still has for the world outside is sent."""
        strategy = self.live.pop(key)
        self._count()
        self.within.pop(key, None)
        strategy.retire()
        for action in strategy.take_actions():
            if isinstance(action, SendToPeer) and action.peer in strategy.outside:
                self._act(action)

    def replace_federation(self, key: Edition, federation: Federation, now: float) -> None:
        """Brokers or areas changed, and the routing goes on."""
        self.live[key].change_federation(federation, now=now)

    def inherit(self, before: Self) -> None:
        """Take over what a broker keeps on disk from the routings that ran before a restart."""
        for key, strategy in self.live.items():
            if key in before.live and strategy is not self.publishing:
                strategy.inherit(before.live[key])
        self.publishing.inherit(before.publishing)

    # Links.

    def peer_up(self, peer: BrokerId, now: float) -> None:
        self.linked[peer] = None
        for strategy in self.strategies:
            if peer in strategy.outside:
                strategy.peer_up(peer, now=now)
        for within in self.within.values():
            within.pop(peer, None)
        if CONFIGURED in self.live and peer in self.live[CONFIGURED].federation.position:
            self.enter(CONFIGURED, peer, now)

    def peer_down(self, peer: BrokerId, now: float) -> None:
        self.linked.pop(peer, None)
        for key, strategy in self.live.items():
            was_in = self.within.get(key, {}).pop(peer, self) is None
            configured = key == CONFIGURED and peer in strategy.federation.position  # these need not come up first
            if was_in or configured or peer in strategy.outside:
                strategy.peer_down(peer, now=now)

    def enter(self, key: Edition, peer: BrokerId, now: float) -> None:
        """The peer has the edition too: its link works, as far as that edition's routing is concerned."""
        self.within.setdefault(key, {})[peer] = None
        self.live[key].peer_up(peer, now=now)

    def knows(self, peer: BrokerId) -> bool:
        """Whether the peer is a broker of any live edition."""
        return any(peer in strategy.federation.position for strategy in self.strategies)

    def said(self, happened: PeerSaid, now: float) -> None:
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
        if not outside and isinstance(event, Event) and not message.versioned:
            self._act(DropEvent(event.id, f"no routing for edition {edition}"))

    # Actions and the clock.

    def take_actions(self) -> list[Action]:
        """What all routings ask for, marked with their editions."""
        if len(self.live) == 1 and CONFIGURED in self.live:
            return self.publishing.take_actions()
        return [action for key in self.live for action in self._tagged(key)]

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

    @property
    def deadline(self) -> float | None:
        return min([at for each in self.strategies if (at := each.next_deadline()) is not None], default=None)

    def on_deadline(self, now: float) -> None:
        for strategy in self.strategies:
            deadline = strategy.next_deadline()
            if deadline is not None and deadline <= now:
                strategy.on_deadline(now=now)
