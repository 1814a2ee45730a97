"""The published live experiments as workloads: three cities, three scenarios, a check run, and all of it mixed.

Owns who publishes and subscribes what, where and how often in each scenario. In a warm-up of five seconds every client
says where it is and subscribes; then all begin to act, each at its own pace, and never leave their area; at the end
everybody says once more where it is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geomq.geo import distances_m
from geomq.workload.cities import Place
from geomq.workload.generation.disgb import moved
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
# A client strays this far from its heading, tries so often to stay in its area, and then turns back, so often.
TURN_DEG = 10.0
TRIES = 29
BACK_TRIES = 100
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
Act = Callable[[Who, Times], None]
Travel = Callable[[Who, Times], None]


@dataclass(frozen=True, slots=True)
class ScenarioSpec(Spec):
    """One of the scenarios; clients are shared out equally among the three brokers."""

    name: str
    clients: int = 3600
    seconds: int = 900

    def __post_init__(self) -> None:
        check_range("the number of clients", self.clients, 3, CLIENTS_MAX)
        check_range("the number of seconds", self.seconds, WARM_UP_MS // 1000 + 1, SECONDS_MAX)

    @property
    def end_ms(self) -> int:
        return self.seconds * 1000 + 1

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
        self._arrived: Times = self._random.integers(0, WARM_UP_MS, len(self._client))

    def make(self) -> Block:
        start_lat, start_lon = self._lat.copy(), self._lon.copy()
        everyone = np.arange(len(self._client))
        self._locate(everyone, self._arrived)
        name = self._spec.name
        parts = {"open": (0,), "hiking": (1,), "context": (2,), "validation": (3,), "mixed": (0, 1, 2)}[name]
        plays = (self._open, self._hiking, self._context, self._validation)
        first_topic = {0: 0, 1: 3, 2: 5} if name == "mixed" else dict.fromkeys(parts, 0)
        for part in parts:
            mine = everyone if len(parts) == 1 else everyone[self._client // ROLES % len(parts) == part]
            plays[part](mine, first_topic[part])
        self._locate(everyone, np.full(len(everyone), self._spec.end_ms - 1))
        topics = np.tile(np.arange(len(TOPICS[name]), dtype=np.int32), (len(everyone), 1))
        clients = Clients(self._client, self._home, start_lat, start_lon, topics)
        return Block(clients, self._actions.before(self._spec.end_ms))

    def _subscribers(self, who: Who) -> tuple[Who, Who]:
        """A third of the clients subscribes, the others publish."""
        third = self._client[who] % ROLES == 0
        return who[third], who[~third]

    def _open(self, who: Who, topic: int) -> None:
        """Publishers and the locations of subscribers are fixed; subscribers' interest jumps."""
        subscribers, publishers = self._subscribers(who)
        lat, lon = self._lat.copy(), self._lon.copy()

        def renew(who: Who, t: Times) -> None:
            for each in range(3):
                self._subscribe(who, t + 1 + each, topic + each, self._metres(1000, 100_000, len(who)))

        def publish(who: Who, t: Times) -> None:
            kind = self._client[who].astype(np.int64) // ROLES % 3
            low, high = _OPEN_PAYLOADS[kind, 0], _OPEN_PAYLOADS[kind, 1]
            self._event(who, t + 4 + kind, topic + kind, NO_FENCE, self._random.integers(low, high))

        def maybe_jump(who: Who, t: Times) -> None:
            chosen = self._random.random(len(who)) < 0.1
            jumping, far = who[chosen], int(chosen.sum())
            self._heading[jumping] = self._random.uniform(0, 360, far)
            self._walk(jumping, self._random.uniform(500, 100_000, far))
            renew(jumping, t[chosen])

        renew(subscribers, self._arrived[subscribers])
        self._repeat(publishers, 5000, 15_000, publish)
        self._repeat(subscribers, 3000, 6000, maybe_jump)
        self._lat, self._lon = lat, lon

    def _hiking(self, who: Who, topic: int) -> None:
        start_lat, start_lon = self._lat.copy(), self._lon.copy()
        renewed_lat, renewed_lon = self._lat.copy(), self._lon.copy()
        text_cm = np.zeros(len(self._client), np.int32)
        text_cm[who] = self._metres(1000, 50_000, len(who))

        def renew(who: Who, t: Times) -> None:
            self._subscribe(who, t + 1, topic, 50_000)
            self._subscribe(who, t + 2, topic + 1, text_cm[who], start_lat, start_lon)
            renewed_lat[who], renewed_lon[who] = self._lat[who], self._lon[who]

        def step(who: Who, t: Times) -> None:
            self._locate(who, t)
            places = (self._lat[who], self._lon[who], renewed_lat[who], renewed_lon[who])
            far = distances_m(*(place / DEGREE for place in places)) >= RENEW_M
            renew(who[far], t[far])
            says = self._random.random((2, len(who))) < np.array([[0.1], [0.5]])
            self._event(who[says[0]], t[says[0]] + 3, topic, 50_000, 100)
            count = int(says[1].sum())
            radius, size = self._metres(1000, 50_000, count), self._random.integers(10, 1000, count)
            self._event(who[says[1]], t[says[1]] + 4, topic + 1, radius, size)

        renew(who, self._arrived[who])
        self._repeat(who, 5000, 30_000, step, self._hike)

    def _context(self, who: Who, topic: int) -> None:
        subscribers, publishers = self._subscribers(who)
        announces = np.zeros(len(self._client), np.bool_)
        announces[publishers] = self._random.random(len(publishers)) < 0.1

        def step(who: Who, t: Times) -> None:
            self._locate(who, t)
            again = self._random.random(len(who)) < 0.05
            self._subscribe(who[again], t[again] + 1, topic, NO_FENCE)

        def publish(who: Who, t: Times) -> None:
            rare = announces[who]
            radius = self._metres(np.where(rare, 10_000, 1000), np.where(rare, 100_000, 25_000), len(who))
            size = np.where(rare, self._random.integers(50, 500, len(who)), 100)
            self._event(who, t + 3, np.where(rare, topic + 1, topic), radius, size)

        self._subscribe(subscribers, self._arrived[subscribers] + 1, topic, NO_FENCE)
        self._subscribe(subscribers, self._arrived[subscribers] + 2, topic + 1, NO_FENCE)
        self._repeat(subscribers, 5000, 30_000, step, self._hike)
        self._repeat(publishers, 10_000, 60_000, publish)

    def _validation(self, who: Who, topic: int) -> None:
        """Everybody publishes five times at one place, five times at another before and five times after its
        subscription has followed there."""
        whole_ms = self._spec.seconds * 1000

        def soon(share: float, count: int) -> Times:
            """Within five seconds of this share of the run, or less if the run is shortened."""
            return (whole_ms * (share + self._random.uniform(0, 5 / 155, count))).astype(np.int64)

        def burst(share: float) -> None:
            for each in range(5):
                start = share + each * 7 / 155
                t = whole_ms * (start + self._random.uniform(0, 7 / 155, len(who)))
                self._event(who, t.astype(np.int64), topic, 5_000_000, 20)

        self._subscribe(who, soon(10 / 155, len(who)), topic, 5_000_000)
        burst(20 / 155)
        self._lat[who], self._lon[who] = _start_places(self._world, self._home[who], self._random)
        self._locate(who, soon(60 / 155, len(who)))
        burst(70 / 155)
        self._subscribe(who, soon(110 / 155, len(who)), topic, 5_000_000)
        burst(120 / 155)

    def _repeat(self, who: Who, low_ms: int, high_ms: int, act: Act, travel: Travel | None = None) -> None:
        """Let clients act again and again from the end of the warm-up on, each at its own pace."""
        t = np.full(len(self._client), WARM_UP_MS, np.int64)
        while len(who):
            act(who, t[who])
            pause_ms = self._random.integers(low_ms, high_ms, len(who))
            if travel is not None:
                travel(who, pause_ms)
            t[who] += pause_ms
            who = who[t[who] < self._spec.end_ms]

    def _hike(self, who: Who, pause_ms: Times) -> None:
        self._walk(who, self._random.integers(2, 8, len(who)) * (pause_ms / 3600))

    def _metres(self, low: int | NDArray[np.int64], high: int | NDArray[np.int64], count: int) -> Int32Array:
        """Random lengths in metres, as centimetres."""
        return (self._random.uniform(low, high, count) * 100).astype(np.int32)

    def _walk(self, who: Who, metres: FloatArray) -> None:
        """Go roughly ahead; who would leave its area that way goes back instead, and who cannot stays."""
        left = np.arange(len(who))
        for attempt in range(TRIES + BACK_TRIES):
            back = 180.0 if attempt >= TRIES else 0.0
            mine = who[left]
            course = self._heading[mine] + back + self._random.uniform(-TURN_DEG, TURN_DEG, len(mine))
            lat, lon = moved(self._lat[mine], self._lon[mine], course, metres[left])
            inside = self._world.areas.owners(lat / DEGREE, lon / DEGREE) == self._home[mine]
            self._lat[mine[inside]], self._lon[mine[inside]] = lat[inside], lon[inside]
            left = left[~inside]
            if not len(left):
                return

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
    """Uniform in latitude and longitude over the home's circle."""
    reach = np.array(world.circles_deg)[home]
    lat0 = np.array([place.lat for place in world.places])[home]
    lon0 = np.array([place.lon for place in world.places])[home]
    half = np.degrees(np.arcsin(np.sin(np.radians(reach)) / np.cos(np.radians(lat0))))
    lat, lon = np.empty(len(home), np.int32), np.empty(len(home), np.int32)
    left = np.arange(len(home))
    while len(left):
        up, across = random.uniform(-1, 1, (2, len(left)))
        lat[left] = np.rint((lat0[left] + up * reach[left]) * DEGREE)
        lon[left] = np.rint((lon0[left] + across * half[left]) * DEGREE)
        left = left[world.areas.owners(lat[left] / DEGREE, lon[left] / DEGREE) != home[left]]
    return lat, lon
