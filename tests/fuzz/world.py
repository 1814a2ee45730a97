"""One whole broker in virtual time, to whose ports any bytes may be sent; what goes wrong inside is an AssertionError.

A world serves many inputs, because a start costs more than an input, and is made anew from time to time.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import uvicorn
from uvicorn.server import ServerState

from geomq.broker.config import settings
from geomq.broker.config.settings import Config, Listener, Metrics
from geomq.broker.operations.admin import make_app
from geomq.broker.operations.http_connections import HttpConnection, HttpConnections
from geomq.broker.peers.channel import NONCE_BYTES, Greeting, Proof
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Suback, Subscribe, SubscribeRequest
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5
from geomq.routing.wire.frames import PROTOCOL_VERSION, encode_frame
from geomq.routing.wire.link import Hello
from geomq.sim.virtual.loop import make_loop
from geomq.sim.virtual.machine import Machine
from geomq.sim.virtual.network import Network, Weather
from geomq.sim.virtual.transports import Transport

HOST, CLOUD_HOST, SOURCE = "127.0.1.1", "127.0.1.2", "stranger"
NAME, PEER, CLIENT = "paris", "berlin", "watcher"
CLIENTS, WEBSOCKETS, PEERS, ADMIN = 1883, 9001, 7883, 9883
LIVES_MAX: Final = 100
"""So many inputs a world takes."""
STEADY: Final = Weather(delay_s=(0.001, 0.001), split=0.0)
A_MOMENT_S: Final = 0.05
LINKED_S: Final = 0.5
SUBSCRIBED: Final = encode(Suback(1, (ReasonCode.SUCCESS,)), V5)


class _Failures(logging.Handler):
    """Exceptions that a broker logged instead of dying of them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self._text = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.seen.append(self._text.format(record))


FAILURES: Final = _Failures()
for _name in ("geomq", "uvicorn.error"):
    logging.getLogger(_name).addHandler(FAILURES)
    logging.getLogger(_name).propagate = False


class _Caller(asyncio.Protocol):
    """The other end; notes what it got and whether that was all."""

    def __init__(self) -> None:
        self.got = b""
        self.ended = False
        self.transport: Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True


class _Http(HttpConnection):
    def connection_made(self, transport: Any) -> None:
        self.arrived(transport)
        super().connection_made(transport)


