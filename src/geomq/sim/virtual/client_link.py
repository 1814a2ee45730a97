"""One connection of a client: packets out, packets in, and whether it still holds.

It knows nothing of sessions; what a packet means is its owner's.
"""

import asyncio
from typing import Protocol, cast

from geomq.errors import ProtocolError
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Packet
from geomq.sim.virtual.ledger import Ledger
from geomq.sim.virtual.loop import VirtualLoop
from geomq.sim.virtual.transports import Transport


class Owner(Protocol):
    """The client that a connection belongs to."""

    name: str
    loop: VirtualLoop
    ledger: Ledger

    def take(self, link: "Link", packet: Packet) -> None:
        """A packet came."""

    def lost(self, link: "Link") -> None:
        """The connection is over."""


class Link(asyncio.Protocol):
    """It is `accepted` once the broker let the client in, and `over` when nothing more will come."""

    def __init__(self, owner: Owner, connect: Connect, broker: str, number: int) -> None:
        self.broker = broker
        self.number = number
        self.connect = connect
        self.accepted = False
        self.over = False
        self.expects_s: float | None = None
        self.said_goodbye = False
        self._owner = owner
        self._decoder = Decoder(Side.CLIENT, version=connect.version)
        self._transport: Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(Transport, transport)
        self.expects_s = self._owner.loop.now
        self.send(self.connect)

    def send(self, packet: Packet) -> None:
        if self._transport is not None:
            self._transport.write(encode(packet, self.connect.version))

    def data_received(self, data: bytes) -> None:
        try:
            for packet in self._decoder.feed(data):
                self.expects_s = None
                self._owner.take(self, packet)
                if self.over:
                    return
        except ProtocolError as error:
            self._owner.ledger.fault(f"{self._owner.name} got bytes that make no packet: {error}")
            self.abort()

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def fade(self) -> None:
        """Be gone without a word: the broker goes on with its half of the connection until it notices."""
        if self._transport is not None:
            self._transport.die(silently=True)
            self.connection_lost(None)

    def pause_writing(self) -> None:
        """What a client writes is little."""

    def resume_writing(self) -> None:
        """Nothing was held back."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True
        self._transport = None
        self._owner.lost(self)
