"""What happens in one run, all of it from one seed: the federation, its clients and their habits, the kinds of trouble.

Four parts: clients arrive; trouble comes, while they go on; all is healed, and in the end everybody publishes once
more; then all sessions end, so that it shows whether anything stays behind.
"""

import random
from dataclasses import dataclass
from typing import Any, Final, Literal

from geomq.broker.config import settings
from geomq.broker.config.settings import Config, Listener, Metrics
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups
from geomq.routing.strategies.registry import STRATEGIES, strategy_class
from geomq.sim.virtual.records import Circle, Place, Wish

BROKERS: Final = 5
CLOUD: Final = "cloud"
ALONE: Final = "single"
"""The strategy of a broker without a federation."""
CLIENT_PORT, PEER_PORT = 1883, 7883
SECONDS: Final = 60.0

TROUBLE_S, HEALED_S, QUIET_S, CLOSING_S = 6.0, 26.0, 46.0, 52.0
"""When each part begins, counted from when all brokers are linked."""

Mode = Literal["calm", "heals", "never heals"]
Trouble = Literal["kill", "power", "cut", "reset", "frames", "pause", "clock", "full disk", "broken disk", "mid-write"]
Habit = Literal[
    "hop", "take over", "move", "churn", "share", "retain", "will", "expire", "roam", "read slowly", "plain", "change"
]
WORKERS_DIE: Final = "workers die"
"""Beside the others, where there are workers."""
TROUBLES: Final[tuple[Trouble, ...]] = Trouble.__args__  # type: ignore[attr-defined]
HABITS: Final[tuple[Habit, ...]] = Habit.__args__  # type: ignore[attr-defined]
STORM: Final = "storm"
IN_STORMS: Final = ("power", "cut", "reset", "frames", "pause", "clock")
REROUTING: Final = ("broadcast_groups", "georendezvous", "mesh")
"""These look for another way when a broker or a link is gone, instead of waiting for it."""

TOPICS: Final = ("news/a", "news/b", "alarm/a/x", "alarm/b", "load")
FILTERS: Final = ("news/a", "news/+", "alarm/#", "+/b", "load", "alarm/+/x")
SHARED: Final = ("$share/crew/news/#", "$share/watch/alarm/b")
PLAIN: Final = "plain"
"""Topics under this are of QoS 0 without fences, many at a time: those that take the short ways."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run may be told instead of leaving it to the seed."""

    strategy: str | None = None
    strategy_options: tuple[tuple[str, Any], ...] = ()
    mode: Mode | None = None
    troubles: frozenset[str] | None = None
    habits: frozenset[str] | None = None
    workers: int = 1
    """How many carry the clients of each broker; where there are any, they die, too."""
    storm: bool = False
    """Clients that hop all the time between three brokers, of which one is killed every other second."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What one publisher sends: always the same QoS on a topic."""

    publisher: int
    topic: str
    qos: int
    fence: Circle | None
    pause_s: float
    burst: int = 1


