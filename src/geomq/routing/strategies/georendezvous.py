"""`georendezvous`: a topic's rendezvous are places on earth that its name hashes to.

A topic has `rendezvous` places; the broker whose area holds a place is responsible for it, or the nearest if no area
does. Events go to all of them, subscriptions only to the `nearest` few of their home. An event that arrives
twice shows the home which path is longer: it prunes that path. A rendezvous that no subscription needs for a
publisher's broker prunes itself, and grafts itself back on a new subscription. Homes repeat their interest now and
then; one that stops for too long is forgotten.

The key is the first topic level; a filter that starts with a wildcard is held by every broker. A home always matches
its own clients' events itself.
"""

import hashlib
import math
from collections import OrderedDict
from typing import Annotated, ClassVar

import msgspec

from geomq.geo import Fence, Location, distance_m
from geomq.mqtt.codec.topics import first_level
from geomq.routing.core.messages import (
    DeliverEvent,
    DropClient,
    DropSubscription,
    ForwardEvent,
    Message,
    MessageKind,
    Messages,
    PutSubscription,
    SyncBegin,
    SyncEnd,
)
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.seen import SEEN_MAX
from geomq.routing.core.strategy import StrategyOptions
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.rendezvous import RendezvousStrategy

KEYS_MAX = 65_536


class GeoRendezvousOptions(StrategyOptions, frozen=True):
    rendezvous: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    nearest: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    refresh_ms: Annotated[float, msgspec.Meta(ge=100)] = 60_000
    expire_ms: Annotated[float, msgspec.Meta(ge=100)] = 86_400_000


class PrunePath(Message, frozen=True):
    """The sender receives the publisher's events on this key by a shorter path: do not send it those."""

    wire_id: ClassVar[int] = 12
    kind: ClassVar[MessageKind] = "control"
    key: str
    publisher: BrokerId


class PruneRendezvous(Message, frozen=True):
    """Nobody needs the sender as a rendezvous for the receiver's events on this key."""

    wire_id: ClassVar[int] = 13
    kind: ClassVar[MessageKind] = "control"
    key: str


class GraftRendezvous(Message, frozen=True):
    """Somebody needs the sender again."""

    wire_id: ClassVar[int] = 14
    kind: ClassVar[MessageKind] = "control"
    key: str


class Refresh(Message, frozen=True):
    """The sender's subscriptions at the receiver still hold."""

    wire_id: ClassVar[int] = 15
    kind: ClassVar[MessageKind] = "control"


def place_of(key: str, number: int) -> Location:
    """The place that the key's rendezvous `number` hashes to, uniform on the sphere."""
    digest = hashlib.blake2b(f"{number}/{key}".encode(), digest_size=16).digest()
    height = int.from_bytes(digest[:8], "big") / 2**63 - 1.0
    turn = int.from_bytes(digest[8:], "big") / 2**64
    return Location(math.degrees(math.asin(max(-1.0, min(1.0, height)))), turn * 360.0 - 180.0)


