"""The workload of the published DisGB simulation: hikers on a thousand topics, all over the earth.

Owns the rules of that workload. The `paper` preset keeps the published rule by which pauses grow with time;
`steady` draws them from the same range throughout. Clients never leave their broker's area.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geomq.errors import UsageError
from geomq.geo import destinations
from geomq.workload.model import (
    CLIENTS_MAX,
    DEGREE,
    SECONDS_MAX,
    ActionList,
    Block,
    Clients,
    FloatArray,
    Int32Array,
    Kind,
    Spec,
    Subscribers,
    block_homes,
    block_random,
    check_range,
    radius_cm_of,
)
from geomq.workload.world import World

FIRST_UPDATE_MS = 50_000
STEP_MS = 1000
AFTER_EVENT_MS = 1001
TRAVEL_MS = 60_000
RENEW_EVERY = 5
SPEED_KMH = (50.0, 100.0)
TURN_DEG = 10.0
TRIES = 30


@dataclass(frozen=True, slots=True)
class DisgbSpec(Spec):
    """Numbers of the simulation workload; the defaults are the published ones."""

    clients: int = 100_000
    topics: int = 1000
    topics_per_client: int = 5
    seconds: int = 900
    event_fence_deg: float = 5.0
    subscription_fence_deg: float = 10.0
    growing_pauses: bool = True

    def __post_init__(self) -> None:
        check_range("the number of clients", self.clients, 1, CLIENTS_MAX)
        check_range("the number of topics", self.topics, 1, 10_000_000)
        check_range("topics per client", self.topics_per_client, 1, min(64, self.topics))
        check_range("the number of seconds", self.seconds, 1, SECONDS_MAX)
        check_range("the event fence in degrees", self.event_fence_deg, 0, 180)
        check_range("the subscription fence in degrees", self.subscription_fence_deg, 0, 180)

    @property
    def end_ms(self) -> int:
        return self.seconds * 1000

    def topic_names(self) -> list[str]:
        return [f"topic-{number}" for number in range(self.topics)]

    def homes(self, world: World) -> NDArray[np.int64]:
        homes = world.clients_per_broker(self.clients)
        if not homes.any():
            raise UsageError(f"{self.clients} clients are too few for {len(world)} brokers")
        return homes

    def block(self, world: World, seed: int, number: int) -> Block:
        return _BlockMaker(self, world, seed, number).make()

    def subscribers(self, world: World, seed: int, number: int) -> Subscribers:
        return _BlockMaker(self, world, seed, number).subscribers()


class _BlockMaker:
    """Walks all clients of one block through their cycles at once."""

    def __init__(self, spec: DisgbSpec, world: World, seed: int, number: int) -> None:
        self._spec = spec
        self._world = world
        self._random = block_random(seed, number)
        self._client, self._home = block_homes(spec.homes(world), number)
        self._actions = ActionList()
        self._lat, self._lon = start_places(world, self._home, self._random)
        self._topics = distinct_topics(self._random, len(self._client), spec.topics_per_client, spec.topics)
        self._heading: FloatArray = self._random.uniform(0, 360, len(self._client))
        self._t = self._random.integers(1, FIRST_UPDATE_MS, len(self._client))
        self._event_cm = radius_cm_of(spec.event_fence_deg)
        self._subscription_cm = radius_cm_of(spec.subscription_fence_deg)

    def make(self) -> Block:
        clients = Clients(self._client, self._home, self._lat.copy(), self._lon.copy(), self._topics)
        everyone = np.arange(len(self._client))
        self._update_location(everyone)
        self._t += FIRST_UPDATE_MS
        active = everyone[self._t < self._spec.end_ms]
        cycle = 0
        while len(active):
            if cycle % RENEW_EVERY == 0:
                self._renew(active)
            self._publish(active)
            self._travel(active)
            active = active[self._t[active] < self._spec.end_ms]
            cycle += 1
        return Block(clients, self._actions.before(self._spec.end_ms))

    def subscribers(self) -> Subscribers:
        """The first subscription of each client, without the rest of its actions."""
        t = self._t + FIRST_UPDATE_MS + STEP_MS
        early = t < self._spec.end_ms
        return Subscribers(t[early].astype(np.int32), self._client[early], self._home[early])

    def _update_location(self, who: NDArray[np.intp]) -> None:
        self._actions.add(Kind.LOCATION, self._t[who], self._client[who], self._lat[who], self._lon[who])

    def _renew(self, who: NDArray[np.intp]) -> None:
        self._update_location(who)
        self._t[who] += STEP_MS
        for slot in range(self._spec.topics_per_client):
            self._actions.add(
                Kind.SUBSCRIPTION,
                self._t[who],
                self._client[who],
                self._lat[who],
                self._lon[who],
                topic=self._topics[who, slot],
                radius_cm=self._subscription_cm,
            )
            self._t[who] += 1
        self._t[who] += STEP_MS

    def _publish(self, who: NDArray[np.intp]) -> None:
        slot = self._random.integers(0, self._spec.topics_per_client, len(who))
        self._actions.add(
            Kind.EVENT,
            self._t[who],
            self._client[who],
            self._lat[who],
            self._lon[who],
            topic=self._topics[who, slot],
            radius_cm=self._event_cm,
        )
        self._t[who] += AFTER_EVENT_MS

    def _travel(self, who: NDArray[np.intp]) -> None:
        longest = TRAVEL_MS + (self._t[who] if self._spec.growing_pauses else 0)
        pause_ms = self._random.integers(1, np.broadcast_to(longest, who.shape))
        metres = self._random.uniform(*SPEED_KMH, len(who)) * (pause_ms / 3600)
        self._t[who] += pause_ms
        lat, lon, heading = wander(
            self._world, self._home[who], self._lat[who], self._lon[who], self._heading[who], metres, self._random
        )
        self._lat[who], self._lon[who], self._heading[who] = lat, lon, heading


def start_places(world: World, home: Int32Array, random: np.random.Generator) -> tuple[Int32Array, Int32Array]:
    """One of the broker's squares uniformly, then a uniform latitude and longitude inside it."""
    pick, up, across = random.random(len(home)), random.random(len(home)), random.random(len(home))
    low_lat, low_lon = np.empty(len(home)), np.empty(len(home))
    for broker in np.unique(home).tolist():
        mine = home == broker
        squares = world.squares.squares_of(broker)
        boxes = [world.squares.square_box(square) for square in squares.tolist()]
        corners = np.array([(box.lat_min, box.lon_min) for box in boxes])
        chosen = corners[(pick[mine] * len(squares)).astype(np.intp)]
        low_lat[mine], low_lon[mine] = chosen[:, 0], chosen[:, 1]
    side = world.field_deg * DEGREE
    lat = np.rint(low_lat * DEGREE).astype(np.int64) + (up * side).astype(np.int64)
    lon = np.rint(low_lon * DEGREE).astype(np.int64) + (across * side).astype(np.int64)
    return lat.astype(np.int32), lon.astype(np.int32)


