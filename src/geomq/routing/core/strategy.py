"""The contract every strategy keeps.

A strategy is called through hooks when something happens to its broker and answers through `send`, `deliver` and
`drop`, which the node hands to its driver as actions. It is synchronous and deterministic: same construction and same
events give the same actions, byte for byte. Time is `now`, in milliseconds; randomness is the injected `rng`. A
strategy never iterates a bare set into its output, and every table it keeps has a maximum.

The node has updated `clients` before it calls a hook.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import msgspec

from geomq.errors import ConfigError
from geomq.geo import Fence, Location
from geomq.routing.core.actions import Action, DeliverToClients, DropEvent, SendToPeer
from geomq.routing.core.messages import DeliverEvent, ForwardEvent, Message, Messages
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.plan import DurableBatch, EventBatch, Plan
from geomq.routing.core.seen import SeenEvents
from geomq.routing.core.topology import Federation


class Dice(Protocol):
    """The part of `random.Random` a strategy may use."""

    def random(self) -> float: ...

    def uniform(self, a: float, b: float) -> float: ...


class ClientState(msgspec.Struct):
    """What a home knows of one of its clients."""

    location: Location | None = None
    subscriptions: dict[str, Fence | None] = msgspec.field(default_factory=dict)


class StrategyOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a strategy; each strategy derives its own."""


class Strategy:
    """Base of all strategies: holds the broker's view and collects actions. Hooks do nothing by default."""

    Options: ClassVar[type[StrategyOptions]] = StrategyOptions
    messages: ClassVar[Messages] = (ForwardEvent, DeliverEvent, EventBatch, DurableBatch)
    """What it sends to peers, besides what the classes it derives from name; no link carries anything else."""
    hears_outsiders: ClassVar[bool] = False
    """Whether events of publishers outside the federation come in by this strategy."""
    places_directly: ClassVar[bool] = False
    """Whether a broker hears of subscriptions only from their home, so that it knows those that this has sent it."""
    takes_changes: ClassVar[bool] = False
    """Whether brokers may come and areas change while it runs and no event is missed; else it begins anew."""

    def __init__(
        self,
        *,
        me: BrokerId,
        federation: Federation,
        clients: Mapping[ClientId, ClientState],
        options: StrategyOptions,
        rng: Dice,
    ) -> None:
        self.me = me
        self.federation = federation
        self.clients = clients
        self.options: Any = options
        self.rng = rng
        self.seen = SeenEvents()
        self._actions: list[Action] = []

    @classmethod
    def check(cls, federation: Federation) -> None:
        """Raise ConfigError if this strategy cannot serve such a federation."""

    def published(self, event: Event, *, now: float) -> None:
        """An own client published."""

    def subscribed(self, client: ClientId, topic_filter: str, fence: Fence | None, *, now: float) -> None:
        """An own client subscribed, or changed the fence of a subscription."""

    def unsubscribed(self, client: ClientId, topic_filter: str, *, now: float) -> None:
        """An own client dropped a subscription."""

    def moved(self, client: ClientId, location: Location | None, *, now: float) -> None:
        """An own client is at another place."""

    def gone(self, client: ClientId, state: ClientState, *, now: float) -> None:
        """An own client's session ended; `state` is what it last had."""

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        """A peer sent a message. One it has no business to send is dropped."""

    def peer_up(self, peer: BrokerId, *, now: float) -> None:
        """A link works (again); the peer may have forgotten everything."""

    def peer_down(self, peer: BrokerId, *, now: float) -> None:
        """A link broke."""

    def latency_measured(self, peer: BrokerId, latency_ms: float, *, now: float) -> None:
        """A link was probed."""

    def change_federation(self, federation: Federation, *, now: float) -> None:
        """The routing goes on with other brokers or areas."""
        before, self.federation = self.federation, federation
        self.federation_changed(before, now=now)

    def federation_changed(self, before: Federation, *, now: float) -> None:
        """Brokers or areas changed; `self.federation` is the new one."""

    def begin_beside(self, before: Sequence["Strategy"]) -> None:
        """Other routings of this broker go on for a while; what is shared with them is taken over."""

    def retire(self) -> None:
        """Another routing has taken over everything."""

    def is_ready(self, *, now: float) -> bool:
        """Whether every event would be delivered, given that all peers have received what this broker sent them."""
        return True

    def is_drained(self, *, now: float) -> bool:
        """Whether nothing of its own that left this broker before waits outside the links."""
        return True

    @property
    def outside(self) -> tuple[BrokerId, ...]:
        """Peers that do not belong to the federation."""
        return ()

    def next_deadline(self) -> float | None:
        """When `on_deadline` wants to be called, or None."""
        return None

    def on_deadline(self, *, now: float) -> None:
        """Time has come for what `next_deadline` promised."""

    def plan(self, topic: str) -> Plan | None:
        """Where plain events of own clients on this topic go, wherever they are published; None if it depends, or if
        the strategy wants to see each of them. It holds while `plans_since` stays the same."""
        return None

    def plan_forwarded(self, topic: str, origin: BrokerId) -> tuple[Match, ...] | None:
        """The own subscriptions that plain events match which `origin` forwards, if nobody else has to receive them."""
        return None

    def plan_delivered(self, matches: tuple[Match, ...]) -> tuple[Match, ...] | None:
        """Those of the matches a peer found that still hold."""
        return None

    def plans_since(self) -> int:
        """A number that changes when plans may have."""
        return 0

    def inherit(self, before: Self) -> None:
        """Take over what a broker keeps on disk from the strategy that ran before a restart."""
        self.seen = before.seen

    def state_size(self) -> int:
        """How many entries the strategy keeps about others; checkers hold it against a bound."""
        return 0

    def act(self, action: Action) -> None:
        self._actions.append(action)

    def send(self, peer: BrokerId, message: Message) -> None:
        self._actions.append(SendToPeer(peer, message))

    def deliver(self, event: Event, matches: tuple[Match, ...]) -> None:
        if matches:
            self._actions.append(DeliverToClients(event, matches))

    def drop(self, event_id: EventId, reason: str) -> None:
        self._actions.append(DropEvent(event_id, reason))

    def take_actions(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions

    @classmethod
    def parse_options(cls, options: Mapping[str, Any]) -> StrategyOptions:
        try:
            return msgspec.convert(dict(options), cls.Options)
        except msgspec.ValidationError as error:
            raise ConfigError(f"strategy options: {error}") from None
