"""Searches for sessions: who was asked for one, who has not answered, and which of two brokers a client came to later.

A session lives at one broker. When a client connects at another, that broker asks all others for the session, and the
one that has it gives it away. So it does not matter why a client comes: because it was sent, because it moved, or
because its broker is gone for it.

While a session is on its way, neither the broker that gave it nor the one that gets it has it. Who is asked for a
session that it gave away does not say that there is none: it sends word after the session, along the same link, and
whoever gets that has the asker ask there once more.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

import msgspec

from geomq.routing.core.actions import (
    Action,
    EndSession,
    GiveSession,
    KeepNote,
    LetClientIn,
    SendToPeer,
    TakeSession,
    TurnClientAway,
    Why,
)
from geomq.routing.core.events import AddressAnnounced, RoutingEvent, SessionPacked, SessionSought, SessionTaken
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.sessions.addresses import ClientAddresses
from geomq.routing.sessions.hand_overs import HandOvers, Notes
from geomq.routing.sessions.messages import (
    AskAgain,
    ClientAddress,
    HandOver,
    NoSession,
    SessionFollows,
    SessionWanted,
)
from geomq.routing.sessions.moves import SessionMoves
from geomq.routing.sessions.open_searches import PendingConnect, Search, Unasked

OF_SESSIONS = (SessionSought, SessionPacked, SessionTaken, AddressAnnounced)
PENDING_MAX = 10_000
LET_IN_MS = 10_000.0
"""How long a client that is in may be known to have come before it came to a peer that has not answered."""
GIVEN_MAX = 10_000
"""Sessions of which it is remembered whom they were given to, longer than their events need it."""


class OwnSession(NamedTuple):
    """What a search needs to know of a session that is here."""

    user: str | None
    since_ms: int
    """When the client came here, by the wall clock."""


class OwnSessions(Protocol):
    """The sessions of one broker, which are its driver's."""

    def find(self, client: ClientId) -> OwnSession | None: ...

    def may_take(self, client: ClientId, user: str | None) -> bool:
        """Whether the session that is here may go to a client of this user."""


class _NoSessions:
    """Until the driver says which there are."""

    def find(self, client: ClientId) -> OwnSession | None:
        return None

    def may_take(self, client: ClientId, user: str | None) -> bool:
        return True


