"""A world for the soak, made up from one seed: brokers, clients, what they do, what breaks, and what is changed."""

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from geomq.geo import Circle, Fence, Location
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed, ClientUnsubscribed, RoutingEvent
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.federation.changes import Change, RemoveBroker, SetAreas, SetStrategy
from geomq.routing.federation.description import BrokerEntry, Description, federation_of
from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim.changing import Ask, Join
from geomq.sim.faults import Crash, Cut
from geomq.sim.script import Step

BROKERS = 4
CLIENTS = 8
MEMBERS = 6
TOPICS = ("a/x", "a/y", "b")
FILTERS = ("a/x", "a/+", "b", "#", "+")
SHARES = ("crew", "watch")
OPEN_TOPICS = ("p/x", "p/y")
OPEN_FILTERS = ("p/x", "p/+", "#")
"""No fence and no share group concerns these topics, so that nodes have plans for them; in half the worlds `#` does."""
RETAINED_TOPICS = ("r/x", "r/y", "r/z", "b")
REROUTING = ("broadcast_groups",)
"""These look for another way when a broker is gone, instead of waiting for it; what was under way may be lost."""
LATE = BrokerId("late")

SETTLED_MS, DRAIN_MS, CHURN_MS, HEALED_MS, QUIET_MS = 15_000, 25_000, 40_000, 50_000, 80_000
RESUBSCRIBED_MS, RESHAPED_MS, END_MS = 100_000, 110_000, 140_000
"""A mesh offers the events of the last 15 seconds to brokers that join it, and so to new subscriptions."""


