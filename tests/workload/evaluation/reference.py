"""A slow evaluator that is easy to believe: brokers as dictionaries, messages as tuples, one tick after another.

It follows the published rules to the letter and shares with the product only geometry, latencies, the groups, the
ring and the areas. The kernel must give the same numbers.
"""

from collections import Counter, defaultdict
from heapq import heappop, heappush
from typing import Any, NamedTuple

from geomq.geo import Circle, Location
from geomq.geo.areas import mask_brokers
from geomq.routing.strategies.grid_quorum import grid_side
from geomq.routing.strategies.ring import HashRing
from geomq.workload.evaluation.groups import form_groups
from geomq.workload.model import DEGREE, NO_FENCE, Actions, Kind
from geomq.workload.world import World

# Ranks inside a tick: what peers sent, then what clients sent.
PEER_LOCATION, PEER_SUBSCRIPTION, PEER_EVENT, PEER_DELIVERY = range(4)
CLIENT_LOCATION, CLIENT_SUBSCRIPTION, CLIENT_EVENT = range(4, 7)
CLIENT_MS = 5

Fence = Circle | None


class Event(NamedTuple):
    number: int
    t: int
    client: int
    home: int
    topic: int
    location: Location | None
    fence: Fence


class Result(NamedTuple):
    messages: Counter[str]
    links: Counter[tuple[int, int]]
    latency: Counter[int]
    delay: Counter[int]
    deliveries: Counter[tuple[int, int]]


class Broker:
    def __init__(self) -> None:
        self.locations: dict[int, Location] = {}
        self.fences: dict[int, dict[int, Fence]] = defaultdict(dict)
        self.delivered: set[tuple[int, int]] = set()

    def matching(self, event: Event) -> list[int]:
        found = []
        for client, fence in sorted(self.fences[event.topic].items(), key=lambda item: item[0]):
            if fence is not None and (event.location is None or not fence.contains(event.location)):
                continue
            place = self.locations.get(client)
            if event.fence is not None and (place is None or not event.fence.contains(place)):
                continue
            found.append(client)
        return found


