"""Which events came already. An event that comes twice, by whatever path, is delivered once."""

from collections import OrderedDict, deque
from collections.abc import Iterator

from geomq.routing.core.model import BrokerId, ClientId, EventId, Match

SEEN_MAX = 16_384
RUNS_MAX = 4_096
ORIGINS_MAX = 1_024
CLIENTS_MAX = 1_000_000
"""Of all sets of clients that had different events together; beyond that the oldest events are forgotten early."""

Clients = frozenset[ClientId]
NOBODY: Clients = frozenset()
Origin = tuple[BrokerId, int]


class History:
    """What was seen of one origin: the `highest` number, noted in whatever way, and the last runs."""

    __slots__ = ("_runs", "highest")

    def __init__(self) -> None:
        self.highest = -1
        self._runs: deque[tuple[int, int, Clients]] | None = None

    def run(self, first: int, count: int, clients: Clients) -> bool:
        """Note that these clients get `count` events from the `first` on. False, and nothing is noted, if any of them
        may have been seen before."""
        if first <= self.highest:
            return False
        self.highest = last = first + count - 1
        runs = self._runs
        if runs is None:
            self._runs = deque(((first, last, clients),), maxlen=RUNS_MAX)
        elif runs[-1][2] is clients and runs[-1][1] + 1 == first:
            runs[-1] = (runs[-1][0], last, clients)
        else:
            runs.append((first, last, clients))
        return True

    def clients_of(self, sequence: int) -> Clients | None:
        """Who had an event of a run; None if it is in none."""
        for first, last, clients in reversed(self._runs or ()):
            if first <= sequence <= last:
                return clients
            if last < sequence:
                return None
        return None

    def latest_had_by(self, clients: Clients, count: int) -> Iterator[range]:
        """The latest of the events of runs that any of these clients had, the last run first."""
        for first, last, who in reversed(self._runs or ()):
            if count and not clients.isdisjoint(who):
                had = range(max(first, last - count + 1), last + 1)
                count -= len(had)
                yield had


class SeenEvents:
    """The last events and who of the own clients had them. Part of what a broker keeps on disk.

    Events of one origin that follow each other and go the same way are noted as one run. Events that reached the same
    clients share one set of them.
    """

    def __init__(self, events_max: int = SEEN_MAX, clients_max: int = CLIENTS_MAX) -> None:
        self._events_max = events_max
        self._clients_max = clients_max
        self._seen: OrderedDict[EventId, Clients] = OrderedDict()
        self._sharing: dict[Clients, tuple[Clients, int]] = {}
        """Each set once, and how many events hold it."""
        self._clients = 0
        """How many clients all these sets have."""
        self._latest: tuple[tuple[Match, ...], Clients] = ((), NOBODY)
        self._histories: OrderedDict[Origin, History] = OrderedDict()

    def __contains__(self, event_id: EventId) -> bool:
        if event_id in self._seen:
            return True
        history = self._histories.get(event_id[:2])
        return history is not None and history.clients_of(event_id.sequence) is not None

    def __len__(self) -> int:
        return len(self._seen)

    def first(self, event_id: EventId) -> bool:
        """Note the event; whether this is the first time it is seen."""
        if event_id in self:
            return False
        self._note(event_id)
        return True

    def history(self, origin: Origin) -> History:
        """What was seen of an origin; not to be held for long."""
        history = self._histories.get(origin)
        if history is None:
            if len(self._histories) >= ORIGINS_MAX:
                self._histories.popitem(last=False)
            history = self._histories[origin] = History()
        return history

    def unseen(self, event_id: EventId, matches: tuple[Match, ...]) -> tuple[Match, ...]:
        """Of these matches, those whose client has not had the event yet; they count as delivered now."""
        clients = self._seen.get(event_id)
        if clients is None:
            clients = self._note(event_id)
        if clients:
            matches = tuple([match for match in matches if match.client not in clients])
        self._hold(event_id, clients | self._clients_of(matches) if clients else self._clients_of(matches))
        return matches

    def forget(self, event_id: EventId, *clients: ClientId) -> None:
        """These clients did not get the event after all."""
        had = self._seen.get(event_id)
        if had is None:
            had = self._note(event_id) if event_id in self else NOBODY
        if not had.isdisjoint(clients):
            self._hold(event_id, had.difference(clients))

    def _clients_of(self, matches: tuple[Match, ...]) -> Clients:
        """Matches that are the very same as for the event before, as for all of one topic, need not be looked at."""
        if matches is not self._latest[0]:
            self._latest = (matches, frozenset([match.client for match in matches]))
        return self._latest[1]

    def _hold(self, event_id: EventId, clients: Clients) -> None:
        """Note who has had an event that is known already."""
        before = self._seen[event_id]
        if clients:
            shared, holders = self._sharing.get(clients, (clients, 0))
            self._sharing[shared] = (shared, holders + 1)
            self._seen[event_id] = shared
            self._clients += 0 if holders else len(shared)
        else:
            self._seen[event_id] = NOBODY
        self._let_go(before)
        while self._clients > self._clients_max and len(self._seen) > 1:
            self._let_go(self._seen.popitem(last=False)[1])

    def _let_go(self, clients: Clients) -> None:
        if clients:
            shared, holders = self._sharing[clients]
            if holders > 1:
                self._sharing[shared] = (shared, holders - 1)
            else:
                del self._sharing[shared]
                self._clients -= len(shared)

    def had_by(self, clients: frozenset[ClientId]) -> list[EventId]:
        """The latest events any of these clients had, those of runs before the others."""
        had = [event_id for event_id, who in self._seen.items() if not clients.isdisjoint(who)][-self._events_max :]
        room, before = self._events_max - len(had), list[list[EventId]]()
        for origin, history in reversed(self._histories.items()):
            for run in history.latest_had_by(clients, room):
                events = [EventId(*origin, number) for number in run]
                before.append([event_id for event_id in events if event_id not in self._seen])
                room -= len(run)
        return [event_id for run in reversed(before) for event_id in run] + had

    def _note(self, event_id: EventId) -> Clients:
        """Hold the event; who had it already, in a run."""
        if len(self._seen) >= self._events_max:
            self._let_go(self._seen.popitem(last=False)[1])
        self._seen[event_id] = NOBODY
        history, sequence = self.history(event_id[:2]), event_id.sequence
        if sequence > history.highest:
            history.highest = sequence
            return NOBODY
        return history.clients_of(sequence) or NOBODY
