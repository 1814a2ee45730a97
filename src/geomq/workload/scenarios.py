"""The published live experiments as workloads: three cities, three scenarios, a check run, and all of it mixed.

Owns who publishes and subscribes what, where and how often in each scenario. After a warm-up of five seconds, in which
every client says twice where it is and subscribes, clients act for the given time and never leave their area.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geomq.geo import degrees_to_m, destinations
from geomq.workload.cities import Place
from geomq.workload.disgb import wander
from geomq.workload.model import (
    CLIENTS_MAX,
    DEGREE,
    NO_FENCE,
    SECONDS_MAX,
    ActionList,
    Block,
    Clients,
    FloatArray,
    Int32Array,
    Kind,
    Spec,
    block_homes,
    block_random,
    check_range,
)
from geomq.workload.world import World

WARM_UP_MS = 5000
RENEW_M = 50.0
ROLES = 3
TOPICS = {
    "open": ("temperature", "humidity", "barometric_pressure"),
    "hiking": ("road", "text"),
    "context": ("temperature", "announcement"),
    "validation": ("data",),
    "mixed": (
        "open-temperature",
        "open-humidity",
        "open-barometric_pressure",
        "hiking-road",
        "hiking-text",
        "context-temperature",
        "context-announcement",
    ),
}
_OPEN_PAYLOADS = np.array([(100, 101), (130, 181), (210, 241)])

Who = NDArray[np.intp]
Times = NDArray[np.int64]
Act = Callable[[Who, Times, Times], None]


@dataclass(frozen=True, slots=True)
class ScenarioSpec(Spec):
    """One of the scenarios; clients are shared out equally among the three brokers."""

    name: str
    clients: int = 3600
    seconds: int = 900

    def __post_init__(self) -> None:
        check_range("the number of clients", self.clients, 3, CLIENTS_MAX)
        check_range("the number of seconds", self.seconds, 1, SECONDS_MAX)

    @property
    def end_ms(self) -> int:
        return WARM_UP_MS + self.seconds * 1000

    def topic_names(self) -> list[str]:
        return list(TOPICS[self.name])

    def homes(self, world: World) -> NDArray[np.int64]:
        return np.full(len(world), self.clients // len(world), np.int64)

    def block(self, world: World, seed: int, number: int) -> Block:
        return _BlockMaker(self, world, seed, number).make()


SCENARIOS = {
    "open": ScenarioSpec("open"),
    "hiking": ScenarioSpec("hiking"),
    "context": ScenarioSpec("context"),
    "validation": ScenarioSpec("validation", clients=600, seconds=155),
    "mixed": ScenarioSpec("mixed"),
}


def scenario_world() -> World:
    """The three brokers of the live experiments with their circular areas."""
    return World(
        (
            Place("Columbus", 39.961332, -82.999083, 1),
            Place("Frankfurt", 50.106732, 8.663124, 1),
            Place("Paris", 48.877366, 2.359708, 1),
        ),
        1,
        (5.0, 2.1, 2.1),
    )


class _BlockMaker:
    """Makes all clients of one block act, role by role."""

    def __init__(self, spec: ScenarioSpec, world: World, seed: int, number: int) -> None:
        self._spec, self._world = spec, world
        self._random = block_random(seed, number)
        self._client, self._home = block_homes(spec.homes(world), number)
        self._actions = ActionList()
        self._lat, self._lon = _start_places(world, self._home, self._random)
        self._heading: FloatArray = self._random.uniform(0, 360, len(self._client))

    def make(self) -> Block:
        start_lat, start_lon = self._lat.copy(), self._lon.copy()
        everyone = np.arange(len(self._client))
        for half in range(2):
            t = self._random.integers(0, WARM_UP_MS // 4, len(everyone)) + half * WARM_UP_MS // 4
            self._locate(everyone, t)
        name = self._spec.name
        parts = {"open": (0,), "hiking": (1,), "context": (2,), "validation": (3,), "mixed": (0, 1, 2)}[name]
        plays = (self._open, self._hiking, self._context, self._validation)
        first_topic = {0: 0, 1: 3, 2: 5} if name == "mixed" else dict.fromkeys(parts, 0)
        for part in parts:
            mine = everyone if len(parts) == 1 else everyone[self._client // ROLES % len(parts) == part]
            plays[part](mine, first_topic[part])
        topics = np.tile(np.arange(len(TOPICS[name]), dtype=np.int32), (len(everyone), 1))
        clients = Clients(self._client, self._home, start_lat, start_lon, topics)
        return Block(clients, self._actions.before(self._spec.end_ms))

    def _subscribers(self, who: Who) -> tuple[Who, Who]:
        """A third of the clients subscribes, the others publish."""
        third = self._client[who] % ROLES == 0
        return who[third], who[~third]

    def _open(self, who: Who, topic: int) -> None:
        subscribers, publishers = self._subscribers(who)

        def renew(who: Who, t: Times) -> None:
            for each in range(3):
                self._subscribe(who, t + each, topic + each, self._metres(1000, 100_000, len(who)))

        def publish(who: Who, t: Times, _pause_ms: Times) -> None:
            kind = self._client[who].astype(np.int64) // ROLES % 3
            low, high = _OPEN_PAYLOADS[kind, 0], _OPEN_PAYLOADS[kind, 1]
            self._event(who, t, topic + kind, NO_FENCE, self._random.integers(low, high))

        def maybe_jump(who: Who, t: Times, _pause_ms: Times) -> None:
            chosen = self._random.random(len(who)) < 0.1
            self._walk(who[chosen], self._random.uniform(500, 100_000, int(chosen.sum())), any_way=True)
            renew(who[chosen], t[chosen])

        renew(subscribers, self._warm(subscribers))
        self._repeat(publishers, 5000, 15_000, publish)
        self._repeat(subscribers, 3000, 6000, maybe_jump)

    def _hiking(self, who: Who, topic: int) -> None:
        start_lat, start_lon = self._lat.copy(), self._lon.copy()
        walked = np.zeros(len(self._client))

        def renew(who: Who, t: Times) -> None:
            self._subscribe(who, t, topic, 50_000)
            radius = self._metres(1000, 50_000, len(who))
            self._subscribe(who, t + 1, topic + 1, radius, start_lat, start_lon)

        def step(who: Who, t: Times, pause_ms: Times) -> None:
            metres = self._random.uniform(2, 8, len(who)) * (pause_ms / 3600)
            self._walk(who, metres)
            walked[who] += metres
            self._locate(who, t)
            far = walked[who] >= RENEW_M
            walked[who[far]] = 0.0
            renew(who[far], t[far] + 1)
            says = self._random.random((2, len(who))) < np.array([[0.1], [0.5]])
            self._event(who[says[0]], t[says[0]] + 3, topic, 50_000, 100)
            count = int(says[1].sum())
            radius, size = self._metres(1000, 50_000, count), self._random.integers(10, 1001, count)
            self._event(who[says[1]], t[says[1]] + 4, topic + 1, radius, size)

        renew(who, self._warm(who))
        self._repeat(who, 5000, 30_000, step)

    def _context(self, who: Who, topic: int) -> None:
        subscribers, publishers = self._subscribers(who)

        def step(who: Who, t: Times, pause_ms: Times) -> None:
            self._walk(who, self._random.uniform(2, 8, len(who)) * (pause_ms / 3600))
            self._locate(who, t)
            again = self._random.random(len(who)) < 0.05
            self._subscribe(who[again], t[again] + 1, topic, NO_FENCE)

        def publish(who: Who, t: Times, _pause_ms: Times) -> None:
            rare = self._random.random(len(who)) < 0.1
            radius = self._metres(np.where(rare, 10_000, 1000), np.where(rare, 100_000, 25_000), len(who))
            size = np.where(rare, self._random.integers(50, 501, len(who)), 100)
            self._event(who, t, np.where(rare, topic + 1, topic), radius, size)

        t = self._warm(subscribers)
        self._subscribe(subscribers, t, topic, NO_FENCE)
        self._subscribe(subscribers, t + 1, topic + 1, NO_FENCE)
        self._repeat(subscribers, 5000, 30_000, step)
        self._repeat(publishers, 10_000, 60_000, publish)

    def _validation(self, who: Who, topic: int) -> None:
        """Three bursts of five events each."""
        self._subscribe(who, self._warm(who), topic, 5_000_000)
        for burst in range(3):
            for each in range(5):
                t = WARM_UP_MS + burst * self._spec.seconds * 1000 // 3 + each * 1000
                self._event(who, t + self._random.integers(0, 1000, len(who)), topic, 5_000_000, 20)

    def _repeat(self, who: Who, low_ms: int, high_ms: int, act: Act) -> None:
        """Let clients act again and again, each at its own pace, until the end."""
        t = np.full(len(self._client), WARM_UP_MS, np.int64)
        while len(who):
            pause_ms = self._random.integers(low_ms, high_ms + 1, len(who))
            t[who] += pause_ms
            left = t[who] < self._spec.end_ms
            who, pause_ms = who[left], pause_ms[left]
            act(who, t[who], pause_ms)

    def _warm(self, who: Who) -> NDArray[np.int64]:
        return WARM_UP_MS // 2 + self._random.integers(0, WARM_UP_MS // 2 - 10, len(who))

    def _metres(self, low: int | NDArray[np.int64], high: int | NDArray[np.int64], count: int) -> Int32Array:
        """Random lengths in metres, as centimetres."""
        return (self._random.uniform(low, high, count) * 100).astype(np.int32)

    def _walk(self, who: Who, metres: FloatArray, *, any_way: bool = False) -> None:
        if any_way:
            self._heading[who] = self._random.uniform(0, 360, len(who))
        self._lat[who], self._lon[who], self._heading[who] = wander(
            self._world, self._home[who], self._lat[who], self._lon[who], self._heading[who], metres, self._random
        )

    def _locate(self, who: Who, t: Times) -> None:
        self._actions.add(Kind.LOCATION, t, self._client[who], self._lat[who], self._lon[who])

    def _subscribe(
        self,
        who: Who,
        t: Times,
        topic: int,
        radius_cm: Int32Array | int,
        lat: Int32Array | None = None,
        lon: Int32Array | None = None,
    ) -> None:
        lat, lon = self._lat if lat is None else lat, self._lon if lon is None else lon
        client = self._client[who]
        self._actions.add(Kind.SUBSCRIPTION, t, client, lat[who], lon[who], topic=topic, radius_cm=radius_cm)

    def _event(
        self,
        who: Who,
        t: Times,
        topic: NDArray[np.int64] | int,
        radius_cm: Int32Array | int,
        payload: NDArray[np.int64] | int,
    ) -> None:
        size = payload if isinstance(payload, int) else payload.astype(np.int32)
        number = topic if isinstance(topic, int) else topic.astype(np.int32)
        place = (self._client[who], self._lat[who], self._lon[who])
        self._actions.add(Kind.EVENT, t, *place, topic=number, radius_cm=radius_cm, payload_bytes=size)


def _start_places(world: World, home: Int32Array, random: np.random.Generator) -> tuple[Int32Array, Int32Array]:
    """Uniform over the home's circle."""
    radius_m = np.array([degrees_to_m(radius) for radius in world.circles_deg])[home]
    lat0 = np.array([place.lat for place in world.places])[home]
    lon0 = np.array([place.lon for place in world.places])[home]
    metres = radius_m * np.sqrt(random.random(len(home))) * 0.9999
    lat, lon = destinations(lat0, lon0, random.uniform(0, 360, len(home)), metres)
    return np.rint(lat * DEGREE).astype(np.int32), np.rint(lon * DEGREE).astype(np.int32)
