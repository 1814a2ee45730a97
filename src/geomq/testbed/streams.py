"""Clients that never give up: streams of numbered events, and receivers that keep their sessions.

A sender repeats what was not acknowledged, as MQTT asks of it, until it is; a receiver remembers the packet
identifiers of half-received QoS 2 events. Both write down what happened, for the ledger to judge later.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from geomq.broker.probe import Probe
from geomq.errors import ProtocolError
from geomq.mqtt.packets import Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, SubscribeRequest
from geomq.mqtt.properties import Properties
from geomq.mqtt.types import V5
from geomq.testbed.ledger import Acknowledged, Entry, Received

IN_FLIGHT_MAX = 10
RETRY_S = 0.1
PATIENCE_S = 3.0
"""After so long without an answer a client takes its broker for gone and connects anew."""
SESSION_S = 3600

Note = Callable[[Entry], object]


@dataclass(frozen=True, slots=True)
class Role:
    """Who a client is: its name, its broker's port, where it stands, its topic (filter) with a fence or none."""

    name: str
    port: int
    at: str
    topic: str
    fence: str | None
    qos: int

    def connect(self) -> Connect:
        properties = Properties(session_expiry_interval=SESSION_S, user_properties=(("geo-location", self.at),))
        return Connect(self.name, V5, clean_start=False, keep_alive=30, properties=properties)

    @property
    def fenced(self) -> Properties:
        return Properties(user_properties=() if self.fence is None else (("geo-fence", self.fence),))


class Sender:
    """Publishes `name:number` at a steady rate until told to stop, then until everything is acknowledged."""

    def __init__(self, role: Role, note: Note, *, per_s: float) -> None:
        self.role = role
        self.ready = asyncio.Event()
        self.published = 0
        self._note = note
        self._gap_s = 1.0 / per_s
        self._stopping = False
        self._open: dict[int, bytes] = {}
        self._releasing: dict[int, bytes] = {}
        self._next_id = 0

    def stop(self) -> None:
        """No new events."""
        self._stopping = True

    @property
    def finished(self) -> bool:
        return self._stopping and not self._open and not self._releasing

    async def run(self) -> None:
        while not self.finished:
            with suppress(OSError, ProtocolError, TimeoutError):
                probe, connack = await Probe.connect(self.role.port, self.role.connect())
                async with probe:
                    self.ready.set()
                    self._repeat(probe, session_present=connack.session_present)
                    await self._talk(probe)
            await asyncio.sleep(RETRY_S)

    def _repeat(self, probe: Probe, *, session_present: bool) -> None:
        if not session_present and self._releasing:
            raise AssertionError(f"the broker forgot the session of {self.role.name}")
        for packet_id, payload in self._open.items():
            self._publish(probe, packet_id, payload, dup=session_present)
        for packet_id in self._releasing:
            probe.send(Pubrel(packet_id))

    async def _talk(self, probe: Probe) -> None:
        due = time.monotonic()
        heard = due
        while not self.finished:
            now = time.monotonic()
            if now >= due and not self._stopping and len(self._open) + len(self._releasing) < IN_FLIGHT_MAX:
                due = max(due + self._gap_s, now - 1.0)
                self._publish_next(probe)
            with suppress(TimeoutError):
                self._take(probe, await probe.receive(max(0.001, min(0.05, due - time.monotonic()))))
                heard = time.monotonic()
            if (self._open or self._releasing) and time.monotonic() - heard > PATIENCE_S:
                raise TimeoutError

    def _publish_next(self, probe: Probe) -> None:
        self.published += 1
        self._next_id = self._next_id % 65_535 + 1
        payload = f"{self.role.name}:{self.published}".encode()
        self._open[self._next_id] = payload
        self._publish(probe, self._next_id, payload, dup=False)

    def _publish(self, probe: Probe, packet_id: int, payload: bytes, *, dup: bool) -> None:
        role = self.role
        probe.send(Publish(role.topic, payload, role.qos, dup=dup, packet_id=packet_id, properties=role.fenced))

    def _take(self, probe: Probe, packet: Packet) -> None:
        if isinstance(packet, Puback | Pubrec) and packet.reason >= 0x80:
            self._open.pop(packet.packet_id, None)
        elif isinstance(packet, Puback):
            self._acknowledged(self._open.pop(packet.packet_id, None))
        elif isinstance(packet, Pubrec):
            payload = self._open.pop(packet.packet_id, None)
            if payload is not None:
                self._releasing[packet.packet_id] = payload
                self._acknowledged(payload)
            probe.send(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            self._releasing.pop(packet.packet_id, None)

    def _acknowledged(self, payload: bytes | None) -> None:
        if payload is not None:
            role = self.role
            event = payload.decode()
            self._note(Acknowledged(event, role.topic, role.at, role.fence, role.qos, time.time() * 1000.0))


class Receiver:
    """Subscribes once, with a session that is kept, and takes everything that comes."""

    def __init__(self, role: Role, note: Note) -> None:
        self.role = role
        self.ready = asyncio.Event()
        self._note = note
        self._pending: set[int] = set()

    async def run(self) -> None:
        while True:
            with suppress(OSError, ProtocolError, TimeoutError):
                probe, _ = await Probe.connect(self.role.port, self.role.connect())
                async with probe:
                    if not self.ready.is_set():
                        wish = SubscribeRequest(self.role.topic, self.role.qos)
                        await probe.subscribe(wish, properties=self.role.fenced)
                        self.ready.set()
                    while True:
                        self._take(probe, await probe.receive(10.0))
            await asyncio.sleep(RETRY_S)

    def _take(self, probe: Probe, packet: Packet) -> None:
        if isinstance(packet, Publish) and packet.qos == 2:
            if packet.packet_id not in self._pending:
                self._pending.add(packet.packet_id)
                self._received(packet)
            probe.send(Pubrec(packet.packet_id))
        elif isinstance(packet, Publish):
            self._received(packet)
            if packet.qos:
                probe.send(Puback(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self._pending.discard(packet.packet_id)
            probe.send(Pubcomp(packet.packet_id))

    def _received(self, packet: Publish) -> None:
        event = packet.payload.decode(errors="replace")
        self._note(Received(event, self.role.name, packet.topic, packet.qos, time.time() * 1000.0))
