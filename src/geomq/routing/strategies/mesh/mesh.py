"""`mesh`: each topic group has a core and a mesh of the brokers that want it; events travel along the mesh.

Subscriptions stay at home and join their home to the mesh of their group. An event from a member goes to all its mesh
neighbours, an event from outside goes towards the core until it meets a member. Brokers send to their neighbours in
the overlay only. This file owns the broker's side: which groups there are, where events go, who is linked; the
protocol of one group is `mesh_group`.
"""

from collections.abc import Iterable
from math import inf
from typing import Annotated, ClassVar

from msgspec import Meta, field

from geomq.geo import Fence, Location
from geomq.routing.core.actions import Action
from geomq.routing.core.messages import ForwardEvent, Message, Messages
from geomq.routing.core.model import BrokerId, ClientId, Event, Subscriber
from geomq.routing.core.seen import SeenEvents
from geomq.routing.core.strategy import ClientState, Strategy, StrategyOptions
from geomq.routing.core.table import SubscriptionTable
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.mesh.group import MeshGroup, Station
from geomq.routing.strategies.mesh.messages import (
    Announcement,
    CoreAnnouncements,
    LostRoute,
    Membership,
    MembershipAnnouncements,
    RoutesLost,
    Stamp,
    TopicMap,
    TopicMapWanted,
)
from geomq.routing.strategies.mesh.overlay import check_links, neighbours_of
from geomq.routing.strategies.mesh.recent import RecentEvents
from geomq.routing.strategies.mesh.topics import MANAGEMENT, WILD, TopicGroups, check_groups, is_sound, level_of
from geomq.routing.strategies.mesh.unheard import UnheardNeighbours


class MeshOptions(StrategyOptions, frozen=True):
    """The settings of `mesh`."""

    links: Annotated[tuple[tuple[BrokerId, BrokerId], ...], Meta(max_length=100_000)] | None = None
    """The overlay; None links every broker with every other."""
    redundancy: Annotated[int, Meta(ge=1, le=8)] = 2
    """How many parents a member has at most."""
    announce_ms: Annotated[int, Meta(ge=10, le=3_600_000)] = 5_000
    """How often a core announces itself."""
    expire_after: Annotated[int, Meta(ge=2, le=100)] = 3
    """After how many of these periods without news something is forgotten."""
    patience_ms: Annotated[int, Meta(ge=0, le=604_800_000)] = 3_600_000
    """How long a neighbour that is gone keeps its place in a mesh, so that acknowledged events wait for it."""
    groups: dict[str, str] = field(default_factory=dict)
    """First topic level -> group; a level that is not named is its own group."""
    groups_version: Annotated[int, Meta(ge=1, le=2**53)] = 1
    """Of several maps in the federation the latest version is in force everywhere."""
    groups_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 4_096
    """How many groups a broker keeps track of."""
    hop_max: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    """How many links an event may pass; None is as many as there are brokers."""


