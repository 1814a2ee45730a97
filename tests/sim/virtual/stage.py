"""Two hosts and what their programs saw; and a town of one broker and its clients."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from geomq.sim.virtual.device import Device
from geomq.sim.virtual.ledger import Ledger
from geomq.sim.virtual.loop import VirtualLoop, make_loop
from geomq.sim.virtual.machine import Machine
from geomq.sim.virtual.network import Network
from geomq.sim.virtual.processes import Process
from geomq.sim.virtual.profile import Profile
from geomq.sim.virtual.records import Place
from geomq.sim.virtual.scenario import ALONE, Options, Scenario
from geomq.sim.virtual.transports import Transport

T = TypeVar("T")
HOST, PORT, FRAMED = "10.0.0.1", 1883, 7883


def virtual(seed: int = 1) -> VirtualLoop:
    return make_loop(Network(seed, {HOST: "b"}, frozenset({FRAMED})))


def play(loop: VirtualLoop, story: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return loop.run_until_complete(story())


def process(loop: VirtualLoop, name: str = "b", *, silently: bool = False) -> Process:
    return Process(name, lambda died: loop.network.lose(died, silently=silently))


def in_process(owner: Process, action: Callable[[], Any]) -> None:
    context: Context = owner.context()
    context.run(action)


class Program(asyncio.Protocol):
    """Notes all that its connection tells it."""

    def __init__(self) -> None:
        self.got = b""
        self.pieces = 0
        self.notes: list[str] = []
        self.transport: Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.pieces += 1

    def pause_writing(self) -> None:
        self.notes.append("pause")

    def resume_writing(self) -> None:
        self.notes.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.notes.append("lost" if exc is None else "reset")


async def connected(loop: VirtualLoop, *, port: int = PORT, owner: Process | None = None) -> tuple[Program, Program]:
    """A client and the server it is connected with, which belongs to `owner`."""
    server, client = Program(), Program()

    def listen() -> None:
        loop.network.listen(lambda: server, HOST, port)

    if owner is None:
        listen()
    else:
        in_process(owner, listen)
    await loop.network.connect(lambda: client, HOST, port, source="c")
    await asyncio.sleep(0.1)
    return client, server


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


Story = Callable[[], Awaitable[None]]


class Town:
    """One broker on its machine, with room for clients."""

    def __init__(self, seed: int = 1) -> None:
        self.scenario = Scenario(seed, Options(strategy=ALONE))
        hosts = {host: name for name, host in self.scenario.hosts.items()}
        self.loop = make_loop(Network(seed, hosts, frozenset()))
        self.notes: list[str] = []
        self.ledger = Ledger(self.loop.time, self.notes.append, refuses=True, reroutes=False)
        self.machine = Machine(self.loop, self.scenario.config("b0"), seed, self.notes.append)

    def device(self, name: str, *, expiry_s: int = 3_600, place: Place | None = None) -> Device:
        self.ledger.client(name, kept=expiry_s > 0, expiry_s=expiry_s)
        profile = Profile(name, expiry_s=expiry_s)
        return Device(profile, self.loop, self.ledger, random.Random(name), self.scenario.hosts, "b0", place)

    def play(self, story: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def with_broker() -> T:
            self.machine.start()
            await until(lambda: self.machine.linked)
            return await story()

        return self.loop.run_until_complete(with_broker())

    def got(self, client: str) -> list[tuple[str, int, bool]]:
        """What reached a client: event, QoS, whether it came as a duplicate."""
        return [(receipt.event, receipt.qos, receipt.dup) for receipt in self.ledger.clients[client].receipts]
