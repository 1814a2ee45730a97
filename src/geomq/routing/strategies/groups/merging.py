"""How groups find each other and merge: the live formation, paper and Algorithm 1, on top of the seats.

Every broker starts as the leader of its own group. Leaders announce themselves through the cloud; one that measures
another below the join threshold asks it to merge, they negotiate, the loser notifies its members and joins. Members
follow if the new leader is near enough, else they start their own groups, and they leave a leader that moved beyond
the leave threshold. A dead leader is noticed by its link or its silence. Whatever is asked is given up after a while,
so nobody waits forever; the cloud relays meanwhile.
"""

import math

import msgspec

from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.groups.formation import (
    Candidate,
    LatencyMeans,
    follows,
    leaves,
    nearest_leader,
    negotiate,
)
from geomq.routing.strategies.groups.interest import ANNOUNCEMENTS
from geomq.routing.strategies.groups.membership import GroupMembership, Seat
from geomq.routing.strategies.groups.messages import (
    CloudAnnounce,
    CloudAnnounced,
    Dismissed,
    LeaderBeat,
    MemberBeat,
    MergeNotice,
    MergeReply,
    MergeRequest,
)

REFUSAL_TICKS = 4
"""For how many announcements one that refused is not asked again."""


class Asking(msgspec.Struct, frozen=True):
    """A merge this broker asked for."""

    peer: BrokerId
    round: int
    deadline: float


