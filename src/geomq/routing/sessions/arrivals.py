"""What the clients that came from another broker have had: none of that is given to them again."""

from collections.abc import Callable, Iterable, Iterator
from typing import Self

import msgspec

from geomq.routing.core.actions import Action, ForgetNote, KeepNote
from geomq.routing.core.model import ClientId, EventId
from geomq.routing.sessions.rounds import Rounds
from geomq.routing.sessions.trails import is_client, key_of, owner_of

HAD = "had"
"""What is on disk: the events that a client which came had had before."""
HAD_MAX = 4_096
"""Events remembered of a client that moved here."""


class _Arrival(msgspec.Struct):
    had: dict[EventId, None]
    since: float
    known_after: int = 0
    """The round after which all peers know the subscriptions; 0 as long as none has begun."""


class Arrivals:
    """Those of one broker, until everybody else has forgotten that they were elsewhere."""

    def __init__(self, rounds: Rounds, act: Callable[[Action], None]) -> None:
        self._rounds = rounds
        self._act = act
        self._arrived: dict[ClientId, _Arrival] = {}
        self._unknown: dict[ClientId, None] = {}
        """Those that not all peers are known to know, by their own ids."""

    def __len__(self) -> int:
        return len(self._arrived)

    def add(self, client: ClientId, had: Iterable[EventId], *, now: float) -> None:
        before = self._arrived.get(client)
        known = {} if before is None else before.had
        self._arrived[client] = _Arrival({**known, **dict.fromkeys(had)}, now)
        self._unknown.pop(client, None)

    def keep(self, client: ClientId) -> None:
        """Have on disk what the client had before it came, for as long as that is known."""
        if client in self._arrived:
            self._act(KeepNote(HAD, key_of(client), msgspec.msgpack.encode(tuple(self._arrived[client].had))))

    def forget(self, client: ClientId) -> None:
        self._unknown.pop(client, None)
        if self._arrived.pop(client, None) is not None and is_client(client):
            self._act(ForgetNote(HAD, key_of(client)))

    def forget_before(self, moment: float) -> None:
        for client in [client for client, arrival in self._arrived.items() if arrival.since <= moment]:
            self.forget(client)

    def had_by(self, clients: Iterable[ClientId]) -> Iterator[EventId]:
        """Events known from former homes to have been delivered to these."""
        for client in clients:
            if client in self._arrived:
                yield from self._arrived[client].had

    def had(self, event_id: EventId, client: ClientId) -> bool:
        arrival = self._arrived.get(client)
        return arrival is not None and event_id in arrival.had

    def is_new(self, event_id: EventId, client: ClientId) -> bool:
        """Whether the client has not had the event; now it has."""
        arrival = self._arrived.get(client)
        if arrival is None:
            return True
        if event_id in arrival.had:
            return False
        arrival.had[event_id] = None
        if len(arrival.had) > 2 * HAD_MAX:
            del arrival.had[next(iter(arrival.had))]
        return True

    # Who knows of them.

    def taken(self, client: ClientId) -> None:
        """The client's subscriptions are on their way to the peers."""
        if client in self._arrived:
            self._arrived[client].known_after = self._rounds.begin()
            self._unknown[client] = None

    def load(self) -> None:
        """After a restart, what the peers had heard of them may be lost."""
        for client in [client for client in self._arrived if is_client(client)]:
            self.taken(client)

    def is_known_since(self, client: ClientId, moment: float) -> bool:
        """Whether the client came before that moment, and a round is past that began since."""
        arrival = self._arrived.get(owner_of(client), self._arrived.get(client))
        if arrival is None:
            return True
        arrival.known_after = arrival.known_after or self._rounds.begin()
        return arrival.since <= moment and self._rounds.is_past(arrival.known_after)

    def newly_known(self) -> list[ClientId]:
        """Those whose subscriptions all peers have come to know since the last call."""
        found = [c for c in self._unknown if self._rounds.is_past(self._arrived[c].known_after)]
        for client in found:
            del self._unknown[client]
        return found

    def inherit(self, before: Self) -> None:
        """Take over what a broker keeps on disk."""
        self._arrived = before._arrived
