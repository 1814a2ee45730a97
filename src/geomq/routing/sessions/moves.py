"""Clients whose sessions move from one broker to another: no event is missed on the way, none comes twice.

What a session holds is the driver's affair; this file owns what happens to events meanwhile. The broker a client left
keeps its subscriptions and sends on what they match, until the new home says that all brokers have heard of the
subscriptions there. The new home knows which events the client has had and gives it each of the others once, by
whichever way they come.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Self

import msgspec

from geomq.geo import Fence
from geomq.routing.core.actions import (
    Action,
    DeliverToClients,
    DeliverToOne,
    DropEvent,
    ForgetNote,
    KeepNote,
    SendToPeer,
)
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.strategy import ClientState
from geomq.routing.core.topology import Federation
from geomq.routing.federation.routings import Routings
from geomq.routing.sessions.messages import AskSettled, DeliverMoved, Settled
from geomq.routing.sharing.groups import HOPS_MAX, ServeShared

SETTLE_MS = 5_000.0
"""How long every link has to be up before a new home's subscriptions count as known everywhere."""
FORGET_MS = 4 * SETTLE_MS
"""How long a new home remembers what a client has had, once every link is up: longer than its former home asks."""
HAD_MAX = 4_096
"""Events remembered of a client that moved here."""
ASKED_MAX = 1_000
"""Clients asked about in one message."""
DEPARTED, HAD = "departed", "had"
"""What is on disk of a client that left, and the events that one which came had had before."""


class _Departure(msgspec.Struct):
    to: BrokerId
    ask_at: float


class _Arrival(msgspec.Struct):
    had: dict[EventId, None]
    since: float


class SessionMoves:
    """The clients that left this broker and those that came from another, until both are settled."""

    def __init__(
        self,
        me: BrokerId,
        federation: Federation,
        *,
        clients: Mapping[ClientId, ClientState],
        routings: Routings,
        act: Callable[[Action], None],
    ) -> None:
        self._me = me
        self._brokers = federation.ids
        self._clients = clients
        self._routings = routings
        self._act = act
        self._hops = 0
        """How many brokers that a client left the event in hand has passed."""
        self._departed: dict[ClientId, _Departure] = {}
        self._arrived: dict[ClientId, _Arrival] = {}
        self._down: dict[BrokerId, None] = {peer: None for peer in federation.ids if peer != me}
        self._whole_since = 0.0
        """Since when every link is up."""
        self.deadline: float | None = None
        """When `on_deadline` is to be called."""

    def __len__(self) -> int:
        return len(self._departed) + len(self._arrived)

    def departed(self, client: ClientId, to: BrokerId, *, now: float) -> None:
        """The client's session was given to another broker."""
        self._forget_arrival(client)
        self._departed[client] = _Departure(to, now + SETTLE_MS)
        self._wake(now + SETTLE_MS)

    def arrived(self, client: ClientId, had: Iterable[EventId], *, now: float) -> None:
        """The client's session came from another broker, where the client had these events."""
        self._arrived[client] = _Arrival(dict.fromkeys(had), now)
        self._wake(now + FORGET_MS)

    def left(self, client: ClientId) -> tuple[ClientId, ...]:
        """What is still known here of a client that left, under any of its keys."""
        if client not in self._departed:
            return ()
        return tuple(each for each in self._departed if each == client or each.startswith(f"{client}\0"))

    def forget(self, client: ClientId) -> None:
        """The session is over."""
        self._forget_arrival(client)
        if self._departed.pop(client, None) is not None and is_client(client):
            self._act(ForgetNote(DEPARTED, key_of(client)))

    def _forget_arrival(self, client: ClientId) -> None:
        if self._arrived.pop(client, None) is not None and is_client(client):
            self._act(ForgetNote(HAD, key_of(client)))

    def keep_departed(self, client: ClientId, record: bytes) -> None:
        """Have `record` on disk for as long as the client, under its own id, is known to have left."""
        self._act(KeepNote(DEPARTED, key_of(client), record))

    def keep_had(self, client: ClientId, had: tuple[EventId, ...]) -> None:
        """Have on disk what the client had before it came, for as long as that is known."""
        self._act(KeepNote(HAD, key_of(client), msgspec.msgpack.encode(had)))

    def let_in(self, client: ClientId) -> None:
        """The client has a new session here: after a restart that counts, not that it had left."""
        if client in self._departed:
            self._act(ForgetNote(DEPARTED, key_of(client)))

    def had_by(self, clients: Iterable[ClientId]) -> Iterator[EventId]:
        """Events known from former homes to have been delivered to these."""
        for client in clients:
            if client in self._arrived:
                yield from self._arrived[client].had

    def new_home(self, client: ClientId) -> BrokerId | None:
        """Where a client went that left; None if that is no longer known, or it has not."""
        return self._departed[client].to if client in self._departed else None

    # Events.

    def sort_out(self, actions: list[Action]) -> list[Action]:
        """Send on what is for clients that left, and leave out what those that came have had."""
        hops, self._hops = self._hops, 0
        if not len(self):
            return actions
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
                self._forget_seen(event.id, theirs)
                yield SendToPeer(broker, DeliverMoved(event, tuple(theirs), hops + 1))
        if not here and not elsewhere:
            yield DropEvent(event.id, "duplicate")

    def _forget_seen(self, event_id: EventId, matches: Iterable[Match]) -> None:
        """What is sent after clients that left they have not had yet."""
        for match in matches:
            for strategy in self._routings.strategies:
                strategy.seen.forget(event_id, match.client)

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
        """Handle a message from a peer: the clients to forget, or None if another part handles it."""
        match message:
            case AskSettled(clients=clients):
                settled = tuple(client for client in clients if self._is_settled(client, now))
                if settled:
                    self._act(SendToPeer(peer, Settled(settled)))
                return ()
            case Settled(clients=clients):
                whole = self._is_whole(now)
                return tuple(c for c in clients if whole and c in self._departed and self._departed[c].to == peer)
            case DeliverMoved():
                self._deliver_moved(message)
                return ()
        return None

    def _deliver_moved(self, message: DeliverMoved) -> None:
        """A former home of some clients matched an event for them."""
        self._hops = max(1, message.hops)
        event_id, clients, strategy = message.event.id, self._clients, self._routings.publishing
        live = tuple(
            m
            for m in message.matches
            if m.client in clients
            and m.topic_filter in clients[m.client].subscriptions
            and not self._is_outside(message.event.fence, m.client)
        )
        fresh = strategy.seen.unseen(event_id, live)
        if fresh:
            strategy.deliver(message.event, fresh)
        else:
            strategy.drop(event_id, "duplicate" if live else "no longer subscribed")

    def _is_outside(self, fence: Fence | None, client: ClientId) -> bool:
        """Whether a client that is here now is not where an event matters: its former home may not know."""
        if fence is None or client in self._departed:
            return False
        location = self._clients[client].location
        return location is None or not fence.contains(location)

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
        self.deadline = at if self.deadline is None else min(at, self.deadline)

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
                self._forget_arrival(client)
        self.deadline = now + SETTLE_MS if len(self) else None

    def inherit(self, before: Self) -> None:
        """Take over what a broker keeps on disk."""
        self._departed, self._arrived, self.deadline = before._departed, before._arrived, before.deadline


def is_client(key: ClientId) -> bool:
    """Whether this is a client under its own id, and not one of its other keys."""
    return "\0" not in key


def key_of(client: ClientId) -> bytes:
    return client.encode("utf-8", "surrogatepass")
