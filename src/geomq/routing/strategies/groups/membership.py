"""Seats in groups: taking one, giving one up, and serving those who sit in ours. Knows nothing of who should lead.

A broker always has exactly one seat: at a leader's, or its own. It takes a new seat before it gives up the old one.
The new leader subscribes at the cloud for the newcomer, waits until the cloud has acted on that, and only then
confirms with the group's view; meanwhile the old leader serves on, and what comes twice is dropped by id. A leader
serves one that left until the cloud has heard of it and what the cloud still held for the group is through, which may
be later than the cloud's answer says, and one that took a seat elsewhere keeps serving the members it still has. So no
event is missed that passed the cloud while groups change. A member that is away stays one for a grace period: what is
meant for it waits on the links, and when it is back it gives up its seat only after the cloud has its own
subscriptions.
"""

from collections.abc import Sequence
from typing import Self

import msgspec

from geomq.errors import TopicError
from geomq.geo import Fence
from geomq.mqtt.codec.topics import check_filter
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.core.strategy import ClientState, Strategy
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.groups.interest import GroupInterest
from geomq.routing.strategies.groups.messages import (
    Dismissed,
    DropInterest,
    GroupView,
    Join,
    LeaderBeat,
    Leave,
    MemberBeat,
    PutInterest,
)
from geomq.routing.strategies.rendezvous import RendezvousStrategy

FILTERS_MAX = 65_536
"""Filters one member may bring; a broker with more has to use the cloud itself."""


class Seat(msgspec.Struct):
    """Where this broker belongs; `members` are its fellows without the leader."""

    leader: BrokerId
    term: int = 0
    version: int = 0
    members: tuple[BrokerId, ...] = ()
    heard: float = 0.0


class Move(msgspec.Struct, frozen=True):
    """A seat asked for and not confirmed yet; at `me` it waits for the cloud, at another for its view."""

    leader: BrokerId
    term: int
    deadline: float
    mark: int = 0


class Member(msgspec.Struct):
    """One that sits in our group: since which version of the view, and from which mark on it may know."""

    term: int
    since: int
    heard: float
    unconfirmed: int = 0


class Departure(msgspec.Struct):
    """One that left our group: served until the cloud has passed the mark, and a while longer."""

    mark: int
    until: float | None = None


