"""One replayed client: a face of the client session that sends what it is told, at once, and notes what it receives.

Thousands of them share a loop. Owns nothing but its connection; what it receives goes to its `Ear`.
"""

import asyncio
import os
import time
from collections.abc import Iterable
from typing import Protocol, cast

from geomq.errors import ProtocolError
from geomq.mqtt.client.events import Acknowledged, Answered, Connected, ConnectRefused, Dropped, Ended, Event
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.client.terms import ClientPolicy
from geomq.mqtt.codec.packets import Connect, Publish, Subscribe
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.topics import TopicNames
from geomq.mqtt.codec.types import V5, V311

NAMES = TopicNames()
POLICY = ClientPolicy(queue_max=1_000_000, queue_bytes_max=1 << 30)


class Ear(Protocol):
    """Who is told what clients hear."""

    def heard(self, client: int, publish: Publish, at_s: float) -> None: ...

    def refused(self, client: int, what: str) -> None: ...

    def lost(self, client: int, why: str) -> None: ...


class ReplayClient(asyncio.Protocol):
    """Connects as `r<number>`; `ready` is done when the broker has accepted it."""

    def __init__(self, number: int, ear: Ear, *, plain: bool) -> None:
        self.number = number
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answered: asyncio.Future[None] | None = None
        self._ear = ear
        properties = NO_PROPERTIES if plain else Properties(session_expiry_interval=0)
        connect = Connect(client_name(number), V311 if plain else V5, True, 0, properties=properties)
        self._session = ClientSession(connect, POLICY, NAMES)
        self._transport: asyncio.Transport | None = None
        self._leaving = False

    @property
    def connected(self) -> bool:
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._file: int = transport.get_extra_info("socket").fileno()
        self._session.open(time.monotonic())
        self._flush()

    def send(self, packets: Iterable[Publish | Subscribe]) -> bool:
        """Send these, now; False if there is no connection."""
        if self._transport is None:
            return False
        now_s = time.monotonic()
        for packet in packets:
            if isinstance(packet, Publish):
                self._session.publish(packet, now_s)
            else:
                self._session.subscribe(*packet.requests, properties=packet.properties)
        return self._flush()

    def _flush(self) -> bool:
        """Write what the session has to send, at once rather than at the end of the loop's turn."""
        transport, written = self._transport, 0
        data = self._session.take_bytes(time.monotonic())
        if transport is None or not data:
            return transport is not None
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
        """Until the broker has dealt with everything this client sent so far, or is gone."""
        if self._transport is not None:
            self._answered = asyncio.get_running_loop().create_future()
            self._session.ping()
            self._flush()
            await self._answered

    def leave(self) -> None:
        """Disconnect."""
        self._leaving = True
        self._session.disconnect()
        if self._flush():
            cast(asyncio.Transport, self._transport).close()

    def data_received(self, data: bytes) -> None:
        at_s = time.monotonic()
        try:
            self._session.receive(data, at_s)
        except ProtocolError as error:
            self._ear.refused(self.number, str(error))
            if self._transport is not None:
                self._transport.abort()
        for event in self._session.take_events():
            if isinstance(event, Publish):
                self._ear.heard(self.number, event, at_s)
            else:
                self._on_other(event)
        self._flush()

    def _on_other(self, event: Event) -> None:
        match event:
            case Answered():
                self._have_answer()
            case Connected() if not self.ready.done():
                self.ready.set_result(None)
            case ConnectRefused(reason=reason):
                self._ear.refused(self.number, f"CONNECT: {reason.name}")
            case Ended(reason=reason):
                self._ear.refused(self.number, f"DISCONNECT: {reason.name}")
            case Acknowledged(request=request) if event.refusal is not None:
                self._ear.refused(self.number, f"{request.packet.type.name}: {event.refusal.name}")
            case Dropped(why=why):
                self._ear.refused(self.number, why)

    def _have_answer(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._session.close()
        self._have_answer()
        if not self._leaving:
            self._ear.lost(self.number, "" if exc is None else str(exc))


def client_name(number: int) -> str:
    """The client id under which a workload's client is known to brokers."""
    return f"r{number}"
