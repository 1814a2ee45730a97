"""A client keeps its session as the standard asks, whatever becomes of its connections and its broker."""

import asyncio

from tests.sim.virtual.stage import Town, until

from geomq.sim.virtual.device import ANSWER_S_MAX
from geomq.sim.virtual.records import Circle, Place, Wish

HERE, FAR = Place(50.0, 4.0), Place(-30.0, 100.0)


def test_what_is_published_comes_to_who_wants_it_and_is_answered() -> None:
    town = Town()
    writer, reader = town.device("w"), town.device("r")

    async def story() -> None:
        reader.subscribe(Wish("t/#", 2))
        for each in (writer, reader):
            each.come()
        await asyncio.sleep(1.0)
        for qos in (0, 1, 2):
            writer.publish(f"t/{qos}", qos)
        await asyncio.sleep(1.0)

    town.play(story)
    assert town.got("r") == [("w:1", 0, False), ("w:2", 1, False), ("w:3", 2, False)]
    assert writer.unanswered == 0
    assert [town.ledger.events[name].acknowledged_s is not None for name in ("w:2", "w:3")] == [True, True]


def test_a_client_that_lost_its_broker_connects_again_and_finds_its_session() -> None:
    town = Town()
    writer, reader = town.device("w"), town.device("r")

    async def story() -> None:
        reader.subscribe(Wish("t", 2))
        for each in (writer, reader):
            each.come()
        await asyncio.sleep(1.0)
        reader.vanish()
        writer.publish("t", 2)
        await asyncio.sleep(1.0)
        town.machine.kill()
        await asyncio.sleep(0.5)
        town.machine.start()
        reader.come()
        await asyncio.sleep(3.0)

    town.play(story)
    assert [event for event, _, _ in town.got("r")] == ["w:1"]
    assert town.ledger.violations == []
    assert "r is let in by b0, session present" in town.notes


def test_a_client_ends_a_connection_on_which_its_broker_has_fallen_silent() -> None:
    town = Town()
    device = town.device("d")

    async def story() -> float:
        device.come()
        await until(lambda: device.link is not None)
        town.machine.stop()
        device.publish("t", 1)
        since_s = town.loop.now
        await until(lambda: device.link is None)
        return town.loop.now - since_s

    assert ANSWER_S_MAX < town.play(story) < ANSWER_S_MAX + 1.0


def test_a_client_that_ends_its_session_leaves_nothing_and_stays_away() -> None:
    town = Town()
    device = town.device("d")

    async def story() -> None:
        device.subscribe(Wish("t", 1))
        device.come()
        await asyncio.sleep(1.0)
        device.end_session()
        await asyncio.sleep(3.0)

    town.play(story)
    assert device.link is None
    assert town.ledger.clients["d"].ended_s is not None
    assert town.machine.broker is not None
    assert town.machine.broker.core.clients == {}


def test_a_client_that_moves_gets_what_is_fenced_to_where_it_is() -> None:
    town = Town()
    writer, reader = town.device("w", place=HERE), town.device("r", place=HERE)

    async def story() -> None:
        reader.subscribe(Wish("t", 1))
        for each in (writer, reader):
            each.come()
        await asyncio.sleep(1.0)
        for place in (HERE, FAR):
            reader.move(place)
            await asyncio.sleep(1.0)
            writer.publish("t", 1, fence=Circle(FAR, 100_000))
            await asyncio.sleep(1.0)

    town.play(story)
    assert [event for event, _, _ in town.got("r")] == ["w:2"]
    assert reader.place == FAR


def test_a_broker_whose_client_is_gone_without_a_word_takes_it_in_again() -> None:
    town = Town()
    device = town.device("d")

    async def story() -> None:
        device.come()
        await asyncio.sleep(1.0)
        device.links[-1].fade()
        assert device.link is None
        assert town.machine.broker is not None
        assert len(town.machine.broker.parts.handlers.connections) == 1
        await asyncio.sleep(2.0)
        assert len(town.machine.broker.parts.handlers.connections) == 1

    town.play(story)
    assert device.link is not None
    assert town.ledger.violations == []


def test_a_slow_reader_gets_everything_later() -> None:
    town = Town()
    writer, reader = town.device("w"), town.device("r")

    async def story() -> int:
        reader.subscribe(Wish("t", 1))
        for each in (writer, reader):
            each.come()
        await asyncio.sleep(1.0)
        reader.read_slowly(2.0)
        for _ in range(20):
            writer.publish("t", 1, padding=20_000)
        await asyncio.sleep(1.5)
        early = len(town.got("r"))
        await asyncio.sleep(3.0)
        return early

    assert town.play(story) == 0
    assert [event for event, _, _ in town.got("r")] == [f"w:{number}" for number in range(1, 21)]


def test_a_wish_that_is_taken_back_ends() -> None:
    town = Town()
    writer, reader = town.device("w"), town.device("r")

    async def story() -> None:
        reader.subscribe(Wish("t", 1))
        for each in (writer, reader):
            each.come()
        await asyncio.sleep(1.0)
        reader.unsubscribe("t")
        await asyncio.sleep(1.0)
        writer.publish("t", 1)
        await asyncio.sleep(1.0)

    town.play(story)
    assert town.got("r") == []
    assert town.ledger.clients["r"].wishes[0].gone_s is not None