class GeoRendezvous(RendezvousStrategy):
    """Position-based rendezvous with pruning."""

    messages: ClassVar[Messages] = (PrunePath, PruneRendezvous, GraftRendezvous, Refresh)
    Options = GeoRendezvousOptions

    def __init__(self, **context: object) -> None:
        super().__init__(**context)
        self._places: OrderedDict[str, tuple[BrokerId, ...]] = OrderedDict()
        self._pruned: dict[str, dict[BrokerId, None]] = {}
        """As a publisher's home: rendezvous that do not need our events on a key."""
        self._quiet: dict[str, dict[BrokerId, None]] = {}
        """As a rendezvous: publishers' homes that we sent this to."""
        self._cut: dict[tuple[str, BrokerId], dict[BrokerId, None]] = {}
        """As a rendezvous: by (key, subscribers' home), publishers' homes that reach it by a shorter path."""
        self._came_by: OrderedDict[EventId, BrokerId] = OrderedDict()
        self._heard_ms: dict[BrokerId, float] = {}
        self._refresh_at: float | None = None

    def rendezvous(self, key: str) -> tuple[BrokerId, ...]:
        """The brokers responsible for a key, the one nearest to this broker first."""
        found = self._places.get(key)
        if found is None:
            if len(self._places) >= KEYS_MAX:
                self._places.popitem(last=False)
            here = self.federation.location(self.me)
            places = sorted(
                (place_of(key, i) for i in range(self.options.rendezvous)), key=lambda p: distance_m(here, p)
            )
            owners = (self.federation.owner(place) or self.federation.nearest(place) for place in places)
            found = self._places[key] = tuple(dict.fromkeys(owners))
        return found

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        key = first_level(event.topic) or ""
        pruned = self._pruned.get(key, ())
        others = (broker for broker in self.rendezvous(key) if broker != self.me and broker not in pruned)
        return (self.me, *others)

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        key = first_level(topic_filter)
        if key is None:
            return self.federation.ids
        nearest = self.rendezvous(key)[: self.options.nearest]
        return (self.me, *(broker for broker in nearest if broker != self.me))

    def notifies(self, event: Event, home: BrokerId) -> bool:
        """The publisher's home matches for itself, and for others only if it is a rendezvous of the topic."""
        key, origin = first_level(event.topic) or "", event.id.origin
        if home == origin or self.me not in self.rendezvous(key):
            return False
        return origin not in self._cut.get((key, home), ())

    def subscribed(self, client: ClientId, topic_filter: str, fence: Fence | None, *, now: float) -> None:
        super().subscribed(client, topic_filter, fence, now=now)
        self._interest_grew(first_level(topic_filter), now)

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        self._heard_ms[peer] = now
        match message:
            case ForwardEvent(event=event):
                self._compare_paths(self.me, event)
                super().said(peer, message, now=now)
                self._prune_if_unneeded(first_level(event.topic) or "", peer)
            case DeliverEvent(event=event):
                self._compare_paths(peer, event)
                super().said(peer, message, now=now)
            case PrunePath(key=key, publisher=publisher):
                self._note_cut(key, peer, publisher)
            case PruneRendezvous(key=key):
                if len(self._pruned) < KEYS_MAX:
                    self._pruned.setdefault(key, {})[peer] = None
            case GraftRendezvous(key=key):
                self._pruned.get(key, {}).pop(peer, None)
                if not self._pruned.get(key, True):
                    del self._pruned[key]
            case PutSubscription(topic_filter=topic_filter):
                key_or_none = first_level(topic_filter)
                if key_or_none is not None and peer not in self.table.homes(key_or_none):
                    self._cut.pop((key_or_none, peer), None)
                super().said(peer, message, now=now)
                self._interest_grew(key_or_none, now)
            case DropSubscription() | DropClient() | SyncEnd():
                super().said(peer, message, now=now)
                self._forget_cuts(peer)
            case SyncBegin():
                self._forget_prunes(peer)
                super().said(peer, message, now=now)
            case _:
                super().said(peer, message, now=now)

    def _deliver_matched(self, event: Event, matches: tuple[Match, ...]) -> None:
        """A rendezvous may hold only some of a client's filters; here all of them are known."""
        clients = {match.client for match in matches}
        known = self.table.match(event).get(self.me, ())
        others = (match for match in known if match.client in clients)
        super()._deliver_matched(event, tuple(dict.fromkeys((*matches, *others))))

    def _needed(self, key: str, publisher: BrokerId) -> bool:
        """Whether any home needs a publisher's events on this key from us."""
        homes = (*self.table.homes(key), *self.table.homes(None))
        return any(home != publisher and publisher not in self._cut.get((key, home), ()) for home in homes)

    def _prune_if_unneeded(self, key: str, publisher: BrokerId) -> None:
        if not self._needed(key, publisher) and (key in self._quiet or len(self._quiet) < KEYS_MAX):
            self._quiet.setdefault(key, {})[publisher] = None
            self.send(publisher, PruneRendezvous(key))

    def _interest_grew(self, key: str | None, now: float) -> None:
        """A subscription came: publishers that were asked to leave us out may be needed again."""
        if self._refresh_at is None:
            self._refresh_at = now + self.options.refresh_ms
        for each in tuple(self._quiet) if key is None else (key,):
            for publisher in tuple(self._quiet.get(each, ())):
                if self._needed(each, publisher):
                    self._unquiet(each, publisher)
                    self.send(publisher, GraftRendezvous(each))

    def _unquiet(self, key: str, publisher: BrokerId) -> None:
        self._quiet[key].pop(publisher, None)
        if not self._quiet[key]:
            del self._quiet[key]

    def _compare_paths(self, rendezvous: BrokerId, event: Event) -> None:
        """An event that came by two rendezvous: cut the longer path."""
        first = self._came_by.get(event.id)
        if first is None:
            if len(self._came_by) >= SEEN_MAX:
                self._came_by.popitem(last=False)
            self._came_by[event.id] = rendezvous
        elif first != rendezvous and event.id.origin in self.federation.position:
            key = first_level(event.topic) or ""
            better, worse = sorted((first, rendezvous), key=lambda via: self._path_rank(key, event.id.origin, via))
            self._came_by[event.id] = better
            if worse != self.me:
                self.send(worse, PrunePath(key, event.id.origin))

    def _path_rank(self, key: str, publisher: BrokerId, via: BrokerId) -> tuple[bool, float, BrokerId]:
        """Shorter is better, but a rendezvous that holds only our wildcards never replaces one that holds all."""
        partial = self.me in self.table.homes(key) and via not in self.rendezvous(key)[: self.options.nearest]
        return partial and via != self.me, self._path_m(publisher, via), via

    def _path_m(self, publisher: BrokerId, via: BrokerId) -> float:
        return self.federation.distance_m(publisher, via) + self.federation.distance_m(via, self.me)

    def _note_cut(self, key: str, home: BrokerId, publisher: BrokerId) -> None:
        needed = home in self.table.homes(key) or home in self.table.homes(None)
        if needed and publisher in self.federation.position and len(self._cut) < KEYS_MAX:
            self._cut.setdefault((key, home), {})[publisher] = None

    def _forget_cuts(self, home: BrokerId) -> None:
        """A home that no longer subscribes to a key has no paths of it to cut."""
        if home in self.table.homes(None):
            return
        for key, each in tuple(self._cut):
            if each == home and home not in self.table.homes(key):
                del self._cut[key, each]

    def _forget_prunes(self, peer: BrokerId) -> None:
        """A peer that starts anew knows of no prune it made. Those made here stand: if it forgot them, to graft itself
        back costs a message; but it may have heard of them since it started, when events came that had waited."""
        for key in tuple(self._pruned):
            self._pruned[key].pop(peer, None)
            if not self._pruned[key]:
                del self._pruned[key]

    def federation_changed(self, before: Federation, *, now: float) -> None:
        """Other brokers hold the places now: forget every prune and let traffic find its paths again."""
        for table in (self._places, self._pruned, self._quiet, self._cut):
            table.clear()
        super().federation_changed(before, now=now)

    def next_deadline(self) -> float | None:
        return self._refresh_at

    def on_deadline(self, *, now: float) -> None:
        holders = dict.fromkeys(holder for client in self.clients for holder in self.holders(client))
        for holder in holders:
            if holder != self.me:
                self.send(holder, Refresh())
        for home in dict.fromkeys(subscriber.home for subscriber in self.table.subscribers()):
            if home != self.me and now - self._heard_ms.setdefault(home, now) > self.options.expire_ms:
                self.table.drop_home(home)
                self._forget_cuts(home)
        more = any(state.subscriptions for state in self.clients.values()) or len(self.table)
        self._refresh_at = now + self.options.refresh_ms if more else None

    def state_size(self) -> int:
        return super().state_size() + len(self._cut)
