"""`digests`: an event goes to the brokers whose coverage meets its fence and whose clients may want it.

As with `disgb_events`, subscriptions stay at home and events are matched there. But a broker sends its peers, in
digests, what its clients want of theirs (`digest.py`), unless that is seen to cost more than the events that would come
in vain (`outlook.py`). Who has been told sends only what the digest concerns. A digest is always wider than what is
wanted: nothing that `disgb_events` delivers is missed but for what crosses an announcement on its way.

A peer that pays more for being told than it saves refuses the digest, and sends everything again. Nothing is kept on
disk: a broker that forgot what it was told sends everything until its link is up and it is told again.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, NamedTuple, Self

import msgspec
from msgspec import Meta

from geomq.geo import Fence, Location
from geomq.routing.core.messages import (
    DropClient,
    ForwardEvent,
    Message,
    MessageKind,
    Messages,
    SyncBegin,
)
from geomq.routing.core.model import BrokerId, ClientId, Count, Event, Match, Subscriber
from geomq.routing.core.plan import Plan
from geomq.routing.core.strategy import ClientState, StrategyOptions
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.coverage import CoverageStrategy, DropGuest, PutGuest
from geomq.routing.strategies.digests.digest import (
    UNITS_MAX,
    Entry,
    Interest,
    Key,
    KnownEntry,
    Metres,
    Unit,
    around,
    concerns,
    key_of,
    keys_of,
)
from geomq.routing.strategies.digests.outlook import KEYS_MAX, Outlook
from geomq.routing.strategies.digests.units import ANY, LEVELS

MESSAGE_UNITS = 4_096
"""Units in one message; what is more goes in several, and counts when the last is there."""
REFUSED_AFTER = 8
"""So many announcements beyond the events they saved, and a digest is refused."""
SILENT_MAX = 64
"""The same while no event has come that concerned the peer: then nothing could have been saved yet."""


class DigestsOptions(StrategyOptions, frozen=True):
    patience: Annotated[int, Meta(ge=1, le=64)] = 4
    """How many events may come in vain before a peer is told what is wanted."""


class EntryUnits(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Units of one entry, of cells of one level."""

    key: Annotated[str, Meta(max_length=65_535)]
    level: Annotated[int, Meta(ge=0, lt=LEVELS)]
    units: Annotated[tuple[Unit, ...], Meta(max_length=UNITS_MAX)]


class PutDigest(Message, frozen=True):
    """What the sender's clients want of the receiver's events: entries in place of those before, or of all."""

    wire_id: ClassVar[int] = 65
    kind: ClassVar[MessageKind] = "subscription"
    version: Count
    whole: bool
    more: bool
    """Whether the rest follows in another message."""
    slack_m: Metres
    entries: tuple[EntryUnits, ...]


class DropDigest(Message, frozen=True):
    """The sender's clients want too much to be told: the receiver is to send everything."""

    wire_id: ClassVar[int] = 66
    kind: ClassVar[MessageKind] = "subscription"


class RefuseDigest(Message, frozen=True):
    """The receiver announced more than its digest saved; the sender has dropped it and sends everything."""

    wire_id: ClassVar[int] = 67
    version: Count


class Name(NamedTuple):
    """A subscription of an own client, or of a guest from another home."""

    home: BrokerId
    client: ClientId
    topic_filter: str


class Known:
    """What a peer has told, and what it costs: announcements less events saved, never below zero."""

    def __init__(self) -> None:
        self.entries: dict[Key, KnownEntry] = {}
        self.overpaid = 0
        self.is_silent = True
        """Whether no event has concerned the peer yet."""
        self.size = 0

    def put(self, entries: dict[Key, KnownEntry], *, whole: bool) -> None:
        self.entries = entries if whole else self.entries | entries
        self.size = sum(len(entry.tests) for entry in self.entries.values())


