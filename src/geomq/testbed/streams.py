"""Clients that never give up: streams of numbered events, and receivers that keep their sessions.

A sender repeats what was not acknowledged, as MQTT asks of it, until it is; a receiver remembers the packet
identifiers of half-received QoS 2 events. Both write down what happened, for the ledger to judge later.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from geomq.broker.probe import Probe
from geomq.errors import ProtocolError
from geomq.mqtt.packets import Connack, Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, SubscribeRequest
from geomq.mqtt.properties import Properties
from geomq.mqtt.reasons import ReasonCode
from geomq.mqtt.types import V5, V311
from geomq.testbed.ledger import Acknowledged, Connected, Entry, Received

IN_FLIGHT_MAX = 10
RETRY_S = 0.1
PATIENCE_S = 3.0
"""After so long without an answer a client takes its broker for gone and connects anew."""
SESSION_S = 3600
STAY_S = (0.2, 3.0)
"""How long a hopper is at a broker."""
LEAVES_POLITELY = 0.5
"""How often it says goodbye; else its connection is gone all of a sudden."""

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


def check_let_in(connack: Connack) -> None:
    """ProtocolError if the broker refused the connection."""
    if connack.reason != ReasonCode.SUCCESS:
        raise ProtocolError(f"refused: {connack.reason.name}")


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
                    check_let_in(connack)
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
                probe, connack = await Probe.connect(self.role.port, self.role.connect())
                async with probe:
                    check_let_in(connack)
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
        self._note(Received(event, self.role.name, packet.topic, packet.qos, time.time() * 1000.0, packet.dup))


class Hopper(Receiver):
    """A receiver that goes from broker to broker with its session until it is told to stay."""

    def __init__(
        self, role: Role, note: Note, *, ports: Mapping[str, int], dice: random.Random, version: int, first: str
    ) -> None:
        super().__init__(role, note)
        self.hops = 0
        self._ports = ports
        self._dice = dice
        self._version = version
        self._at = first
        self._subscribed = self._staying = False

    def stay(self) -> None:
        """No more hops but those away from a broker that is not there."""
        self._staying = True

    async def run(self) -> None:
        while True:
            with suppress(OSError, ProtocolError, TimeoutError):
                probe, connack = await Probe.connect(self._ports[self._at], self._connect())
                async with probe:
                    check_let_in(connack)
                    await self._resume(probe, connack)
                    await self._take_for_a_while(probe)
                    if self._dice.random() < LEAVES_POLITELY:
                        await probe.disconnect()
            self._at = self._dice.choice([name for name in self._ports if name != self._at])
            await asyncio.sleep(RETRY_S * self._dice.uniform(0.1, 1.0))

    def _connect(self) -> Connect:
        if self._version == V311:
            return Connect(self.role.name, V311, clean_start=False, keep_alive=30)
        return self.role.connect()

    async def _resume(self, probe: Probe, connack: Connack) -> None:
        """Go on with the session that is there; a new one knows of no subscription and no packet identifier."""
        self._note(Connected(self.role.name, self._at, connack.session_present, time.time() * 1000.0))
        self.hops += 1
        if not connack.session_present:
            self._subscribed = False
            self._pending.clear()
        if not self._subscribed:
            await probe.subscribe(SubscribeRequest(self.role.topic, self.role.qos))
            self._subscribed = True
            self.ready.set()

    async def _take_for_a_while(self, probe: Probe) -> None:
        until = time.monotonic() + self._dice.uniform(*STAY_S)
        while self._staying or time.monotonic() < until:
            left_s = 1.0 if self._staying else until - time.monotonic()
            with suppress(TimeoutError):
                self._take(probe, await probe.receive(max(0.001, left_s)))
