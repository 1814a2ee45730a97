"""One group at one broker: its core, the path there, and the mesh around it.

Owns the protocol of a single group and writes what is to be sent into the outbox all groups of the broker share.
It never sees events, topics or clients, and it never sends.

A group is in one of four states here:

    unknown     no core is known (and nobody here wants the group)
    core        this broker announces the group
    routed      another broker is the core and `distance` hops away, reached over any of `parents`
    orphaned    the core is known but no path to it is left; a newer announcement is awaited
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.mesh.messages import Announcement, LostRoute, Membership, Outbox, Stamp
from geomq.routing.strategies.mesh.topics import MANAGEMENT


class Station:
    """What all groups of one broker have in common."""

    def __init__(
        self,
        me: BrokerId,
        up: tuple[BrokerId, ...],
        stamp: Stamp | None,
        *,
        redundancy: int,
        announce_ms: float,
        expire_after: int,
        patience_ms: float,
    ) -> None:
        self.me = me
        self.up = up
        self.stamp = stamp
        self.redundancy = redundancy
        self.announce_ms = announce_ms
        self.lifetime_ms = announce_ms * expire_after
        self.patience_ms = patience_ms
        self.gained: dict[BrokerId, None] = {}
        """Neighbours that are new in the mesh of some group."""
        self.outbox = Outbox()
        self.wake_ms = inf
        self.sequence_floor = 0
        """No announcement of ours that others may remember has a larger number: what we announce next is above it."""

    def reach(self, up: tuple[BrokerId, ...]) -> None:
        """These neighbours are linked now."""
        self.up = up

    def adopt(self, stamp: Stamp | None) -> None:
        """The topic-to-group map of this stamp is in force."""
        self.stamp = stamp

    def wake_by(self, ms: float) -> None:
        """Some group has something to do at this time."""
        self.wake_ms = min(self.wake_ms, ms)

    def awake(self) -> None:
        """All groups look at the time now, and ask anew when to be woken."""
        self.wake_ms = inf

    def take_gained(self) -> dict[BrokerId, None]:
        gained, self.gained = self.gained, {}
        return gained

    def take_outbox(self) -> Outbox:
        outbox, self.outbox = self.outbox, Outbox()
        return outbox

    def raise_floor(self, sequence: int) -> None:
        self.sequence_floor = max(self.sequence_floor, sequence)


class Heard(NamedTuple):
    """A neighbour's latest announcement."""

    sequence: int
    distance: int
    until_ms: float