class Reference:
    """One strategy on one world; `run` plays the actions to the end."""

    def __init__(self, world: World, homes: list[int], topic_names: list[str], strategy: str) -> None:
        self.world, self.homes, self.strategy = world, homes, strategy
        self.n = len(world)
        self.latency = world.latency_ms.tolist()
        self.brokers = [Broker() for _ in range(self.n + 1)]
        self.ticks: list[int] = []
        self.queue: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        self.result = Result(Counter(), Counter(), Counter(), Counter(), Counter())
        groups = form_groups(world)
        self.leader = groups.leader.tolist()
        ring = HashRing([place.name for place in world.places])
        self.topic_broker = [ring.owner(name) for name in topic_names]
        self.told: dict[tuple[int, int], set[int]] = {}
        self.sequence = 0

    def run(self, actions: Actions) -> Result:
        for i in range(len(actions)):
            self.client_acts(actions, i)
        while self.ticks:
            tick = heappop(self.ticks)
            for item in sorted(self.queue.pop(tick), key=lambda item: item[:4]):
                self.handle(tick, *item[4:])
        return self.result

    def client_acts(self, actions: Actions, i: int) -> None:
        client, t = int(actions.client[i]), int(actions.t_ms[i])
        place = Location(actions.lat_e7[i] / DEGREE, actions.lon_e7[i] / DEGREE)
        radius_cm = int(actions.radius_cm[i])
        fence = None if radius_cm == NO_FENCE else Circle(place, radius_cm / 100.0)
        rank = {
            Kind.LOCATION: CLIENT_LOCATION,
            Kind.SUBSCRIPTION: CLIENT_SUBSCRIPTION,
            Kind.EVENT: CLIENT_EVENT,
        }[Kind(int(actions.kind[i]))]
        home = self.homes[client]
        body: Any = place
        if rank == CLIENT_SUBSCRIPTION:
            body = (int(actions.topic[i]), fence)
        elif rank == CLIENT_EVENT:
            body = (i, int(actions.topic[i]), fence)
        self.later(t + CLIENT_MS, rank, client, t, -1, home, body)

    def later(self, tick: int, rank: int, client: int, t: int, sender: int, to: int, body: Any) -> None:
        self.sequence += 1
        if tick not in self.queue:
            heappush(self.ticks, tick)
        self.queue[tick].append((rank, client, t, self.sequence, rank, client, t, sender, to, body))

    def send(self, tick: int, rank: int, client: int, t: int, sender: int, to: int, body: Any) -> None:
        kind = {PEER_SUBSCRIPTION: "subscription", PEER_EVENT: "event", PEER_DELIVERY: "delivery"}.get(rank)
        if kind is not None:
            self.result.messages[kind] += 1
            self.result.links[sender, to] += 1
        self.later(tick + self.latency[sender][to], rank, client, t, sender, to, body)

    def handle(self, tick: int, rank: int, client: int, t: int, sender: int, to: int, body: Any) -> None:
        if rank == CLIENT_LOCATION:
            self.brokers[to].locations[client] = body
            for other in range(self.n + 1):
                if other != to:
                    self.send(tick, PEER_LOCATION, client, t, to, other, body)
        elif rank == PEER_LOCATION:
            self.brokers[to].locations[client] = body
        elif rank == CLIENT_SUBSCRIPTION:
            self.subscribed(tick, client, t, to, *body)
        elif rank == PEER_SUBSCRIPTION:
            self.heard_subscription(tick, client, t, to, body)
        elif rank == CLIENT_EVENT:
            number, topic, fence = body
            place = self.brokers[to].locations.get(client)
            self.published(tick, Event(number, t, client, to, topic, place, fence))
        elif rank == PEER_EVENT:
            self.heard_event(tick, sender, to, body)
        elif rank == PEER_DELIVERY:
            event, clients = body
            self.deliver(tick, to, event, clients)

    def deliver(self, tick: int, at: int, event: Event, clients: list[int]) -> None:
        for client in clients:
            assert self.homes[client] == at
            if (event.number, client) not in self.brokers[at].delivered:
                self.brokers[at].delivered.add((event.number, client))
                self.result.latency[tick + CLIENT_MS - event.t] += 1
                self.result.deliveries[event.number, client] += 1

    def touched(self, fence: Fence) -> set[int]:
        if fence is None:
            return set(range(self.n))
        masks = self.world.areas.touched_masks(fence.center.lat, fence.center.lon, fence.radius_m)
        return set(mask_brokers(masks[0]))

    def row_and_column(self, home: int) -> list[int]:
        side = grid_side(self.n)
        return [
            other
            for other in range(self.n)
            if other != home and (other // side == home // side or other % side == home % side)
        ]

    # Subscriptions

    def subscribed(self, tick: int, client: int, t: int, home: int, topic: int, fence: Fence) -> None:
        body = (topic, fence, t)
        here = True
        targets: list[int] = []
        if self.strategy == "flood_subscriptions":
            targets = [other for other in range(self.n) if other != home]
        elif self.strategy == "disgb_subscriptions":
            now = self.touched(fence)
            before = self.told.get((client, topic), set())
            self.told[client, topic] = now
            for other in sorted((now | before) - {home}):
                self.send(tick, PEER_SUBSCRIPTION, client, t, home, other, (*body, tick))
        elif self.strategy == "dht":
            targets = [self.topic_broker[topic]]
            here = targets == [home]
        elif self.strategy == "grid_quorum":
            targets = self.row_and_column(home)
        elif self.strategy == "broadcast_groups":
            leader = self.leader[home]
            targets = [leader if leader != home else self.n]
        if here:
            self.brokers[home].fences[topic][client] = fence
        for other in targets:
            if other != home:
                self.send(tick, PEER_SUBSCRIPTION, client, t, home, other, (*body, tick))

    def heard_subscription(self, tick: int, client: int, t: int, at: int, body: Any) -> None:
        topic, fence, _, sent = body
        self.result.delay[tick - sent] += 1
        if self.strategy == "broadcast_groups" and at != self.n:
            self.send(tick, PEER_SUBSCRIPTION, client, t, at, self.n, body)
        else:
            self.brokers[at].fences[topic][client] = fence

    # Events

    def match_own(self, tick: int, at: int, event: Event) -> None:
        own = [client for client in self.brokers[at].matching(event) if self.homes[client] == at]
        self.deliver(tick, at, event, own)

    def match_and_tell(self, tick: int, at: int, event: Event, homes: set[int]) -> None:
        by_home: dict[int, list[int]] = defaultdict(list)
        for client in self.brokers[at].matching(event):
            by_home[self.homes[client]].append(client)
        for home, clients in sorted(by_home.items()):
            if home == at:
                self.deliver(tick, at, event, clients)
            elif home in homes:
                self.send(tick, PEER_DELIVERY, event.client, event.t, at, home, (event, clients))

    def forward(self, tick: int, sender: int, to: int, event: Event) -> None:
        self.send(tick, PEER_EVENT, event.client, event.t, sender, to, event)

    def published(self, tick: int, event: Event) -> None:
        home, everyone = event.home, set(range(self.n))
        targets: set[int] = set()
        if self.strategy == "flood_events":
            targets = everyone
            self.match_own(tick, home, event)
        elif self.strategy == "disgb_events":
            targets = self.touched(event.fence)
            self.match_own(tick, home, event)
        elif self.strategy in ("flood_subscriptions", "disgb_subscriptions"):
            self.match_and_tell(tick, home, event, everyone)
        elif self.strategy == "dht":
            targets = {self.topic_broker[event.topic]}
            if targets == {home}:
                self.match_and_tell(tick, home, event, everyone)
        elif self.strategy == "grid_quorum":
            targets = set(self.row_and_column(home))
            self.match_own(tick, home, event)
        elif self.strategy == "broadcast_groups":
            targets = {other for other in range(self.n) if self.leader[other] == self.leader[home]}
            self.match_own(tick, home, event)
            if self.leader[home] == home:
                targets.add(self.n)
        for target in sorted(targets - {home}):
            self.forward(tick, home, target, event)

    def heard_event(self, tick: int, sender: int, at: int, event: Event) -> None:
        if self.strategy in ("flood_events", "disgb_events"):
            self.match_own(tick, at, event)
        elif self.strategy == "dht":
            self.match_and_tell(tick, at, event, set(range(self.n)))
        elif self.strategy == "grid_quorum":
            self.heard_in_grid(tick, at, event)
        elif self.strategy == "broadcast_groups":
            self.heard_in_group(tick, sender, at, event)

    def heard_in_grid(self, tick: int, at: int, event: Event) -> None:
        side = grid_side(self.n)
        if at // side == event.home // side:
            homes = {other for other in range(self.n) if other % side == at % side}
        else:
            homes = {other for other in range(self.n) if other // side == at // side}
        self.match_and_tell(tick, at, event, homes)

    def heard_in_group(self, tick: int, sender: int, at: int, event: Event) -> None:
        if at == self.n:
            found = {self.leader[self.homes[client]] for client in self.brokers[at].matching(event)}
            for leader in sorted(found - {self.leader[event.home]}):
                self.forward(tick, self.n, leader, event)
            return
        self.match_own(tick, at, event)
        if sender == self.n:
            for member in range(self.n):
                if self.leader[member] == at and member != at:
                    self.forward(tick, at, member, event)
        elif self.leader[at] == at:
            self.forward(tick, at, self.n, event)
