"""What brokers still keep is seen, and nothing else."""

import asyncio

from tests.sim.virtual.stage import Town

from geomq.sim.virtual.census import disagreement, leftovers, twins
from geomq.sim.virtual.records import Wish


def count(town: Town) -> list[str]:
    assert town.machine.broker is not None
    return [str(violation) for violation in leftovers("b0", town.machine.broker, retained=0)]


def test_a_session_is_left_over_until_it_is_ended() -> None:
    town = Town()
    device = town.device("d")

    async def story() -> list[list[str]]:
        device.subscribe(Wish("t", 1))
        device.come()
        await asyncio.sleep(1.0)
        counts = [count(town)]
        device.vanish()
        await asyncio.sleep(1.0)
        counts.append(count(town))
        device.publish("t", 1)
        device.end_session()
        await asyncio.sleep(3.0)
        return [*counts, count(town)]

    connected, away, ended = town.play(story)
    assert [line.split(": ")[1] for line in connected] == [
        "b0 keeps 1 sessions",
        "b0 keeps 1 connections",
        "b0 keeps 1 clients in its routing",
    ]
    assert [line.split(": ")[1] for line in away] == ["b0 keeps 1 sessions", "b0 keeps 1 clients in its routing"]
    assert ended == []


def test_messages_nobody_waits_for_are_left_over_but_for_those_retained() -> None:
    town = Town()
    device = town.device("d", expiry_s=0)

    async def story() -> list[str]:
        device.come()
        await asyncio.sleep(1.0)
        device.publish("t", 1, retain=True)
        await asyncio.sleep(1.0)
        device.vanish()
        await asyncio.sleep(1.0)
        return count(town)

    assert town.play(story) == ["left over: b0 keeps 1 messages on disk, 0 of them retained"]


def test_a_client_with_a_session_at_two_brokers_is_a_twin() -> None:
    town = Town()
    device = town.device("d")

    async def story() -> list[list[str]]:
        device.come()
        await asyncio.sleep(1.0)
        broker = town.machine.broker
        return [[str(violation) for violation in twins(brokers)] for brokers in ([broker, None], [broker, broker])]

    assert town.play(story) == [[], ["twin: d has a session at b0, b0"]]


def test_brokers_of_one_edition_agree() -> None:
    town = Town()

    async def story() -> list[str]:
        return [str(violation) for violation in disagreement([town.machine.broker, None])]

    assert town.play(story) == []
