"""A client that does exactly what a test tells it, packet by packet, right or wrong.

It acknowledges nothing and repeats nothing on its own.
"""

import asyncio
import contextlib
from collections import deque
from typing import Self, TypeVar

from geomq.errors import ProtocolError
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
)
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.types import V5

P = TypeVar("P")

PATIENCE_S = 30.0


class Closed(ProtocolError):  # noqa: N818
    """The broker closed the connection."""


class Probe:
    """One connection. Make it with `open`, then `send` and `receive`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int, host: str, port: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder(Side.CLIENT, version=version)
        self._arrived: deque[Packet] = deque()
        self._next_id = 0
        self.version = version
        self.host = host
        self.port = port

    @classmethod
    async def open(cls, port: int, *, host: str = "127.0.0.1", version: int = V5) -> Self:
        """A network connection without a CONNECT."""
        reader, writer = await asyncio.open_connection(host, port)
        return cls(reader, writer, version, host, port)

    @classmethod
    async def connect(cls, port: int, connect: Connect, *, host: str = "127.0.0.1") -> tuple[Self, Connack]:
        """A network connection and its handshake."""
        probe = await cls.open(port, host=host, version=connect.version)
        probe.send(connect)
        try:
            return probe, await probe.expect(Connack)
        except BaseException:
            await probe.drop()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drop()

    def send(self, packet: Packet) -> None:
        self._writer.write(encode(packet, self.version))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self, patience_s: float = PATIENCE_S) -> Packet:
        """The next packet; Closed if there will be none, TimeoutError if none comes in time."""
        async with asyncio.timeout(patience_s):
            while not self._arrived:
                try:
                    data = await self._reader.read(65_536)
                except OSError:
                    data = b""
                if not data:
                    raise Closed("the broker closed the connection")
                self._arrived.extend(self._decoder.feed(data))
        return self._arrived.popleft()

    async def expect(self, kind: type[P], patience_s: float = PATIENCE_S) -> P:
        """The next packet, which must be of this kind."""
        packet = await self.receive(patience_s)
        if not isinstance(packet, kind):
            raise ProtocolError(f"expected {kind.__name__}, got {packet}")
        return packet

    async def silent(self, patience_s: float = 0.15) -> bool:
        """Whether nothing arrives for a while."""
        try:
            packet = await self.receive(patience_s)
        except TimeoutError:
            return True
        self._arrived.appendleft(packet)
        return False

    async def subscribe(self, *requests: SubscribeRequest | str, properties: Properties = NO_PROPERTIES) -> Suback:
        """Subscribe and wait for the answer; what arrives before it stays to be received."""
        wanted = tuple(SubscribeRequest(request) if isinstance(request, str) else request for request in requests)
        self.send(Subscribe(self.next_id(), wanted, properties))
        early: list[Packet] = []
        while True:
            packet = await self.receive()
            if isinstance(packet, Suback):
                self._arrived.extendleft(reversed(early))
                return packet
            early.append(packet)

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> int:
        """Send a PUBLISH and return its packet identifier."""
        packet_id = self.next_id() if qos else 0
        self.send(Publish(topic, payload, qos, retain, False, packet_id, properties))
        return packet_id

    def next_id(self) -> int:
        self._next_id = self._next_id % 65_535 + 1
        return self._next_id

    async def disconnect(self, packet: Disconnect | None = None) -> None:
        """Say goodbye and wait until the broker closes."""
        self.send(packet or Disconnect())
        with contextlib.suppress(Closed):
            while True:
                await self.receive()
        await self.drop()

    async def drop(self) -> None:
        """Break the connection."""
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