class Scenario:
    """Drawn from a seed."""

    def __init__(self, seed: int, options: Options = Options()) -> None:
        self.seed = seed
        rng = self._rng = random.Random(f"scenario {seed}")
        self.strategy = rng.choice(list(STRATEGIES))
        self.refuses = rng.random() < 0.6
        self.mode: Mode = rng.choices(("calm", "heals", "never heals"), (2, 6, 2))[0]
        troubles = frozenset(rng.sample(TROUBLES, rng.randint(1, 4)))
        habits = frozenset(rng.sample(HABITS, rng.randint(3, 6)))
        self.strategy = options.strategy or self.strategy
        self._options = dict(options.strategy_options)
        self.mode = options.mode or self.mode
        self.troubles: frozenset[str] = troubles if options.troubles is None else options.troubles
        self.habits = habits if options.habits is None else options.habits
        self.storm = options.storm
        if self.storm:
            self._blow(rng, options)
        self._workers = options.workers
        if options.workers > 1 and options.troubles is None:
            self.troubles |= {WORKERS_DIE}
        if self.mode == "calm":
            self.troubles = frozenset()
        self.names = [f"b{number}" for number in range(1 if self.strategy == ALONE else 3 if self.storm else BROKERS)]
        self.places = {name: self.place() for name in self.names}
        self.with_cloud = issubclass(strategy_class(self.strategy), BroadcastGroups)
        self.machines = [*([CLOUD] if self.with_cloud else []), *self.names]
        self.hosts = {name: f"127.0.1.{number}" for number, name in enumerate(self.machines, 1)}

    def _blow(self, rng: random.Random, options: Options) -> None:
        """Leave to the seed only what else is wrong."""
        drawn = rng.choice([name for name in STRATEGIES if name != ALONE])
        self.strategy = options.strategy or drawn
        self.mode, self.habits = "heals", frozenset({"hop"})
        self.troubles = frozenset({STORM, *rng.sample(IN_STORMS, rng.randint(0, 2))})

    @property
    def reroutes(self) -> bool:
        return self.strategy in REROUTING or "change" in self.habits

    def describe(self) -> str:
        troubles = ", ".join(sorted(self.troubles)) or "no trouble"
        missing = "refuse" if self.refuses else "start"
        return f"{self.strategy}, {self.mode}, {missing}: {troubles}; clients {', '.join(sorted(self.habits))}"

    # Geography.

    def place(self) -> Place:
        return Place(round(self._rng.uniform(-50, 60), 3), round(self._rng.uniform(-120, 120), 3))

    def near(self, broker: str) -> Place:
        """Somewhere around a broker."""
        centre = self.places[broker]
        return Place(round(centre.lat + self._rng.uniform(-3, 3), 3), round(centre.lon + self._rng.uniform(-3, 3), 3))

    def fence(self) -> Circle | None:
        radius_m = self._rng.choice([None, None, 500_000.0, 3_000_000.0, 9_000_000.0])
        return None if radius_m is None else Circle(self.place(), radius_m)

    def wish(self) -> Wish:
        return Wish(self._rng.choice(FILTERS), self._rng.choice([1, 2, 2]), self.fence())

    def wishes(self, most: int) -> list[Wish]:
        found = {wish.topic_filter: wish for wish in (self.wish() for _ in range(self._rng.randint(1, most)))}
        return list(found.values())

    def streams(self, publishers: int) -> list[Stream]:
        rng, found = self._rng, []
        for number in range(publishers):
            for topic in rng.sample(TOPICS, rng.randint(1, 3)):
                qos = rng.choice([1, 2, 2])
                found.append(Stream(number, topic, qos, self.fence(), rng.uniform(0.4, 1.5), rng.choice([1, 1, 1, 4])))
            if "plain" in self.habits:
                topic = f"{PLAIN}/{rng.choice('xy')}"
                found.append(Stream(number, topic, 0, None, rng.uniform(0.5, 1.6), rng.choice([1, 3, 8])))
                topic = f"{PLAIN}/z"
                found.append(Stream(number, topic, 1, None, rng.uniform(0.5, 1.6), rng.choice([1, 3, 8])))
        return found

    # Configuration.

    def config(self, name: str) -> Config:
        if name == CLOUD:
            return Config(
                broker=settings.BrokerSettings(name=CLOUD),
                listeners=(Listener(host=self.hosts[CLOUD], port=CLIENT_PORT),),
                auth=settings.Auth(anonymous="always"),
                metrics=Metrics(sys_interval_s=0),
            )
        cloud = f"{self.hosts[CLOUD]}:{CLIENT_PORT}" if self.with_cloud else None
        return Config(
            broker=settings.BrokerSettings(name=name, location=self.places[name].text, workers=self._workers),
            listeners=(Listener(host=self.hosts[name], port=CLIENT_PORT),),
            auth=settings.Auth(anonymous="always"),
            metrics=Metrics(sys_interval_s=0),
            routing=settings.Routing(strategy=self.strategy, options=self._options),
            limits=settings.Limits(write_buffer_bytes_max=1_024),
            federation=settings.Federation(
                host=self.hosts[name],
                port=PEER_PORT,
                redirect_after_s=1.0,
                session_missing="refuse" if self.refuses else "start",
            ),
            cloud=settings.Cloud(address=cloud) if cloud else settings.Cloud(),
            peers=tuple(
                settings.Peer(name=other, address=f"{self.hosts[other]}:{PEER_PORT}", location=self.places[other].text)
                for other in self.names
                if other != name
            ),
        )
