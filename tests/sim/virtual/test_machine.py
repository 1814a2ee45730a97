"""A broker lives on its machine: it starts, dies, stops, and finds what its disk kept."""

import asyncio

import pytest
from tests.sim.virtual.stage import Town, until

from geomq.sim.virtual.machine import UNIX_S
from geomq.sim.virtual.records import Wish


def test_a_killed_broker_is_down_until_it_is_started_again() -> None:
    town = Town()
    machine = town.machine

    async def story() -> list[bool]:
        up = [machine.up]
        machine.kill()
        await asyncio.sleep(5.0)
        up.append(machine.up)
        machine.start()
        await until(lambda: machine.linked)
        return [*up, machine.up]

    assert town.play(story) == [True, False, True]
    assert machine.starts == 2
    assert town.notes == ["b0 starts", "b0 is dead", "b0 starts"]


def test_a_broker_that_stopped_does_nothing_until_it_goes_on() -> None:
    town = Town()
    device = town.device("d")

    async def story() -> list[bool]:
        town.machine.stop()
        device.come()
        await asyncio.sleep(3.0)
        there = [device.link is not None]
        town.machine.go_on()
        await asyncio.sleep(3.0)
        return [*there, device.link is not None]

    assert town.play(story) == [False, True]


@pytest.mark.parametrize("seed", range(5))
def test_what_was_acknowledged_survives_the_loss_of_power(seed: int) -> None:
    town = Town(seed)
    writer, reader = town.device("w"), town.device("r")

    async def story() -> None:
        reader.subscribe(Wish("t", 1))
        for each in (writer, reader):
            each.come()
        await asyncio.sleep(1.0)
        reader.vanish()
        writer.publish("t", 1)
        await until(lambda: town.ledger.events["w:1"].acknowledged_s is not None)
        town.machine.kill(power=True)
        town.machine.start()
        reader.come()
        await until(lambda: bool(town.got("r")))

    town.play(story)
    assert "b0 loses power" in town.notes


def test_a_planned_death_strikes_where_it_was_planned() -> None:
    town = Town()
    device = town.device("d")

    async def story() -> None:
        device.come()
        await until(lambda: device.link is not None)
        town.machine.plan_death("disk", 1, power=False)
        await asyncio.sleep(1.0)
        assert town.machine.up
        device.subscribe(Wish("t", 1))
        await asyncio.sleep(1.0)

    town.play(story)
    assert not town.machine.up


def test_a_clock_may_be_wrong() -> None:
    town = Town()
    right = town.machine.wall_s()
    town.machine.wall_offset_s = -2.5
    assert town.machine.wall_s() == right - 2.5
    assert right == UNIX_S + town.loop.now
