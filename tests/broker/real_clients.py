"""Hundreds of real MQTT clients in one event loop, cheap enough for tests that need that many."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import cast

from geomq.geo import Fence, Location, fence_text, location_text
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
)
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.types import V5

IN_FLIGHT_MAX = 15


class RealClient(asyncio.Protocol):
    """One connection. Publishes as fast as it is acknowledged and acknowledges what it receives.

    `got` counts the payloads received, `order` has them in their order.
    """

    def __init__(self, name: str, location: Location | None, version: int = V5) -> None:
        self.name = name
        self.got: Counter[bytes] = Counter()
        self.order: list[bytes] = []
        self._version = version
        self._location = location
        self._decoder = Decoder(Side.CLIENT, version=version)
        self._answer: asyncio.Future[Packet] = asyncio.get_running_loop().create_future()
        self._unsent: list[tuple[str, bytes, int, Properties]] = []
        self._under_way = 0
        self._next_id = 0
        self._held: set[int] = set()

    @property
    def idle(self) -> bool:
        """Whether everything it published is acknowledged."""
        return not self._unsent and not self._under_way

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send(Connect(self.name, version=self._version, properties=_places(location=self._location)))

    def data_received(self, data: bytes) -> None:
        for packet in self._decoder.feed(data):
            self._take(packet)

    def _take(self, packet: Packet) -> None:
        match packet:
            case Connack() | Suback():
                self._answer.set_result(packet)
            case Publish(packet_id=packet_id, qos=qos, payload=payload):
                if qos < 2 or packet_id not in self._held:
                    self.got[payload] += 1
                    self.order.append(payload)
                if qos == 1:
                    self._send(Puback(packet_id))
                elif qos == 2:
                    self._held.add(packet_id)
                    self._send(Pubrec(packet_id))
            case Pubrel(packet_id=packet_id):
                self._held.discard(packet_id)
                self._send(Pubcomp(packet_id))
            case Pubrec(packet_id=packet_id):
                self._send(Pubrel(packet_id))
            case Puback() | Pubcomp():
                self._under_way -= 1
                self._pump()

    def _send(self, packet: Packet) -> None:
        self._transport.write(encode(packet, self._version))

    async def answered(self) -> Packet:
        packet = await asyncio.wait_for(self._answer, 30)
        self._answer = asyncio.get_running_loop().create_future()
        return packet

    async def subscribe(self, topic_filter: str, *, within: Fence | None = None, qos: int = 1) -> None:
        self._next_id += 1
        request = SubscribeRequest(topic_filter, qos)
        self._send(Subscribe(self._next_id, (request,), _places(fence=within)))
        answer = await self.answered()
        assert isinstance(answer, Suback)
        assert [int(reason) for reason in answer.reasons] == [qos]

    def publish(self, topic: str, payload: bytes, *, to: Fence | None = None, qos: int = 1) -> None:
        """Publish soon, without waiting."""
        self._unsent.append((topic, payload, qos, _places(fence=to)))
        self._pump()

    def _pump(self) -> None:
        while self._unsent and self._under_way < IN_FLIGHT_MAX:
            topic, payload, qos, properties = self._unsent.pop(0)
            if qos:
                self._under_way += 1
                self._next_id += 1
            self._send(Publish(topic, payload, qos, packet_id=self._next_id if qos else 0, properties=properties))

    def publish_at_once(self, events: Iterable[tuple[str, bytes]]) -> None:
        """Plain QoS 0 events in a single write."""
        self._transport.write(b"".join(encode(Publish(topic, payload), self._version) for topic, payload in events))

    def close(self) -> None:
        self._transport.abort()


async def join(port: int, name: str, location: Location | None = None, *, version: int = V5) -> RealClient:
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: RealClient(name, location, version), "127.0.0.1", port)
    assert isinstance(await client.answered(), Connack)
    return client


def close_all(clients: Iterable[RealClient]) -> None:
    for client in clients:
        client.close()


def _places(*, location: Location | None = None, fence: Fence | None = None) -> Properties:
    pairs = []
    if location is not None:
        pairs.append(("geo-location", location_text(location)))
    if fence is not None:
        pairs.append(("geo-fence", fence_text(fence)))
    return Properties(user_properties=tuple(pairs)) if pairs else NO_PROPERTIES
