"""Share groups: of all members that an event is meant for, wherever they are connected, one gets it.

Strategies never see shared subscriptions. Every broker sends every other its members, and the broker whose
client published decides who is served. One place decides, so nothing is doubled, whatever the strategy and however
the fences lie. The chosen member's home looks again: if it has no member any more that may read the event, it asks a
broker that has not been asked yet. Such an event waits for a broker that is away like any other, so none is lost on the
way. What a member had not received when its session ended is given out once more, under a new id.

Events of publishers outside the federation have no such broker; for each group the first by name of the reachable
brokers with members decides on them.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple, Self

from geomq.geo import Fence, Location
from geomq.routing.core.actions import Action, DeliverToOne, DropEvent, SendToPeer
from geomq.routing.core.keeps import BeginRepetition, Drop, EndRepetition, Once, Put, Renew, Rules, Table
from geomq.routing.core.messages import Message, MessageKind, Messages
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match, Subscriber
from geomq.routing.core.seen import SeenEvents
from geomq.routing.core.table import SubscriptionTable
from geomq.routing.core.topology import Federation

HOPS_MAX = 8
MEMBERS_MAX = 1_000_000
TURNS_MAX = 100_000
MEMBERS, PLACES = Table("m"), Table("n")
"""Places come last: a member is where its latest place puts it once all its memberships came."""


class ChangeMember(Message, frozen=True):
    """A member of the sender's is somewhere else, or came or left its connection."""

    wire_id: ClassVar[int] = 40
    kind: ClassVar[MessageKind] = "location"
    keeps: ClassVar[Rules] = (Put(PLACES, by=("client",)),)
    client: ClientId
    location: Location | None
    ready: bool


class PutMember(Message, frozen=True):
    """A client of the sender is a member of a share group; `ready` while it is connected."""

    wire_id: ClassVar[int] = 38
    kind: ClassVar[MessageKind] = "subscription"
    keeps: ClassVar[Rules] = (Put(MEMBERS, by=("client", "share", "topic_filter")), Renew(ChangeMember))
    client: ClientId
    share: str
    topic_filter: str
    fence: Fence | None
    location: Location | None
    ready: bool


class DropMember(Message, frozen=True):
    """A client of the sender is no longer a member of a share group."""

    wire_id: ClassVar[int] = 39
    kind: ClassVar[MessageKind] = "subscription"
    keeps: ClassVar[Rules] = (Drop(MEMBERS, by=("client", "share", "topic_filter")),)
    client: ClientId
    share: str
    topic_filter: str


class MembersBegin(Message, frozen=True):
    """The sender will now repeat all its members."""

    wire_id: ClassVar[int] = 41
    keeps: ClassVar[Rules] = (BeginRepetition(),)


class MembersEnd(Message, frozen=True):
    """The repetition is complete: members it did not mention are gone."""

    wire_id: ClassVar[int] = 42
    keeps: ClassVar[Rules] = (EndRepetition(),)


class MembersWanted(Message, frozen=True):
    """The sender holds members of the receiver's that may be gone: repeat them."""

    wire_id: ClassVar[int] = 43


class ServeShared(Message, frozen=True):
    """The receiver is to give this event to one of its members of the group."""

    wire_id: ClassVar[int] = 44
    kind: ClassVar[MessageKind] = "delivery"
    keeps: ClassVar[Rules] = (
        Once(by=("event", "share", "topic_filter", "asked"), shape=tuple[EventId, str, str, tuple[BrokerId, ...]]),
    )
    event: Event
    share: str
    topic_filter: str
    asked: tuple[BrokerId, ...]
    """The brokers that were asked before and have no member for it."""


MESSAGES: Messages = (
    PutMember,
    DropMember,
    ChangeMember,
    MembersBegin,
    MembersEnd,
    MembersWanted,
    ServeShared,
)


class Group(NamedTuple):
    """A share group: subscriptions with the same name and the same filter."""

    share: str
    topic_filter: str


