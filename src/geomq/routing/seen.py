"""Which events came already. An event that comes twice, by whatever way, is delivered once."""

from collections import OrderedDict

from geomq.routing.model import ClientId, EventId, Match

SEEN_MAX = 16_384


class SeenEvents:
    """The last events and who of the own clients had them. Part of what a broker keeps on disk."""

    def __init__(self, events_max: int = SEEN_MAX) -> None:
        self._events_max = events_max
        self._seen: OrderedDict[EventId, set[ClientId]] = OrderedDict()

    def __contains__(self, event_id: EventId) -> bool:
        return event_id in self._seen

    def __len__(self) -> int:
        return len(self._seen)

    def first(self, event_id: EventId) -> bool:
        """Note the event; whether this is the first time it is seen."""
        if event_id in self._seen:
            return False
        self._note(event_id)
        return True

    def unseen(self, event_id: EventId, matches: tuple[Match, ...]) -> tuple[Match, ...]:
        """Of these matches, those whose client has not had the event yet; they count as delivered now."""
        clients = self._seen.get(event_id)
        if clients is None:
            clients = self._note(event_id)
        if clients:
            matches = tuple(match for match in matches if match.client not in clients)
        clients.update(match.client for match in matches)
        return matches

    def forget(self, event_id: EventId, client: ClientId) -> None:
        """The client did not get the event after all."""
        self._seen.get(event_id, set()).discard(client)

    def had_by(self, clients: frozenset[ClientId]) -> list[EventId]:
        """The events any of these clients had."""
        return [event_id for event_id, who in self._seen.items() if not clients.isdisjoint(who)]

    def _note(self, event_id: EventId) -> set[ClientId]:
        if len(self._seen) >= self._events_max:
            self._seen.popitem(last=False)
        clients = self._seen[event_id] = set()
        return clients