class GroupMerging(GroupMembership):
    """Announces, measures, asks, negotiates and watches."""

    def __init__(self, **context: object) -> None:
        super().__init__(**context)
        self.lcm: float = self.options.lcm.get(self.me, 0.0)
        self.latency = LatencyMeans(self.options.probes)
        self.leaders: dict[BrokerId, float] = {}
        self.asking: Asking | None = None
        self._round = 0
        self._refused_by: BrokerId | None = None
        self._refusers: dict[BrokerId, float] = {}
        """Leaders that would not merge, and until when others are asked instead."""
        self._drain_by = math.inf
        self.live: bool = self.options.formation == "live"
        self._tick_at: float | None = 0.0 if self.live else None

    def next_deadline(self) -> float | None:
        deadlines = [deadline for deadline in (self._tick_at,) if deadline is not None]
        deadlines += [waiting.deadline for waiting in (self.move, self.asking) if waiting is not None]
        deadlines += self.away.values()
        return min(deadlines, default=None)

    def on_deadline(self, *, now: float) -> None:
        self.dismiss_missing(now=now)
        if self.asking is not None and now >= self.asking.deadline:
            self._refused(self.asking.peer, now=now)
        if self.move is not None and now >= self.move.deadline:
            self._move_timed_out(now=now)
        if self._tick_at is not None and now >= self._tick_at:
            self._tick_at = now + self.options.announce_ms
            self.tick(now=now)

    def _move_timed_out(self, *, now: float) -> None:
        move = self.move
        assert move is not None
        if move.leader == self.me:
            # Without the cloud an own group is worse than the one we are in: stay, and keep trying.
            self.move = msgspec.structs.replace(move, deadline=now + self.options.answer_ms)
        else:
            self.abort_move(now=now)

    def tick(self, *, now: float) -> None:
        """What is done again and again: beats, silence, announcements, requests."""
        for peer, member in tuple(self.members.items()):
            if now - member.heard > self.options.silence_ms:
                self.miss(peer, now=now)
            elif now >= self._drain_by:
                self.dismiss(peer)
        if self.seat.leader != self.me:
            if now - self.seat.heard > self.options.silence_ms:
                self.lead_at_once(now=now)
            else:
                self.send(self.seat.leader, MemberBeat(self.seat.term))
        for peer, member in self.members.items():
            if self.draining:
                self.send(peer, MergeNotice(member.term, self.seat.leader))
            elif not member.unconfirmed:
                self.send(peer, LeaderBeat(member.term))
        if self.leading:
            self.announce()
            self._maybe_ask(now=now)

    def announce(self) -> None:
        self.interest.add(ANNOUNCEMENTS, self.options.leaders_topic)
        if self.interest.up:
            self.send(self.cloud, CloudAnnounce(self.options.leaders_topic, self.me, self.lcm))

    def on_announced(self, announced: CloudAnnounced, *, now: float) -> None:
        leader = announced.leader
        if self.seat.leader == self.me and leader != self.me and leader in self.federation.position:
            self.leaders[leader] = now + self.options.expire_ms

    def _maybe_ask(self, *, now: float) -> None:
        self.leaders = {leader: until for leader, until in self.leaders.items() if until > now}
        self._refusers = {leader: until for leader, until in self._refusers.items() if until > now}
        others = (
            (leader, self.latency.mean(leader))
            for leader in self.leaders
            if leader not in self.members and leader not in self.down and leader not in self._refusers
        )
        nearest = nearest_leader(others, self.options.join_ms)
        if nearest is None or self.asking is not None:
            return
        if self.rng.random() < self.options.request_probability:
            self._round += 1
            self.asking = Asking(nearest[0], self._round, now + self.options.answer_ms)
            self.send(nearest[0], MergeRequest(self._round, self.lcm, self._size()))

    def _size(self) -> int:
        return 1 + len(self.members)

    def on_request(self, peer: BrokerId, request: MergeRequest, *, now: float) -> None:
        if not math.isfinite(request.lcm):
            return
        self.part(peer)
        leader = self._negotiated(peer, request)
        self.send(peer, MergeReply(request.round, leader))
        if leader == peer:
            self.merge_into(peer, now=now)

    def _negotiated(self, peer: BrokerId, request: MergeRequest) -> BrokerId | None:
        """Who is to lead us and the requester; None while we are changing seats ourselves."""
        if not (self.live and self.leading):
            return None
        mine = Candidate(self.me, self.lcm, self._size())
        leader = negotiate(mine, [Candidate(peer, request.lcm, request.size)]).leader
        if leader == self.me:
            return leader
        free = self.asking is None or self.asking.peer == peer
        return leader if free and follows(self.latency.mean(peer), self.options.join_ms) else None

    def on_reply(self, peer: BrokerId, reply: MergeReply, *, now: float) -> None:
        asking = self.asking
        if asking is None or (peer, reply.round) != (asking.peer, asking.round):
            return
        self.asking = None
        if reply.leader is None:
            self._refused(peer, now=now)
        elif reply.leader == peer and self.leading:
            self.merge_into(peer, now=now)

    def _refused(self, peer: BrokerId, *, now: float) -> None:
        """Somebody would not merge, or did not answer: let it be for a while, so that others have their turn."""
        self.asking = None
        self._refusers[peer] = now + REFUSAL_TICKS * self.options.announce_ms

    def merge_into(self, leader: BrokerId, *, now: float) -> None:
        """Algorithm 1 where the other one leads: notify the members, join the new leader."""
        self.asking = None
        for peer, member in self.members.items():
            self.send(peer, MergeNotice(member.term, leader))
        self.begin_move(leader, now=now)

    def on_notice(self, peer: BrokerId, notice: MergeNotice, *, now: float) -> None:
        if (peer, notice.term) != (self.seat.leader, self.seat.term):
            if self.move is None or self.move.leader != peer:
                self.give_up(peer, notice.term, now=now)
            return
        self.seat.heard = now
        if self.move is not None:
            return
        near = follows(self.latency.mean(notice.leader), self.options.join_ms)
        reachable = notice.leader in self.federation.position and notice.leader not in self.down
        if near and reachable and notice.leader not in (self.me, self._refused_by):
            self.begin_move(notice.leader, now=now)
        else:
            self.begin_move(self.me, now=now)

    def on_leader_beat(self, peer: BrokerId, beat: LeaderBeat, *, now: float) -> None:
        super().on_leader_beat(peer, beat, now=now)
        if peer == self.seat.leader:
            self._refused_by = None

    def abort_move(self, *, now: float) -> None:
        if self.move is not None and self.seat.leader != self.me:
            self._refused_by = self.move.leader
        super().abort_move(now=now)

    def seated(self, before: Seat, *, now: float) -> None:
        self._refused_by = None
        self.asking = None
        self._drain_by = math.inf
        if before.leader == self.me != self.seat.leader:
            self.leaders.clear()
            self.interest.replace(ANNOUNCEMENTS, ())
            self._drain_by = now + self.options.drain_ms

    def on_dismissed(self, peer: BrokerId, dismissed: Dismissed, *, now: float) -> None:
        super().on_dismissed(peer, dismissed, now=now)
        self.leaders.pop(peer, None)

    def latency_measured(self, peer: BrokerId, latency_ms: float, *, now: float) -> None:
        if peer not in self.federation.position or not (math.isfinite(latency_ms) and latency_ms >= 0):
            return
        self.latency.add(peer, latency_ms)
        far = peer == self.seat.leader and leaves(self.latency.mean(peer), self.options.leave_after_ms)
        if far and self.live and self.move is None:
            self.begin_move(self.me, now=now)

    def peer_down(self, peer: BrokerId, *, now: float) -> None:
        self.latency.forget(peer)
        self.leaders.pop(peer, None)
        self._refusers.pop(peer, None)
        if self.asking is not None and self.asking.peer == peer:
            self.asking = None
        super().peer_down(peer, now=now)

    def federation_changed(self, before: Federation, *, now: float) -> None:
        super().federation_changed(before, now=now)
        for broker in before.ids:
            if broker not in self.federation.position:
                self.latency.forget(broker)
                self.leaders.pop(broker, None)
