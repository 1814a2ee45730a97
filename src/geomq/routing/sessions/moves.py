"""Clients whose sessions move from one broker to another: no event is missed on the way, none comes twice.

What a session holds is the driver's affair; this file owns what happens to events meanwhile. The broker a client left
keeps its subscriptions and sends on what they match, until the new home says that all brokers have heard of the
subscriptions there. The new home knows which events the client has had and gives it each of the others once, by
whichever way they come, and in the order they were published in (`trails`).
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
from geomq.routing.sessions.hand_overs import Notes
from geomq.routing.sessions.messages import AskReached, AskSettled, DeliverMoved, Reached, SentAll, Settled
from geomq.routing.sessions.rounds import Rounds
from geomq.routing.sessions.trails import Stay, Trails, key_of, owner_of
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
    over_after: int = 0
    """The round after which all that still went this way is here, once everybody knows the new home; else 0."""


class _Arrival(msgspec.Struct):
    had: dict[EventId, None]
    since: float
    known_after: int = 0
    """The round after which all peers know the subscriptions; 0 as long as none has begun."""


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
        self._hops = 0
        """How many brokers that a client left the event in hand has passed."""
        self._departed: dict[ClientId, _Departure] = {}
        self._arrived: dict[ClientId, _Arrival] = {}
        self._trails = Trails(act)
        self._decided: list[Action] = []
        """What is to be done with events that came by way of a former home, or were held."""
        self._rounds = Rounds(me, federation.ids, act, epoch=epoch)
        self._down: dict[BrokerId, None] = {peer: None for peer in federation.ids if peer != me}
        self._whole_since = 0.0
        """Since when every link is up."""
        self.deadline: float | None = None
        """When `on_deadline` is to be called."""

    def __len__(self) -> int:
        return len(self._departed) + len(self._arrived) + len(self._trails)

    def load(self, notes: Notes, is_here: Callable[[ClientId], bool], *, now: float) -> None:
        """The broker starts, and its clients and those that left are known: this is what it kept."""

        def is_away(client: ClientId) -> bool | None:
            return True if client in self._departed else False if is_here(client) else None

        self._trails.load(notes, is_away, self._rounds.begin, now=now)
        if len(self):
            self._wake(now + SETTLE_MS)

    def entered(self, client: ClientId, token: int, source: BrokerId, *, now: float) -> None:
        """The client's session is about to be taken in; until `source` has sent all, newer events are held."""
        self._trails.come_back(client, self._rounds.begin)
        self._trails.enter(client, token, source, now=now)
        self._go_on(client)
        self._wake(now + FORGET_MS)

    def taken(self, client: ClientId) -> None:
        """The client's session is here, and its subscriptions are on their way to the peers."""
        if client in self._arrived:
            self._arrived[client].known_after = self._rounds.begin()
        stay = self._trails.last(client)
        if stay is not None:
            stay.is_taken, stay.place = True, self._clients[client].location if client in self._clients else None

    def subscribed(self, client: ClientId, topic_filter: str) -> None:
        """A client that is here wants what it did not want before: no former home knows of that."""
        stay = self._trails.last(owner_of(client))
        if stay is not None and stay.is_taken:
            stay.new.add(Match(client, topic_filter))

    def gave(self, client: ClientId, token: int, to: BrokerId, *, now: float) -> None:
        """The client's session is on its way to another broker, with this token."""
        self._trails.leave(client, token, to, now=now)

    def departed(self, client: ClientId, to: BrokerId, *, now: float) -> None:
        """The client, under this key, is another broker's now."""
        self._forget_arrival(client)
        self._departed[client] = _Departure(to, now + SETTLE_MS)
        self._wake(now + SETTLE_MS)

    def arrived(self, client: ClientId, had: Iterable[EventId], *, now: float) -> None:
        """The client's session came from another broker, where the client had these events."""
        before = self._arrived.get(client)
        known = {} if before is None else before.had
        self._arrived[client] = _Arrival({**known, **dict.fromkeys(had)}, now)
        self._wake(now + FORGET_MS)

    def left(self, client: ClientId) -> tuple[ClientId, ...]:
        """What is still known here of a client that left, under any of its keys."""
        if client not in self._departed:
            return ()
        return tuple(each for each in self._departed if each == client or each.startswith(f"{client}\0"))

    def forget(self, client: ClientId) -> None:
        """The session is over."""
        self._forget_arrival(client)
        was_away = self._departed.pop(client, None) is not None
        if not is_client(client):
            return
        if was_away:
            self._act(ForgetNote(DEPARTED, key_of(client)))
            self._trails.come_back(client, self._rounds.begin)
        else:
            for held in self._trails.end(client):
                self._decided.append(DropEvent(held.event.id, "no longer subscribed"))
        self._go_on(client)

    def _go_on(self, client: ClientId) -> None:
        """Tell those that wait that all was sent after the client."""
        for token, to in self._trails.passed(client, self._rounds.is_past):
            if to in self._brokers:
                self._decided.append(SendToPeer(to, SentAll(client, token)))

    def _forget_arrival(self, client: ClientId) -> None:
        if self._arrived.pop(client, None) is not None and is_client(client):
            self._act(ForgetNote(HAD, key_of(client)))

    def keep_departed(self, client: ClientId, record: bytes) -> None:
        """Have `record` on disk for as long as the client, under its own id, is known to have left."""
        self._act(KeepNote(DEPARTED, key_of(client), record))

    def keep_had(self, client: ClientId) -> None:
        """Have on disk what the client had before it came, for as long as that is known."""
        if client in self._arrived:
            self._act(KeepNote(HAD, key_of(client), msgspec.msgpack.encode(tuple(self._arrived[client].had))))

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

    def sort_out(self, actions: list[Action], *, now: float) -> list[Action]:
        """Send on what is for clients that left, hold what came too early for those that came, and leave out what they
        have had."""
        hops, self._hops = self._hops, 0
        if not len(self) and not self._decided:
            return actions
        found: list[Action] = []
        for action in actions:
            match action:
                case DeliverToClients(event=event, matches=matches):
                    found += self._deliver(event, matches, hops, now)
                case DeliverToOne(members=members) if members[0] in self._departed:
                    found.append(self._serve_elsewhere(action))
                case _:
                    found.append(action)
        found += self._decided
        self._decided.clear()
        return found

    def _deliver(self, event: Event, matches: tuple[Match, ...], hops: int, now: float) -> Iterator[Action]:
        if event.qos and len(self._trails):
            matches = self._hold(event, matches, now)
            if not matches:
                return
        new: dict[ClientId, bool] = {}
        for match in matches:
            if match.client not in self._departed and match.client not in new:
                new[match.client] = self._is_new(event.id, match)
        here = tuple(match for match in matches if new.get(match.client, False))
        if here:
            yield DeliverToClients(event, here)
        elsewhere = tuple(match for match in matches if match.client not in new)
        if elsewhere and hops >= HOPS_MAX:
            yield DropEvent(event.id, "hop limit")
        elif elsewhere:
            yield from self._send_after(event, elsewhere, hops + 1)
        elif not here:
            yield DropEvent(event.id, "duplicate")

    def _hold(self, event: Event, matches: tuple[Match, ...], now: float) -> tuple[Match, ...]:
        """Hold an event for clients whose former homes may still send what is older; the matches that need not wait."""
        waiting: dict[ClientId, list[Match]] = {}
        for match in matches:
            stay = self._trails.last(owner_of(match.client))
            if stay is not None and stay.waits and not self._had(event.id, match.client):
                waiting.setdefault(owner_of(match.client), []).append(match)
        held: set[Match] = set()
        for client, theirs in waiting.items():
            stay = self._trails.last(client)
            assert stay is not None
            if stay.new.issuperset(theirs):
                continue
            held.update(theirs)
            self.forget_seen(event.id, [m.client for m in theirs])
            if self._trails.hold(client, stay, event, tuple(theirs), now=now):
                self._wake(self._trails.next_due())
            else:
                self._shut(client, stay)
                self._pass_on(stay, event, tuple(theirs), not stay.visit.exit)
        return tuple(match for match in matches if match not in held) if held else matches

    def _shut(self, client: ClientId, stay: Stay) -> None:
        """Nothing older will come: what was held goes on."""
        for held in self._trails.shut(client, stay):
            self._pass_on(stay, held.event, held.matches, held.inside)

    def _pass_on(self, stay: Stay, event: Event, matches: tuple[Match, ...], inside: bool) -> None:
        """It is an event's turn: it goes the way its client went, or to the client."""
        if not stay.visit.exit:
            self._give(event, matches, inside)
            return
        matches = self._routings.publishing.seen.unseen(event.id, matches)
        self.forget_seen(event.id, [m.client for m in matches])
        if matches:
            tokens = (stay.visit.exit,) * len(matches)
            self._decided.append(SendToPeer(stay.visit.to, DeliverMoved(event, matches, tokens, 1, inside)))
        else:
            self._decided.append(DropEvent(event.id, "duplicate"))

    def _give(self, event: Event, matches: tuple[Match, ...], inside: bool) -> None:
        """Deliver to those that still want it and have not had it."""
        live = self._live(None if inside else event.fence, matches)
        fresh = self._routings.publishing.seen.unseen(event.id, live)
        fresh = tuple(match for match in fresh if self._is_new(event.id, match))
        reason = "duplicate" if live else "no longer subscribed"
        self._decided.append(DeliverToClients(event, fresh) if fresh else DropEvent(event.id, reason))

    def _live(self, fence: Fence | None, matches: tuple[Match, ...]) -> tuple[Match, ...]:
        """Those of the matches that still hold, for an event that matters inside a fence."""
        clients = self._clients
        return tuple(
            m
            for m in matches
            if m.client in clients
            and m.topic_filter in clients[m.client].subscriptions
            and not self._is_outside(fence, m.client)
        )

    def _send_after(self, event: Event, matches: tuple[Match, ...], hops: int) -> Iterator[Action]:
        """Send an event to where clients went."""
        self.forget_seen(event.id, [m.client for m in matches])
        theirs: dict[BrokerId, list[tuple[Match, int]]] = {}
        for match in matches:
            to, stay = self._departed[match.client].to, self._trails.last(owner_of(match.client))
            token = stay.visit.exit if stay is not None and stay.visit.to == to else 0
            theirs.setdefault(to, []).append((match, token))
        for to, pairs in theirs.items():
            found, tokens = zip(*pairs, strict=True)
            yield SendToPeer(to, DeliverMoved(event, found, tokens, hops))

    def forget_seen(self, event_id: EventId, clients: Iterable[ClientId]) -> None:
        """They have not had the event, and may get it elsewhere."""
        for client in clients:
            for strategy in self._routings.strategies:
                strategy.seen.forget(event_id, client)

    def _had(self, event_id: EventId, client: ClientId) -> bool:
        arrival = self._arrived.get(client)
        return arrival is not None and event_id in arrival.had

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
            case AskReached(number=number):
                self._act(SendToPeer(peer, Reached(number)))
                return ()
            case Reached(number=number):
                return self._settle() if self._rounds.answered(peer, number) else ()
            case Settled(clients=clients):
                for client in clients:
                    departure = self._departed.get(client)
                    if departure is not None and departure.to == peer and not departure.over_after:
                        departure.over_after = self._rounds.begin() if self._is_whole(now) else 0
                return ()
            case DeliverMoved():
                self._deliver_moved(message)
                return ()
            case SentAll(client=client, token=token):
                stay = self._trails.through(client, token)
                if stay is not None and stay.visit.source == peer:
                    self._shut(client, stay)
                    self._go_on(client)
                return ()
        return None

    def _deliver_moved(self, message: DeliverMoved) -> None:
        """A former home of some clients matched an event for them."""
        event, tokens = message.event, message.tokens
        if len(tokens) != len(message.matches):
            tokens = (0,) * len(message.matches)
        known: dict[tuple[ClientId, int], list[Match]] = {}
        unknown: list[Match] = []
        for match, token in zip(message.matches, tokens, strict=True):
            client = owner_of(match.client)
            if self._trails.through(client, token) is None:
                unknown.append(match)
            else:
                known.setdefault((client, token), []).append(match)
        for (client, token), theirs in known.items():
            stay = self._trails.through(client, token)
            assert stay is not None
            self._came_through(client, stay, event, theirs, message.inside)
        if unknown or not known:
            self._deliver_after(event, tuple(unknown), message.inside, message.hops)

    def _came_through(self, client: ClientId, stay: Stay, event: Event, matches: list[Match], inside: bool) -> None:
        """An event came through a gate: before it goes what its publisher sent before, if that was held."""
        for held in self._trails.take_older(client, stay, event):
            self._pass_on(stay, held.event, held.matches, held.inside)
        same = stay.held.get(event.id)
        if same is not None:
            matches = [*dict.fromkeys((*matches, *self._trails.take(client, stay, same).matches))]
            inside |= same.inside
        self._pass_on(stay, event, tuple(matches), inside)

    def _deliver_after(self, event: Event, matches: tuple[Match, ...], inside: bool, hops: int) -> None:
        """An event came for clients of whose way nothing is known any more."""
        self._hops = max(1, hops)
        strategy, live = self._routings.publishing, self._live(None if inside else event.fence, matches)
        fresh = strategy.seen.unseen(event.id, live)
        if fresh:
            strategy.deliver(event, fresh)
        else:
            strategy.drop(event.id, "duplicate" if live else "no longer subscribed")

    def _is_outside(self, fence: Fence | None, client: ClientId) -> bool:
        """Whether a client that is here now is not where an event matters: its former home may not know."""
        if fence is None or client in self._departed:
            return False
        location = self._clients[client].location
        return location is None or not fence.contains(location)

    def _is_settled(self, client: ClientId, now: float) -> bool:
        arrival = self._arrived.get(owner_of(client), self._arrived.get(client))
        if arrival is not None:
            arrival.known_after = arrival.known_after or self._rounds.begin()
            if now - arrival.since < SETTLE_MS or not self._rounds.is_past(arrival.known_after):
                return False
        return self._is_whole(now)

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
        self._rounds.brokers = brokers
        for peer in brokers:
            if peer not in before:
                self._down[peer] = None
        for peer in before:
            if peer not in brokers:
                self.peer_up(peer, now=now)
        for client, stay in self._trails.items():
            if stay.visit.is_open and stay.visit.source not in brokers:
                self._shut(client, stay)
                self._go_on(client)
        return tuple(c for c, departure in self._departed.items() if departure.to not in brokers)

    def _settle(self) -> tuple[ClientId, ...]:
        """A round may be past: those that wait for all hear of it; the clients that left and can be forgotten."""
        for client in self._trails.clients():
            self._go_on(client)
        return tuple(
            c for c, left in self._departed.items() if left.over_after and self._rounds.is_past(left.over_after)
        )

    # The clock.

    def _wake(self, at: float) -> None:
        self.deadline = at if self.deadline is None else min(at, self.deadline)

    def on_deadline(self, *, now: float) -> None:
        self._rounds.ask_again()
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
        for client, stay in self._trails.items():
            is_known_everywhere = whole and now - max(stay.opened, self._whole_since) >= FORGET_MS
            if stay.visit.is_open and (is_known_everywhere or stay.is_late(now)):
                self._shut(client, stay)
            self._go_on(client)
            for held in self._trails.take_due(client, stay, now=now):
                self._pass_on(stay, held.event, held.matches, held.inside)
        self.deadline = min(now + SETTLE_MS, self._trails.next_due()) if len(self) else None

    def inherit(self, before: Self) -> None:
        """Take over what a broker keeps on disk."""
        self._departed, self._arrived, self.deadline = before._departed, before._arrived, before.deadline


def is_client(key: ClientId) -> bool:
    """Whether this is a client under its own id, and not one of its other keys."""
    return "\0" not in key