class World:
    """A broker with a client that wants everything, and room for a peer."""

    def __init__(self, strategy: str = "single") -> None:
        hosts = {HOST: NAME, CLOUD_HOST: "cloud"}
        self._loop = make_loop(Network(0, hosts, frozenset()))
        self._loop.network.path(SOURCE, NAME).weather = STEADY
        self._notes: list[str] = []
        self._machine = Machine(self._loop, _config(strategy), 0, self._notes.append)
        self._connections = HttpConnections()
        self._starts = 0
        self._watcher: _Caller
        self.inputs = 0
        self._run(self._begin())

    def _run(self, story: Any) -> Any:
        FAILURES.seen.clear()
        self._loop.trouble.clear()
        answer = self._loop.run_until_complete(story)
        assert not FAILURES.seen, FAILURES.seen[0]
        assert not self._loop.trouble, self._loop.trouble
        assert self._machine.up, self._notes
        return answer

    async def _begin(self) -> None:
        self._machine.start()
        while self._machine.broker is None or not self._machine.broker.addresses:
            assert self._machine.up, self._notes
            await asyncio.sleep(A_MOMENT_S)
        app = make_app(self._machine.broker.view, lambda: None)
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", http="h11", ws="none")
        config.load()
        state = ServerState()
        self._machine.do(
            lambda: self._loop.network.listen(lambda: _Http(self._connections, config, state), HOST, ADMIN)
        )
        self._watcher = await self._call(CLIENTS)
        self._watcher.transport.write(encode(Connect(CLIENT, V5), V5))
        self._watcher.transport.write(encode(Subscribe(1, (SubscribeRequest("#", 0),)), V5))
        while SUBSCRIBED not in self._watcher.got:  # in a federation it takes a while to look for its session
            await asyncio.sleep(A_MOMENT_S)

    async def _call(self, port: int) -> _Caller:
        _, caller = await self._loop.network.connect(_Caller, HOST, port, source=SOURCE)
        assert isinstance(caller, _Caller)
        return caller

    @property
    def watched(self) -> bytes:
        """All that the client which wants everything was sent."""
        return self._watcher.got

    # What strangers do.

    def send(self, port: int, pieces: Sequence[bytes]) -> bytes:
        """What somebody is answered who connects and sends these bytes, and then is gone."""
        return bytes(self._run(self._send(port, pieces)))

    async def _send(self, port: int, pieces: Sequence[bytes]) -> bytes:
        caller = await self._call(port)
        return await self._say(caller, pieces)

    async def _say(self, caller: _Caller, pieces: Sequence[bytes]) -> bytes:
        await asyncio.sleep(A_MOMENT_S)
        for piece in pieces:
            caller.transport.write(piece)
            await asyncio.sleep(A_MOMENT_S)
        caller.transport.abort()
        await asyncio.sleep(A_MOMENT_S)
        assert self._machine.broker is not None
        assert len(self._machine.broker.parts.handlers.connections) <= 1, "a connection that ended is still there"
        assert not len(self._connections), "an HTTP connection that ended is still there"
        return caller.got

    def speak_as_peer(self, frames: Callable[[int], Sequence[bytes]]) -> bool:
        """The peer connects, proves its name and sends frames, which are made for this start of it; whether it was
        linked."""
        return bool(self._run(self._speak_as_peer(frames)))

    async def _speak_as_peer(self, frames: Callable[[int], Sequence[bytes]]) -> bool:
        self._starts += 1
        caller = await self._call(PEERS)
        nonce = self._starts.to_bytes(NONCE_BYTES)
        greeting = Greeting("geomq", PROTOCOL_VERSION, PEER, nonce, self._starts)
        hello = encode_frame(Hello(self._starts, 1, None, 0, False))
        opening = [msgspec.msgpack.encode(greeting), msgspec.msgpack.encode(Proof(b"")), hello]
        caller.transport.write(b"".join(map(framed, opening)))
        await asyncio.sleep(LINKED_S)
        linked = not caller.ended
        await self._say(caller, [framed(frame) for frame in frames(self._starts)])
        return linked


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _config(strategy: str) -> Config:
    berlin = settings.Peer(name=PEER, address=f"{HOST}:1", location="52.5,13.4")
    alone = strategy == "single"
    return Config(
        broker=settings.BrokerSettings(name=NAME, location="48.9,2.4"),
        listeners=(Listener(host=HOST, port=CLIENTS), Listener(kind="websocket", host=HOST, port=WEBSOCKETS)),
        auth=settings.Auth(anonymous="always"),
        metrics=Metrics(sys_interval_s=0),
        routing=settings.Routing(strategy=strategy),
        federation=settings.Federation() if alone else settings.Federation(host=HOST, port=PEERS),
        cloud=settings.Cloud(address=f"{CLOUD_HOST}:1883") if strategy == "broadcast_groups" else settings.Cloud(),
        peers=() if alone else (berlin,),
    )


class Worlds:
    """A world for each strategy that is asked for, made anew when it is old."""

    def __init__(self) -> None:
        self._here: dict[str, World] = {}

    def play(self, act: Callable[[World], object], strategy: str = "single") -> None:
        """Let an input act. If something breaks that does not break in a new world, the error says so: then it takes
        the inputs before it, too."""
        world = self._here.pop(strategy, None)
        if world is None or world.inputs >= LIVES_MAX:
            world = World(strategy)
        world.inputs += 1
        try:
            act(world)
        except AssertionError as error:
            act(World(strategy))
            raise AssertionError(f"input {world.inputs} of its world, not alone: {error}") from error
        self._here[strategy] = world


WORLDS: Final = Worlds()
