"""What the page shows, kept from the brokers' answers: clients, subscriptions, rates, flows, events and their latency.

Pure bookkeeping: no clock, no input or output. Everything is bounded, and what does not fit into one tick waits for
the next (clients, subscriptions) or is counted as skipped (events).
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from statistics import median
from typing import Any, Generic, TypeVar

from geomq.dashboard.feed import ClientNow, Look
from geomq.dashboard.shapes import Json, fence_json, fence_text_json, read_fence
from geomq.geo import fence_text
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.routing.trace.records import Step, TraceRecord
from geomq.workload.traffic.verdict import fits

CHANGES_MAX = 5_000
EVENTS_MAX = 200
REMEMBERED_MAX = 10_000
LINKS_EVERY = 8
PLACES_MAX = 8
"""So many of a client's latest places are remembered, so that it can be told where it was at an event."""

Key = TypeVar("Key")
ClientRow = tuple[str, float | None, float | None]


class _Pending(Generic[Key]):
    """Keys whose state changed since the last tick, in the order they changed; put and dropped alike."""

    def __init__(self) -> None:
        self._keys: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key) -> None:
        self._keys[key] = None

    def take(self, maximum: int) -> list[Key]:
        taken = list(islice(self._keys, maximum))
        for key in taken:
            del self._keys[key]
        return taken


class _BrokerState:
    """What one broker answered: totals at its last look, their growth a second, and latencies since the last tick."""

    def __init__(self) -> None:
        self.up = False
        self.clients = 0
        self.links: dict[str, float | None] = {}
        self.messages = Counter[str]()
        self.latencies_ms: list[float] = []
        self._t_ms: float | None = None
        self._totals: dict[str, int] = {}
        self._per_s: dict[str, float] = {}

    def take(self, t_ms: float, look: Look) -> None:
        self.up = True
        self.clients, self.links = look.connections, look.links
        totals = {
            "published": look.counts.get("events_received", 0),
            "delivered": look.counts.get("events_delivered", 0),
            "sent": self.messages["sent"],
            "received": self.messages["received"],
        }
        if self._t_ms is not None and t_ms > self._t_ms:
            seconds = (t_ms - self._t_ms) / 1000.0
            grown = ((name, total - self._totals.get(name, total)) for name, total in totals.items())
            self._per_s = {name: round(max(0.0, more / seconds), 2) for name, more in grown}
        self._t_ms, self._totals = t_ms, totals

    def lost(self) -> None:
        """It does not answer."""
        self.up, self.clients, self.links, self._per_s, self._t_ms = False, 0, {}, {}, None

    def json(self) -> Json:
        rates = {name: self._per_s.get(name, 0.0) for name in ("published", "delivered", "sent", "received")}
        latency_ms = round(median(self.latencies_ms), 3) if self.latencies_ms else None
        return {"up": self.up, "clients": self.clients, **rates, "latency_ms": latency_ms}