class Dicer:
    """Makes up a world and what happens in it from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.published = 0
        self.entries = [self.entry(f"b{number}") for number in range(BROKERS)]
        self.late = self.entry(LATE)
        """A broker that may join."""
        self.joined = False
        self.filters = FILTERS if self.random.random() < 0.5 else tuple(each for each in FILTERS if each != "#")
        """Those that fences and share groups go with."""
        self.federation = federation_of(Description(tuple(self.entries)))
        self.clients = [ClientId(f"c{i}") for i in range(CLIENTS)]
        self.members = [ClientId(f"m{i}") for i in range(MEMBERS)]
        """Clients with shared subscriptions only, so that it is plain why one gets an event."""
        everybody = (*self.clients, *self.members)
        self.homes = {client: self.random.choice(self.federation.ids) for client in everybody}

    def description(self, strategy: str, options: Mapping[str, Any] | None) -> Description:
        return Description(tuple(self.entries), strategy=strategy, options=dict(options or {}))

    def entry(self, name: str) -> BrokerEntry:
        place = self.place()
        return BrokerEntry(name, (place.lat, place.lon), f"{name}:1")

    def place(self) -> Location:
        return Location(self.random.uniform(30, 60), self.random.uniform(-20, 40))

    def fence(self) -> Fence | None:
        radius_m = self.random.choice([None, 200_000.0, 1_000_000.0, 4_000_000.0])
        return None if radius_m is None else Circle(self.place(), radius_m)

    # What clients do.

    def move(self) -> RoutingEvent:
        return ClientMoved(self.random.choice([*self.clients, *self.members]), self.place())

    def subscribe(self) -> RoutingEvent:
        client = self.random.choice(self.clients)
        if self.random.random() < 0.3:
            return ClientSubscribed(client, self.random.choice(OPEN_FILTERS))
        return ClientSubscribed(client, self.random.choice(self.filters), self.fence())

    def join(self) -> RoutingEvent:
        client, topic_filter = self.random.choice(self.members), self.random.choice(self.filters)
        return ClientSubscribed(client, topic_filter, self.fence(), self.random.choice(SHARES))

    def leave(self) -> RoutingEvent:
        client, topic_filter = self.random.choice(self.members), self.random.choice(self.filters)
        return ClientUnsubscribed(client, topic_filter, self.random.choice(SHARES))

    def unsubscribe(self) -> RoutingEvent:
        return ClientUnsubscribed(self.random.choice(self.clients), self.random.choice((*FILTERS, *OPEN_FILTERS)))

    def publish(self) -> RoutingEvent:
        client, topic = self.random.choice(self.clients), self.random.choice((*TOPICS, *OPEN_TOPICS))
        return ClientPublished(client, topic, self.fence(), payload=self.payload(), qos=1)

    def burst(self) -> list[RoutingEvent]:
        """Plain events of one client that follow each other: those that may take the fast path."""
        client, count = self.random.choice(self.clients), self.random.randrange(1, 4)
        topics = [self.random.choice((*OPEN_TOPICS, *OPEN_TOPICS, "b")) for _ in range(count)]
        return [ClientPublished(client, topic, payload=self.payload(), qos=self.published % 2) for topic in topics]

    def retain(self) -> RoutingEvent:
        """Set what is retained of a topic, or delete it."""
        client, topic = self.random.choice(self.clients), self.random.choice(RETAINED_TOPICS)
        payload = b"" if self.random.random() < 0.3 else self.payload()
        return ClientPublished(client, topic, payload=payload, qos=self.random.randrange(2), retain=True)

    def payload(self) -> bytes:
        self.published += 1
        return str(self.published).encode()

    def script(self, events: Sequence[RoutingEvent], from_ms: int, until_ms: int) -> list[Step]:
        """The events at random times, in their order; a client's plain events that follow each other at the same."""
        steps: list[Step] = []
        for t_ms, event in zip(sorted(self.random.randrange(from_ms, until_ms) for _ in events), events, strict=True):
            client: ClientId = event.client  # type: ignore[attr-defined]
            follows = steps and is_plain(event) and is_plain(steps[-1].event) and steps[-1].event.client == client  # type: ignore[attr-defined]
            steps.append(Step(steps[-1].t_ms if follows else t_ms, self.homes[client], event))
        return steps

    def setting_up(self) -> list[Step]:
        first = [ClientMoved(client, self.place()) for client in self.homes]
        asked = [*(self.subscribe() for _ in range(16)), *(self.join() for _ in range(8))]
        return self.script([*first, *asked], 0, 3_000)

    def publishing(self, count: int, from_ms: int, until_ms: int) -> list[Step]:
        """Events of both kinds, and nothing else."""
        made = [self.burst() if self.random.random() < 0.3 else [self.publish()] for _ in range(count)]
        return self.script([event for each in made for event in each], from_ms, until_ms)

    def churn(self) -> list[Step]:
        if self.joined:
            newcomer = ClientId("late")
            self.clients.append(newcomer)
            self.homes[newcomer] = LATE
        one = [self.move, self.subscribe, self.unsubscribe, self.publish, self.join, self.leave, self.retain]
        makers = self.random.choices([*one, None], k=60)
        made = [self.burst() if make is None else [make()] for make in makers]
        return self.script([event for each in made for event in each], CHURN_MS, HEALED_MS)

    def resubscribing(self, from_ms: int, until_ms: int) -> list[Step]:
        makers = self.random.choices([self.subscribe, self.unsubscribe, self.move], k=8)
        return self.script([make() for make in makers], from_ms, until_ms)

    def retaining(self, from_ms: int, until_ms: int) -> list[Step]:
        return self.script([self.retain() for _ in range(2)], from_ms, until_ms)

    # What breaks.

    def faults(self, from_ms: int, until_ms: int) -> tuple[list[Cut], list[Crash]]:
        """Cuts and crashes that are all healed at `until_ms`."""
        brokers = (*self.federation.ids, LATE) if self.joined else self.federation.ids
        pairs = list(combinations(brokers, 2))
        spans = [self.span(from_ms, until_ms) for _ in range(4 + len(brokers))]
        cuts = [Cut(*spans[i], *self.random.choice(pairs)) for i in range(self.random.randrange(5))]
        crashed = [broker for broker in brokers if self.random.random() < 0.4]
        return cuts, [Crash(*spans[4 + i], broker) for i, broker in enumerate(crashed)]

    def span(self, from_ms: int, until_ms: int) -> tuple[int, int]:
        start = self.random.randrange(from_ms, until_ms - 200)
        return start, self.random.randrange(start + 100, until_ms)

    # What is changed.

    def changes(self, from_ms: int, until_ms: int, home: SetStrategy) -> list[Ask | Join]:
        """Changes of the federation: areas, the strategy, and a broker that joins and may leave again."""
        made: list[Ask | Join] = [
            self.change(from_ms, until_ms, home) for _ in range(self.random.choice([0, 0, 0, 1, 2]))
        ]
        t_ms, at = self.random.randrange(from_ms, until_ms), self.random.choice(self.federation.ids)
        if from_ms == SETTLED_MS and self.random.random() < 0.3:
            self.joined = True
            made.append(Join(t_ms, self.late, at))
        elif self.joined and self.random.random() < 0.4:
            self.joined = False
            made.append(Ask(t_ms, at, RemoveBroker(LATE)))
        return made

    def change(self, from_ms: int, until_ms: int, home: SetStrategy) -> Ask:
        change = self.areas() if self.random.random() < 0.6 else self.strategy(home)
        return Ask(self.random.randrange(from_ms, until_ms), self.random.choice(self.federation.ids), change)

    def areas(self) -> Change:
        return self.random.choice([SetAreas("nearest"), SetAreas("grid", 3), SetAreas("grid", 1)])

    def strategy(self, home: SetStrategy) -> Change:
        """Another strategy, or back to that of the run."""
        others = [name for name in STRATEGIES if name not in ("single", *REROUTING)]
        return home if self.random.random() < 0.5 else SetStrategy(self.random.choice(others))


def is_plain(event: RoutingEvent) -> bool:
    return isinstance(event, ClientPublished) and event.qos < 2 and not event.retain and event.fence is None
