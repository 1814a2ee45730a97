"""Clients whose sessions move from one broker to another: no event is missed on the way, none comes twice.

What a session holds is the driver's affair; this file owns what happens to events meanwhile. The broker a client left
keeps its subscriptions and sends on what they match, until the new home says that all brokers have heard of the
subscriptions there. The new home knows which events the client has had and gives it each of the others once, by
whichever way they come.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, Self

import msgspec

from geomq.routing.core.actions import Action, DeliverToClients, DeliverToOne, DropEvent, SendToPeer
from geomq.routing.core.messages import Kind, Message, Messages
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.topology import Federation
from geomq.routing.sharing.groups import HOPS_MAX, ServeShared

SETTLE_MS = 5_000.0
"""How long every link has to be up before a new home's subscriptions count as known everywhere."""
FORGET_MS = 4 * SETTLE_MS
"""How long a new home remembers what a client has had, once every link is up: longer than its former home asks."""
HAD_MAX = 4_096
"""Events remembered of a client that moved here."""
ASKED_MAX = 1_000
"""Clients asked about in one message."""


class ClientAddress(Message, frozen=True):
    """Where the sender's clients connect."""

    wire_id: ClassVar[int] = 45
    address: str


class SessionWanted(Message, frozen=True):
    """A client connects at the sender: whoever has its session is to hand it over, or to end it (`clean`).

    `live` as the client comes; asked later, or by two brokers at the same time, `since_ms` decides where it came last.
    """

    wire_id: ClassVar[int] = 46
    client: ClientId
    token: int
    user: str | None
    clean: bool
    live: bool
    since_ms: int


class NoSession(Message, frozen=True):
    """The sender has no session of that client; or has, but the client is not the user it belongs to (`refused`)."""

    wire_id: ClassVar[int] = 47
    client: ClientId
    token: int
    refused: bool = False


class HandOver(Message, frozen=True):
    """A part of a session, which is the receiver's as soon as it has all of them on disk."""

    wire_id: ClassVar[int] = 48
    durable: ClassVar[bool] = True
    client: ClientId
    token: int
    part: int
    parts: int
    data: bytes


class DeliverMoved(Message, frozen=True):
    """An event that matched at the broker these clients left."""

    wire_id: ClassVar[int] = 49
    kind: ClassVar[Kind] = "delivery"
    event: Event
    matches: tuple[Match, ...]
    hops: int


class AskSettled(Message, frozen=True):
    """Does everybody know that these clients, once the sender's, are the receiver's now?"""

    wire_id: ClassVar[int] = 50
    clients: tuple[ClientId, ...]


class Settled(Message, frozen=True):
    """Everybody knows: the receiver can forget these clients."""

    wire_id: ClassVar[int] = 51
    clients: tuple[ClientId, ...]


MESSAGES: Messages = (
    ClientAddress,
    SessionWanted,
    NoSession,
    HandOver,
    DeliverMoved,
    AskSettled,
    Settled,
)


class _Departure(msgspec.Struct):
    to: BrokerId
    ask_at: float


class _Arrival(msgspec.Struct):
    had: dict[EventId, None]
    since: float


