"""256 brokers in one simulation, the same code as live: every strategy delivers what the oracle says."""

import random
from functools import cache
from typing import Any

import pytest

from geomq.geo import Circle, Fence, Location, NearestAreas
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed, RoutingEvent
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim.checkers import NoDuplicates, SameAsOracle
from geomq.sim.engine import Simulation
from geomq.sim.overlay import geographic_links
from geomq.sim.script import Step

BROKERS, CLIENTS, EVENTS = 256, 48, 60
SETTLED_MS, END_MS = 12_000, 24_000


@cache
def federation() -> Federation:
    """Brokers all over the earth, as densely in the north as in the south."""
    dice = random.Random(256)
    places = [Location(dice.uniform(-60, 70), dice.uniform(-180, 180)) for _ in range(BROKERS)]
    brokers = [BrokerSite(BrokerId(f"b{number:03}"), place) for number, place in enumerate(places)]
    return Federation(brokers, NearestAreas(places))


def options(strategy: str) -> dict[str, Any]:
    if strategy == "mesh":
        return {"links": geographic_links(federation()), "announce_ms": 2_000}
    return {"formation": "fixed", "join_ms": 20} if strategy == "broadcast_groups" else {}


class Script:
    """Clients near some brokers, with fences that span a few of them, and events in a quiet federation."""

    def __init__(self) -> None:
        self.dice = random.Random(7)
        self.homes = {ClientId(f"c{number}"): self.dice.choice(federation().ids) for number in range(CLIENTS)}

    def fence(self, client: ClientId) -> Fence | None:
        radius_m = self.dice.choice([None, 500_000.0, 2_000_000.0])
        return None if radius_m is None else Circle(federation().location(self.homes[client]), radius_m)

    def step(self, t_ms: int, event: RoutingEvent) -> Step:
        return Step(t_ms, self.homes[event.client], event)  # type: ignore[attr-defined]

    def settling(self) -> list[Step]:
        places = [ClientMoved(client, federation().location(home)) for client, home in self.homes.items()]
        filters = [
            ClientSubscribed(client, topic_filter, self.fence(client))
            for client in self.homes
            for topic_filter in self.dice.sample(["a/x", "a/+", "b", "+/x"], 2)
        ]
        return [self.step(0, event) for event in places] + [self.step(10, event) for event in filters]

    def events(self) -> list[Step]:
        clients = list(self.homes)
        return [
            self.step(
                SETTLED_MS + 50 * number,
                ClientPublished(
                    client := self.dice.choice(clients),
                    self.dice.choice(["a/x", "a/y", "b", "c/x"]),
                    self.fence(client),
                    payload=str(number).encode(),
                    qos=1,
                ),
            )
            for number in range(EVENTS)
        ]


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "single"])
def test_256_brokers_deliver_what_the_oracle_says(strategy: str) -> None:
    checkers = [NoDuplicates(), SameAsOracle(from_ms=SETTLED_MS)]
    script = Script()
    simulation = Simulation(federation(), strategy, options=options(strategy), observers=checkers)
    assert len(federation().ids) == BROKERS
    simulation.run(script.settling(), until_ms=SETTLED_MS)
    simulation.run(script.events(), until_ms=END_MS)
    for checker in checkers:
        checker.finish(simulation)
        assert checker.violations == []
