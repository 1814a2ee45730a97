"""The timeline of a mesh: the routing core run once in virtual time, with first subscribers and no events.

Owns the set-up under which `mesh` is compared (the geographic overlay, all topics one application) and the way from
a simulated run to the arrays that evaluation spreads events by. Events change nothing in a mesh, and of
subscriptions only the first at each broker does, so the run is small whatever the number of clients.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomq.mqtt.codec.topics import first_level
from geomq.routing.core.actions import Action
from geomq.routing.core.events import ClientSubscribed, RoutingEvent
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.core.topology import Federation
from geomq.routing.strategies.mesh.topics import MAP_MAX
from geomq.sim.engine import Observer, Origin, Simulation
from geomq.sim.mesh_watch import mesh_of
from geomq.sim.overlay import geographic_links
from geomq.sim.script import Step
from geomq.workload.evaluation.mesh_floods import MeshTimeline
from geomq.workload.model import Spec, first_subscribers
from geomq.workload.world import World

APPLICATION = "application"
BROKER_SECONDS_MAX = 1_000_000
"""Beyond this the run would take longer than a minute or so."""
Routes = tuple[tuple[int, ...], ...]
"""Where an event goes: from an own client, then from each neighbour."""


def timeline_for(world: World, spec: Spec, seed: int, paper: bool) -> MeshTimeline | None:
    """The timeline of a workload that is evaluated, or None where `mesh` is left out."""
    return None if paper or obstacle(world, spec) else mesh_timeline(world, spec, seed)


def obstacle(world: World, spec: Spec) -> str | None:
    """Why `mesh` cannot be evaluated on a workload, if so."""
    levels, work = len(_levels(spec.topic_names())), len(world) * spec.end_ms // 1000
    if levels > MAP_MAX:
        return f"it maps at most {MAP_MAX:,} first topic levels to one application, not {levels:,}"
    if work > BROKER_SECONDS_MAX:
        return f"its timeline is limited to {BROKER_SECONDS_MAX:,} brokers x seconds, not {work:,}"
    return None


def mesh_options(federation: Federation, topics: Sequence[str]) -> dict[str, Any]:
    """The settings under which `mesh` is compared."""
    return {"links": geographic_links(federation), "groups": dict.fromkeys(_levels(topics), APPLICATION)}


def _levels(topics: Sequence[str]) -> list[str]:
    return sorted({first_level(topic) or "" for topic in topics})


def mesh_timeline(world: World, spec: Spec, seed: int, *, options: Mapping[str, Any] | None = None) -> MeshTimeline:
    """The timeline of a workload."""
    federation, topics = world.federation, spec.topic_names()
    options = mesh_options(federation, topics) if options is None else options
    watch = _Watch(federation, topics[0], spec.end_ms)
    simulation = Simulation(federation, "mesh", options=options, order="published", observers=[watch])
    watch.simulation = simulation
    links = [(a, b) for a in federation.ids for b in mesh_of(simulation, a).neighbours]
    slowest = sorted((simulation.latencies(*link) for link in links), reverse=True)
    longest_ms = sum(slowest[: 2 * (len(world) - 1) : 2])
    simulation.connect_all()
    first = first_subscribers(world, spec, seed)
    script = [
        Step(t_ms, federation.ids[home], ClientSubscribed(ClientId(f"c{client}"), topics[0]))
        for t_ms, client, home in zip(*(column.tolist() for column in first), strict=True)
    ]
    simulation.run(script, until_ms=spec.end_ms + longest_ms + 1_000)
    return watch.timeline(longest_ms)


class _Watch(Observer):
    """Writes down every change of a broker's routes."""

    def __init__(self, federation: Federation, topic: str, end_ms: int) -> None:
        self.simulation: Simulation | None = None
        self._ids = federation.ids
        self._position = federation.position
        self._topic = topic
        self._end_ms = end_ms
        self._control = np.zeros((len(self._ids), len(self._ids)), np.int64)
        self._changes: dict[BrokerId, list[tuple[int, Routes]]] = {broker: [(-1, ())] for broker in self._ids}

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        if t_ms < self._end_ms:
            self._control[self._position[source], self._position[target]] += 1

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        assert self.simulation is not None
        mesh, changes = mesh_of(self.simulation, broker), self._changes[broker]
        routes = tuple(
            tuple(self._position[target] for target in mesh.targets(self._topic, source))
            for source in (None, *mesh.neighbours)
        )
        if routes != changes[-1][1]:
            if changes[-1][0] == t_ms:
                changes.pop()
            changes.append((t_ms, routes))

    def timeline(self, longest_ms: int) -> MeshTimeline:
        assert self.simulation is not None
        count = len(self._ids)
        slot = np.zeros((count, count), np.int64)
        for broker, at in self._position.items():
            for number, neighbour in enumerate(mesh_of(self.simulation, broker).neighbours, start=1):
                slot[at, self._position[neighbour]] = number
        states: dict[Routes, int] = {}
        rows = [
            (at, tick, states.setdefault(routes, len(states)))
            for at, broker in enumerate(self._ids)
            for tick, routes in self._changes[broker]
        ]
        columns = np.array(rows, np.int64).reshape(-1, 3).T.copy()
        start, target = _routes(list(states), int(slot.max(initial=0)) + 1)
        changed, scene = _scenes(columns)
        return MeshTimeline(
            np.searchsorted(columns[0], np.arange(count + 1)),
            columns[1],
            columns[2],
            start,
            target,
            slot,
            changed,
            scene,
            self._control,
            longest_ms,
        )


def _routes(states: list[Routes], slots: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All targets one after the other, and where those of each state and slot begin."""
    sizes = np.zeros((len(states), slots), np.int64)
    for number, routes in enumerate(states):
        sizes[number, : len(routes)] = [len(targets) for targets in routes]
    ends = np.cumsum(sizes.ravel()).reshape(sizes.shape)
    start = np.concatenate((ends[:, :1] - sizes[:, :1], ends), axis=1)
    return start, np.array([target for routes in states for targets in routes for target in targets], np.int64)


def _scenes(columns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When anything changes, and the number of what holds before, between and after."""
    broker, tick, state = columns
    order = np.argsort(tick, kind="stable")
    now: dict[int, int] = {}
    numbers: dict[tuple[tuple[int, int], ...], int] = {}
    changed, scene = [], [0]
    numbers[()] = 0
    for at in np.unique(tick).tolist():
        rows = order[np.searchsorted(tick[order], at) : np.searchsorted(tick[order], at, side="right")]
        now |= {int(broker[row]): int(state[row]) for row in rows}
        changed.append(at)
        scene.append(numbers.setdefault(tuple(sorted(now.items())), len(numbers)))
    return np.array(changed, np.int64), np.array(scene, np.int64)