class Travellers:
    """The clients that left this broker and those that came from another, until both are settled."""

    def __init__(self, me: BrokerId, federation: Federation, act: Callable[[Action], None]) -> None:
        self._me = me
        self._brokers = federation.ids
        self._act = act
        self._departed: dict[ClientId, _Departure] = {}
        self._arrived: dict[ClientId, _Arrival] = {}
        self._down: dict[BrokerId, None] = {peer: None for peer in federation.ids if peer != me}
        self._whole_since = 0.0
        """Since when every link is up."""
        self._wake_at: float | None = None

    def __len__(self) -> int:
        return len(self._departed) + len(self._arrived)

    def departed(self, client: ClientId, to: BrokerId, *, now: float) -> None:
        """The client's session was given to another broker."""
        self._arrived.pop(client, None)
        self._departed[client] = _Departure(to, now + SETTLE_MS)
        self._wake(now + SETTLE_MS)

    def arrived(self, client: ClientId, had: Iterable[EventId], *, now: float) -> None:
        """The client's session came from another broker, where the client had these events."""
        self._arrived[client] = _Arrival(dict.fromkeys(had), now)
        self._wake(now + FORGET_MS)

    def left(self, client: ClientId) -> tuple[ClientId, ...]:
        """What is still known here of a client that left, under any of its voices."""
        if client not in self._departed:
            return ()
        return tuple(each for each in self._departed if each == client or each.startswith(f"{client}\0"))

    def forget(self, client: ClientId) -> None:
        """The session is over."""
        self._arrived.pop(client, None)
        self._departed.pop(client, None)

    def had_by(self, clients: Iterable[ClientId]) -> Iterator[EventId]:
        """Events known from former homes to have been delivered to these."""
        for client in clients:
            if client in self._arrived:
                yield from self._arrived[client].had

    def has_left(self, client: ClientId) -> bool:
        return client in self._departed

    def is_settling(self, client: ClientId) -> bool:
        return client in self._arrived

    # Events.

    def sort_out(self, actions: list[Action], *, hops: int) -> list[Action]:
        """Send on what is for clients that left, and leave out what those that came have had."""
        found: list[Action] = []
        for action in actions:
            match action:
                case DeliverToClients(event=event, matches=matches):
                    found += self._deliver(event, matches, hops)
                case DeliverToOne(members=members) if members[0] in self._departed:
                    found.append(self._serve_elsewhere(action))
                case _:
                    found.append(action)
        return found

    def _deliver(self, event: Event, matches: tuple[Match, ...], hops: int) -> Iterator[Action]:
        new: dict[ClientId, bool] = {}
        for match in matches:
            if match.client not in self._departed and match.client not in new:
                new[match.client] = self._is_new(event.id, match)
        here = tuple(match for match in matches if new.get(match.client, False))
        if here:
            yield DeliverToClients(event, here)
        elsewhere: dict[BrokerId, list[Match]] = {}
        for match in matches:
            if match.client in self._departed:
                elsewhere.setdefault(self._departed[match.client].to, []).append(match)
        for broker, theirs in elsewhere.items():
            if hops >= HOPS_MAX:
                yield DropEvent(event.id, "hop limit")
            else:
                yield SendToPeer(broker, DeliverMoved(event, tuple(theirs), hops + 1))
        if not here and not elsewhere:
            yield DropEvent(event.id, "duplicate")

    def _is_new(self, event_id: EventId, match: Match) -> bool:
        arrival = self._arrived.get(match.client)
        if arrival is None:
            return True
        if event_id in arrival.had:
            return False
        arrival.had[event_id] = None
        if len(arrival.had) > 2 * HAD_MAX:
            del arrival.had[next(iter(arrival.had))]
        return True

    def _serve_elsewhere(self, action: DeliverToOne) -> Action:
        """The chosen member left: its new home, or another member here, is to be served."""
        staying = tuple(member for member in action.members if member not in self._departed)
        if staying:
            return DeliverToOne(action.event, action.share, action.topic_filter, staying, action.asked)
        to = self._departed[action.members[0]].to
        return SendToPeer(to, ServeShared(action.event, action.share, action.topic_filter, action.asked))

    # Peers.

    def said(self, peer: BrokerId, message: Message, *, now: float) -> tuple[ClientId, ...] | None:
        """Deal with a message of a peer: the clients to forget, or None if it is none of ours."""
        match message:
            case AskSettled(clients=clients):
                settled = tuple(client for client in clients if self._is_settled(client, now))
                if settled:
                    self._act(SendToPeer(peer, Settled(settled)))
                return ()
            case Settled(clients=clients):
                whole = self._is_whole(now)
                return tuple(c for c in clients if whole and c in self._departed and self._departed[c].to == peer)
        return None

    def _is_settled(self, client: ClientId, now: float) -> bool:
        arrival = self._arrived.get(client)
        return self._is_whole(now) and (arrival is None or now - arrival.since >= SETTLE_MS)

    def _is_whole(self, now: float) -> bool:
        return not self._down and now - self._whole_since >= SETTLE_MS

    def peer_up(self, peer: BrokerId, *, now: float) -> None:
        if self._down.pop(peer, self) is None:
            self._whole_since = now

    def peer_down(self, peer: BrokerId) -> None:
        if peer in self._brokers:
            self._down[peer] = None

    def federation_changed(self, brokers: tuple[BrokerId, ...], *, now: float) -> tuple[ClientId, ...]:
        """These are all brokers now; clients to forget because the broker they went to left."""
        before, self._brokers = self._brokers, brokers
        for peer in brokers:
            if peer not in before:
                self._down[peer] = None
        for peer in before:
            if peer not in brokers:
                self.peer_up(peer, now=now)
        return tuple(c for c, departure in self._departed.items() if departure.to not in brokers)

    # The clock.

    def _wake(self, at: float) -> None:
        self._wake_at = at if self._wake_at is None else min(at, self._wake_at)

    def next_deadline(self) -> float | None:
        return self._wake_at

    def on_deadline(self, *, now: float) -> None:
        asked: dict[BrokerId, list[ClientId]] = {}
        whole = self._is_whole(now)  # else something may still be on its way here
        for client, departure in self._departed.items():
            if whole and departure.ask_at <= now:
                departure.ask_at = now + SETTLE_MS
                asked.setdefault(departure.to, []).append(client)
        for broker, clients in asked.items():
            for start in range(0, len(clients), ASKED_MAX):
                self._act(SendToPeer(broker, AskSettled(tuple(clients[start : start + ASKED_MAX]))))
        if whole:
            for client in [c for c, arrival in self._arrived.items() if now - arrival.since >= FORGET_MS]:
                del self._arrived[client]
        self._wake_at = now + SETTLE_MS if len(self) else None

    def inherit(self, before: Self) -> None:
        """Take over what a broker keeps on disk."""
        self._departed, self._arrived, self._wake_at = before._departed, before._arrived, before._wake_at
