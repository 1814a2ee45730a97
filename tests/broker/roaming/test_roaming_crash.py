"""Brokers are killed while a session moves between them: nothing acknowledged is lost, nothing is doubled."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest
from tests.broker.federated import until
from tests.broker.test_federation_crash import Process, Receiver, processes, publish, until_heard, until_more
from tests.probe import Probe

from geomq.errors import ProtocolError
from geomq.mqtt.codec.packets import Connect, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5

pytestmark = pytest.mark.anyio


def patient(strategy: str, folder: Path) -> dict[str, Process]:
    """Brokers at which a client waits for its session until the broker that has it is back."""
    found = processes(strategy, folder)
    for path in folder.glob("*.toml"):
        path.write_text(path.read_text().replace("session_wait_s = 3.0", "session_wait_s = 60.0"))
    return found


class Traveller(Receiver):
    """A receiver that goes to and fro between brokers, with or without a word."""

    def __init__(self, ports: list[int], qos: int, dice: random.Random) -> None:
        super().__init__(ports[0], qos)
        self.moves = 0
        self.strangers = 0
        self._ports, self._dice = ports, dice

    async def run(self) -> None:
        while True:
            self._port = self._ports[self.moves % len(self._ports)]
            with suppress(OSError, ProtocolError, TimeoutError):
                await self._visit()
            await asyncio.sleep(0.02)

    async def _visit(self) -> None:
        connect = Connect("r", V5, clean_start=False, properties=Properties(session_expiry_interval=3600))
        probe, connack = await Probe.connect(self._port, connect)
        async with probe:
            if not self.ready.is_set():
                await probe.subscribe(SubscribeRequest("load/#", self._qos))
                self.ready.set()
            elif not connack.session_present:
                self.strangers += 1
            stay_s = self._dice.uniform(0.05, 0.4)
            with suppress(TimeoutError):
                async with asyncio.timeout(stay_s):
                    while True:
                        self._take(probe, await probe.receive(60.0))
            self.moves += 1


@pytest.mark.parametrize(("strategy", "qos"), [("flood_events", 2)])
async def test_kills_during_moves_lose_nothing_acknowledged_and_double_nothing(
    strategy: str, qos: int, tmp_path: Path
) -> None:
    dice = random.Random(5)
    brokers = patient(strategy, tmp_path)
    acknowledged: set[bytes] = set()
    tasks: list[asyncio.Task[None]] = []
    try:
        for broker in brokers.values():
            await broker.start()
        traveller = Traveller([brokers["frankfurt"].port, brokers["paris"].port], qos, dice)
        tasks.append(asyncio.create_task(traveller.run()))
        await asyncio.wait_for(traveller.ready.wait(), 30)
        await until_heard(brokers["columbus"].port, traveller)
        tasks.append(asyncio.create_task(publish(brokers["columbus"].port, qos, acknowledged)))
        await until(lambda: traveller.moves > 4, seconds=60)
        for name in ("frankfurt", "paris", dice.choice(["frankfurt", "paris"])):
            await asyncio.sleep(dice.uniform(0.2, 0.8))
            before = traveller.moves
            brokers[name].stop()
            await asyncio.sleep(0.2)
            await brokers[name].start()
            await until(lambda: traveller.moves > before + 1, seconds=60)  # noqa: B023
        await until_more(acknowledged, events=50)
        tasks.pop().cancel()
        await until(lambda: acknowledged <= set(traveller.got), seconds=60)
        await asyncio.sleep(0.5)
        assert traveller.strangers == 0, "the session was always found"
        if qos == 2:
            assert max(traveller.got.values()) == 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for broker in brokers.values():
            broker.stop()
