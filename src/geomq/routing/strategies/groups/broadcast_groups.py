"""`broadcast_groups`: near brokers flood to each other, groups reach each other through the cloud.

This file is the way of an event: home, group, leader, cloud, the leaders of interested groups, their members. Fences
are checked at the homes alone; the cloud knows topics. How groups come about is `groups_merging`, or a fixed table.
"""

from collections import deque
from typing import Annotated, ClassVar, Literal

import msgspec

from geomq.errors import ConfigError
from geomq.routing.core.messages import ForwardEvent, Message, Messages
from geomq.routing.core.model import BrokerId, Event
from geomq.routing.core.seen import SeenEvents
from geomq.routing.core.strategy import StrategyOptions
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.groups.greedy import computed_groups, given_groups
from geomq.routing.strategies.groups.membership import Member, Seat
from geomq.routing.strategies.groups.merging import GroupMerging
from geomq.routing.strategies.groups.messages import (
    TO_MEMBERS,
    CloudAnnounced,
    CloudPong,
    CloudPublish,
    CloudPublished,
    Dismissed,
    DropInterest,
    GroupView,
    Join,
    LeaderBeat,
    Leave,
    MemberBeat,
    MergeNotice,
    MergeReply,
    MergeRequest,
    PutInterest,
    RelayEvent,
)

RECENT_MAX = 1024
"""Own events kept to be sent to the cloud again when the leader dies before it has passed them on."""

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class GroupOptions(StrategyOptions, frozen=True):
    """`lcm` says per broker how fit it is to lead (the weight, under the fixed rule); unnamed brokers have 0.

    `formation = "fixed"` takes `groups` (leader: members) or, without one, the greedy rule over distances with
    `join_ms` as threshold. A `join_ms` of 0 is plain cloud relay, a very large one global flooding. A member that is
    away is served on for `grace_ms`.
    """

    cloud: Annotated[str, msgspec.Meta(min_length=1)] = "cloud"
    formation: Literal["live", "fixed"] = "live"
    groups: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    lcm: dict[str, float] = msgspec.field(default_factory=dict)
    join_ms: NotNegative = 5.0
    leave_ms: NotNegative | None = None
    announce_ms: Positive = 500.0
    expire_ms: Positive = 1000.0
    silence_ms: Positive = 2000.0
    grace_ms: Positive = 30_000.0
    answer_ms: Positive = 2000.0
    drain_ms: Positive = 10_000.0
    request_probability: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.6
    probes: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 20
    leaders_topic: Annotated[str, msgspec.Meta(min_length=1)] = "DG/leaders"

    @property
    def leave_after_ms(self) -> float:
        """The latency beyond which a member leaves; above the one for joining, or members would swing."""
        return self.leave_ms if self.leave_ms is not None else 1.5 * self.join_ms