class GroupMembership(RendezvousStrategy):
    """The seat of this broker, the members it serves, and the filters both need from the cloud."""

    def __init__(self, **context: object) -> None:
        super().__init__(**context)
        self.cloud = BrokerId(self.options.cloud)
        self.seat = Seat(self.me)
        self.move: Move | None = None
        self.members: dict[BrokerId, Member] = {}
        self.departed: dict[BrokerId, Departure] = {}
        self.away: dict[BrokerId, float] = {}
        """Members not heard from, and until when they are waited for."""
        self.version = 0
        self.down: set[BrokerId] = set()
        self.interest = GroupInterest(lambda message: self.send(self.cloud, message))
        self._own: dict[str, int] = {}
        self._term = 0
        self._ready_mark: int | None = None
        self._drained_mark: int | None = None

    @property
    def outside(self) -> tuple[BrokerId, ...]:
        return (self.cloud,)

    def begin_beside(self, before: Sequence[Strategy]) -> None:
        for other in before:
            if isinstance(other, GroupMembership) and other.cloud == self.cloud:
                self.interest.share_cloud(other.interest)

    def retire(self) -> None:
        self.interest.drop_all()

    def is_ready(self, *, now: float) -> bool:
        """Once the cloud has acted on the own filters: until groups have formed, everything goes through it."""
        if self._ready_mark is None:
            self._ready_mark = self.interest.mark()
        return self.interest.passed(self._ready_mark)

    def is_drained(self, *, now: float) -> bool:
        """Once the cloud has everything that was for it."""
        if self._drained_mark is None:
            self._drained_mark = self.interest.mark()
        return self.interest.passed(self._drained_mark)

    @property
    def leading(self) -> bool:
        """Whether others may join: an own seat and no wish for another."""
        return self.seat.leader == self.me and self.move is None

    @property
    def draining(self) -> bool:
        """Whether members are left from when this broker led."""
        return bool(self.members) and self.seat.leader != self.me

    def tell(self, peer: BrokerId, message: Message) -> None:
        """Send to a broker that may have left the federation meanwhile."""
        if peer in self.federation.position:
            self.send(peer, message)

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        return (self.me,)

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        return (self.me,)

    def subscribed(self, client: ClientId, topic_filter: str, fence: Fence | None, *, now: float) -> None:
        new = topic_filter not in self._placed.get(client, {})
        super().subscribed(client, topic_filter, fence, now=now)
        if new:
            self._own[topic_filter] = self._own.get(topic_filter, 0) + 1
            if self._own[topic_filter] == 1:
                self._tell_interest(topic_filter, wanted=True)

    def unsubscribed(self, client: ClientId, topic_filter: str, *, now: float) -> None:
        held = topic_filter in self._placed.get(client, {})
        super().unsubscribed(client, topic_filter, now=now)
        if held:
            self._release(topic_filter)

    def gone(self, client: ClientId, state: ClientState, *, now: float) -> None:
        held = tuple(self._placed.get(client, ()))
        super().gone(client, state, now=now)
        for topic_filter in held:
            self._release(topic_filter)

    def _release(self, topic_filter: str) -> None:
        self._own[topic_filter] -= 1
        if not self._own[topic_filter]:
            del self._own[topic_filter]
            self._tell_interest(topic_filter, wanted=False)

    def _tell_interest(self, topic_filter: str, *, wanted: bool) -> None:
        """Send this to everybody who has our filters: the leader and, while moving, the next one."""
        seats = {self.seat.leader: self.seat.term}
        if self.move is not None:
            seats[self.move.leader] = self.move.term
        for leader, term in seats.items():
            if leader != self.me:
                told = PutInterest if wanted else DropInterest
                self.send(leader, told(term, topic_filter))
            elif wanted:
                self.interest.add(self.me, topic_filter)
            else:
                self.interest.drop(self.me, topic_filter)

    def begin_move(self, leader: BrokerId, *, now: float) -> None:
        """Ask for another seat; an own one is free once the cloud has our subscriptions."""
        self._cancel_move()
        self._term += 1
        deadline = now + self.options.answer_ms
        if leader == self.me:
            self.interest.replace(self.me, self._own)
            self.move = Move(leader, self._term, deadline, self.interest.mark())
        else:
            self.move = Move(leader, self._term, deadline)
            self.send(leader, Join(self._term, tuple(self._own)))

    def abort_move(self, *, now: float) -> None:
        """The seat asked for was refused or never confirmed: stay where we are."""
        move = self._cancel_move()
        if move is None:
            return
        if move.leader == self.seat.leader:
            self.lead_at_once(now=now)
        elif self.seat.leader == self.me:
            self.send_views()

    def _cancel_move(self) -> Move | None:
        move, self.move = self.move, None
        if move is not None and move.leader != self.me:
            self.tell(move.leader, Leave(move.term))
        elif move is not None:
            self.interest.replace(self.me, ())
        return move

    def take_seat(self, seat: Seat, *, now: float) -> None:
        """The new seat is confirmed; only now is the old one given up."""
        before, self.seat, self.move = self.seat, seat, None
        if before.leader != seat.leader:
            if before.leader == self.me:
                self.interest.replace(self.me, ())
            else:
                self.tell(before.leader, Leave(before.term))
        self.seated(before, now=now)

    def lead_at_once(self, *, now: float) -> None:
        """The leader is lost: no use in waiting for anything before leading oneself. If it is only slow, its next beat
        is answered, once the cloud serves this broker itself."""
        self.interest.replace(self.me, self._own)
        self._ready_mark = self.interest.mark()
        if self.move is not None and self.move.leader in (self.me, self.seat.leader):
            self.move = None
        before, self.seat = self.seat, Seat(self.me)
        if before.leader != self.me:
            self.leader_lost(now=now)
        self.seated(before, now=now)

    def seated(self, before: Seat, *, now: float) -> None:
        """Hook: the seat changed from `before` to `self.seat`."""

    def leader_lost(self, *, now: float) -> None:
        """Hook: the leader went without a hand-over."""

    def on_view(self, peer: BrokerId, view: GroupView, *, now: float) -> None:
        members = tuple(m for m in dict.fromkeys(view.members) if m in self.federation.position)
        seat = Seat(peer, view.term, view.version, members, now)
        if self.move is not None and (peer, view.term) == (self.move.leader, self.move.term):
            self.take_seat(seat, now=now)
        elif (peer, view.term) == (self.seat.leader, self.seat.term):
            self.seat = seat
        else:
            self.give_up(peer, view.term, now=now)

    def give_up(self, leader: BrokerId, term: int, *, now: float) -> None:
        """Leave a seat from before a restart, or a silence; not before the cloud serves this broker itself."""
        if self.seat.leader != self.me or self.is_ready(now=now):
            self.send(leader, Leave(term))

    def on_dismissed(self, peer: BrokerId, dismissed: Dismissed, *, now: float) -> None:
        if self.move is not None and (peer, dismissed.term) == (self.move.leader, self.move.term):
            self.abort_move(now=now)
        elif (peer, dismissed.term) == (self.seat.leader, self.seat.term) and peer != self.me:
            self.lead_at_once(now=now)

    def on_leader_beat(self, peer: BrokerId, beat: LeaderBeat, *, now: float) -> None:
        if (peer, beat.term) == (self.seat.leader, self.seat.term):
            self.seat.heard = now
        elif self.move is None or peer != self.move.leader:
            self.give_up(peer, beat.term, now=now)

    def on_join(self, peer: BrokerId, join: Join, *, now: float) -> None:
        if not self.leading or len(join.filters) > FILTERS_MAX:
            self.remove_member(peer)
            self.send(peer, Dismissed(join.term))
            return
        known = self.members.get(peer)
        if known is None:
            self.version += 1
        since = self.version if known is None else known.since
        self.interest.replace(peer, [f for f in join.filters if _is_filter(f)])
        self.members[peer] = Member(join.term, since, now, self.interest.mark())
        self.departed.pop(peer, None)
        self.away.pop(peer, None)
        if known is None:
            self.send_views()

    def on_leave(self, peer: BrokerId, leave: Leave) -> None:
        member = self.members.get(peer)
        if member is not None and member.term == leave.term:
            self.part(peer)

    def part(self, peer: BrokerId) -> None:
        """A member that is served elsewhere now; what the cloud had on the way for it is still sent on."""
        if peer in self.members:
            self.remove_member(peer)
            self.departed[peer] = Departure(self.interest.mark())

    def still_served(self, *, now: float) -> tuple[BrokerId, ...]:
        """Those that left and may still miss something."""
        for peer in [p for p, gone in self.departed.items() if gone.until is not None and now >= gone.until]:
            del self.departed[peer]
        return tuple(self.departed)

    def on_member_beat(self, peer: BrokerId, beat: MemberBeat, *, now: float) -> None:
        member = self.members.get(peer)
        if member is not None and member.term == beat.term:
            member.heard = now
            self.away.pop(peer, None)
        elif member is None:
            self.send(peer, Dismissed(beat.term))

    def on_interest(self, peer: BrokerId, told: PutInterest | DropInterest) -> None:
        member = self.members.get(peer)
        if member is None or member.term != told.term or not _is_filter(told.topic_filter):
            return
        if isinstance(told, DropInterest):
            self.interest.drop(peer, told.topic_filter)
        elif self.interest.held_by(peer) < FILTERS_MAX:
            self.interest.add(peer, told.topic_filter)
        else:
            self.dismiss(peer)

    def on_pong(self, token: int, *, now: float) -> None:
        self.interest.pong(token)
        for departure in self.departed.values():
            if departure.until is None and self.interest.passed(departure.mark):
                departure.until = now + self.options.drain_ms
        for peer, member in self.members.items():
            if member.unconfirmed and self.interest.passed(member.unconfirmed):
                member.unconfirmed = 0
                self.send(peer, GroupView(member.term, self.version, tuple(self.members)))
        move = self.move
        if move is not None and move.leader == self.me and self.interest.passed(move.mark):
            self.take_seat(Seat(self.me), now=now)

    def dismiss(self, peer: BrokerId) -> None:
        member = self.members.get(peer)
        if member is not None:
            self.remove_member(peer)
            self.tell(peer, Dismissed(member.term))

    def remove_member(self, peer: BrokerId) -> None:
        self.away.pop(peer, None)
        if self.members.pop(peer, None) is not None:
            self.version += 1
            self.interest.replace(peer, ())
            self.send_views()

    def send_views(self) -> None:
        """Send the confirmed members who is in the group. One that is about to end needs no new views: who left it
        gets at worst a few events twice."""
        if self.leading:
            members = tuple(self.members)
            for peer, member in self.members.items():
                if not member.unconfirmed:
                    self.send(peer, GroupView(member.term, self.version, members))

    def peer_up(self, peer: BrokerId, *, now: float) -> None:
        self.down.discard(peer)
        if peer == self.cloud:
            self.interest.cloud_up()
        elif peer == self.seat.leader and (self.move is None or self.move.leader == peer):
            self.begin_move(peer, now=now)

    def peer_down(self, peer: BrokerId, *, now: float) -> None:
        if peer == self.cloud:
            self.interest.cloud_down()
        elif peer in self.federation.position:
            self.down.add(peer)
            self.miss(peer, now=now)
            self._lose(peer, now=now)

    def miss(self, peer: BrokerId, *, now: float) -> None:
        """A member is not there: serve it on for a while, so that it finds everything when it is back."""
        if peer in self.members:
            self.away.setdefault(peer, now + self.options.grace_ms)

    def dismiss_missing(self, *, now: float) -> None:
        for peer in [peer for peer, until in self.away.items() if now >= until]:
            self.dismiss(peer)

    def _lose(self, peer: BrokerId, *, now: float) -> None:
        if peer == self.seat.leader:
            self.lead_at_once(now=now)
        elif self.move is not None and self.move.leader == peer:
            self.abort_move(now=now)

    def federation_changed(self, before: Federation, *, now: float) -> None:
        super().federation_changed(before, now=now)
        for broker in before.ids:
            if broker not in self.federation.position:
                self.down.discard(broker)
                self.remove_member(broker)
                self.departed.pop(broker, None)
                self._lose(broker, now=now)

    def inherit(self, before: Self) -> None:
        """Who sat here before a crash is served until it says that it sits elsewhere."""
        super().inherit(before)
        for peer, member in before.members.items():
            self.interest.replace(peer, before.interest.filters(peer))
            self.members[peer] = Member(member.term, self.version, member.heard, self.interest.mark())

    def state_size(self) -> int:
        return super().state_size() + len(self.interest) + len(self._own)


def _is_filter(topic_filter: str) -> bool:
    try:
        check_filter(topic_filter)
    except TopicError:
        return False
    return True
