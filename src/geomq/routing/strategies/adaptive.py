"""`adaptive`: between any two brokers, per topic group, whichever of the two DisGB ways is cheaper.

Towards a broker B, a broker Q is in one of two modes for each topic group. *Matched here*: B sends Q every event whose
fence meets Q's coverage (as `disgb_events`). *Advertised*: Q keeps its subscriptions at B wherever their fence meets
B's coverage, and B sends an event only on a match (as `disgb_subscriptions`). Q announces a mode after the
subscriptions it needs, on the same ordered link, so B uses exactly one of the two for every event: nothing is lost
or doubled at a switch.

Each side decides when it is the one that can see the waste. While matched here, Q sees the events that matched
nothing, and knows what advertising would have cost; while advertised, B sees what it was sent again or took back, and
the events that saved it. Both keep a running sum that never falls below zero and act when it exceeds a bound: so a
mode is left only after it has lost more than the switch will cost. The topic group is the first topic level.

Before the first event of a group there is nothing to see, and many publishers may begin at once. So Q assumes: if it
has many subscriptions in the group and hardly any concerns B, it advertises them to B beforehand.
"""

from collections import Counter
from typing import Annotated, ClassVar

import msgspec

from geomq.geo import Fence, Location
from geomq.mqtt.codec.topics import first_level
from geomq.routing.core.messages import (
    DropClient,
    DropSubscription,
    ForwardEvent,
    Message,
    MessageKind,
    Messages,
    PutLocation,
    PutSubscription,
    SyncBegin,
)
from geomq.routing.core.model import BrokerId, ClientId, Event, Match, Subscriber
from geomq.routing.core.plan import Plan
from geomq.routing.core.strategy import ClientState, StrategyOptions
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.coverage import CoverageStrategy

PAIRS_MAX = 1_000_000
RARE = 16
"""Before anything is known, a group is advertised if at most one in so many subscriptions concerns the peer."""


class AdaptiveOptions(StrategyOptions, frozen=True):
    patience: Annotated[float, msgspec.Meta(ge=1)] = 4.0
    """How many wasted messages, beyond the cost of switching, are borne before a mode is left."""


class UseMode(Message, frozen=True):
    """From now on the receiver finds the sender's subscriptions of this topic group advertised, or not."""

    wire_id: ClassVar[int] = 16
    kind: ClassVar[MessageKind] = "control"
    group: str
    advertised: bool


class PreferMatchedHere(Message, frozen=True):
    """Advertising this topic group to the sender costs more than it saves."""

    wire_id: ClassVar[int] = 17
    kind: ClassVar[MessageKind] = "control"
    group: str


Pair = tuple[BrokerId, str]