def distinct_topics(random: np.random.Generator, clients: int, each: int, topics: int) -> Int32Array:
    """`each` different topics per client in random order, by Floyd's method on all clients at once."""
    chosen = np.full((clients, each), -1, np.int32)
    for slot in range(each):
        last = topics - each + slot
        drawn = random.integers(0, last + 1, clients).astype(np.int32)
        taken = (chosen[:, :slot] == drawn[:, None]).any(axis=1)
        chosen[:, slot] = np.where(taken, last, drawn)
    return random.permuted(chosen, axis=1)


def wander(
    world: World,
    home: Int32Array,
    lat_e7: Int32Array,
    lon_e7: Int32Array,
    heading: FloatArray,
    metres: FloatArray,
    random: np.random.Generator,
) -> tuple[Int32Array, Int32Array, FloatArray]:
    """Move with a small turn that widens until the new place is in the home's area; else turn round."""
    lat, lon, course = lat_e7.copy(), lon_e7.copy(), heading.copy()
    left = np.arange(len(home))
    for attempt in range(TRIES + 1):
        if attempt < TRIES:
            reach = TURN_DEG + attempt
            course[left] = heading[left] + random.uniform(-reach, reach, len(left))
        else:
            course[left] = heading[left] + 180.0
        new_lat, new_lon = moved(lat_e7[left], lon_e7[left], course[left], metres[left])
        inside = world.areas.owners(new_lat / DEGREE, new_lon / DEGREE) == home[left]
        lat[left[inside]], lon[left[inside]] = new_lat[inside], new_lon[inside]
        left = left[~inside]
        if not len(left):
            break
    return lat, lon, course % 360.0


def moved(
    lat_e7: Int32Array, lon_e7: Int32Array, heading: FloatArray, metres: FloatArray
) -> tuple[Int32Array, Int32Array]:
    """Where one arrives along a great circle, in whole 1e-7 degrees; longitude 180 is written -180."""
    lat, lon = destinations(lat_e7 / DEGREE, lon_e7 / DEGREE, heading, metres)
    new_lat, new_lon = np.rint(lat * DEGREE).astype(np.int64), np.rint(lon * DEGREE).astype(np.int64)
    new_lon[new_lon >= 180 * DEGREE] -= 360 * DEGREE
    return new_lat.astype(np.int32), new_lon.astype(np.int32)


PRESETS = ("paper", "steady")


def preset(name: str, **numbers: float) -> DisgbSpec:
    """The `paper` or `steady` workload with some of its numbers changed."""
    if name not in PRESETS:
        raise UsageError(f"unknown preset {name!r}; choose from {', '.join(PRESETS)}")
    return DisgbSpec(growing_pauses=name == "paper", **numbers)  # type: ignore[arg-type]
