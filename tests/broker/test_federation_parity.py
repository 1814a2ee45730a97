"""The published correctness run, live: 3 brokers, 200 clients each, and every strategy delivers the same sets.

Real brokers and real MQTT clients on loopback, the simulator on the same script, and the oracle: all three agree. Every
client publishes three times; GEOMQ_TEST_BURST=5 makes it the fifteen of the original.
"""

import asyncio
import os
from collections import Counter
from functools import cache
from itertools import groupby
from typing import Any

import msgspec
import pytest
from tests.broker.federated import until
from tests.broker.real_clients import RealClient, close_all, join

from geomq.broker.config.settings import Config
from geomq.broker.local_federation import LocalFederation, Site, local_configs
from geomq.broker.server import Broker
from geomq.geo import Circle, Location, PolygonAreas, degrees_to_m, fence_text, location_text
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.routing.strategies.registry import STRATEGIES
from geomq.routing.trace.records import TraceRecord
from geomq.sim.engine import Observer, Simulation
from geomq.sim.oracle import Oracle
from geomq.sim.script import Step
from geomq.workload.generation.scenarios import ScenarioSpec, scenario_world
from geomq.workload.model import Kind, generate
from geomq.workload.traffic.script import actions_of

pytestmark = pytest.mark.anyio

BURSTS = 3
BURST = int(os.environ.get("GEOMQ_TEST_BURST", "1"))
CLIENTS = 600
OPTIONS: dict[str, dict[str, Any]] = {
    "mesh": {"announce_ms": 200},
    "broadcast_groups": {"formation": "fixed", "groups": {"Columbus": [], "Frankfurt": ["Paris"]}},
}
MESH_S = 2.0
Received = dict[str, Counter[bytes]]


@cache
def script() -> list[Step]:
    """Everybody says where it is and subscribes, then everybody publishes; payloads are unique."""
    world = scenario_world()
    steps, published = [], Counter[str]()
    for action in actions_of(generate(world, ScenarioSpec("validation", CLIENTS, 150), 1)):
        client, home = ClientId(f"c{action.client}"), BrokerId(world.places[action.home].name)
        assert action.topic in (None, "data")
        if action.kind is Kind.LOCATION:
            event: Any = ClientMoved(client, action.location)
        elif action.kind is Kind.SUBSCRIPTION:
            event = ClientSubscribed(client, "data", action.fence)
        else:
            published[client] += 1
            if (published[client] - 1) % 5 >= BURST:
                continue
            payload = f"{client}-{published[client]}".encode().ljust(action.payload_bytes, b".")
            event = ClientPublished(client, "data", action.fence, payload=payload, qos=1)
        steps.append(Step(action.t_ms, home, event))
    return steps


@cache
def expected() -> Received:
    """What the oracle says."""
    oracle = Oracle()
    found: Received = {f"c{number}": Counter() for number in range(CLIENTS)}
    for step in script():
        receivers = oracle.observe(step.event)
        if isinstance(step.event, ClientPublished):
            for receiver in receivers or ():
                found[receiver][step.event.payload] += 1
    return found


@cache
def receivers() -> Counter[bytes]:
    """How many get each event."""
    return sum(expected().values(), Counter[bytes]())


def sites(strategy: str) -> list[tuple[Site, Circle]]:
    """The brokers with their areas."""
    world = scenario_world()
    named = [Site(place.name, Location(place.lat, place.lon)) for place in world.places]
    areas = [Circle(site.location, degrees_to_m(r)) for site, r in zip(named, world.circles_deg, strict=True)]
    if strategy == "single":
        return [(named[0], areas[0])]
    return list(zip(named, areas, strict=True))


class Arrivals(Observer):
    def __init__(self) -> None:
        self.got: Received = {f"c{number}": Counter() for number in range(CLIENTS)}

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        self.got[client][event.payload] += 1


