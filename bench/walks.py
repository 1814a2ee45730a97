"""Follows one packet through the code: how many calls it makes, in how many files, and how often the file changes.

    python -m bench.walks

What a reader of the code has to follow, and what the interpreter has to do. Brokers run in this process, clients in a
thread of their own, so that only calls of brokers count; both brokers keep everything on disk. Each walk is taken
several times; the shortest is shown, because timers may fall into the others.
"""

import asyncio
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import msgspec

import geomq
from geomq.broker.config.settings import Config, Persistence
from geomq.broker.local_federation import LocalFederation, Site, local_configs
from geomq.geo import Location
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Packet, Puback, Publish, Subscribe, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5

SOURCE = str(Path(geomq.__file__).parent)
TIMES = 5
QUIET_S = 0.3
SITES = (Site("paris", Location(48.9, 2.4)), Site("sydney", Location(-33.9, 151.2)))


class Walk(NamedTuple):
    """What one packet sets off."""

    calls: int
    files: int
    changes: int


class Follower:
    """Notes the file of every call while it is attached."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            self.files.append(frame.f_code.co_filename)

    @property
    def walk(self) -> Walk:
        pairs = zip(self.files, self.files[1:], strict=False)
        return Walk(len(self.files), len(set(self.files)), sum(a != b for a, b in pairs))


class _Client:
    """A blocking client; it is used in a thread of its own."""

    def __init__(self, port: int, name: str, *, kept: bool = False, location: str | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.settimeout(30.0)
        self._decoder = Decoder(Side.CLIENT, version=V5)
        self._arrived: list[Packet] = []
        places = () if location is None else (("geo-location", location),)
        properties = Properties(session_expiry_interval=3600 if kept else None, user_properties=places)
        self.send(Connect(name, V5, clean_start=not kept, properties=properties))
        self.receive()

    def send(self, packet: Packet) -> None:
        self._socket.sendall(encode(packet, V5))

    def receive(self) -> Packet:
        while not self._arrived:
            self._arrived += self._decoder.feed(self._socket.recv(65_536))
        return self._arrived.pop(0)

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self.send(Subscribe(1, (SubscribeRequest(topic_filter, qos),)))
        self.receive()

    def close(self) -> None:
        self._socket.close()


async def _follow(step: Callable[[], object]) -> Walk:
    """The walk that a step of a client sets off, until the brokers are quiet."""
    follower = Follower()
    sys.setprofile(follower)
    try:
        await asyncio.to_thread(step)
        await asyncio.sleep(QUIET_S)
    finally:
        sys.setprofile(None)
    return follower.walk


def _qos1(here: int, there: int, _: int) -> Iterator[Callable[[], object]]:
    subscriber, publisher = _Client(there, "subscriber"), _Client(here, "publisher")
    subscriber.subscribe("a/b", 1)

    def publish() -> None:
        publisher.send(Publish("a/b", b"x", 1, packet_id=7))
        event = subscriber.receive()
        assert isinstance(event, Publish)
        subscriber.send(Puback(event.packet_id))
        publisher.receive()

    for _ in range(TIMES + 2):
        yield publish


def _move(here: int, _: int, __: int) -> Iterator[Callable[[], object]]:
    client = _Client(here, "mover", location="48.9,2.4")
    client.subscribe("a/b", 1)
    for number in range(TIMES):
        packet = Publish("$geo/location", f"48.9{number},2.4".encode(), 0)
        yield lambda packet=packet: client.send(packet)  # type: ignore[misc]


def _hand_over(here: int, there: int, _: int) -> Iterator[Callable[[], object]]:
    ports = (here, there)
    before = _Client(here, "roamer", kept=True)
    before.subscribe("a/b", 1)
    found: list[_Client] = [before]

    def hop() -> None:
        found[-1].close()
        found.append(_Client(ports[len(found) % 2], "roamer", kept=True))

    for _ in range(TIMES):
        yield hop


WALKS = {
    "a QoS 1 event across a link, delivered there": _qos1,
    "a location update in a federation": _move,
    "a session handed over": _hand_over,
}


def _durable(folder: Path) -> dict[str, Config]:
    return {
        name: msgspec.structs.replace(config, persistence=Persistence(path=str(folder / name)))
        for name, config in local_configs(SITES, "disgb_events").items()
    }


async def _measure(folder: Path) -> dict[str, Walk]:
    found = {}
    async with LocalFederation(_durable(folder)) as running:
        while not running.linked:
            await asyncio.sleep(0.05)
        ports = [broker.addresses[0][2] for broker in running.brokers.values()]
        for name, steps in WALKS.items():
            made = await asyncio.to_thread(lambda steps=steps: steps(ports[0], ports[1], 0))  # type: ignore[misc]
            walks = []
            while (step := await asyncio.to_thread(next, made, None)) is not None:
                await asyncio.sleep(QUIET_S)
                walks.append(await _follow(step))
            found[name] = min(walks)
    return found


def main() -> None:
    print(f"{'walk':<48} {'calls':>6} {'files':>6} {'changes of file':>16}")
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(_measure(Path(folder)))
    for name, walk in found.items():
        print(f"{name:<48} {walk.calls:>6} {walk.files:>6} {walk.changes:>16}")


if __name__ == "__main__":
    main()
