"""A run's world notes what happens with the time, and knows its clients."""

import asyncio
import random

from geomq.sim.virtual.loop import make_loop
from geomq.sim.virtual.network import Network
from geomq.sim.virtual.profile import Profile
from geomq.sim.virtual.scenario import PEER_PORT, Options, Scenario
from geomq.sim.virtual.world import World


def world(seed: int = 1, strategy: str = "single") -> World:
    scenario = Scenario(seed, Options(strategy=strategy, mode="calm"))
    names = {host: name for name, host in scenario.hosts.items()}
    return World(scenario, make_loop(Network(seed, names, frozenset({PEER_PORT}))))


def test_what_is_noted_has_its_time_and_is_part_of_the_digest() -> None:
    here, there = world(), world()

    async def story() -> None:
        await here.until(2.5)
        here.note("something")

    here.loop.run_until_complete(story())
    there.note("something")
    assert here.transcript == ["    2.5000 something"]
    assert here.digest.hexdigest() != there.digest.hexdigest()


def test_a_new_client_is_known_to_the_ledger() -> None:
    here = world()
    device = here.device(Profile("c", expiry_s=9), "b0", None)
    assert here.devices == {"c": device}
    assert (here.ledger.clients["c"].kept, here.ledger.clients["c"].expiry_s) == (True, 9)


def test_a_broker_that_is_linked_is_asked_for_a_change() -> None:
    here = world(strategy="flood_events")

    async def story() -> None:
        here.change_federation(random.Random(1))
        assert here.transcript == []
        for machine in here.machines:
            machine.start()
        while not all(machine.linked for machine in here.machines):
            await asyncio.sleep(0.1)
        here.change_federation(random.Random(1))

    here.loop.run_until_complete(story())
    assert sum("changes to" in line for line in here.transcript) == 1