class Mesh(Strategy):
    """The federation mesh."""

    Options: ClassVar[type[StrategyOptions]] = MeshOptions
    messages: ClassVar[Messages] = (
        CoreAnnouncements,
        MembershipAnnouncements,
        RoutesLost,
        TopicMap,
        TopicMapWanted,
    )

    def __init__(self, **context: object) -> None:
        super().__init__(**context)  # type: ignore[arg-type]
        options: MeshOptions = self.options
        check_links(options.links, self.federation)
        self.table = SubscriptionTable()
        self.passed = SeenEvents()
        """What went on from here since the start; `seen` is what own clients had, and survives a restart."""
        self.recent = RecentEvents(options.announce_ms * options.expire_after)
        self.topics = TopicGroups(options.groups, options.groups_version, self.me)
        self.neighbours = neighbours_of(self.me, options.links, self.federation.ids)
        self.station = Station(
            self.me,
            self.neighbours,
            self.topics.stamp,
            redundancy=options.redundancy,
            announce_ms=options.announce_ms,
            expire_after=options.expire_after,
            patience_ms=options.patience_ms,
        )
        self.unheard = UnheardNeighbours(
            self.neighbours, announced_ms=self.station.lifetime_ms, patience_ms=options.patience_ms
        )
        self.management = MeshGroup(MANAGEMENT, self.station, wanted=True)
        self.groups: dict[str, MeshGroup] = {MANAGEMENT: self.management}
        self._down: set[BrokerId] = set()
        self._now = 0.0
        self._tick_ms = 0.0
        self._patient_until_ms = inf
        self._ready_ms: float | None = None
        self._overflowed = False
        """Some group is not kept track of: every event has to come here and is passed on to everyone."""

    def subscribed(self, client: ClientId, topic_filter: str, fence: Fence | None, *, now: float) -> None:
        subscriber = Subscriber(self.me, client)
        known = topic_filter in self.table.filters(subscriber)
        self.table.put(subscriber, topic_filter, fence, self.clients[client].location)
        if not known:
            self._now = now
            group = self.topics.add(topic_filter, self._reserve)
            if group is not None:
                self._group(group).want(now)

    def unsubscribed(self, client: ClientId, topic_filter: str, *, now: float) -> None:
        self._now = now
        self.table.drop(Subscriber(self.me, client), topic_filter)
        group = self.topics.remove(topic_filter)
        if group is not None:
            self._unwant(group)

    def moved(self, client: ClientId, location: Location | None, *, now: float) -> None:
        self.table.move(Subscriber(self.me, client), location)

    def gone(self, client: ClientId, state: ClientState, *, now: float) -> None:
        for topic_filter in tuple(self.table.filters(Subscriber(self.me, client))):
            self.unsubscribed(client, topic_filter, now=now)

    def published(self, event: Event, *, now: float) -> None:
        self._now = now
        self.passed.first(event.id)
        self._serve(event, source=None, hops=0)

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        self._now = now
        if isinstance(message, ForwardEvent):
            self._forwarded(peer, message)
        elif peer in self.neighbours:
            self._heard(peer, message, now)

    def _forwarded(self, peer: BrokerId, message: ForwardEvent) -> None:
        if peer not in self.neighbours:
            self.drop(message.event.id, "not from a neighbour")
        elif not 0 < message.hops <= self._hop_max():
            self.drop(message.event.id, "hop limit")
        elif not self.passed.first(message.event.id):
            self.drop(message.event.id, "duplicate")
        else:
            self._serve(message.event, source=peer, hops=message.hops)

    def _serve(self, event: Event, *, source: BrokerId | None, hops: int) -> None:
        """Hand the event to own clients and pass it on, at most once to each neighbour."""
        if source is None or event.id.origin != self.me:  # an own one that comes back was served before a restart
            self.deliver(event, self.seen.unseen(event.id, self.table.match(event).get(self.me, ())))
        targets = self.targets(event.topic, source)
        if event.qos:
            unheard = self.unheard.current(now=self._now)
            targets += [each for each in unheard if each != source and each not in targets]
        if targets and hops >= self._hop_max():
            self.drop(event.id, "hop limit")
            return
        for target in targets:
            self.send(target, ForwardEvent(event, hops + 1))
        if event.qos:
            self.recent.note(event, hops, source, targets, now=self._now)

    def _offer_recent(self) -> None:
        """The mesh grew: who is new in it may be on the path to some that late events did not reach."""
        gained = self.station.take_gained()
        for passed in self.recent.current(now=self._now):
            if passed.hops >= self._hop_max():
                continue
            for target in self.targets(passed.event.topic, passed.source):
                if target in gained and target not in passed.holders:
                    passed.holders.add(target)
                    self.send(target, ForwardEvent(passed.event, passed.hops + 1))

    def targets(self, topic: str, source: BrokerId | None) -> list[BrokerId]:
        """Where an event on the topic goes from here if it came from `source` (None: an own client)."""
        name = self.topics.group_of(level_of(topic))
        names = (name,) if topic.startswith("$") else (name, WILD)
        found: dict[BrokerId, None] = {}
        for each in names:
            group = self.groups.get(each)
            if group is not None:
                found.update(dict.fromkeys(group.targets(source)))
            elif not self._has_room(each):
                found.update(dict.fromkeys(self.station.up))
        return [neighbour for neighbour in found if neighbour != source]

    def _hop_max(self) -> int:
        return self.options.hop_max or len(self.federation.ids)

    def _heard(self, peer: BrokerId, message: Message, now: float) -> None:
        match message:
            case CoreAnnouncements(items=announcements):
                for announcement in announcements[: self._items_max()]:
                    self._announced(peer, announcement, now)
            case MembershipAnnouncements(items=memberships):
                for membership in memberships[: self._items_max()]:
                    self._membership(peer, membership, now)
            case RoutesLost(items=lost):
                for each in lost[: self._items_max()]:
                    self._route_lost(peer, each, now)
            case TopicMap():
                if is_sound(message):
                    self._adopt_map(message, peer, now)
            case TopicMapWanted():
                self._send_map([peer])

    def _items_max(self) -> int:
        """No honest message has more entries: a farewell and a return for each group."""
        return 2 * (int(self.options.groups_max) + 2)

    def _announced(self, peer: BrokerId, news: Announcement, now: float) -> None:
        brokers = len(self.federation.ids)
        if not news.is_sound(brokers=brokers, lifetime_ms=self.station.lifetime_ms):
            return
        if news.core not in self.federation.position:
            return
        if self._has_room(news.group):
            self._group(news.group).hear(peer, news, now)
            self._tidy(news.group)
        elif not self._overflowed:
            self._overflowed = True
            self._group(WILD).want(now)

    def _membership(self, peer: BrokerId, news: Membership, now: float) -> None:
        if not news.is_sound():
            return
        group = self.groups.get(news.group)
        if group is None and news.core == self.me and news.member and self._has_room(news.group):
            group = self._group(news.group)
        if group is not None:
            group.membership(peer, news, now)
            if group is self.management and news.member:
                self._compare_maps(peer, news.stamp)
            self._tidy(news.group)

    def _route_lost(self, peer: BrokerId, news: LostRoute, now: float) -> None:
        group = self.groups.get(news.group)
        if group is not None and news.is_sound():
            group.route_lost(peer, news, now)

    def _group(self, name: str) -> MeshGroup:
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = MeshGroup(name, self.station)
        return group

    def _has_room(self, name: str) -> bool:
        if name in self.groups or name in (WILD, MANAGEMENT):
            return True
        return len(self.groups) - 1 - (WILD in self.groups) < int(self.options.groups_max)

    def _reserve(self, name: str) -> bool:
        """Make sure of a place for a group that an own subscription is about to want."""
        return self._has_room(name) and self._group(name) is not None

    def _unwant(self, name: str) -> None:
        if name != WILD or not self._overflowed:
            self.groups[name].unwant()
            self._tidy(name)

    def _tidy(self, name: str) -> None:
        if self.groups[name].is_idle:
            del self.groups[name]

    def advertise(self, groups: dict[str, str], *, now: float) -> None:
        """Put another topic-to-group map in force, here and along the management mesh."""
        check_groups(groups)
        version = 1 if self.topics.stamp is None else self.topics.stamp.version + 1
        self._adopt_map(TopicMap(version, self.me, tuple(sorted(groups.items()))), None, now)

    def _adopt_map(self, news: TopicMap, source: BrokerId | None, now: float) -> None:
        self._now = now
        if not Stamp(news.version, news.origin).supersedes(self.topics.stamp):
            return
        before = self.topics.wanted()
        self.topics.adopt(news, self._reserve)
        self.station.adopt(self.topics.stamp)
        after = self.topics.wanted()
        for name in after:
            if name not in before:
                self._group(name).want(now)
        for name in before:
            if name not in after:
                self._unwant(name)
        self._send_map(n for n in self.management.mesh_neighbours() if n != source)

    def _compare_maps(self, child: BrokerId, stamp: Stamp | None) -> None:
        """A child in the management mesh said which map it has: whoever has the later one shares it."""
        own = self.topics.stamp
        if own is not None and own.supersedes(stamp):
            self._send_map([child])
        elif stamp is not None and stamp.supersedes(own):
            self.send(child, TopicMapWanted())

    def _send_map(self, neighbours: Iterable[BrokerId]) -> None:
        message = self.topics.as_message()
        if message is not None:
            for neighbour in neighbours:
                self.send(neighbour, message)

    def peer_up(self, peer: BrokerId, *, now: float) -> None:
        if peer not in self.neighbours:
            return
        self._now = now
        started_anew = peer not in self._down
        self._down.discard(peer)
        self._find_up()
        self.recent.restarted(peer)
        self.unheard.linked(peer, now=now)
        self.station.gained[peer] = None
        for group in self.groups.values():
            if started_anew:
                group.neighbour_lost(peer, now)
            group.neighbour_up(peer, now)

    def peer_down(self, peer: BrokerId, *, now: float) -> None:
        if peer not in self.neighbours:
            return
        self._now = now
        self._down.add(peer)
        self._find_up()
        for group in self.groups.values():
            group.neighbour_lost(peer, now)

    def _find_up(self) -> None:
        self.station.reach(tuple(n for n in self.neighbours if n not in self._down))

    def federation_changed(self, before: Federation, *, now: float) -> None:
        self._now = now
        neighbours = self.neighbours
        self.neighbours = neighbours_of(self.me, self.options.links, self.federation.ids)
        self._down.intersection_update(self.neighbours)
        self._find_up()
        for gone in (n for n in neighbours if n not in self.neighbours):
            self.unheard.removed(gone)
        for group in tuple(self.groups.values()):
            for gone in (n for n in neighbours if n not in self.neighbours):
                group.neighbour_removed(gone, now)
            if group.core is not None and group.core not in self.federation.position:
                group.core_lost(now)
            for new in (n for n in self.station.up if n not in neighbours):
                group.neighbour_up(new, now)
            self._tidy(group.name)

    def is_ready(self, *, now: float) -> bool:
        """Two announcements of every core after all brokers have begun, the meshes have formed."""
        if self._ready_ms is None:
            self._ready_ms = now + 2 * self.options.announce_ms
        return now >= self._ready_ms

    def next_deadline(self) -> float | None:
        return min(self._tick_ms, self.station.wake_ms) if self.neighbours else None

    def on_deadline(self, *, now: float) -> None:
        self._now = now
        self.station.awake()
        for group in tuple(self.groups.values()):
            group.sweep(now)
            self._tidy(group.name)
        if now >= self._tick_ms:
            self._tick_ms = now + self.options.announce_ms
            for group in self.groups.values():
                if group.is_core:
                    group.announce_anew()
            self._recover_from_overflow()
        if self.management.core is None and self._may_stand(now):
            self.management.become_core(now)

    def _recover_from_overflow(self) -> None:
        if self._overflowed and len(self.groups) - 2 < self.options.groups_max:
            self._overflowed = False
            if WILD not in self.topics.wanted():
                self._unwant(WILD)

    def _may_stand(self, now: float) -> bool:
        """At the start a neighbour with a smaller id is given one period to announce itself first."""
        self._patient_until_ms = min(self._patient_until_ms, now + self.options.announce_ms)
        return now >= self._patient_until_ms or all(self.me < neighbour for neighbour in self.station.up)

    def state_size(self) -> int:
        """Entries about topic groups; the management group is always there and bounded by the links."""
        return sum(group.size() for group in self.groups.values() if group is not self.management)

    def take_actions(self) -> list[Action]:
        if self.station.gained:
            self._offer_recent()
        self._flush()
        return super().take_actions()

    def _flush(self) -> None:
        """Put into messages what the groups have to send, one of a kind for each neighbour."""
        if not self.station.outbox:
            return
        outbox = self.station.take_outbox()
        for neighbour, lost in outbox.lost.items():
            self.send(neighbour, RoutesLost(tuple(lost.values())))
        texts: dict[str, Announcement | None] = {}
        for neighbour, names in outbox.announce.items():
            items = (self._announcement(name, texts) for name in names)
            announcements = tuple(item for item in items if item is not None)
            if announcements:
                self.send(neighbour, CoreAnnouncements(announcements))
        for neighbour, memberships in outbox.memberships.items():
            self.send(neighbour, MembershipAnnouncements(tuple(memberships)))

    def _announcement(self, name: str, texts: dict[str, Announcement | None]) -> Announcement | None:
        if name not in texts:
            group = self.groups.get(name)
            texts[name] = None if group is None else group.announcement(self._now)
        return texts[name]
