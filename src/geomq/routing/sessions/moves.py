"""Clients whose sessions move from one broker to another: no event is missed on the way, none comes twice.

What a session holds is the driver's affair; this file owns what happens to events meanwhile. The broker a client left
keeps its subscriptions and sends on what they match, until the new home says that all brokers have heard of the
subscriptions there. The new home knows which events the client has had and gives it each of the others once, by
whichever way they come, and in the order they were published in (`trails`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Self

import msgspec

from geomq.mqtt.session.backlog import Backlog
from geomq.routing.core.actions import Action, ForgetNote, KeepNote, SendOnceFlushed, SendToPeer
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, EventId, Match
from geomq.routing.core.strategy import ClientState
from geomq.routing.core.topology import Federation
from geomq.routing.federation.routings import Routings
from geomq.routing.sessions.arrivals import Arrivals
from geomq.routing.sessions.hand_overs import Notes
from geomq.routing.sessions.messages import (
    AskFlushed,
    AskReached,
    AskSettled,
    DeliverMoved,
    Flushed,
    Reached,
    SentAll,
    Settled,
)
from geomq.routing.sessions.moved_events import MovedEvents
from geomq.routing.sessions.rounds import Drain, Drains, Rounds
from geomq.routing.sessions.trails import Trails, is_client, key_of, owner_of

SETTLE_MS = 5_000.0
"""How long every link has to be up before a new home's subscriptions count as known everywhere."""
FORGET_MS = 4 * SETTLE_MS
"""How long a new home remembers what a client has had, once every link is up: longer than its former home asks."""
ASKED_MAX = 1_000
"""Clients asked about in one message."""
DEPARTED = "departed"
"""What is on disk of a client that left."""


class _Departure(msgspec.Struct):
    to: BrokerId
    ask_at: float
    drain: Drain | None = None
    """Once everybody knows the new home: when it is past, nothing more comes this way."""


