"""Real broker processes that are killed while events of QoS 1 and 2 cross their links."""

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from tests.broker.federated import configs, free_ports, until
from tests.probe import Probe

from geomq.broker.config.text import config_text
from geomq.errors import ProtocolError
from geomq.mqtt.codec.packets import Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5

pytestmark = pytest.mark.anyio


class Process:
    """A broker as a process of its own, which can be killed and started again on the same data."""

    def __init__(self, name: str, port: int, config_file: Path) -> None:
        self.name, self.port = name, port
        self._config_file = config_file
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        command = [sys.executable, "-m", "geomq", "broker", "-c", str(self._config_file)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await until_open(self.port)

    def stop(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(10)
            self._process = None


async def until_open(port: int) -> None:
    for _ in range(1_200):
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"nobody listens on {port}")


def processes(strategy: str, folder: Path) -> dict[str, Process]:
    found = {}
    configured = configs(strategy, brokers=3)
    for (name, config), port in zip(configured.items(), free_ports(3), strict=True):
        text = config_text(config).replace("port = 0\n", f"port = {port}\n", 1)
        text = text.replace("enabled = false", "enabled = true", 1)
        text = text.replace("queue_messages_max = 1000\n", "queue_messages_max = 100000\n")
        text = text.replace('data_dir = "geomq-data"', f'data_dir = "{folder / name}"')
        path = folder / f"{name}.toml"
        path.write_text(text)
        found[name] = Process(name, port, path)
    return found


class Receiver:
    """A subscriber with a lasting session that comes back after every break and forgets no packet identifier."""

    def __init__(self, port: int, qos: int) -> None:
        self.got: Counter[bytes] = Counter()
        self.tests = 0
        self.ready = asyncio.Event()
        self._port, self._qos = port, qos
        self._pending: set[int] = set()

    async def run(self) -> None:
        lasting = Properties(session_expiry_interval=3600)
        while True:
            with suppress(OSError, ProtocolError, TimeoutError):
                connect = Connect("receiver", V5, clean_start=False, properties=lasting)
                probe, _ = await Probe.connect(self._port, connect)
                async with probe:
                    if not self.ready.is_set():
                        await probe.subscribe(SubscribeRequest("load/#", self._qos))
                        self.ready.set()
                    while True:
                        self._take(probe, await probe.receive(60.0))
            await asyncio.sleep(0.05)

    def _take(self, probe: Probe, packet: Packet) -> None:
        if isinstance(packet, Publish) and packet.qos == 0:
            self.tests += 1
        elif isinstance(packet, Publish) and packet.qos == 1:
            self.got[packet.payload] += 1
            probe.send(Puback(packet.packet_id))
        elif isinstance(packet, Publish):
            if packet.packet_id not in self._pending:
                self._pending.add(packet.packet_id)
                self.got[packet.payload] += 1
            probe.send(Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self._pending.discard(packet.packet_id)
            probe.send(Pubcomp(packet.packet_id))


async def publish(port: int, qos: int, acknowledged: set[bytes]) -> None:
    """Publish numbered events one after the other, each once; note which were acknowledged."""
    number = 0
    while True:
        with suppress(OSError, ProtocolError, TimeoutError):
            probe, _ = await Probe.connect(port, Connect("sender"))
            async with probe:
                while True:
                    number += 1
                    payload = str(number).encode()
                    packet_id = probe.publish("load/x", payload, qos)
                    await probe.expect(Puback if qos == 1 else Pubrec)
                    acknowledged.add(payload)
                    if qos == 2:
                        probe.send(Pubrel(packet_id))
                        await probe.expect(Pubcomp)
                    await asyncio.sleep(0.002)
        await asyncio.sleep(0.05)


async def until_heard(port: int, receiver: Receiver) -> None:
    """Wait until what is published here reaches the receiver, so that its broker is linked and its filter known."""
    for _ in range(20):
        with suppress(OSError, ProtocolError, TimeoutError):
            probe, _ = await Probe.connect(port, Connect("tester"))
            async with probe:
                for _ in range(50):
                    probe.publish("load/test")
                    await asyncio.sleep(0.1)
                    if receiver.tests:
                        return
    raise AssertionError("nothing ever arrived")


async def until_more(acknowledged: set[bytes], *, events: int = 20) -> None:
    """Wait until so many more events are acknowledged."""
    wanted = len(acknowledged) + events
    await until(lambda: len(acknowledged) >= wanted, seconds=60)


@pytest.mark.parametrize(
    ("strategy", "qos"),
    [("flood_events", 1), ("disgb_subscriptions", 2), ("adaptive", 2), ("digests", 2)],
)
async def test_kills_lose_nothing_acknowledged_and_double_nothing(strategy: str, qos: int, tmp_path: Path) -> None:
    dice = random.Random(3)
    brokers = processes(strategy, tmp_path)
    acknowledged: set[bytes] = set()
    tasks: list[asyncio.Task[None]] = []
    try:
        for broker in brokers.values():
            await broker.start()
        receiver = Receiver(brokers["frankfurt"].port, qos)
        tasks.append(asyncio.create_task(receiver.run()))
        await asyncio.wait_for(receiver.ready.wait(), 30)
        await until_heard(brokers["paris"].port, receiver)
        tasks.append(asyncio.create_task(publish(brokers["paris"].port, qos, acknowledged)))
        for _ in range(4):
            await until_more(acknowledged)
            victim = brokers[dice.choice(["paris", "frankfurt"])]
            victim.stop()
            await asyncio.sleep(0.2)
            await victim.start()
        await until_more(acknowledged)
        tasks.pop().cancel()
        await until(lambda: acknowledged <= set(receiver.got), seconds=60)
        await asyncio.sleep(0.5)
        if qos == 2:
            assert max(receiver.got.values()) == 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for broker in brokers.values():
            broker.stop()