class BroadcastGroups(GroupMerging):
    """Floods inside the group, goes through the leader and the cloud to the others."""

    Options = GroupOptions
    messages: ClassVar[Messages] = TO_MEMBERS
    hears_outsiders = True
    takes_changes = True

    def __init__(self, **context: object) -> None:
        super().__init__(**context)
        _check(self.options, self.federation)
        self.relayed = SeenEvents()
        self._recent: deque[tuple[float, Event]] = deque(maxlen=RECENT_MAX)
        self._aim = self.me
        if not self.live:
            self._sit_down()

    def published(self, event: Event, *, now: float) -> None:
        if event.topic == self.options.leaders_topic:
            self.drop(event.id, "topic reserved for leaders")
            return
        self._match_own(event)
        seat = self.seat
        fellows = dict.fromkeys((*self.members, *self.still_served(now=now)))
        if seat.leader == self.me:
            self._to_cloud(event)
        else:
            if event.qos:  # any other may be lost, but must not come twice
                self._recent.append((now, event))
            self.send(seat.leader, RelayEvent(event, seat.term, seat.version))
            fellows.update(dict.fromkeys(m for m in seat.members if m != self.me))
            fellows.pop(seat.leader, None)
        for fellow in fellows:
            self.send(fellow, ForwardEvent(event))

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        if peer == self.cloud:
            self._cloud_said(message, now=now)
        elif peer in self.federation.position and peer != self.me:
            match message:
                case ForwardEvent(event=event) if event.id.origin == self.me:
                    self.drop(event.id, "duplicate")  # own clients had it, maybe before a restart
                case ForwardEvent(event=event):
                    self._match_own(event)
                case RelayEvent():
                    self._relay(peer, message, now=now)
                case PutInterest() | DropInterest():
                    self.on_interest(peer, message)
                case _:
                    self._formation_said(peer, message, now=now)

    def _cloud_said(self, message: Message, *, now: float) -> None:
        match message:
            case CloudPublished(event=event):
                self._from_cloud(event, now=now)
            case CloudAnnounced():
                self.on_announced(message, now=now)
            case CloudPong(token=token):
                self.on_pong(token, now=now)

    def _formation_said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        match message:
            case MergeRequest():
                self.on_request(peer, message, now=now)
            case MergeReply():
                self.on_reply(peer, message, now=now)
            case MergeNotice():
                self.on_notice(peer, message, now=now)
            case Join():
                self.on_join(peer, message, now=now)
            case GroupView():
                self.on_view(peer, message, now=now)
            case Leave():
                self.on_leave(peer, message)
            case Dismissed():
                self.on_dismissed(peer, message, now=now)
            case LeaderBeat():
                self.on_leader_beat(peer, message, now=now)
            case MemberBeat():
                self.on_member_beat(peer, message, now=now)

    def _match_own(self, event: Event) -> None:
        """Match an event with the own clients; who had it before, by whatever way, does not get it again. That it came
        for a client that had moved here says nothing about the others."""
        repeated = not self.seen.first(event.id)
        matches = self.table.match(event).get(self.me, ())
        fresh = self.seen.unseen(event.id, matches) if matches else ()
        if fresh:
            self.deliver(event, fresh)
        elif repeated:
            self.drop(event.id, "duplicate")

    def _relay(self, peer: BrokerId, relay: RelayEvent, *, now: float) -> None:
        """An event of a member. One that believes us its leader wrongly is relayed all the same, and corrected."""
        event = relay.event
        if event.id.origin != peer or event.topic == self.options.leaders_topic:
            self.drop(event.id, "not the sender's own event")
            return
        self._match_own(event)
        known = peer in self.members
        for other, member in self.members.items():
            if other != peer and (not known or member.since > relay.version):
                self.send(other, ForwardEvent(event))
        for other in self.still_served(now=now):
            if other != peer:
                self.send(other, ForwardEvent(event))
        self._to_cloud(event)
        if not known:
            self.send(peer, Dismissed(relay.term))

    def _to_cloud(self, event: Event) -> None:
        if self.relayed.first(event.id):
            self.send(self.cloud, CloudPublish(event))

    def _from_cloud(self, event: Event, *, now: float) -> None:
        """An event of another group. A cloud that echoes what it was sent is recognised by the id alone."""
        if event.topic == self.options.leaders_topic:
            return
        if event.id.origin == self.me or not self.relayed.first(event.id):
            self.drop(event.id, "echo")
            return
        for member in (*self.members, *self.still_served(now=now)):
            self.send(member, ForwardEvent(event))
        self._match_own(event)

    def leader_lost(self, *, now: float) -> None:
        """Send the cloud what the lost leader may have taken with it; those who have it drop it by its id."""
        since = now - 2 * self.options.silence_ms
        for at, event in self._recent:
            if at >= since:
                self._to_cloud(event)
        self._recent.clear()

    def _sit_down(self) -> None:
        """Fixed groups: everybody knows them, so everybody starts in its seat."""
        leader_of = _fixed(self.options, self.federation)
        self._aim = leader = leader_of[self.me]
        group = tuple(broker for broker in leader_of if leader_of[broker] == leader != broker)
        if leader == self.me:
            self.members = {broker: Member(term=0, since=0, heard=0.0) for broker in group}
        else:
            self.seat = Seat(leader, members=group)

    def tick(self, *, now: float) -> None:
        if self.live:
            super().tick(now=now)
            return
        self._tick_at = None
        if self.seat.leader != self._aim and self.move is None and self._aim not in self.down:
            self.begin_move(self._aim, now=now)

    def seated(self, before: Seat, *, now: float) -> None:
        super().seated(before, now=now)
        self._try_later(now=now)

    def abort_move(self, *, now: float) -> None:
        super().abort_move(now=now)
        self._try_later(now=now)

    def _try_later(self, *, now: float) -> None:
        """In fixed groups a broker out of its seat returns to it as soon as it can."""
        if not self.live and self.seat.leader != self._aim:
            self._tick_at = now + self.options.announce_ms

    def peer_up(self, peer: BrokerId, *, now: float) -> None:
        super().peer_up(peer, now=now)
        if not self.live and peer == self._aim:
            self.tick(now=now)

    def federation_changed(self, before: Federation, *, now: float) -> None:
        super().federation_changed(before, now=now)
        if not self.live:
            self._aim = _fixed(self.options, self.federation)[self.me]
            self.tick(now=now)


def _check(options: GroupOptions, federation: Federation) -> None:
    if BrokerId(options.cloud) in federation.position:
        raise ConfigError(f"strategy options: cloud {options.cloud} is a broker of the federation")
    if options.leave_after_ms < options.join_ms:
        raise ConfigError(f"strategy options: leave_ms {options.leave_ms:g} is below join_ms {options.join_ms:g}")


def _fixed(options: GroupOptions, federation: Federation) -> dict[BrokerId, BrokerId]:
    if options.groups:
        return given_groups(federation, options.groups)
    return computed_groups(federation, options.lcm, options.join_ms)
