"""Plays a generated workload in the simulator: the glue between two packages that do not know each other.

Each run is judged by the oracle: in the quiet tail, when everybody stands still and nothing is under way, a strategy
must deliver exactly what the oracle names, and at no time an event twice to one client.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from geomq.broker.operations.trace_files import TraceFiles
from geomq.errors import ConfigError, UsageError
from geomq.geo import Circle, Location
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed, RoutingEvent
from geomq.routing.core.model import ClientId
from geomq.routing.core.topology import Federation
from geomq.routing.federation.outline import outline_of
from geomq.routing.strategies.groups.broadcast_groups import BroadcastGroups, GroupOptions
from geomq.routing.strategies.mesh.mesh import Mesh, MeshOptions
from geomq.routing.strategies.registry import STRATEGIES, strategy_class
from geomq.sim.checkers import NoDuplicates, SameAsOracle
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

    @property
    def tail_ms(self) -> int:
        """When the quiet tail begins."""
        return self.seconds * 1000 + SETTLE_MS

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
    """Everybody stands still and publishes once more, one after the other; the payloads tell the events apart."""
    clients = workload.clients
    for number in range(len(clients)):
        topic = workload.topic_names[int(clients.topics[number, 0])]
        place = Location(clients.lat_e7[number] / DEGREE, clients.lon_e7[number] / DEGREE)
        payload = f"{number} of the quiet tail".encode()
        event = ClientPublished(ClientId(f"c{number}"), topic, Circle(place, radius_m), payload=payload)
        yield Step(start_ms + number * TAIL_GAP_MS, federation.ids[int(clients.home[number])], event)


def options_of(strategy: str, scenario: Scenario, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings under which strategies are compared: the published groups, a geographic mesh of one application;
    what is given takes their place."""
    chosen, world = strategy_class(strategy), scenario.world()
    settings: dict[str, Any] = {}
    if issubclass(chosen, BroadcastGroups) and issubclass(chosen.Options, GroupOptions):
        weights = {place.name: float(place.population) for place in world.places}
        settings = {"formation": "fixed", "join_ms": GROUP_MS, "lcm": weights}
    elif issubclass(chosen, Mesh) and issubclass(chosen.Options, MeshOptions):
        topics = {f"topic-{number}": "hiking" for number in range(scenario.topics)}
        settings = {"links": geographic_links(scenario.federation()), "groups": topics}
    return settings | dict(given or {})


def simulate_one(
    scenario: Scenario, strategy: str, options: Mapping[str, Any] | None = None, trace: Path | None = None
) -> dict[str, Any]:
    """Run one strategy, with its trace to this directory if given; the result, with the verdict, is plain data."""
    statistics, trace_hash = Statistics(tail_from_ms=scenario.tail_ms), TraceHash()
    against_oracle, no_duplicates = SameAsOracle(from_ms=scenario.tail_ms), NoDuplicates()
    observers: list[Observer] = [statistics, trace_hash, against_oracle, no_duplicates]
    if trace is None:
        simulation = _play(scenario, strategy, options, observers)
    else:
        files = TraceFiles(trace, "simulated", outline=outline_of(scenario.federation(), strategy))
        simulation = _play(scenario, strategy, options, [*observers, Trace(files.take)])
        files.flush()
    against_oracle.finish(simulation)
    verdict = {
        "expected": against_oracle.expected,
        "missed": against_oracle.missed,
        "unexpected": against_oracle.unexpected,
        "doubled": no_duplicates.doubled,
        "first": next(iter((*against_oracle.violations, *no_duplicates.violations)), None),
    }
    return statistics.summary() | {
        "options": dict(options or {}),
        "verdict": verdict,
        "trace_hash": trace_hash.hexdigest(),
    }


def is_wrong(verdict: Mapping[str, Any]) -> bool:
    """Whether a strategy delivered something else than the oracle says."""
    return bool(verdict["missed"] or verdict["unexpected"] or verdict["doubled"])


def explain(
    scenario: Scenario,
    strategy: str,
    options: Mapping[str, Any] | None = None,
    *,
    write: Callable[[str], object],
    steps_max: int,
) -> None:
    """Write the first steps of a run as a transcript."""
    transcript = Transcript(write, steps_max=steps_max)
    _play(scenario, strategy, options, [transcript], enough=lambda: transcript.finished)


def _play(
    scenario: Scenario,
    strategy: str,
    options: Mapping[str, Any] | None,
    observers: list[Observer],
    *,
    enough: Callable[[], bool] = lambda: False,
) -> Simulation:
    """Play the scenario and its quiet tail, or as much of it as is enough."""
    federation, workload = scenario.federation(), scenario.workload()
    simulation = Simulation(
        federation,
        strategy,
        options=options_of(strategy, scenario, options),
        order="published",
        seed=scenario.seed,
    )
    simulation.connect_all()
    simulation.advance(None)
    simulation.observers += observers
    end_ms = scenario.tail_ms + len(workload.clients) * TAIL_GAP_MS + SETTLE_MS
    tail = quiet_tail(workload, federation, start_ms=scenario.tail_ms, radius_m=556_000.0)
    for script, until_ms in ((steps_of(workload, federation), scenario.tail_ms), (tail, end_ms)):
        simulation.run(takewhile(lambda _: not enough(), script), until_ms=until_ms)
    return simulation