def simulated(strategy: str) -> Received:
    """The same script in virtual time."""
    members = sites(strategy)
    alone = strategy == "single"
    places = [BrokerSite(BrokerId(site.name), site.location) for site, _ in members]
    federation = Federation.alone(places[0].id) if alone else Federation(places, PolygonAreas([a for _, a in members]))
    arrivals = Arrivals()
    simulation = Simulation(federation, strategy, options=OPTIONS.get(strategy), observers=[arrivals])
    simulation.connect_all()
    simulation.advance(10_000)
    steps = (Step(s.t_ms + 10_000, places[0].id if alone else s.home, s.event) for s in script())
    simulation.run(steps, until_ms=200_000)
    return arrivals.got


def configs(strategy: str) -> dict[str, Config]:
    """Configs for loopback, with the areas of the experiment."""
    members = sites(strategy)
    areas = {site.name: fence_text(area) for site, area in members}
    made = local_configs([site for site, _ in members], strategy, OPTIONS.get(strategy))
    if strategy == "single":
        return made
    return {
        name: config
        if name not in areas
        else msgspec.structs.replace(
            config,
            federation=msgspec.structs.replace(config.federation, area=areas[name]),
            peers=tuple(msgspec.structs.replace(peer, area=areas[peer.name]) for peer in config.peers),
        )
        for name, config in made.items()
    }


class Quiet:
    """Tells when brokers have stopped telling each other about clients."""

    def __init__(self, brokers: dict[str, Broker]) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        for broker in brokers.values():
            broker.core.trace(self._heard, steps=["received"])

    def _heard(self, record: TraceRecord) -> None:
        if record.kind in ("subscription", "location"):
            self._heard_s = self._loop.time()

    def since(self, seconds: float) -> bool:
        return self._loop.time() - self._heard_s > seconds


async def live(strategy: str) -> Received:
    """The same script with real brokers and clients: phase by phase, each as fast as it goes."""
    async with LocalFederation(configs(strategy)) as running:
        await until(lambda: running.linked, seconds=30)
        quiet = Quiet(running.brokers)
        first = next(iter(running.brokers.values()))
        clients: dict[str, RealClient] = {}
        due = 0
        try:
            for kind, steps in groupby(script(), key=lambda step: type(step.event)):
                for step in steps:
                    event: Any = step.event
                    if kind is ClientMoved and event.client not in clients:
                        port = running.brokers.get(step.home, first).port
                        clients[event.client] = await join(port, event.client, event.location)
                    elif kind is ClientMoved:
                        clients[event.client].publish("$geo/location", location_text(event.location).encode())
                    elif kind is ClientSubscribed:
                        await clients[event.client].subscribe("data", within=event.fence)
                    else:
                        clients[event.client].publish("data", event.payload, to=event.fence)
                        due += receivers()[event.payload]
                        await asyncio.sleep(0)
                await settled(strategy, kind, quiet, clients, due)
            return {name: client.got for name, client in clients.items()}
        finally:
            close_all(clients.values())


async def settled(strategy: str, kind: type, quiet: Quiet, clients: dict[str, RealClient], due: int) -> None:
    """Until a phase has had its effect everywhere."""
    if strategy == "mesh" and kind is ClientSubscribed:
        await asyncio.sleep(MESH_S)
    await until(lambda: all(c.idle for c in clients.values()) and total(clients) >= due, seconds=60)
    await asyncio.sleep(0.2)
    await until(lambda: quiet.since(0.5), seconds=30)


def total(clients: dict[str, RealClient]) -> int:
    return sum(client.got.total() for client in clients.values())


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_live_and_simulated_deliveries_are_those_of_the_oracle(strategy: str) -> None:
    due = expected()
    assert len(due) == CLIENTS
    assert sum(counts.total() for counts in due.values()) > CLIENTS * BURSTS * BURST
    assert simulated(strategy) == due
    assert await live(strategy) == due