class Digests(CoverageStrategy):
    """Events are distributed by their fence and by what brokers send each other of their interests."""

    messages: ClassVar[Messages] = (PutDigest, DropDigest, RefuseDigest)
    plans = True
    Options = DigestsOptions

    def __init__(self, **context: object) -> None:
        super().__init__(**context)
        self._outlooks: dict[BrokerId, Outlook[Name]] = {}
        self._concerned: dict[Name, tuple[Key, tuple[BrokerId, ...]]] = {}
        """The key of each interest, and the peers it concerns."""
        self._changed: dict[BrokerId, dict[Name, Interest]] = {}
        """What peers may have to be told at the end of this turn."""
        self._known: dict[BrokerId, Known] = {}
        self._parts: dict[BrokerId, list[PutDigest]] = {}
        """What came of digests that are not complete yet."""
        self._known_changes = 0

    # Where events go.

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        targets, _ = self._route(event)
        return targets

    def _route(self, event: Event) -> tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]]:
        """The brokers that get the event, and those that are spared it."""
        peers = tuple(broker for broker in self.meeting(event.fence) if broker != self.me)
        if not self._known or self.guest_host(event.publisher) is not None:  # else no digest reckons with that place
            return (self.me, *peers), ()
        fence = around(event.fence)
        wanting = tuple(peer for peer in peers if self._wants(peer, event, fence))
        return (self.me, *wanting), tuple(peer for peer in peers if peer not in wanting)

    def _wants(self, peer: BrokerId, event: Event, fence: object) -> bool:
        known = self._known.get(peer)
        return known is None or concerns(known.entries, event, fence)  # type: ignore[arg-type]

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        return (self.me,)

    def reaches_all(self, event: Event) -> bool:
        """Where a subscriber is makes no difference to an event without a fence, so its home gets that in any case."""
        return event.fence is None

    def published(self, event: Event, *, now: float) -> None:
        if any(known.is_silent for known in self._known.values()):
            self._hear(event)
        super().published(event, now=now)
        if any(known.overpaid for known in self._known.values()):
            for peer in self._route(event)[1]:
                self._save(self._known[peer])

    def _hear(self, event: Event) -> None:
        """The first event that concerns a peer: from now on it is known what its digest saves."""
        for peer in self.meeting(event.fence):
            known = self._known.get(peer)
            if known is not None and known.is_silent:
                known.is_silent, known.overpaid = False, 0
                self._known_changes += 1

    def _save(self, known: Known) -> None:
        if known.overpaid:
            known.overpaid -= 1
            self._known_changes += not known.overpaid

    def plan(self, topic: str) -> Plan | None:
        """None if it depends on where the publisher is, or while it counts that there are events."""
        keys = keys_of(topic)
        if any(known.is_silent for known in self._known.values()):
            return None
        for known in self._known.values():
            entries = [known.entries[key] for key in keys if key in known.entries]
            if not any(entry.any_publisher for entry in entries) and (known.overpaid or entries):
                return None
        return super().plan(topic)

    def plan_forwarded(self, topic: str, origin: BrokerId) -> tuple[Match, ...] | None:
        """None if they come in vain: that is counted."""
        return super().plan_forwarded(topic, origin) or None

    def plans_since(self) -> int:
        return super().plans_since() + self._known_changes

    # What own clients want.

    def place(self, client: ClientId, topic_filter: str, *, changed: bool = False) -> None:
        super().place(client, topic_filter, changed=changed)
        state = self.clients[client]
        self._note(Name(self.me, client, topic_filter), state.subscriptions[topic_filter], state.location)

    def subscribed(self, client: ClientId, topic_filter: str, fence: Fence | None, *, now: float) -> None:
        super().subscribed(client, topic_filter, fence, now=now)
        self._tell()

    def unsubscribed(self, client: ClientId, topic_filter: str, *, now: float) -> None:
        super().unsubscribed(client, topic_filter, now=now)
        self._forget((Name(self.me, client, topic_filter),))

    def gone(self, client: ClientId, state: ClientState, *, now: float) -> None:
        super().gone(client, state, now=now)
        self._forget(Name(self.me, client, topic_filter) for topic_filter in state.subscriptions)

    def moved(self, client: ClientId, location: Location | None, *, now: float) -> None:
        super().moved(client, location, now=now)
        for topic_filter, fence in self.clients[client].subscriptions.items():
            self._note(Name(self.me, client, topic_filter), fence, location)
        self._tell()

    def replace_all(self) -> None:
        super().replace_all()
        for guest in self.guests.subscribers():
            for topic_filter, fence in self.guests.filters(guest).items():
                self._note(Name(guest.home, guest.client, topic_filter), fence, ANY)
        self._tell()

    def _note(self, name: Name, fence: Fence | None, place: Location | int | None) -> None:
        """An interest is new, or may have changed."""
        interest = Interest(key_of(name.topic_filter), place, around(fence))
        peers = tuple(peer for peer in self.meeting(fence) if peer != self.me)
        _, before = self._concerned.get(name, ("", ()))
        for peer in before:
            if peer not in peers:
                self._lose(peer, name, interest.key)
        self._concerned[name] = (interest.key, peers)
        for peer in peers:
            self._outlook(peer).put(name, interest)
            self._changed.setdefault(peer, {})[name] = interest

    def _forget(self, names: Iterable[Name]) -> None:
        """Interests ended: a peer is told at once only if there are no others."""
        for name in names:
            key, peers = self._concerned.pop(name, ("", ()))
            for peer in peers:
                self._lose(peer, name, key)
        for peer, outlook in self._outlooks.items():
            if outlook.has_ended():
                self._tell_all(peer, outlook)

    def _lose(self, peer: BrokerId, name: Name, key: Key) -> None:
        self._outlook(peer).drop(name, key)
        self._changed.setdefault(peer, {}).pop(name, None)

    def _outlook(self, peer: BrokerId) -> Outlook[Name]:
        outlook = self._outlooks.get(peer)
        if outlook is None:
            outlook = self._outlooks[peer] = Outlook(self.options.patience)
        return outlook

    def _tell(self) -> None:
        """The turn is over: send peers what their digests lack, each in one message."""
        changed, self._changed = self._changed, {}
        for peer, interests in changed.items():
            outlook = self._outlooks.get(peer)
            if outlook is None:
                continue
            grown = outlook.renew(interests)
            if grown is None:
                self._tell_all(peer, outlook)
            elif grown:
                self._put(peer, outlook, grown, whole=False)

    def _tell_all(self, peer: BrokerId, outlook: Outlook[Name]) -> None:
        """Send a peer everything anew, if it has been told before."""
        if len(outlook.entries) <= KEYS_MAX:
            self._put(peer, outlook, outlook.entries, whole=True)
        elif outlook.is_told:
            outlook.told(is_told=False)
            self.send(peer, DropDigest())

    def _put(self, peer: BrokerId, outlook: Outlook[Name], entries: dict[Key, Entry], *, whole: bool) -> None:
        if not outlook.is_told:
            return
        version, parts = outlook.next_version(whole=whole), list(_in_messages(entries))
        for number, part in enumerate(parts):
            self.send(peer, PutDigest(version, whole, number + 1 < len(parts), outlook.slack_m, part))

    # What peers send.

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        match message:
            case ForwardEvent(event=event):
                before = len(self._actions)
                super().said(peer, message, now=now)
                if len(self._actions) == before:
                    self._came_in_vain(peer, event)
            case PutDigest():
                self._learn(peer, message)
            case DropDigest():
                self._unlearn(peer)
            case RefuseDigest(version=version):
                outlook = self._outlooks.get(peer)
                if outlook is not None and outlook.is_told and version >= outlook.whole_version:
                    outlook.refused()
            case PutGuest(client=client, topic_filter=topic_filter, fence=fence):
                super().said(peer, message, now=now)
                self._note(Name(peer, client, topic_filter), fence, ANY)
                self._tell()
            case DropGuest(client=client) | DropClient(client=client):
                super().said(peer, message, now=now)
                self._forget_guests()
            case SyncBegin():
                self._unlearn(peer)
                super().said(peer, message, now=now)
            case _:
                super().said(peer, message, now=now)
                self._forget_guests()

    def _forget_guests(self) -> None:
        """Guests that are no longer held are of no interest."""
        if len(self._concerned) == sum(map(len, self._placed.values())) + len(self.guests):
            return
        self._forget(
            [
                name
                for name in self._concerned
                if name.home != self.me and name.topic_filter not in self.guests.filters(_subscriber(name))
            ]
        )

    def _came_in_vain(self, peer: BrokerId, event: Event) -> None:
        outlook = self._outlook(peer)
        if outlook.came_in_vain(event):
            self._put(peer, outlook, outlook.entries, whole=True)

    def _learn(self, peer: BrokerId, message: PutDigest) -> None:
        parts = self._parts.setdefault(peer, [])
        parts.append(message)
        if sum(len(part.entries) for part in parts) > 2 * KEYS_MAX:
            self._unlearn(peer)
        elif not message.more:
            del self._parts[peer]
            self._take_in(peer, message, _joined(parts))

    def _take_in(self, peer: BrokerId, message: PutDigest, entries: dict[Key, KnownEntry]) -> None:
        known = self._known.get(peer)
        if known is not None:
            known.overpaid += 1
        elif message.whole:
            known = self._known[peer] = Known()
        else:
            return  # it was refused in the meantime
        known.put(entries, whole=message.whole)
        self._known_changes += 1
        if known.overpaid > (SILENT_MAX if known.is_silent else REFUSED_AFTER):
            self._unlearn(peer)
            self.send(peer, RefuseDigest(message.version))
        elif len(known.entries) > KEYS_MAX:
            self._unlearn(peer)

    def _unlearn(self, peer: BrokerId) -> None:
        """Send the peer everything."""
        self._parts.pop(peer, None)
        if self._known.pop(peer, None) is not None:
            self._known_changes += 1

    # Links, restarts, changes.

    def sync_extras(self, peer: BrokerId) -> None:
        super().sync_extras(peer)
        outlook = self._outlook(peer)
        outlook.rebuild()
        outlook.told(is_told=True)
        self._tell_all(peer, outlook)

    def peer_down(self, peer: BrokerId, *, now: float) -> None:
        super().peer_down(peer, now=now)
        self._outlook(peer).told(is_told=False)

    def federation_changed(self, before: Federation, *, now: float) -> None:
        for broker in before.ids:
            if broker not in self.federation.position:
                self._unlearn(broker)
                self._outlooks.pop(broker, None)
        self._concerned = {
            name: (key, tuple(peer for peer in peers if peer in self.federation.position))
            for name, (key, peers) in self._concerned.items()
        }
        super().federation_changed(before, now=now)
        self._forget_guests()

    def inherit(self, before: Self) -> None:
        super().inherit(before)
        self.replace_all()

    def state_size(self) -> int:
        told = sum(outlook.size for outlook in self._outlooks.values())
        return super().state_size() + told + sum(known.size for known in self._known.values())