class MeshGroup:
    def __init__(self, name: str, station: Station, *, wanted: bool = False) -> None:
        self.name = name
        self.wanted = wanted
        self.core: BrokerId | None = None
        self.sequence = 0
        self.distance: int | None = None
        self.heard: dict[BrokerId, Heard] = {}
        self.parents: dict[BrokerId, int] = {}
        """By parent, the sequence number for which membership was last announced to it; 0 for never."""
        self.children: dict[BrokerId, float] = {}
        """By neighbour that has us as parent, until when that holds."""
        self.lingering: dict[BrokerId, float] = {}
        """Mesh neighbours lost without a farewell: events still go to them until the mesh has surely re-formed."""
        self.former: dict[BrokerId, int] = {}
        """Parents left for a shorter path, as in `parents`: they serve us until the next announcement, when we are
        surely connected over the new ones."""
        self._station = station
        self._announced_ms = 0.0
        self._expires_ms = inf
        self._asked = 0

    @property
    def is_core(self) -> bool:
        return self.core == self._station.me

    @property
    def is_needed(self) -> bool:
        """Whether this broker has subscribers of the group or connects others to its core."""
        return self.wanted or bool(self.children)

    @property
    def is_member(self) -> bool:
        return self.is_needed or self.is_core

    @property
    def is_idle(self) -> bool:
        return self.core is None and not self.is_needed and not self.lingering

    def size(self) -> int:
        return 1 + len(self.heard) + len(self.children) + len(self.lingering)

    def mesh_neighbours(self) -> list[BrokerId]:
        return list(dict.fromkeys((*self.parents, *self.children, *self.lingering)))

    def targets(self, source: BrokerId | None) -> list[BrokerId]:
        """Where an event from `source` (None: an own client) goes next."""
        if self.is_member:
            return self.mesh_neighbours()
        if source is not None and not self._relies_on_us(source):
            return []
        return list(self.parents)[:1] or list(self.lingering)

    def _relies_on_us(self, source: BrokerId) -> bool:
        """Whether an event may have come from `source` because we are on its path to the core. One that announced
        the same sequence number no farther from the core than we are has another path."""
        heard = self.heard.get(source)
        if heard is None or heard.sequence != self.sequence or self.distance is None:
            return True
        return heard.distance > self.distance

    def announcement(self, now: float) -> Announcement | None:
        """The announcement for neighbours; None while there is no path to the core."""
        if self.core is None or self.distance is None:
            return None
        age = 0.0 if self.is_core else now - self._announced_ms
        parents = tuple(self.parents)
        return Announcement(self.name, self.core, self.sequence, self.distance, self.is_member, parents, age)

    def want(self, now: float) -> None:
        """The first own subscriber came."""
        self.wanted = True
        if self.core is None:
            self.become_core(now)
        self._join_parents()

    def unwant(self) -> None:
        """The last own subscriber left."""
        self.wanted = False
        self._settle()

    def become_core(self, now: float, *, above: int = 0) -> None:
        self._depart(now)
        self.core = self._station.me
        self.announce_anew(above=max(above, self._station.sequence_floor))

    def announce_anew(self, *, above: int = 0) -> None:
        """As the core, start the next announcement."""
        self.sequence = max(self.sequence, above) + 1
        self.distance = 0
        self._tell(self._station.up)

    def hear(self, neighbour: BrokerId, news: Announcement, now: float) -> None:
        """A core announcement came over the link from a neighbour."""
        me = self._station.me
        if news.core == me:
            self._hear_of_self(news, now)
            return
        if me in news.parents:
            self._hear_from_below(neighbour, news, now)
            return
        if self._is_better(news.core):
            self._depart(now)
            self.core, self.sequence = news.core, news.sequence - 1
        if news.core != self.core:
            self._forget_way(neighbour, now)
            self._tell([neighbour])
        elif news.sequence < self.sequence:
            if self.distance is None:
                self._ask([neighbour])
        else:
            self._follow(neighbour, news, now)

    def _is_better(self, core: BrokerId) -> bool:
        """Of two cores the smallest id wins, unless there is no path to it."""
        return self.core is None or core < self.core or (self.distance is None and core != self.core)

    def _hear_of_self(self, news: Announcement, now: float) -> None:
        """Someone remembers us as the core, maybe from before we started anew."""
        self._station.raise_floor(news.sequence)
        if self.is_core:
            if news.sequence > self.sequence:
                self.announce_anew(above=news.sequence)
        elif self.core is not None and self.core > self._station.me and self.is_needed:
            self.become_core(now)

    def _hear_from_below(self, neighbour: BrokerId, news: Announcement, now: float) -> None:
        """The neighbour's path to the core goes through this broker, so it cannot be used here."""
        if neighbour in self.former:
            self._say_farewell(neighbour, self.former[neighbour])
        self._forget_way(neighbour, now)
        if news.core == self.core:
            if news.member:
                self._add_child(neighbour, now)
        elif self.distance is not None:
            self._tell([neighbour])
        else:
            self._station.outbox.add_lost(neighbour, LostRoute(self.name, news.core, news.sequence))

    def _follow(self, neighbour: BrokerId, news: Announcement, now: float) -> None:
        """The announcement is of our core and not older than what we know."""
        until = now + self._station.lifetime_ms - news.age_ms
        fresh = news.sequence > self.sequence
        reach = news.distance + 1
        self.heard[neighbour] = Heard(news.sequence, news.distance, until)
        if self.distance is None:
            if not fresh:
                return  # it may be our own old announcement that came back
        elif reach > self.distance and not self._fell_back(neighbour, fresh, now):
            return
        moved = reach != self.distance
        if fresh:
            self.sequence = news.sequence
            self._announced_ms, self._expires_ms = now - news.age_ms, until
            self._leave_former()
        if moved:
            self.former.update((parent, joined) for parent, joined in self.parents.items() if joined)
            self.parents.clear()
            self.distance = reach
        self._fill_parents(first=neighbour)
        if fresh:  # a shorter path found later goes with the next announcement: each costs at most 2 x links
            self._tell(n for n in self._station.up if n != neighbour)

    def _fell_back(self, neighbour: BrokerId, fresh: bool, now: float) -> bool:
        """A neighbour announced a longer path than ours. Only if it was our last parent is that our path now."""
        if neighbour not in self.parents:
            return False
        joined = self.parents.pop(neighbour)
        if joined:
            self._say_farewell(neighbour, joined)
        self._fill_parents()
        if not self.parents and not fresh:
            self._orphan(now)
        return fresh and not self.parents

    def membership(self, neighbour: BrokerId, news: Membership, now: float) -> None:
        """A mesh membership announcement came from a neighbour."""
        me = self._station.me
        if news.core == me and news.member and (self.core is None or self.core > me):
            self.become_core(now, above=news.sequence)
        if news.core != self.core:
            self._tell([neighbour])
        elif news.member:
            self._add_child(neighbour, now)
        else:
            self.children.pop(neighbour, None)
            self._settle()

    def route_lost(self, neighbour: BrokerId, news: LostRoute, now: float) -> None:
        """A neighbour asks the core, through us, for a newer announcement."""
        if news.core != self.core:
            self._tell([neighbour])
            return
        if self.is_core:
            if news.sequence >= self.sequence:
                self.announce_anew(above=news.sequence)
            return
        heard = self.heard.get(neighbour)
        if heard is not None and heard.sequence <= news.sequence:
            self._forget_way(neighbour, now)
        if self.parents and news.sequence >= self.sequence and news.sequence > self._asked:
            self._asked = news.sequence
            parent = next(iter(self.parents))
            self._station.outbox.add_lost(parent, LostRoute(self.name, news.core, news.sequence))

    def neighbour_up(self, neighbour: BrokerId, now: float) -> None:
        """A link works: the neighbour learns what we know, or is asked for what we lost."""
        for entries in (self.children, self.lingering):
            if neighbour in entries:
                entries[neighbour] = now + self._station.lifetime_ms
        if self.distance is None:
            self._ask([neighbour])
        else:
            self._tell([neighbour])

    def neighbour_lost(self, neighbour: BrokerId, now: float) -> None:
        """A link broke. A child stays one until its time is over, so that what it misses waits for it."""
        self._forget_way(neighbour, now)

    def neighbour_removed(self, neighbour: BrokerId, now: float) -> None:
        """The link to a neighbour is gone."""
        self._forget_way(neighbour, now)
        self.children.pop(neighbour, None)
        self.lingering.pop(neighbour, None)
        self._settle()

    def sweep(self, now: float) -> None:
        """Let go of everything that was not renewed in time."""
        up, patience_ms = self._station.up, self._station.patience_ms
        for entries in (self.children, self.lingering):
            for neighbour in [n for n, until in entries.items() if until + (n not in up) * patience_ms <= now]:
                del entries[neighbour]
        if self.core is None or self.is_core:
            self._settle()
        elif self._expires_ms <= now:
            self.core_lost(now)
        else:
            for neighbour in [n for n, heard in self.heard.items() if heard.until_ms <= now]:
                self._forget_way(neighbour, now)
            self._settle()
            if self.distance is None:
                self._station.wake_by(self._expires_ms)

    def core_lost(self, now: float) -> None:
        """The core is silent for too long, or no longer exists. Who has subscribers stands for its place."""
        self._depart(now)
        if self.wanted:
            self.become_core(now)

    def _add_child(self, neighbour: BrokerId, now: float) -> None:
        if neighbour not in self.children:
            self._station.gained[neighbour] = None
        self.children[neighbour] = now + self._station.lifetime_ms
        self.lingering.pop(neighbour, None)
        self._join_parents()

    def _settle(self) -> None:
        """Leave the mesh if this broker is needed there no longer."""
        if self.is_needed:
            return
        if self.is_core:
            self._reset()
        else:
            self._leave_former()
            for parent, joined in self.parents.items():
                if joined:
                    self._say_farewell(parent, joined)
                    self.parents[parent] = 0

    def _depart(self, now: float) -> None:
        """Turn from the core; the neighbours in its mesh get events until the next mesh has surely formed."""
        if self.is_needed:
            until = now + self._station.lifetime_ms
            self.lingering.update((n, until) for n in (*self.parents, *self.children))
        self._reset()

    def _reset(self) -> None:
        if self.is_core:
            self._station.raise_floor(self.sequence)
        self.core = self.distance = None
        self.sequence = self._asked = 0
        self._expires_ms = inf
        for entries in (self.heard, self.parents, self.children, self.former):
            entries.clear()

    def _forget_way(self, neighbour: BrokerId, now: float) -> None:
        self.heard.pop(neighbour, None)
        self.former.pop(neighbour, None)
        if self.parents.pop(neighbour, None) is not None:
            self.lingering[neighbour] = now + self._station.lifetime_ms
            self._fill_parents()
            if not self.parents:
                self._orphan(now)

    def _orphan(self, now: float) -> None:
        """No path to the core is left. If it lives it answers our question well within one period."""
        self.distance = None
        self._expires_ms = min(self._expires_ms, now + self._station.announce_ms)
        self._station.wake_by(self._expires_ms)
        self._asked = self.sequence
        self._ask(self._station.up)

    def _fill_parents(self, first: BrokerId | None = None) -> None:
        """Take more parents while the redundancy allows and neighbours one hop nearer to the core are known."""
        assert self.distance is not None
        for neighbour in self.heard if first is None else (first, *self.heard):
            if len(self.parents) >= self._station.redundancy:
                break
            heard = self.heard[neighbour]
            if heard.distance == self.distance - 1 and heard.sequence >= self.sequence - 1:
                if neighbour not in self.parents:
                    self.parents[neighbour] = self.former.pop(neighbour, 0)
                    self._station.gained[neighbour] = None
                self.lingering.pop(neighbour, None)
        self._join_parents()

    def _leave_former(self) -> None:
        for parent in list(self.former):
            self._say_farewell(parent, self.former.pop(parent))

    def _join_parents(self) -> None:
        """Announce membership to each parent, once for each sequence number it announced."""
        if self.core is None or not self.is_needed:
            return
        stamp = self._station.stamp if self.name == MANAGEMENT else None
        for parent, joined in self.parents.items():
            sequence = self.heard[parent].sequence
            if joined < sequence:
                self.parents[parent] = sequence
                news = Membership(self.name, self.core, sequence, stamp=stamp)
                self._station.outbox.add_membership(parent, news)

    def _say_farewell(self, parent: BrokerId, sequence: int) -> None:
        assert self.core is not None
        self._station.outbox.add_membership(parent, Membership(self.name, self.core, sequence, member=False))

    def _tell(self, neighbours: Iterable[BrokerId]) -> None:
        for neighbour in neighbours:
            self._station.outbox.add_announcement(neighbour, self.name)

    def _ask(self, neighbours: Iterable[BrokerId]) -> None:
        if self.core is not None:
            for neighbour in neighbours:
                self._station.outbox.add_lost(neighbour, LostRoute(self.name, self.core, self.sequence))
