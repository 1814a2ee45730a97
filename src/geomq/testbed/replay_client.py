"""One replayed client: a connection that says what it is told and notes what it hears. Thousands of them share a loop.

Built on the codec alone. Owns nothing but its connection; what it hears goes to its `Ear`.
"""

import asyncio
import os
import time
from typing import Protocol, cast

from geomq.errors import ProtocolError
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Publish, Suback
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.topics import TopicNames
from geomq.mqtt.codec.types import V5, V311

NAMES = TopicNames()


class Ear(Protocol):
    """Who is told what clients hear."""

    def heard(self, client: int, publish: Publish, at_s: float) -> None: ...

    def refused(self, client: int, what: str) -> None: ...

    def lost(self, client: int, why: str) -> None: ...


class ReplayClient(asyncio.Protocol):
    """Connects as `r<number>`; `ready` is done when the broker has let it in."""

    def __init__(self, number: int, ear: Ear, *, plain: bool) -> None:
        self.number = number
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answered: asyncio.Future[None] | None = None
        self._ear = ear
        self._version = V311 if plain else V5
        self._decoder = Decoder(Side.CLIENT, version=self._version, names=NAMES)
        self._transport: asyncio.Transport | None = None
        self._leaving = False

    @property
    def name(self) -> str:
        return client_name(self.number)

    @property
    def connected(self) -> bool:
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._file: int = transport.get_extra_info("socket").fileno()
        properties = Properties(session_expiry_interval=0) if self._version == V5 else NO_PROPERTIES
        self.say(encode(Connect(self.name, self._version, True, 0, properties=properties), self._version))

    def say(self, data: bytes) -> bool:
        """Write bytes, at once rather than at the end of the loop's turn; False if there is nobody to hear them."""
        transport = self._transport
        if transport is None:
            return False
        written = 0
        if not transport.get_write_buffer_size():
            try:
                written = os.write(self._file, data)
            except BlockingIOError:
                pass
            except OSError:
                transport.abort()
                return False
        if written < len(data):
            transport.write(data[written:])
        return True

    async def ping(self) -> None:
        """Until the broker has dealt with everything this client said so far, or is gone."""
        if self.say(encode(Pingreq(), self._version)):
            self._answered = asyncio.get_running_loop().create_future()
            await self._answered

    def leave(self) -> None:
        """Say goodbye."""
        self._leaving = True
        if self.say(encode(Disconnect(), self._version)):
            cast(asyncio.Transport, self._transport).close()

    def data_received(self, data: bytes) -> None:
        at_s = time.monotonic()
        try:
            for packet in self._decoder.feed(data):
                if isinstance(packet, Publish):
                    self._ear.heard(self.number, packet, at_s)
                    if packet.qos == 1:
                        self.say(encode(Puback(packet.packet_id), self._version))
                else:
                    self._other(packet)
        except ProtocolError as error:
            self._ear.refused(self.number, str(error))
            if self._transport is not None:
                self._transport.abort()

    def _other(self, packet: object) -> None:
        if isinstance(packet, Pingresp):
            self._have_answer()
        elif isinstance(packet, Connack):
            if packet.reason:
                self._ear.refused(self.number, f"CONNECT: {packet.reason.name}")
            elif not self.ready.done():
                self.ready.set_result(None)
        elif isinstance(packet, Suback):
            if packet.reasons[0] >= 0x80:
                self._ear.refused(self.number, f"SUBSCRIBE: {packet.reasons[0].name}")
        elif isinstance(packet, Puback) and packet.reason >= 0x80:
            self._ear.refused(self.number, f"PUBLISH: {packet.reason.name}")
        elif isinstance(packet, Disconnect):
            self._ear.refused(self.number, f"DISCONNECT: {packet.reason.name}")

    def _have_answer(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._have_answer()
        if not self._leaving:
            self._ear.lost(self.number, "" if exc is None else str(exc))


def client_name(number: int) -> str:
    """The client id under which a workload's client is known to brokers."""
    return f"r{number}"


def client_number(name: str) -> int | None:
    """The workload's client behind a client id."""
    return int(name[1:]) if name[:1] == "r" and name[1:].isdecimal() else None
