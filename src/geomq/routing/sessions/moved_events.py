"""Events on their way to clients that move: sent after those that left, held for those that came, given once.

What the strategies match, and what former homes send, passes here on its way to the driver.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from geomq.geo import Fence
from geomq.routing.core.actions import Action, DeliverToClients, DeliverToOne, DropEvent, SendToPeer
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.strategy import ClientState
from geomq.routing.federation.routings import Routings
from geomq.routing.sessions.arrivals import Arrivals
from geomq.routing.sessions.messages import DeliverMoved
from geomq.routing.sessions.trails import Held, Stay, Trails, owner_of
from geomq.routing.sharing.groups import HOPS_MAX, ServeShared


class MovedEvents:
    """What becomes of events at one broker. `new_home` says where a client went that left, `wake` asks for a call of
    `pass_due` by then."""

    def __init__(
        self,
        trails: Trails,
        arrivals: Arrivals,
        *,
        clients: Mapping[ClientId, ClientState],
        routings: Routings,
        new_home: Callable[[ClientId], BrokerId | None],
        wake: Callable[[float], None],
    ) -> None:
        self._trails = trails
        self._arrivals = arrivals
        self._clients = clients
        self._routings = routings
        self._new_home = new_home
        self._wake = wake
        self._hops = 0
        """How many brokers that a client left the event in hand has passed."""
        self._decided: list[Action] = []
        """What is to be done with events that came by way of a former home, or were held, and what follows it."""

    @property
    def waiting(self) -> bool:
        """Whether anything has been decided that `sort_out` has not returned yet."""
        return bool(self._decided)

    def then(self, action: Action) -> None:
        """Do this after what has been decided already."""
        self._decided.append(action)

    def drop(self, held: Iterable[Held]) -> None:
        """Nobody wants any longer what was held."""
        self._decided += [DropEvent(each.event.id, "no longer subscribed") for each in held]

    def sort_out(self, actions: list[Action], *, now: float) -> list[Action]:
        """Send on what is for clients that left, hold what came too early for those that came, and leave out what they
        have had."""
        hops, self._hops = self._hops, 0
        found: list[Action] = []
        for action in actions:
            match action:
                case DeliverToClients(event=event, matches=matches):
                    found += self._deliver(event, matches, hops, now)
                case DeliverToOne(members=members) if self._new_home(members[0]) is not None:
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
            if self._new_home(match.client) is None and match.client not in new:
                new[match.client] = self._arrivals.is_new(event.id, match.client)
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
            stay = self._trails.waiting(owner_of(match.client))
            if stay is not None and not self._arrivals.had(event.id, match.client):
                waiting.setdefault(owner_of(match.client), []).append(match)
        held: dict[Match, None] = {}
        late: list[tuple[ClientId, Stay, list[Match]]] = []
        for client, theirs in waiting.items():
            stay = self._trails.waiting(client)
            assert stay is not None
            if not stay.new.issuperset(theirs):
                late.append((client, stay, theirs))
                held |= dict.fromkeys(theirs)
        self.forget_seen(event.id, [match.client for match in held])
        for client, stay, theirs in late:
            if self._trails.hold(client, stay, event, tuple(theirs), now=now):
                self._wake(stay.held[event.id].due)
            else:
                self.shut(client, stay)
                self._pass_on(stay, event, tuple(theirs), not stay.visit.exit)
        return tuple(match for match in matches if match not in held) if held else matches

    def shut(self, client: ClientId, stay: Stay) -> None:
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
        new = {client: self._arrivals.is_new(event.id, client) for client in dict.fromkeys(m.client for m in fresh)}
        fresh = tuple(match for match in fresh if new[match.client])
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
            to, stay = self._new_home(match.client), self._trails.last(owner_of(match.client))
            if to is None:
                continue
            token = stay.visit.exit if stay is not None and stay.visit.to == to else 0
            theirs.setdefault(to, []).append((match, token))
        for to, pairs in theirs.items():
            found, tokens = zip(*pairs, strict=True)
            yield SendToPeer(to, DeliverMoved(event, found, tokens, hops))

    def forget_seen(self, event_id: EventId, clients: Iterable[ClientId]) -> None:
        """They have not had the event, and may get it elsewhere."""
        theirs = tuple(clients)
        for strategy in self._routings.strategies:
            strategy.seen.forget(event_id, *theirs)

    def _serve_elsewhere(self, action: DeliverToOne) -> Action:
        """The chosen member left: its new home, or another member here, is to be served."""
        staying = tuple(member for member in action.members if self._new_home(member) is None)
        if staying:
            return DeliverToOne(action.event, action.share, action.topic_filter, staying, action.asked)
        to = self._new_home(action.members[0])
        assert to is not None
        return SendToPeer(to, ServeShared(action.event, action.share, action.topic_filter, action.asked))

    # What former homes send.

    def came_after(self, message: DeliverMoved, source: BrokerId) -> None:
        """A former home of some clients matched an event for them."""
        event, tokens = message.event, message.tokens
        if len(tokens) != len(message.matches):
            tokens = (0,) * len(message.matches)
        known: dict[tuple[ClientId, int], list[Match]] = {}
        unknown: list[Match] = []
        for match, token in zip(message.matches, tokens, strict=True):
            client = owner_of(match.client)
            stay = self._trails.through(client, token)
            if stay is None or stay.visit.source != source:
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
        if fence is None or self._new_home(client) is not None:
            return False
        location = self._clients[client].location
        return location is None or not fence.contains(location)

    def pass_due(self, *, now: float) -> None:
        """Nobody waits longer than that."""
        for client, stay in self._trails.items():
            for held in self._trails.take_due(client, stay, now=now):
                self._pass_on(stay, held.event, held.matches, held.inside)