class SharedGroups:
    """All members a broker knows of, its own and others', and the decisions about them."""

    def __init__(self, me: BrokerId, act: Callable[[Action], None], federation: Federation | None = None) -> None:
        """Without a federation the groups are this broker's own affair."""
        self._me = me
        self._act = act
        self._brokers = None if federation is None else federation.ids
        self._table = SubscriptionTable()
        self._members: dict[Subscriber, dict[Group, Fence | None]] = {}
        self._locations: dict[Subscriber, Location | None] = {}
        self._away: dict[Subscriber, None] = {}
        self._homes: dict[Group, dict[BrokerId, int]] = {}
        self._unmentioned: dict[BrokerId, dict[tuple[Subscriber, Group], None]] = {}
        self._up: dict[BrokerId, None] = {}
        self._told: dict[BrokerId, None] = {}
        """Peers that were sent all own members since their link came up."""
        self._turns: dict[Group, int] = {}
        self._served = SeenEvents()
        self._may_read: Callable[[ClientId, str], bool] = lambda _client, _topic: True

    def __len__(self) -> int:
        return len(self._table)

    def ask_rights(self, may_read: Callable[[ClientId, str], bool]) -> None:
        """Ask the driver whether an own client has the right to the events of a topic."""
        self._may_read = may_read

    @property
    def version(self) -> int:
        """Grows whenever a membership comes, changes or goes."""
        return self._table.version

    def concerns(self, topic: str) -> bool:
        """Whether any group wants events of this topic."""
        return self._table.concerns(topic)

    # Own members.

    def join(self, client: ClientId, group: Group, fence: Fence | None, location: Location | None) -> None:
        """An own client became a member, or changed the fence of its membership."""
        member = Subscriber(self._me, client)
        self._put(member, group, fence, location, ready=member not in self._away)
        self._tell(self._message_of(member, group, fence))

    def leave(self, client: ClientId, group: Group) -> None:
        member = Subscriber(self._me, client)
        if group in self._members.get(member, ()):
            self._drop(member, group)
            self._tell(DropMember(client, *group))

    def gone(self, client: ClientId) -> None:
        """An own client's session ended."""
        for group in tuple(self._members.get(Subscriber(self._me, client), ())):
            self.leave(client, group)

    def moved(self, client: ClientId, location: Location | None) -> None:
        member = Subscriber(self._me, client)
        if member in self._members:
            self._change(member, location, ready=member not in self._away)
            self._tell(ChangeMember(client, location, member not in self._away))

    def ready(self, client: ClientId, ready: bool) -> None:
        """An own client came or left its connection; its session goes on."""
        member = Subscriber(self._me, client)
        if member in self._members and ready == (member in self._away):
            self._change(member, self._locations[member], ready=ready)
            self._tell(ChangeMember(client, self._locations[member], ready))

    def own(self) -> Iterator[tuple[Subscriber, Group, Fence | None]]:
        """Every membership of an own client."""
        for member, groups in self._members.items():
            if member.home == self._me:
                for group, fence in groups.items():
                    yield member, group, fence

    def fence_of(self, client: ClientId, group: Group) -> Fence | None:
        """The fence of an own client's membership."""
        return self._members.get(Subscriber(self._me, client), {}).get(group)

    def _message_of(self, member: Subscriber, group: Group, fence: Fence | None) -> PutMember:
        return PutMember(member.client, *group, fence, self._locations[member], member not in self._away)

    # Events.

    def published(self, event: Event) -> None:
        """An own client published: decide for every group the event is meant for."""
        if len(self._table):
            for group, members in self._matching(event).items():
                self._serve(event, group, members, self._able(event, members), ())

    def returned(self, event: Event, group: Group) -> None:
        """A member's session ended before it had this event of the group: choose again among those that are left."""
        members = self._matching(event).get(group, [])
        self._serve(event, group, members, self._able(event, members), ())

    def came_from_outside(self, event: Event) -> None:
        """An event nobody has decided on: each group has one broker that does."""
        for group, members in self._matching(event).items():
            if self._decides(group) and self.is_first(event.id, group, 0):
                self._serve(event, group, members, self._able(event, members), ())

    def watched(self) -> dict[str, None]:
        """The filters of the groups for which this broker decides on events from outside."""
        return {group.topic_filter: None for group in self._homes if self._decides(group)}

    def _decides(self, group: Group) -> bool:
        return min(filter(self._is_reachable, self._homes.get(group, ())), default=None) == self._me

    def _is_reachable(self, home: BrokerId) -> bool:
        return home == self._me or home in self._up

    def _matching(self, event: Event) -> dict[Group, list[Subscriber]]:
        found: dict[Group, list[Subscriber]] = {}
        for home, matches in self._table.match(event).items():
            for entry, topic_filter in matches:
                client, _, share = entry.rpartition("\0")
                found.setdefault(Group(share, topic_filter), []).append(Subscriber(home, ClientId(client)))
        return found

    def _able(self, event: Event, members: list[Subscriber]) -> list[Subscriber]:
        """Those that may read the event; of others' clients only their homes know."""
        return [m for m in members if m.home != self._me or self._may_read(m.client, event.topic)]

    def _serve(
        self,
        event: Event,
        group: Group,
        members: list[Subscriber],
        able: list[Subscriber],
        asked: tuple[BrokerId, ...],
    ) -> None:
        """Choose one of the able members and see that it gets the event; without any it ends here."""
        found = able or [member for member in members if member.home == self._me]
        if not found:
            self._act(DropEvent(event.id, "no member left"))
            return
        ranks = [self._rank(member) for member in found]
        best = [member for member, rank in zip(found, ranks, strict=True) if rank == min(ranks)]
        chosen = best[self._turn(group) % len(best)]
        if chosen.home != self._me:
            self._act(SendToPeer(chosen.home, ServeShared(event, *group, asked)))
            return
        others = sorted((m for m in found if m.home == self._me and m != chosen), key=self._rank)
        self._act(DeliverToOne(event, *group, (chosen.client, *(other.client for other in others)), asked))

    def _rank(self, member: Subscriber) -> int:
        """Members that can take an event now come before those that are away, and these before cut-off ones."""
        if not self._is_reachable(member.home):
            return 2
        return 1 if member in self._away else 0

    def _turn(self, group: Group) -> int:
        if group not in self._turns and len(self._turns) >= TURNS_MAX:
            self._turns.clear()
        turn = self._turns[group] = self._turns.get(group, -1) + 1
        return turn

    def is_first(self, event_id: EventId, group: Group, asked: int) -> bool:
        """Note that the event is dealt with here for this group; whether it was not before.

        After more brokers were asked it may come again: the member they know of has moved here meanwhile.
        """
        entry = _entry(ClientId(f"{group.topic_filter}\0{asked}"), group)
        return bool(self._served.unseen(event_id, (Match(entry, ""),)))

    def dealt_with(self, event_id: EventId, share: str, topic_filter: str, asked: tuple[BrokerId, ...]) -> None:
        """Before a restart this broker dealt with a message of which it remembered this: see `ServeShared.keeps`."""
        self.is_first(event_id, Group(share, topic_filter), len(asked))

    def _asked_to_serve(self, message: ServeShared) -> None:
        event, group, asked = message.event, Group(message.share, message.topic_filter), message.asked
        if len(asked) > len(self._brokers or ()) + HOPS_MAX:
            self._act(DropEvent(event.id, "hop limit"))
        elif not self.is_first(event.id, group, len(asked)):
            self._act(DropEvent(event.id, "duplicate"))
        else:
            members = self._matching(event).get(group, [])
            able = self._able(event, members)
            own = [member for member in able if member.home == self._me]
            able = own or [member for member in able if member.home not in asked]
            self._serve(event, group, members, able, (*asked, self._me))

    # Peers.

    def said(self, peer: BrokerId, message: Message) -> bool:
        """Handle a message from a peer; False if another part handles it."""
        match message:
            case PutMember(client=client, share=share, topic_filter=topic_filter, fence=fence, location=location):
                self._put(Subscriber(peer, client), Group(share, topic_filter), fence, location, ready=message.ready)
            case DropMember(client=client, share=share, topic_filter=topic_filter):
                self._drop(Subscriber(peer, client), Group(share, topic_filter))
            case ChangeMember(client=client, location=location, ready=ready):
                self._change(Subscriber(peer, client), location, ready=ready)
            case ServeShared():
                self._asked_to_serve(message)
            case MembersBegin():
                self._unmentioned[peer] = {each: None for each in self._held() if each[0].home == peer}
            case MembersEnd():
                for member, group in self._unmentioned.pop(peer, {}):
                    self._drop(member, group)
            case MembersWanted():
                if peer not in self._told:
                    self._repeat(peer)
            case _:
                return False
        return True

    def peer_up(self, peer: BrokerId) -> None:
        if self._brokers is None or peer not in self._brokers:
            return
        self._up[peer] = None
        self._told.pop(peer, None)
        if any(member.home == self._me for member in self._members):
            self._repeat(peer)
        if any(member.home == peer for member in self._members):
            self._act(SendToPeer(peer, MembersWanted()))

    def peer_down(self, peer: BrokerId) -> None:
        self._up.pop(peer, None)

    def federation_changed(self, brokers: tuple[BrokerId, ...]) -> None:
        """These are all brokers now."""
        self._brokers = brokers
        for member, group in tuple(self._held()):
            if member.home not in brokers:
                self._drop(member, group)
        for peer in tuple(self._up):
            if peer not in brokers:
                del self._up[peer]

    def inherit(self, before: Self) -> None:
        """Take over what a broker keeps on disk: others' members and the events dealt with."""
        self._served = before._served
        for member, group in before._held():
            if member.home != self._me:
                fence, location = before._members[member][group], before._locations[member]
                self._put(member, group, fence, location, ready=member not in before._away)

    def _repeat(self, peer: BrokerId) -> None:
        self._told[peer] = None
        for message in (MembersBegin(), *(self._message_of(*each) for each in self.own()), MembersEnd()):
            self._act(SendToPeer(peer, message))

    def _tell(self, message: Message) -> None:
        for peer in self._brokers or ():
            if peer != self._me:
                self._act(SendToPeer(peer, message))

    # The table.

    def _held(self) -> Iterator[tuple[Subscriber, Group]]:
        return ((member, group) for member, groups in self._members.items() for group in groups)

    def _put(
        self, member: Subscriber, group: Group, fence: Fence | None, location: Location | None, *, ready: bool
    ) -> None:
        groups = self._members.get(member, {})
        if group not in groups:
            if len(self._table) >= MEMBERS_MAX:
                return
            homes = self._homes.setdefault(group, {})
            homes[member.home] = homes.get(member.home, 0) + 1
        self._members[member] = groups
        groups[group] = fence
        self._unmentioned.get(member.home, {}).pop((member, group), None)
        self._table.put(Subscriber(member.home, _entry(member.client, group)), group.topic_filter, fence, location)
        self._change(member, location, ready=ready)

    def _change(self, member: Subscriber, location: Location | None, *, ready: bool) -> None:
        if member not in self._members:
            return
        if ready:
            self._away.pop(member, None)
        else:
            self._away[member] = None
        self._locations[member] = location
        for group in self._members[member]:
            self._table.move(Subscriber(member.home, _entry(member.client, group)), location)

    def _drop(self, member: Subscriber, group: Group) -> None:
        groups = self._members.get(member, {})
        if group not in groups:
            return
        del groups[group]
        if not groups:
            del self._members[member], self._locations[member]
            self._away.pop(member, None)
        self._table.drop(Subscriber(member.home, _entry(member.client, group)), group.topic_filter)
        homes = self._homes[group]
        homes[member.home] -= 1
        if not homes[member.home]:
            del homes[member.home]
        if not homes:
            del self._homes[group]
            self._turns.pop(group, None)


def _entry(client: ClientId, group: Group) -> ClientId:
    """Who a membership is in the table: a client may be in several groups with the same filter."""
    return ClientId(f"{client}\0{group.share}")
