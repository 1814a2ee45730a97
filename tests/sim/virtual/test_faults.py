"""Trouble of every kind strikes, and is over when it is healed."""

import asyncio

import pytest
from tests.sim.virtual.stage import Town, until

from geomq.sim.virtual.faults import Faults
from geomq.sim.virtual.network import FAIR
from geomq.sim.virtual.scenario import TROUBLES

STRIKES = {
    "kill": "is dead",
    "power": "loses power",
    "cut": "no bytes of",
    "reset": "connections break",
    "pause": "goes on",
    "clock": "is wrong by",
    "full disk": "has room again",
    "broken disk": "is broken",
    "mid-write": "b0 starts",
}


@pytest.mark.parametrize("kind", TROUBLES)
def test_trouble_strikes_again_and_again_until_it_is_healed(kind: str) -> None:
    town = Town()
    device = town.device("d")
    faults = Faults(town.loop, [town.machine], ["d"], 1, town.notes.append)

    async def story() -> None:
        keeper = town.loop.create_task(faults.keep_running())
        device.come()
        faults.begin(frozenset({kind}))
        for _ in range(60):
            await asyncio.sleep(0.5)
            device.publish("t", 1)
        assert sum(STRIKES.get(kind, "") in note for note in town.notes) > 1
        assert kind != "frames" or town.loop.network.path("b0", "d").weather != FAIR
        faults.heal()
        await asyncio.sleep(1.0)  # a broker whose disk broke before that still has to end
        await until(lambda: town.machine.linked)
        town.notes.clear()
        await asyncio.sleep(20.0)
        keeper.cancel()

    town.play(story)
    assert not any(word in note for note in town.notes for word in STRIKES.values())
    assert (town.machine.disk.full, town.machine.disk.broken, town.loop.network.down) == (False, False, set())
    assert town.loop.network.path("b0", "d").weather == FAIR