def _in_messages(entries: dict[Key, Entry]) -> Iterator[tuple[EntryUnits, ...]]:
    """The entries in as many pieces as messages are needed, one at least."""
    piece: list[EntryUnits] = []
    count = 0
    for key, entry in entries.items():
        units = tuple(Unit(at, of, radius_m) for (at, of), radius_m in entry.units.items())
        while count + len(units) > MESSAGE_UNITS:
            now, units = units[: MESSAGE_UNITS - count], units[MESSAGE_UNITS - count :]
            yield (*piece, EntryUnits(key, entry.level, now))
            piece, count = [], 0
        piece.append(EntryUnits(key, entry.level, units))
        count += len(units)
    yield tuple(piece)


def _joined(parts: Iterable[PutDigest]) -> dict[Key, KnownEntry]:
    """The entries of all parts; an entry that was cut is whole again."""
    units: dict[Key, tuple[Unit, ...]] = {}
    levels: dict[Key, tuple[int, float]] = {}
    for part in parts:
        for entry in part.entries:
            units[entry.key] = units.get(entry.key, ()) + entry.units
            levels[entry.key] = (entry.level, part.slack_m)
    return {key: KnownEntry(level, units[key], slack_m) for key, (level, slack_m) in levels.items()}


def _subscriber(name: Name) -> Subscriber:
    return Subscriber(name.home, name.client)
