"""How long a broker is away that starts again with many kept sessions, and whether all of them are there.

    python -m geomq.testbed.restart --sessions 100000 --queued 10

Clients connect to a broker process, subscribe and leave; messages for each of them are published; the broker is killed
and started again. The time ends when a client with a kept session has been let in and has its first message. Then
clients come back and count what waited for them.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from geomq.broker.config.settings import BrokerSettings, Config, Limits, Listener, Metrics, Persistence
from geomq.broker.local_federation import HOST, free_ports
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5
from geomq.testbed.processes import BrokerProcess, stoppable

AT_ONCE = 100
"""So many clients come side by side."""
WINDOW = 1_000
ASKED_MAX = 2_000
"""Clients that come back and count, drawn at random."""
EXPIRY_S = 86_400
START_S_MAX = 600.0
READ_BYTES = 1 << 16
MISSING_S = 30.0
Done = TypeVar("Done")


@dataclass(slots=True)
class RestartVerdict:
    """`back_s` from the start of the process to the first message; `lost` of `asked` clients' messages."""

    sessions: int
    queued: int
    built_s: float = 0.0
    back_s: float = 0.0
    sessions_found: int = 0
    messages_found: int = 0
    asked: int = 0
    lost: int = 0
    memory_mb: int = 0

    @property
    def clean(self) -> bool:
        return not self.lost and self.sessions_found >= self.sessions


class _Client:
    """One connection, packet by packet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._decoder = Decoder(Side.CLIENT, version=V5)
        self._packets: list[Packet] = []

    @classmethod
    async def connect(cls, port: int, name: str, expiry_s: int) -> tuple["_Client", Connack]:
        client = cls(*await asyncio.open_connection(HOST, port))
        properties = Properties(session_expiry_interval=expiry_s, receive_maximum=WINDOW)
        client.send(Connect(name, V5, clean_start=False, properties=properties))
        answer = await client.packet()
        assert isinstance(answer, Connack), answer
        return client, answer

    def send(self, packet: Packet) -> None:
        self.writer.write(encode(packet, V5))

    async def packet(self) -> Packet:
        while not self._packets:
            data = await self._reader.read(READ_BYTES)
            if not data:
                raise ConnectionError("the broker ended the connection")
            self._packets = list(self._decoder.feed(data))[::-1]
        return self._packets.pop()

    async def leave(self) -> None:
        self.send(Disconnect())
        self.writer.close()
        await self.writer.wait_closed()


async def measure(sessions: int, queued: int, folder: Path) -> RestartVerdict:
    verdict = RestartVerdict(sessions, queued)
    config = Config(
        broker=BrokerSettings(name="restarted", data_dir=str(folder / "data")),
        listeners=(Listener(host=HOST, port=free_ports(1)[0]),),
        persistence=Persistence(free_bytes_min=0),
        metrics=Metrics(sys_interval_s=0),
        limits=Limits(receive_maximum=WINDOW),
    )
    began = time.monotonic()
    async with BrokerProcess(config, folder) as broker:
        await _subscribe_all(broker.port, sessions)
        await _publish_all(broker.port, sessions, queued)
        verdict.built_s = round(time.monotonic() - began, 1)
        broker.kill()
        began = time.monotonic()
        await broker.start(seconds=START_S_MAX)
        assert not queued or await _had(broker.port, 0, queued) == queued
        verdict.back_s = round(time.monotonic() - began, 2)
        numbers = await broker.numbers()
        verdict.sessions_found, verdict.messages_found = int(numbers["sessions"]), int(numbers["messages_stored"])
        verdict.memory_mb = _memory_mb(broker.pid)
        drawn = random.Random(0).sample(range(1, sessions), min(ASKED_MAX, sessions - 1))
        counts = await _side_by_side(drawn, lambda number: _had(broker.port, number, queued))
        verdict.asked, verdict.lost = len(counts), sum(queued - count for count in counts)
    return verdict


async def _subscribe_all(port: int, sessions: int) -> None:
    async def come_and_leave(number: int) -> None:
        client, _ = await _Client.connect(port, _name(number), EXPIRY_S)
        client.send(Subscribe(1, (SubscribeRequest(_topic(number), 1),)))
        answer = await client.packet()
        assert isinstance(answer, Suback), answer
        await client.leave()

    await _side_by_side(range(sessions), come_and_leave)


async def _publish_all(port: int, sessions: int, queued: int) -> None:
    """Every client gets its own, in rounds, as many on their way as the broker allows."""
    publisher, _ = await _Client.connect(port, "publisher", 0)
    waiting = 0
    for sequence in range(queued):
        for number in range(sessions):
            while waiting >= WINDOW:
                waiting -= isinstance(await publisher.packet(), Puback)
            packet_id = 1 + (sequence * sessions + number) % 65_535
            publisher.send(Publish(_topic(number), b"%d" % sequence, 1, packet_id=packet_id))
            waiting += 1
    while waiting:
        waiting -= isinstance(await publisher.packet(), Puback)
    await publisher.leave()


async def _had(port: int, number: int, queued: int) -> int:
    """How many different messages waited for a client."""
    client, answer = await _Client.connect(port, _name(number), EXPIRY_S)
    had: set[bytes] = set()
    if answer.session_present:
        try:
            async with asyncio.timeout(MISSING_S):
                while len(had) < queued:
                    packet = await client.packet()
                    if isinstance(packet, Publish) and packet.packet_id:
                        had.add(bytes(packet.payload))
                        client.send(Puback(packet.packet_id))
        except TimeoutError:
            pass  # what is missing by now is missing
    await client.leave()
    return len(had)


async def _side_by_side(numbers: Iterable[int], act: Callable[[int], Awaitable[Done]]) -> list[Done]:
    done: list[Done] = []
    rest = iter(numbers)

    async def go_on() -> None:
        done.extend([await act(number) for number in rest])

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(go_on())
    return done


def _name(number: int) -> str:
    return f"kept-{number}"


def _topic(number: int) -> str:
    return f"inbox/{number}"


def _memory_mb(pid: int) -> int:
    """The most it had, where the system says so."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM")), 0)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m geomq.testbed.restart", description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=100_000, help="kept sessions")
    parser.add_argument("--queued", type=int, default=10, help="messages that wait for each")
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="geomq-restart-") as folder:
        verdict = asyncio.run(stoppable(measure(chosen.sessions, chosen.queued, Path(folder))))
    print(json.dumps(asdict(verdict)), flush=True)
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