class SessionSearches:
    """One broker's side of all searches. Until `load` there are no sessions here."""

    def __init__(
        self,
        me: BrokerId,
        moves: SessionMoves,
        act: Callable[[Action], None],
        brokers: Callable[[], tuple[BrokerId, ...]],
    ) -> None:
        self._me = me
        self._moves = moves
        self._act = act
        self._brokers = brokers
        self._sessions: OwnSessions = _NoSessions()
        self.up: dict[BrokerId, None] = {}
        self.addresses = ClientAddresses(act)
        self.hand_overs = HandOvers(act)
        self._started = 0.0
        self._down_since: dict[BrokerId, float] = {}
        self._pending: dict[ClientId, PendingConnect] = {}
        self._deadlines: list[tuple[float, int, PendingConnect]] = []
        self._let_in: dict[ClientId, Search] = {}
        """Clients that did not wait for everybody, until everybody has answered, or not for long."""
        self._let_in_until: deque[tuple[float, ClientId, Search]] = deque()
        self._now = 0.0
        self._unasked = Unasked(act)
        self._given: OrderedDict[ClientId, BrokerId] = OrderedDict()
        self._late: dict[ClientId, BrokerId] = {}
        """Where clients went whose sessions are being taken in without them."""

    def load(
        self, sessions: OwnSessions, notes: Notes, random_bytes: Callable[[int], bytes], *, now: float
    ) -> KeepNote | None:
        """The broker starts: these are its sessions, and this is what it kept; what is to be on disk at once."""
        self._sessions = sessions
        self._started = now
        self._unasked.load(notes)
        self._moves.load(notes, lambda client: sessions.find(client) is not None, now=now)
        return self.hand_overs.load(notes, random_bytes)

    @property
    def open(self) -> int:
        """Clients that wait, or that not everybody has answered for."""
        return len(self._pending) + len(self._let_in)

    def handle(self, happened: RoutingEvent, now: float) -> None:
        self._now = now
        match happened:
            case SessionSought():
                self._sought(happened, now)
            case SessionPacked():
                self._packed(happened, now)
            case SessionTaken(client=client):
                self._given.pop(client, None)
                self._unite(client)
                self._moves.taken(client)
                if client in self._pending:
                    self._go_without(self._pending[client])
            case AddressAnnounced(address=address):
                self.addresses.announce(address, self.up)

    # A client comes.

    def _sought(self, sought: SessionSought, now: float) -> None:
        client, clean = sought.client, sought.clean
        known = self._sessions.find(client) is not None
        if known and not clean:
            self._act(LetClientIn(client, sought.attempt))
            return
        wanted = SessionWanted(client, 0, sought.user, clean, True, sought.wall_ms)
        if known:
            for peer in self._brokers():
                if peer != self._me and peer not in self.up:
                    self._unasked.add(peer, wanted)
            self._act(LetClientIn(client, sought.attempt))
            return
        before = self._pending.pop(client, None)
        if before is not None and before.successor is not None:
            self._wanted(*before.successor)
        elif before is not None:
            self._act(TurnClientAway(client, before.attempt, "connects again"))
        if len(self._pending) >= PENDING_MAX:
            self._act(TurnClientAway(client, sought.attempt, "too many wait"))
            return
        pending = self._pending[client] = PendingConnect(wanted, sought)
        self._ask_all(pending, sought.wait_ms, now)
        if clean and sought.unchecked:
            self._go_without(pending)  # nobody can keep it out, and it wants nothing
        elif not pending.waiting or not sought.wait_ms:
            self._give_up(pending)
        else:
            heappush(self._deadlines, (now + sought.wait_ms, sought.attempt, pending))

    def _ask_all(self, pending: PendingConnect, wait_ms: float, now: float) -> None:
        for peer in self._brokers():
            if peer == self._me:
                continue
            if peer in self.up:
                self._ask(peer, pending, pending.wanted)
            elif now - self._down_since.get(peer, self._started) < wait_ms:
                pending.waiting[peer] = None
            else:
                pending.miss(peer)

    def _ask(self, peer: BrokerId, search: Search | None, wanted: SessionWanted) -> None:
        """Ask a peer for a session, and wait for its answer if that is part of a search."""
        token = self.hand_overs.make_token(wanted.client)
        if search is not None:
            search.ask(peer, token, live=wanted.live)
        self._act(SendToPeer(peer, msgspec.structs.replace(wanted, token=token)))

    def _give_up(self, pending: PendingConnect) -> None:
        """No session was found in time: the client comes in without, and gets later what is found; or not at all."""
        is_missing = (pending.waiting or pending.absent) and not pending.wanted.clean
        if pending.is_elsewhere or (is_missing and pending.refuses):
            self._turn_away(pending, "connects again" if pending.is_elsewhere else "session missing")
            return
        if is_missing:
            for peer in pending.waiting:
                self._unasked.add(peer, pending.wanted)  # should this broker restart before they answer
        self._go_without(pending)

    def _go_without(self, pending: PendingConnect) -> None:
        """Let a client in, and wait on for those that have not answered: they may have a session, or another."""
        wanted, waiting = pending.wanted, pending.waiting
        for peer in (*pending.absent, *[peer for peer in waiting if peer not in self.up]):
            waiting.pop(peer, None)
            self._unasked.add(peer, wanted)
        self._let_in.pop(wanted.client, None)
        if waiting:
            self._go_on_searching(Search(wanted, waiting, pending.tokens))
        if len(self._let_in) > PENDING_MAX:
            oldest = self._let_in.pop(next(iter(self._let_in)))
            for peer in oldest.waiting:
                self._unasked.add(peer, oldest.wanted)
        self._come_in(pending)

    def _go_on_searching(self, search: Search) -> Search:
        """For a client that is in."""
        client = search.wanted.client
        self._let_in[client] = search
        self._let_in_until.append((self._now + LET_IN_MS, client, search))
        return search

    def _come_in(self, pending: PendingConnect) -> None:
        """The search is over; one that was turned away meanwhile has a successor, which gets what was found."""
        wanted = pending.wanted
        del self._pending[wanted.client]
        if pending.successor is None:
            self._given.pop(wanted.client, None)
            self._act(LetClientIn(wanted.client, pending.attempt, wanted.since_ms))
        self._serve_successor(pending)

    def _turn_away(self, pending: PendingConnect, why: Why) -> None:
        client = pending.wanted.client
        del self._pending[client]
        if pending.successor is None:
            self._act(TurnClientAway(client, pending.attempt, why))
        self._serve_successor(pending)

    def _serve_successor(self, pending: PendingConnect) -> None:
        if pending.successor is not None:
            self._wanted(*pending.successor)

    # What peers send.

    def peer_up(self, peer: BrokerId) -> None:
        self.up[peer] = None
        self.addresses.peer_up(peer)
        unasked = self._unasked.of(peer)
        for client, search in self._let_in.items():
            if peer in search.waiting:
                unasked.setdefault(client, msgspec.structs.replace(search.wanted, live=False))
        for client, pending in self._pending.items():
            if pending.waits_for(peer) or client in unasked:
                unasked.pop(client, None)
                self._ask(peer, pending, pending.wanted)
        for wanted in unasked.values():
            self._ask_later(peer, wanted)

    def _ask_later(self, peer: BrokerId, wanted: SessionWanted) -> None:
        """Ask for another session of a client that did not wait, if that is still wanted."""
        client, own = wanted.client, self._sessions.find(wanted.client)
        if own is not None:
            wanted = msgspec.structs.replace(wanted, since_ms=max(wanted.since_ms, own.since_ms))
        if own is not None or wanted.clean:
            self._ask(peer, self._let_in.get(client), wanted)
        else:
            self._unasked.pop(peer, client)

    def peer_down(self, peer: BrokerId, now: float) -> None:
        self.up.pop(peer, None)
        self._down_since[peer] = now

    def federation_changed(self, brokers: tuple[BrokerId, ...]) -> None:
        """These are all brokers now; of those that left nothing is wanted any more."""
        for peer in [*self._down_since, *self._unasked.peers()]:
            if peer not in brokers:
                self._down_since.pop(peer, None)
                self._unasked.forget(peer)

    def said(self, peer: BrokerId, message: Message, now: float) -> bool:
        """Deal with a message of a peer; False if it is not about searches."""
        self._now = now
        match message:
            case ClientAddress(address=address):
                self.addresses.learn(peer, address)
            case SessionWanted():
                self._wanted(peer, message)
            case NoSession():
                self._no_session(peer, message)
            case SessionFollows(client=client, token=token, asker=asker):
                self._act(SendToPeer(asker, AskAgain(client, token, peer)))
            case AskAgain():
                self._ask_again(peer, message)
            case HandOver():
                data = self.hand_overs.take(peer, message)
                if data is not None:
                    self._answered(peer, message)
                    self._note_late(message.client)
                    self._moves.entered(message.client, message.token, peer, now=now)
                    self._act(TakeSession(message.client, data, peer))
            case _:
                return False
        return True

    def _note_late(self, client: ClientId) -> None:
        """A session is about to be taken in: perhaps one that comes after the client has gone on with another."""
        home = self._new_home(client)
        if home is not None and client not in self._pending and self._sessions.find(client) is None:
            self._late[client] = home

    def _unite(self, client: ClientId) -> None:
        """Ask where the client went on to with another session: the broker it came to last gets both."""
        home, own = self._late.pop(client, None), self._sessions.find(client)
        if home is not None and own is not None:
            wanted = SessionWanted(client, 0, own.user, False, False, own.since_ms)
            self._unasked.add(home, wanted)
            if home in self.up and len(self._let_in) < PENDING_MAX:
                self._ask(home, self._go_on_searching(Search(wanted, {})), wanted)

    def _no_session(self, peer: BrokerId, said: NoSession) -> None:
        pending = self._pending.get(said.client)
        self._answered(peer, said)
        if pending is None or said.token not in pending.tokens:
            return
        pending.heard(said)
        if said.refused:
            self._turn_away(pending, "another user's")
        elif not pending.waiting:
            self._give_up(pending)

    def _answered(self, peer: BrokerId, said: NoSession | HandOver) -> None:
        """Who searches for this client need not wait for the peer any longer."""
        self._unasked.pop(peer, said.client)
        search, pending = self._let_in.get(said.client), self._pending.get(said.client)
        for each in (search, pending):
            if each is not None:
                each.answered(peer, said.token)
        if search is not None and search.over:
            del self._let_in[said.client]

    def _ask_again(self, peer: BrokerId, said: AskAgain) -> None:
        """The session went from one broker to another while we searched for it."""
        pending, search = self._pending.get(said.client), self._let_in.get(said.client)
        unasked = self._unasked.pop(said.asked, said.client)
        if unasked is not None:
            self._unasked.add(peer, unasked)
        if pending is not None and pending.answered(said.asked, said.token):
            self._ask(peer, pending, pending.wanted)
        elif search is not None and search.answered(said.asked, said.token):
            self._ask_later(peer, msgspec.structs.replace(search.wanted, live=False))
            if search.over:
                del self._let_in[said.client]
        elif unasked is not None and peer in self.up:
            self._ask_later(peer, unasked)

    # Giving.

    def _wanted(self, peer: BrokerId, wanted: SessionWanted) -> None:
        """A client of this id is at a peer: give it the session, if there is one and it is that client's."""
        client, pending = wanted.client, self._pending.get(wanted.client)
        first = pending is not None and wanted.live and pending.successor is None
        if pending is not None and first and pending.is_before(peer, wanted, self._me):
            # The client is at two brokers at once. The one it came to later keeps it; we answer when we know.
            pending.give_way(peer, wanted)
            self._act(TurnClientAway(client, pending.attempt, "connects again"))
            return
        own, given_to = self._sessions.find(client), self._new_home(client)
        if own is None and given_to not in (None, self._me, peer) and given_to in self._brokers():
            self._act(SendToPeer(given_to, SessionFollows(client, wanted.token, peer)))
        elif own is None or self._stays(client, own, peer, wanted):
            self._act(SendToPeer(peer, NoSession(client, wanted.token, later=own is not None and wanted.live)))
            if own is not None and not wanted.live:
                # The two were out of touch, and the peer may have an earlier session of the client.
                earlier = SessionWanted(client, 0, own.user, False, False, own.since_ms)
                self._unasked.add(peer, earlier)
                self._ask(peer, None, earlier)
        elif not self._sessions.may_take(client, wanted.user):
            self._act(SendToPeer(peer, NoSession(client, wanted.token, refused=True)))
        elif wanted.clean:
            self._act(EndSession(client))
            self._act(SendToPeer(peer, NoSession(client, wanted.token)))
        else:
            self._act(GiveSession(client, peer, wanted.token))

    def _new_home(self, client: ClientId) -> BrokerId | None:
        """Whom the session of a client was given to."""
        return self._given.get(client) or self._moves.new_home(client)

    def _stays(self, client: ClientId, own: OwnSession, peer: BrokerId, wanted: SessionWanted) -> bool:
        """Whether a client came here later than to a peer that asks for its session."""
        if not wanted.live:
            return (own.since_ms, self._me) > (wanted.since_ms, peer)
        search = self._let_in.get(client)
        return search is not None and not search.is_before(peer, wanted, self._me)

    def _packed(self, packed: SessionPacked, now: float) -> None:
        """From here on the session is the peer's; this broker only sends on what still comes for it."""
        client, to, parts = packed.client, packed.to, packed.parts
        if not parts:
            self._act(SendToPeer(to, NoSession(client, packed.token)))
            return
        for number, data in enumerate(parts):
            self._act(SendToPeer(to, HandOver(client, packed.token, number, len(parts), data)))
        self._let_in.pop(client, None)  # what is found yet follows the client
        self._given[client] = to
        if len(self._given) > GIVEN_MAX:
            self._given.popitem(last=False)
        self._moves.gave(client, packed.token, to, now=now)
        for key in packed.keys:
            self._moves.departed(key, to, now=now)
            for event in packed.not_had:
                self._moves.forget_seen(event, (key,))
        self._moves.keep_departed(client, packed.record)

    # The clock.

    @property
    def deadline(self) -> float | None:
        deadlines, let_in = self._deadlines, self._let_in_until
        while deadlines and not self._is_pending(deadlines[0][2]):
            heappop(deadlines)
        while let_in and self._let_in.get(let_in[0][1]) is not let_in[0][2]:
            let_in.popleft()
        return min([queue[0][0] for queue in (deadlines, let_in) if queue], default=None)

    def _ask_once_more(self, search: Search) -> None:
        """Whose answer did not come although it is there: it went by way of others, and may have been lost."""
        wanted, peers = search.wanted, [peer for peer in search.unanswered if peer in self.up]
        if peers and not wanted.clean and self._sessions.find(wanted.client) is not None:
            self._go_on_searching(Search(msgspec.structs.replace(wanted, live=False), {}))
            for peer in peers:
                self._ask_later(peer, self._let_in[wanted.client].wanted)

    def _is_pending(self, pending: PendingConnect) -> bool:
        return self._pending.get(pending.wanted.client) is pending

    def on_deadline(self, *, now: float) -> None:
        self._now = now
        while self._let_in_until and self._let_in_until[0][0] <= now:
            _, client, search = self._let_in_until.popleft()
            if self._let_in.get(client) is search:
                del self._let_in[client]
                self._ask_once_more(search)
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, pending = heappop(self._deadlines)
            if self._is_pending(pending):
                self._give_up(pending)