class Adaptive(CoverageStrategy):
    """Chooses between the two DisGB strategies by what each is seen to cost."""

    messages: ClassVar[Messages] = (UseMode, PreferMatchedHere)
    plans = True

    Options = AdaptiveOptions

    def __init__(self, **context: object) -> None:
        super().__init__(**context)
        self._advertising: dict[Pair, None] = {}
        """The (peer, group) pairs for which own subscriptions are kept at the peer."""
        self._advertised: dict[Pair, None] = {}
        """The (peer, group) pairs for which the peer's subscriptions are kept here."""
        self._mode_changes = 0
        self._wasted: dict[Pair, float] = {}
        """Own running sums while matched here: events that matched nothing, less what advertising would cost."""
        self._overpaid: dict[Pair, float] = {}
        """Running sums for advertised pairs: changes received, less events saved."""
        self._known: dict[Pair, None] = {}
        """The (broker, group) pairs of whose events something is known: nothing need be assumed."""
        self._concerned: dict[tuple[ClientId, str], tuple[BrokerId, ...]] = {}
        """The peers whose coverage each own subscription's fence meets, and below, how many there are."""
        self._interest: Counter[tuple[BrokerId, str | None]] = Counter()
        """By peer and group; `me` stands for all own subscriptions of a group, None for filters of any group."""

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        group = first_level(event.topic) or ""
        peers = tuple(broker for broker in self.meeting(event.fence) if broker != self.me)
        if self.guest_host(event.publisher) is None:  # else nobody's subscriptions here cover that place yet
            peers = tuple(peer for peer in peers if (peer, group) not in self._advertised)
        return (self.me, *peers)

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        group = first_level(topic_filter)
        if group is None:
            peers = dict.fromkeys(peer for peer, _ in self._advertising)
        else:
            peers = dict.fromkeys(peer for peer in self.federation.ids if (peer, group) in self._advertising)
        return (self.me, *(peer for peer in self.meeting(fence) if peer in peers))

    def notifies(self, event: Event, home: BrokerId) -> bool:
        """Only the publisher's home notifies others of a match, and not those it sends the event to anyway."""
        return event.id.origin == self.me and home not in self.event_targets(event)

    def plan(self, topic: str) -> Plan | None:
        """None while events that are saved make up for updates: those are counted, and the first is always news."""
        plan, group = super().plan(topic), first_level(topic) or ""
        if plan is None or (self.me, group) not in self._known:
            return None
        told = {to.peer for to in plan.peers}
        counted = any(self._overpaid.get((peer, group)) and peer not in told for peer in self.federation.ids)
        return None if counted else plan

    def plan_forwarded(self, topic: str, origin: BrokerId) -> tuple[Match, ...] | None:
        """None if they come in vain: that is counted, too."""
        known = (origin, first_level(topic) or "") in self._known
        return super().plan_forwarded(topic, origin) or None if known else None

    def plans_since(self) -> int:
        return super().plans_since() + self._mode_changes

    def published(self, event: Event, *, now: float) -> None:
        super().published(event, now=now)
        self._know((self.me, first_level(event.topic) or ""))
        if self._advertised:
            self._count_saved(event)

    def _know(self, pair: Pair) -> None:
        if pair not in self._known and len(self._known) < PAIRS_MAX:
            self._known[pair] = None
            self._mode_changes += 1

    def _count_saved(self, event: Event) -> None:
        """Events that would have gone to an advertised broker in vain are what advertising is good for."""
        group = first_level(event.topic) or ""
        matched = None
        for broker in self.meeting(event.fence):
            pair = (broker, group)
            if pair in self._overpaid:
                matched = self.table.match(event) if matched is None else matched
                if broker not in matched and self._overpaid[pair]:
                    self._overpaid[pair] = max(0.0, self._overpaid[pair] - 1)
                    self._mode_changes += not self._overpaid[pair]

    def subscribed(self, client: ClientId, topic_filter: str, fence: Fence | None, *, now: float) -> None:
        super().subscribed(client, topic_filter, fence, now=now)
        self._count_update(first_level(topic_filter), fence)
        self._assume(first_level(topic_filter))

    def unsubscribed(self, client: ClientId, topic_filter: str, *, now: float) -> None:
        super().unsubscribed(client, topic_filter, now=now)
        self._note_interest(client, topic_filter, ())

    def gone(self, client: ClientId, state: ClientState, *, now: float) -> None:
        super().gone(client, state, now=now)
        for topic_filter in state.subscriptions:
            self._note_interest(client, topic_filter, ())

    def place(self, client: ClientId, topic_filter: str, *, changed: bool = False) -> None:
        super().place(client, topic_filter, changed=changed)
        peers = self.meeting(self.clients[client].subscriptions[topic_filter])
        self._note_interest(client, topic_filter, (self.me, *(peer for peer in peers if peer != self.me)))

    def _note_interest(self, client: ClientId, topic_filter: str, concerned: tuple[BrokerId, ...]) -> None:
        """Count whom an own subscription concerns: `me` in any case, or nobody if it ended."""
        before, group = self._concerned.pop((client, topic_filter), ()), first_level(topic_filter)
        self._interest.subtract((broker, group) for broker in before)
        self._interest.update((broker, group) for broker in concerned)
        if concerned:
            self._concerned[client, topic_filter] = concerned
        for broker in before:
            if not self._interest[broker, group]:
                del self._interest[broker, group]

    def _assume(self, group: str | None) -> None:
        """Nobody published in this group yet: advertise where that costs little and may save much."""
        if group is None or (self.me, group) in self._known:
            return
        total = self._switch_cost((self.me, group))
        if total < max(RARE, len(self.federation.ids)):
            return
        for peer in self.federation.ids:
            pair = (peer, group)
            if peer != self.me and pair not in self._known and RARE * self._switch_cost(pair) <= total:
                self._advertise(pair)

    def moved(self, client: ClientId, location: Location | None, *, now: float) -> None:
        super().moved(client, location, now=now)
        if self._wasted:
            for topic_filter, fence in self.clients[client].subscriptions.items():
                self._count_update(first_level(topic_filter), fence)

    def _count_update(self, group: str | None, fence: Fence | None) -> None:
        """An update that would have been sent, had the group been advertised, speaks for staying as it is."""
        if group is None or not self._wasted:
            return
        for peer in self.meeting(fence):
            if (peer, group) in self._wasted:
                self._lower_waste((peer, group))

    def _lower_waste(self, pair: Pair) -> None:
        self._wasted[pair] -= 1
        if self._wasted[pair] <= 0:
            del self._wasted[pair]

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        match message:
            case ForwardEvent(event=event):
                before = len(self._actions)
                super().said(peer, message, now=now)
                pair = (peer, first_level(event.topic) or "")
                self._know(pair)
                if len(self._actions) == before:
                    self._count_waste(pair)
            case UseMode(group=group, advertised=advertised):
                self._set_advertised((peer, group), advertised)
                if not advertised:
                    self._drop_group(peer, group)
            case PreferMatchedHere(group=group):
                self._know((peer, group))
                self._stop_advertising((peer, group))
            case (
                PutSubscription(client=client, topic_filter=topic_filter)
                | DropSubscription(client=client, topic_filter=topic_filter)
            ):
                held = topic_filter in self.table.filters(Subscriber(peer, client))
                super().said(peer, message, now=now)
                if held:
                    self._count_paid(peer, first_level(topic_filter))
            case DropClient(client=client):
                self._count_paid_client(peer, client)
                super().said(peer, message, now=now)
            case PutLocation(client=client):
                super().said(peer, message, now=now)
                self._count_paid_client(peer, client)
            case SyncBegin():
                for pair in tuple(self._advertised):
                    if pair[0] == peer:
                        self._set_advertised(pair, False)
                super().said(peer, message, now=now)
            case _:
                super().said(peer, message, now=now)

    def _count_waste(self, pair: Pair) -> None:
        """An event came in vain; when that happened too often, advertise."""
        if len(self._wasted) >= PAIRS_MAX or pair in self._advertising:
            return
        wasted = self._wasted[pair] = self._wasted.get(pair, 0.0) + 1
        if wasted >= self.options.patience + self._switch_cost(pair):
            self._advertise(pair)

    def _switch_cost(self, pair: Pair) -> int:
        peer, group = pair
        return self._interest[peer, group] + self._interest[peer, None]

    def _advertise(self, pair: Pair) -> None:
        if pair in self._advertising or len(self._advertising) >= PAIRS_MAX:
            return
        self._wasted.pop(pair, None)
        self._advertising[pair] = None
        self._place_group(pair[1])
        self.send(pair[0], UseMode(pair[1], True))

    def _stop_advertising(self, pair: Pair) -> None:
        """The peer forgets the group's subscriptions by itself; those of any group it may still need."""
        if pair not in self._advertising:
            return
        peer, group = pair
        del self._advertising[pair]
        self.send(peer, UseMode(group, False))
        for placed in self._placed.values():
            for topic_filter, targets in placed.items():
                if first_level(topic_filter) == group and peer in targets:
                    placed[topic_filter] = tuple(target for target in targets if target != peer)
        self._place_group(None)

    def _place_group(self, group: str | None) -> None:
        for client, state in self.clients.items():
            for topic_filter in state.subscriptions:
                if first_level(topic_filter) in (group, None):
                    self.place(client, topic_filter)

    def _drop_group(self, peer: BrokerId, group: str) -> None:
        for subscriber in self.table.subscribers():
            if subscriber.home == peer:
                for topic_filter in tuple(self.table.filters(subscriber)):
                    if first_level(topic_filter) == group:
                        self.table.drop(subscriber, topic_filter)

    def _set_advertised(self, pair: Pair, advertised: bool) -> None:
        self._mode_changes += 1
        if advertised and len(self._advertised) < PAIRS_MAX:
            self._advertised[pair] = None
            self._overpaid[pair] = 0.0
        elif not advertised:
            self._advertised.pop(pair, None)
            self._overpaid.pop(pair, None)

    def _count_paid(self, peer: BrokerId, group: str | None) -> None:
        """A peer sent a change of what we knew; when that was too often for what it saves, tell it."""
        if group is None or (peer, group) not in self._overpaid:
            return
        pair = (peer, group)
        self._overpaid[pair] += 1
        self._mode_changes += 1
        if self._overpaid[pair] > self.options.patience * 2:
            self._overpaid[pair] = 0.0
            self.send(peer, PreferMatchedHere(pair[1]))

    def _count_paid_client(self, peer: BrokerId, client: ClientId) -> None:
        filters = self.table.filters(Subscriber(peer, client))
        for group in dict.fromkeys(first_level(topic_filter) for topic_filter in filters):
            self._count_paid(peer, group)

    def sync_extras(self, peer: BrokerId) -> None:
        super().sync_extras(peer)
        for each, group in self._advertising:
            if each == peer:
                self.send(peer, UseMode(group, True))

    def federation_changed(self, before: Federation, *, now: float) -> None:
        for pairs in (self._advertising, self._advertised, self._wasted, self._overpaid, self._known):
            for pair in tuple(pairs):
                if pair[0] not in self.federation.position:
                    pairs.pop(pair)
        super().federation_changed(before, now=now)
