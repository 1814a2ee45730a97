"""Plays a generated workload in the simulator: the glue between two packages that do not know each other."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from geomq.broker.trace_files import TraceFiles
from geomq.errors import ConfigError, UsageError
from geomq.geo import Circle, Location
from geomq.routing.events import ClientMoved, ClientPublished, ClientSubscribed, RoutingEvent
from geomq.routing.federation import Federation
from geomq.routing.model import ClientId
from geomq.routing.outline import outline_of
from geomq.routing.registry import STRATEGIES, strategy_class
from geomq.sim.engine import Observer, Simulation
from geomq.sim.overlay import geographic_links
from geomq.sim.script import Step
from geomq.sim.statistics import Statistics
from geomq.sim.tracing import Trace, TraceHash, Transcript
from geomq.workload.generation.disgb import preset as workload_preset
from geomq.workload.model import DEGREE, Kind, Workload, generate
from geomq.workload.traffic.script import Action, actions_of
from geomq.workload.world import GROUP_MS, World

SETTLE_MS = 30_000
TAIL_GAP_MS = 7
CLIENTS_MAX = 200_000
SEEDS = 2**63


@dataclass(frozen=True)
class Scenario:
    """The numbers of a simulated world and what happens in it."""

    brokers: int
    clients: int
    seconds: int
    topics: int
    preset: str
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= 1000:
            raise UsageError(f"brokers must be between 1 and 1000, not {self.brokers}")
        if not 1 <= self.clients <= CLIENTS_MAX:
            raise UsageError(
                f"clients must be between 1 and {CLIENTS_MAX:,}, not {self.clients:,}; geomq evaluate has no such limit"
            )
        if not 0 <= self.seed < SEEDS:
            raise UsageError(f"seed must be between 0 and {SEEDS - 1}, not {self.seed}")

    def describe(self) -> dict[str, Any]:
        return asdict(self)

    def title(self) -> str:
        acting = int(self.world().clients_per_broker(self.clients).sum())
        rounded = "" if acting == self.clients else f" ({self.clients} by population, rounded down)"
        return f"{self.brokers} brokers, {acting} clients{rounded}, {self.seconds} s, seed {self.seed}"

    def world(self) -> World:
        return _world(self.brokers, self.seed)

    def federation(self) -> Federation:
        return self.world().federation

    def workload(self) -> Workload:
        spec = workload_preset(self.preset, clients=self.clients, seconds=self.seconds, topics=self.topics)
        return generate(self.world(), spec, self.seed)

    def strategies(self) -> list[str]:
        """The names of all strategies that can serve this federation."""
        return [name for name in STRATEGIES if _serves(name, self.federation())]


@lru_cache(maxsize=4)
def _world(brokers: int, seed: int) -> World:
    return World.published() if brokers == 25 else World.of_cities(brokers, seed=seed)


def _serves(name: str, federation: Federation) -> bool:
    try:
        strategy_class(name).check(federation)
    except ConfigError:
        return False
    return True


def steps_of(workload: Workload, federation: Federation, *, start_ms: int = 0) -> Iterator[Step]:
    """A workload's actions as steps of a script."""
    for action in actions_of(workload):
        yield Step(start_ms + action.t_ms, federation.ids[action.home], _event_of(action))


def _event_of(action: Action) -> RoutingEvent:
    client = ClientId(f"c{action.client}")
    if action.kind is Kind.LOCATION:
        return ClientMoved(client, action.location)
    assert action.topic is not None
    if action.kind is Kind.SUBSCRIPTION:
        return ClientSubscribed(client, action.topic, action.fence)
    return ClientPublished(client, action.topic, action.fence, payload=bytes(action.payload_bytes))


def quiet_tail(workload: Workload, federation: Federation, *, start_ms: int, radius_m: float) -> Iterator[Step]:
    """Everybody stands still and publishes once more, one after the other."""
    clients = workload.clients
    for number in range(len(clients)):
        topic = workload.topic_names[int(clients.topics[number, 0])]
        place = Location(clients.lat_e7[number] / DEGREE, clients.lon_e7[number] / DEGREE)
        event = ClientPublished(ClientId(f"c{number}"), topic, Circle(place, radius_m))
        yield Step(start_ms + number * TAIL_GAP_MS, federation.ids[int(clients.home[number])], event)


def options_of(strategy: str, scenario: Scenario) -> dict[str, Any]:
    """The settings under which strategies are compared: the published groups, a geographic mesh of one application."""
    world = scenario.world()
    if strategy == "broadcast_groups":
        weights = {place.name: float(place.population) for place in world.places}
        return {"formation": "fixed", "join_ms": GROUP_MS, "lcm": weights}
    if strategy == "mesh":
        topics = {f"topic-{number}": "hiking" for number in range(scenario.topics)}
        return {"links": geographic_links(scenario.federation()), "groups": topics}
    return {}


def simulate_one(scenario: Scenario, strategy: str, trace: Path | None = None) -> dict[str, Any]:
    """Run one strategy, with its trace to this directory if given; the result is plain data."""
    tail_ms = scenario.seconds * 1000 + SETTLE_MS
    statistics, trace_hash = Statistics(tail_from_ms=tail_ms), TraceHash()
    observers: list[Observer] = [statistics, trace_hash]
    if trace is None:
        _play(scenario, strategy, observers)
    else:
        files = TraceFiles(trace, "simulated", outline=outline_of(scenario.federation(), strategy))
        _play(scenario, strategy, [*observers, Trace(files.take)])
        files.flush()
    return statistics.summary() | {"trace_hash": trace_hash.hexdigest()}


def explain(scenario: Scenario, strategy: str, *, write: Callable[[str], object], steps_max: int) -> None:
    """Write the first steps of a run as a transcript."""
    transcript = Transcript(write, steps_max=steps_max)
    _play(scenario, strategy, [transcript], enough=lambda: transcript.finished)


def _play(
    scenario: Scenario, strategy: str, observers: list[Observer], *, enough: Callable[[], bool] = lambda: False
) -> None:
    """Play the scenario and its quiet tail, or as much of it as is enough."""
    federation, workload = scenario.federation(), scenario.workload()
    tail_ms = scenario.seconds * 1000 + SETTLE_MS
    simulation = Simulation(
        federation,
        strategy,
        options=options_of(strategy, scenario),
        order="published",
        seed=scenario.seed,
    )
    simulation.connect_all()
    simulation.advance(None)
    simulation.observers += observers
    tail = quiet_tail(workload, federation, start_ms=tail_ms, radius_m=556_000.0)
    for script in (steps_of(workload, federation), tail):
        simulation.run(takewhile(lambda _: not enough(), script))
    simulation.advance(tail_ms + len(workload.clients) * TAIL_GAP_MS + SETTLE_MS)