class SessionMoves:
    """The clients that left this broker and those that came from another, until both are settled."""

    def __init__(
        self,
        me: BrokerId,
        federation: Federation,
        *,
        epoch: int,
        clients: Mapping[ClientId, ClientState],
        routings: Routings,
        act: Callable[[Action], None],
    ) -> None:
        self._me = me
        self._brokers = federation.ids
        self._clients = clients
        self._routings = routings
        self._act = act
        self._departed: dict[ClientId, _Departure] = {}
        self._keys: dict[ClientId, dict[ClientId, None]] = {}
        """Under which keys each client that left is known."""
        self._going: dict[ClientId, None] = {}
        """Those that left and whose new homes everybody knows, until what still went this way is here."""
        self._rounds = Rounds(me, federation.ids, act, epoch=epoch)
        self._flushes = Rounds(me, federation.ids, act, epoch=epoch, question=AskFlushed)
        """What was sent before everybody knew a new home may still be on its way to a rendezvous."""
        self._drains = Drains(self._flushes, self._rounds)
        self._arrivals = Arrivals(self._rounds, act)
        self._trails = Trails(act)
        self._events = MovedEvents(
            self._trails, self._arrivals, clients=clients, routings=routings, new_home=self.new_home, wake=self._wake
        )
        self._down: dict[BrokerId, None] = {peer: None for peer in federation.ids if peer != me}
        self._whole_since = 0.0
        """Since when every link is up."""
        self.deadline: float | None = None
        """When `on_deadline` is to be called."""

    def __len__(self) -> int:
        return len(self._departed) + len(self._arrivals) + len(self._trails)

    @property
    def held(self) -> Backlog:
        """The events that wait for older ones of clients that move."""
        return self._trails.backlog

    def load(self, notes: Notes, is_here: Callable[[ClientId], bool], *, now: float) -> None:
        """The broker starts, and its clients and those that left are known: this is what it kept."""

        def is_away(client: ClientId) -> bool | None:
            return True if client in self._departed else False if is_here(client) else None

        self._trails.load(notes, is_away, self._drains, now=now)
        self._arrivals.load()
        if len(self):
            self._wake(now + SETTLE_MS)

    def entered(self, client: ClientId, token: int, source: BrokerId, *, now: float) -> None:
        """The client's session is about to be taken in; until `source` has sent all, newer events are held."""
        self._trails.come_back(client, self._drains.begin)
        self._trails.enter(client, token, source, now=now)
        self._go_on(client)
        self._bound(client)
        self._wake(now + FORGET_MS)

    def taken(self, client: ClientId) -> None:
        """The client's session is here, and its subscriptions are on their way to the peers."""
        self._arrivals.taken(client)
        self._arrivals.keep(client)
        self._trails.taken(client, self._clients[client].location if client in self._clients else None)

    def subscribed(self, client: ClientId, topic_filter: str) -> None:
        """A client that is here wants what it did not want before: no former home knows of that."""
        self._trails.subscribed(Match(client, topic_filter))

    def gave(self, client: ClientId, token: int, to: BrokerId, *, now: float) -> None:
        """The client's session is on its way to another broker, with this token."""
        self._trails.leave(client, token, to, now=now)
        self._bound(client)

    def departed(self, client: ClientId, to: BrokerId, *, now: float) -> None:
        """The client, under this key, is another broker's now."""
        self._arrivals.forget(client)
        self._departed[client] = _Departure(to, now + SETTLE_MS)
        self._going.pop(client, None)
        self._keys.setdefault(owner_of(client), {})[client] = None
        self._wake(now + SETTLE_MS)

    def arrived(self, client: ClientId, had: Iterable[EventId], *, now: float) -> None:
        """The client's session came from another broker, where the client had these events."""
        self._arrivals.add(client, had, now=now)
        self._wake(now + FORGET_MS)

    def left(self, client: ClientId) -> tuple[ClientId, ...]:
        """What is still known here of a client that left, under any of its keys."""
        if client not in self._departed:
            return ()
        return tuple(self._keys[owner_of(client)]) if is_client(client) else (client,)

    def forget(self, client: ClientId) -> None:
        """The session is over."""
        self._arrivals.forget(client)
        departure = self._departed.pop(client, None)
        self._going.pop(client, None)
        if departure is not None:
            del self._keys[owner_of(client)][client]
            if not self._keys[owner_of(client)]:
                del self._keys[owner_of(client)]
        if not is_client(client):
            return
        if departure is not None:
            self._act(ForgetNote(DEPARTED, key_of(client)))
            is_known = departure.drain is not None and self._drains.is_past(departure.drain)
            self._trails.come_back(client, self._drains.begin_last if is_known else self._drains.begin)
        else:
            self._events.drop(self._trails.end(client))
        self._go_on(client)

    def _go_on(self, client: ClientId) -> None:
        """Tell those that wait that all was sent after the client."""
        for token, to in self._trails.passed(client, self._drains.is_past):
            if to in self._brokers:
                self._events.then(SendToPeer(to, SentAll(client, token)))

    def _bound(self, client: ClientId) -> None:
        """Wait no longer for the former homes of a client that came and went too often."""
        while (stay := self._trails.oldest_of_many(client)) is not None:
            self._events.shut(client, stay)
            token, to = self._trails.drop_oldest(client)
            if token and to in self._brokers:
                self._events.then(SendToPeer(to, SentAll(client, token)))

    def keep_departed(self, client: ClientId, record: bytes) -> None:
        """Have `record` on disk for as long as the client, under its own id, is known to have left."""
        self._act(KeepNote(DEPARTED, key_of(client), record))

    def had_by(self, clients: Iterable[ClientId]) -> Iterator[EventId]:
        """Events known from former homes to have been delivered to these."""
        return self._arrivals.had_by(clients)

    def new_home(self, client: ClientId) -> BrokerId | None:
        """Where a client went that left; None if that is no longer known, or it has not."""
        return self._departed[client].to if client in self._departed else None

    def sort_out(self, actions: list[Action], *, now: float) -> list[Action]:
        """What is to be done with events, given who left and who came."""
        return self._events.sort_out(actions, now=now) if len(self) or self._events.waiting else actions

    def forget_seen(self, event_id: EventId, clients: Iterable[ClientId]) -> None:
        """They have not had the event, and may get it elsewhere."""
        self._events.forget_seen(event_id, clients)

    # Peers.

    def said(self, peer: BrokerId, message: Message, *, now: float) -> tuple[ClientId, ...] | None:
        """Handle a message from a peer: the clients to forget, or None if another part handles it."""
        match message:
            case AskSettled(clients=clients):
                settled = tuple(client for client in clients if self._is_settled(client, now))
                if settled:
                    self._act(SendToPeer(peer, Settled(settled)))
                return ()
            case AskReached(number=number):
                self._act(SendToPeer(peer, Reached(number)))
                return ()
            case Reached(number=number):
                return self._settle() if self._rounds.answered(peer, number) else ()
            case AskFlushed(number=number):
                self._act(SendOnceFlushed(peer, Flushed(number)))
                return ()
            case Flushed(number=number):
                return self._settle() if self._flushes.answered(peer, number) else ()
            case Settled(clients=clients):
                self._settled(peer, clients)
                return ()
            case DeliverMoved():
                self._events.came_after(message, peer)
                return ()
            case SentAll(client=client, token=token):
                stay = self._trails.through(client, token)
                if stay is not None and stay.visit.source == peer:
                    self._events.shut(client, stay)
                    self._go_on(client)
                return ()
        return None

    def _settled(self, home: BrokerId, clients: Iterable[ClientId]) -> None:
        """Everybody knows that these clients are at the broker they went to, and so do not come from where they were
        before."""
        known = [client for client in clients if self.new_home(client) == home]
        for key in dict.fromkeys(key for client in known for key in self.left(client)):
            departure = self._departed[key]
            if departure.to == home and departure.drain is None:
                departure.drain = self._drains.begin()
                self._going[key] = None
        self._notify(known)

    def _is_settled(self, client: ClientId, now: float) -> bool:
        return self._arrivals.is_known_since(client, now - SETTLE_MS) and self._is_whole(now)

    def _is_whole(self, now: float) -> bool:
        return not self._down and now - self._whole_since >= SETTLE_MS

    def peer_up(self, peer: BrokerId, *, now: float) -> None:
        if self._down.pop(peer, self) is None:
            self._whole_since = now
        self._rounds.ask(peer)
        self._flushes.ask(peer)

    def peer_down(self, peer: BrokerId) -> None:
        if peer in self._brokers:
            self._down[peer] = None

    def federation_changed(self, brokers: tuple[BrokerId, ...], *, now: float) -> tuple[ClientId, ...]:
        """These are all brokers now; clients to forget because the broker they went to left."""
        before, self._brokers = self._brokers, brokers
        self._rounds.federation_changed(brokers)
        self._flushes.federation_changed(brokers)
        for peer in brokers:
            if peer not in before:
                self._down[peer] = None
        for peer in before:
            if peer not in brokers:
                self.peer_up(peer, now=now)
        for client, stay in self._trails.items():
            if stay.visit.is_open and stay.visit.source not in brokers:
                self._events.shut(client, stay)
                self._go_on(client)
        gone = tuple(c for c, departure in self._departed.items() if departure.to not in brokers)
        return tuple(dict.fromkeys((*gone, *self._settle())))  # a round may have waited for one that left only

    def _settle(self) -> tuple[ClientId, ...]:
        """A round may be past: those that wait for all hear of it; the clients that left and can be forgotten."""
        if all(strategy.places_directly for strategy in self._routings.strategies):
            self._notify(self._arrivals.newly_known())
        for client in self._trails.over():
            self._go_on(client)
        return tuple(c for c in self._going if (d := self._departed[c].drain) is not None and self._drains.is_past(d))

    def _notify(self, clients: Iterable[ClientId]) -> None:
        """Everybody knows where these clients are: the brokers they came from need not ask."""
        homes: dict[BrokerId, list[ClientId]] = {}
        for client in clients:
            for source in self._trails.sources(client):
                homes.setdefault(source, []).append(client)
        for home, theirs in homes.items():
            for start in range(0, len(theirs), ASKED_MAX):
                self._act(SendToPeer(home, Settled(tuple(theirs[start : start + ASKED_MAX]))))

    # The clock.

    def _wake(self, at: float) -> None:
        self.deadline = at if self.deadline is None else min(at, self.deadline)

    def on_deadline(self, *, now: float) -> None:
        self._rounds.ask_again()
        self._flushes.ask_again()
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
            self._arrivals.forget_before(now - FORGET_MS)
        for client, stay in self._trails.items():
            is_known_everywhere = whole and now - max(stay.opened, self._whole_since) >= FORGET_MS
            if stay.visit.is_open and (is_known_everywhere or stay.is_late(now)):
                self._events.shut(client, stay)
            self._go_on(client)
        self._events.pass_due(now=now)
        self.deadline = min(now + SETTLE_MS, self._trails.next_due()) if len(self) else None

    def inherit(self, before: Self) -> None:
        """Take over what a broker keeps on disk."""
        self._departed = {client: _Departure(left.to, left.ask_at) for client, left in before._departed.items()}
        self._keys = before._keys
        self.deadline = before.deadline
        self._arrivals.inherit(before._arrivals)