class State:
    """Everything a page that opens now must be told, and what changed since the last tick."""

    def __init__(self, brokers: Iterable[str]) -> None:
        self._brokers = {name: _BrokerState() for name in brokers}
        self._clients: dict[str, ClientRow] = {}
        self._places: dict[str, deque[tuple[float, ClientRow]]] = {}
        self._subscriptions: dict[str, dict[str, Json | None]] = {}
        self._moved = _Pending[str]()
        self._subscribed = _Pending[tuple[str, str]]()
        self._flows = Counter[tuple[str, str, str]]()
        self._published_now = 0
        self._events: OrderedDict[str, Json] = OrderedDict()
        self._early: OrderedDict[str, list[tuple[_BrokerState, float]]] = OrderedDict()
        self._told = _Pending[str]()
        self._done: dict[str, Counter[str]] = {}
        self._linked: set[tuple[str, str]] = set()
        self._ticks_since_links = 0

    # What brokers answer.

    def looked(self, name: str, t_ms: float, look: Look) -> None:
        """A broker answered what happened since the last look."""
        broker = self._brokers.setdefault(name, _BrokerState())
        for record in look.records:
            self._apply(broker, record)
        broker.take(t_ms, look)

    def lost(self, name: str) -> None:
        """A broker does not answer: its clients are not known any more."""
        self._brokers.setdefault(name, _BrokerState()).lost()
        self.replace(name, ())

    def replace(self, home: str, clients: Iterable[ClientNow], t_ms: float = 0.0) -> None:
        """All clients of a broker as they are now."""
        there = {client.id: client for client in clients}
        for client_id in [one for one, row in self._clients.items() if row[0] == home and one not in there]:
            self._gone(client_id, home)
        for client in there.values():
            lat, lon = client.location or (None, None)
            self._put(t_ms, client.id, (home, lat, lon))
            held = self._subscriptions.get(client.id, {})
            wanted = {each.topic_filter: fence_json(each.fence) for each in client.subscriptions}
            for topic_filter in [one for one in held if one not in wanted]:
                self._unsubscribe(client.id, topic_filter)
            for topic_filter, fence in wanted.items():
                self._subscribe(client.id, topic_filter, fence)

    def _apply(self, broker: _BrokerState, record: TraceRecord) -> None:
        client = record.client
        if record.step in ("sent", "received"):
            broker.messages[record.step] += 1
            if record.step == "sent" and record.peer is not None:
                self._flows[record.broker, record.peer, record.kind] += 1
        elif record.step == "published":
            self._published(record)
        elif record.step == "delivered":
            self._delivered(broker, record)
        elif client is None:
            return
        elif record.step in ("connected", "moved"):
            self._put(record.t_ms, client, (record.broker, record.lat, record.lon))
        elif record.step == "disconnected":
            self._gone(client, record.broker)
        elif record.step == "subscribed" and record.topic is not None and client in self._clients:
            self._subscribe(client, record.topic, fence_text_json(record.fence))
        elif record.step == "unsubscribed" and record.topic is not None:
            self._unsubscribe(client, record.topic)

    def _published(self, record: TraceRecord) -> None:
        if record.event_id is None:
            return
        self._count(record)
        self._published_now += 1
        event_id = str(record.event_id)
        self._events[event_id] = {
            "id": event_id,
            "topic": record.topic,
            "client": record.client,
            "home": record.broker,
            "at": None if record.lat is None else [record.lat, record.lon],
            "fence": fence_text_json(record.fence),
            "t": record.t_ms,
            "delivered": 0,
        }
        self._told.add(event_id)
        for broker, t_ms in self._early.pop(event_id, ()):
            self._reached(self._events[event_id], broker, t_ms)
        if len(self._events) > REMEMBERED_MAX:
            self._events.popitem(last=False)

    def _delivered(self, broker: _BrokerState, record: TraceRecord) -> None:
        self._count(record)
        if record.event_id is None:
            return
        event_id = str(record.event_id)
        event = self._events.get(event_id)
        if event is not None:
            self._reached(event, broker, record.t_ms)
        elif record.event_id.origin in self._brokers:
            # The home was asked a moment earlier or later than this broker: its record comes with the next look.
            self._early.setdefault(event_id, []).append((broker, record.t_ms))
            if len(self._early) > REMEMBERED_MAX:
                self._early.popitem(last=False)

    def _reached(self, event: Json, broker: _BrokerState, t_ms: float) -> None:
        event["delivered"] += 1
        self._told.add(event["id"])
        if len(broker.latencies_ms) < REMEMBERED_MAX:
            broker.latencies_ms.append(max(0.0, t_ms - event["t"]))

    def _count(self, record: TraceRecord) -> None:
        if record.client in self._clients:
            self._done.setdefault(record.client, Counter())[record.step] += 1

    def _put(self, t_ms: float, client: str, row: ClientRow) -> None:
        if self._clients.get(client) != row:
            self._clients[client] = row
            self._places.setdefault(client, deque(maxlen=PLACES_MAX)).append((t_ms, row))
            self._moved.add(client)

    def _gone(self, client: str, home: str) -> None:
        """A client that has a new home already is not gone."""
        row = self._clients.get(client)
        if row is not None and row[0] == home:
            del self._clients[client]
            self._done.pop(client, None)
            self._places.pop(client, None)
            self._moved.add(client)
            for topic_filter in self._subscriptions.pop(client, {}):
                self._subscribed.add((client, topic_filter))

    def _subscribe(self, client: str, topic_filter: str, fence: Json | None) -> None:
        held = self._subscriptions.setdefault(client, {})
        if topic_filter not in held or held[topic_filter] != fence:
            held[topic_filter] = fence
            self._subscribed.add((client, topic_filter))

    def _unsubscribe(self, client: str, topic_filter: str) -> None:
        held = self._subscriptions.get(client, {})
        if topic_filter in held:
            del held[topic_filter]
            self._subscribed.add((client, topic_filter))

    # What the page is told.

    def client(self, client: str) -> Json | None:
        """A connected client with its subscriptions and what it did since somebody looked."""
        row = self._clients.get(client)
        if row is None:
            return None
        home, lat, lon = row
        done = self._done.get(client, Counter())
        held = self._subscriptions.get(client, {})
        return {
            "id": client,
            "home": home,
            "at": None if lat is None else [lat, lon],
            "subscriptions": [{"filter": topic_filter, "fence": fence} for topic_filter, fence in held.items()],
            "published": done["published"],
            "delivered": done["delivered"],
            "connected": True,
        }

    def clients_by_home(self) -> Counter[str]:
        """How many clients each broker has."""
        return Counter(row[0] for row in self._clients.values())

    def held_by(self, clients: Iterable[str], event_id: EventId) -> list[TraceRecord]:
        """What these clients have, and where they were at an event, as records from before everything: a trace may
        begin after they subscribed."""
        event = self._events.get(str(event_id))
        records = []
        for client in clients:
            if client not in self._clients:
                continue
            home, lat, lon = self._clients[client] if event is None else self._was(client, event["t"])
            records.append(_from_before("connected", home, client, lat=lat, lon=lon))
            for topic_filter, fence in self._subscriptions.get(client, {}).items():
                held = read_fence(fence)
                text = None if held is None else fence_text(held)
                records.append(_from_before("subscribed", home, client, topic=topic_filter, fence=text))
        return records

    def _was(self, client: str, t_ms: float) -> ClientRow:
        """Where a client was then, or when it was first heard of."""
        places = self._places[client]
        return next((row for since_ms, row in reversed(places) if since_ms <= t_ms), places[0][1])

    def subscribers_of(self, event_id: EventId) -> list[str]:
        """Connected clients with a subscription that fits an event's topic."""
        event = self._events.get(str(event_id))
        if event is None:
            return []
        topic = event["topic"]
        return [client for client, held in self._subscriptions.items() if any(fits(one, topic) for one in held)]

    def latest_event(self, client: str, *, since_ms: float) -> str | None:
        """The id of the last event a client published, if it did; brokers send their events one after the other."""
        mine = (
            event_id
            for event_id, event in reversed(self._events.items())
            if event["client"] == client and event["t"] >= since_ms
        )
        return next(mine, None)

    def tick(self, t_ms: float) -> Json:
        """What changed since the last tick; taking it forgets it."""
        moved = self._moved.take(CHANGES_MAX)
        subscribed = self._subscribed.take(CHANGES_MAX)
        told = [self._events[one] for one in self._told.take(EVENTS_MAX) if one in self._events]
        late = len(self._told)
        self._told.take(late)
        flows, self._flows = self._flows, Counter()
        published, self._published_now = self._published_now, 0
        tick = {
            **self._head(t_ms),
            **self._due_links(),
            "clients": {
                "put": [self._row(one) for one in moved if one in self._clients],
                "drop": [one for one in moved if one not in self._clients],
            },
            "subscriptions": {
                "put": [[*key, self._subscriptions[key[0]][key[1]]] for key in subscribed if self._has(key)],
                "drop": [list(key) for key in subscribed if not self._has(key)],
            },
            "flows": [[*key, count] for key, count in flows.items()],
            "published": published,
            "events": [dict(event) for event in told],
            "skipped": late + len(self._moved) + len(self._subscribed),
        }
        for broker in self._brokers.values():
            broker.latencies_ms.clear()
        return tick

    def whole(self, t_ms: float) -> Iterator[Json]:
        """Ticks that tell everything to a page that knows nothing."""
        clients = [self._row(one) for one in self._clients]
        subscriptions = [[client, *one] for client, held in self._subscriptions.items() for one in held.items()]
        for start in range(0, max(1, len(clients), len(subscriptions)), CHANGES_MAX):
            part = slice(start, start + CHANGES_MAX)
            yield {
                **self._head(t_ms),
                "links": self._links(),
                "clients": {"put": clients[part], "drop": []},
                "subscriptions": {"put": subscriptions[part], "drop": []},
                "flows": [],
                "published": 0,
                "events": [],
                "skipped": 0,
            }

    def _head(self, t_ms: float) -> Json:
        return {"type": "tick", "t": t_ms, "brokers": {name: broker.json() for name, broker in self._brokers.items()}}

    def _links(self) -> list[list[Any]]:
        return [[name, *link] for name, broker in self._brokers.items() for link in broker.links.items()]

    def _due_links(self) -> Json:
        """Links when some came or went, and now and then with their latencies: there may be thousands."""
        pairs = {(name, peer) for name, broker in self._brokers.items() for peer in broker.links}
        self._ticks_since_links += 1
        if pairs == self._linked and self._ticks_since_links < LINKS_EVERY:
            return {}
        self._linked, self._ticks_since_links = pairs, 0
        return {"links": self._links()}

    def _row(self, client: str) -> list[Any]:
        return [client, *self._clients[client]]

    def _has(self, key: tuple[str, str]) -> bool:
        return key[1] in self._subscriptions.get(key[0], {})


def _from_before(step: Step, home: str, client: str, **fields: Any) -> TraceRecord:
    return TraceRecord(0.0, BrokerId(home), step, "client", client=ClientId(client), **fields)
