"""Clients that never give up: streams of numbered events, and receivers that keep their sessions.

Both are faces of the client session, which repeats what was not acknowledged and takes QoS 2 once. They write down what
was acknowledged and what arrived, for the ledger to judge later: a session that a broker forgot shows as events that
were lost or came twice.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from geomq.mqtt.client.backoff import Backoff
from geomq.mqtt.client.events import Accepted, Event, Request
from geomq.mqtt.client.events import Acknowledged as Answer
from geomq.mqtt.client.events import Connected as Welcome
from geomq.mqtt.client.session import ClientSession
from geomq.mqtt.client.terms import ClientPolicy
from geomq.mqtt.codec.packets import Connect, Publish, Subscribe, SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5
from geomq.testbed.ledger import Acknowledged, Connected, Entry, Received
from geomq.transport.address import Address
from geomq.transport.link import ClientLink, End
from geomq.vocabulary import FENCE_PROPERTY, LOCATION_PROPERTY

IN_FLIGHT_MAX = 10
RECEIVE_MAXIMUM = 1_000
"""So much may be on its way to a receiver that it keeps up with several senders."""
RETRY_S = 0.1
SILENT_S = 1.5
"""A client asks that often whether its broker is there; one that does not answer as long is taken for gone."""
SESSION_S = 3600
STAY_S = (0.2, 3.0)
"""How long a hopper is at a broker."""
LEAVES_POLITELY = 0.5
"""How often it says goodbye; else its connection is gone all of a sudden."""
LIFE_S = 0.5
"""How long a client lives that dies again and again, and how long it stays away."""
HOST = "127.0.0.1"

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

    def session(self, version: int = V5, *, resubscribes: bool = False) -> ClientSession:
        """A session that its broker keeps."""
        properties = Properties()
        if version == V5:
            properties = Properties(
                session_expiry_interval=SESSION_S,
                receive_maximum=RECEIVE_MAXIMUM,
                user_properties=((LOCATION_PROPERTY, self.at),),
            )
        connect = Connect(self.name, version, clean_start=False, keep_alive=30, properties=properties)
        return ClientSession(connect, ClientPolicy(ping_s=SILENT_S, answer_s=SILENT_S, resubscribes=resubscribes))

    @property
    def fenced(self) -> Properties:
        return Properties(user_properties=() if self.fence is None else ((FENCE_PROPERTY, self.fence),))


def lasting_link(session: ClientSession, port: int, handle: Callable[[Event], None]) -> ClientLink:
    """A connection to a broker that is made again and again."""
    address, backoff = Address(HOST, port), Backoff(RETRY_S, RETRY_S)
    return ClientLink(session, address, handle=handle, again=lambda _: True, backoff=backoff)


async def die_repeatedly(connect: Connect, port: int) -> None:
    """Connect again and again, and each time end without a DISCONNECT."""
    session = ClientSession(connect, ClientPolicy())
    while True:
        link = ClientLink(session, Address(HOST, port), handle=lambda _: None, again=lambda _: False)
        connection = asyncio.create_task(link.run())
        try:
            await asyncio.wait((connection,), timeout=LIFE_S)
        finally:
            if link.channel is not None:
                link.channel.close("a client died")
            connection.cancel()
            await asyncio.gather(connection, return_exceptions=True)
        await asyncio.sleep(LIFE_S)


class Sender:
    """Publishes `name:number` at a steady rate until told to stop, then until everything is acknowledged."""

    def __init__(self, role: Role, note: Note, *, per_s: float) -> None:
        self.role = role
        self.ready = asyncio.Event()
        self.published = 0
        self._note = note
        self._gap_s = 1.0 / per_s
        self._stopping = False
        self._session = role.session()
        self._link = lasting_link(self._session, role.port, self._on_event)

    def stop(self) -> None:
        """No new events."""
        self._stopping = True

    @property
    def finished(self) -> bool:
        return self._stopping and not len(self._session.requests)

    async def run(self) -> None:
        staying = asyncio.create_task(self._link.run())
        try:
            await self._publish_steadily()
        finally:
            staying.cancel()
            await asyncio.gather(staying, return_exceptions=True)

    async def _publish_steadily(self) -> None:
        due = time.monotonic()
        while not self.finished:
            now = time.monotonic()
            full = len(self._session.requests) >= IN_FLIGHT_MAX
            if now >= due and not full and self._session.up and not self._stopping:
                due = max(due + self._gap_s, now - 1.0)
                self._publish_next()
            else:
                await asyncio.sleep(max(0.001, min(0.05, due - now)))

    def _publish_next(self) -> None:
        role = self.role
        self.published += 1
        event = f"{role.name}:{self.published}"
        packet = Publish(role.topic, event.encode(), role.qos, properties=role.fenced)
        self._session.publish(packet, asyncio.get_running_loop().time(), tag=event)
        self._link.flush()

    def _on_event(self, event: Event) -> None:
        match event:
            case Welcome():
                self.ready.set()
            case Accepted(request=request):
                self._acknowledged(request)
            case Answer(request=request, refusal=None) if request.qos < 2:
                self._acknowledged(request)

    def _acknowledged(self, request: Request) -> None:
        role = self.role
        at_ms = time.time() * 1000.0
        self._note(Acknowledged(str(request.tag), role.topic, role.at, role.fence, role.qos, at_ms))


class Receiver:
    """Subscribes once, with a session that is kept, and takes everything that comes."""

    def __init__(self, role: Role, note: Note) -> None:
        self.role = role
        self.ready = asyncio.Event()
        self._note = note
        self._session = role.session()
        self._session.subscribe(SubscribeRequest(role.topic, role.qos), properties=role.fenced)

    async def run(self) -> None:
        await lasting_link(self._session, self.role.port, self._on_event).run()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Publish):
            payload, at_ms = event.payload.decode(errors="replace"), time.time() * 1000.0
            self._note(Received(payload, self.role.name, event.topic, event.qos, at_ms, event.dup))
        elif isinstance(event, Answer) and isinstance(event.request.packet, Subscribe):
            self.ready.set()


class Hopper(Receiver):
    """A receiver that goes from broker to broker with its session until it is told to stay."""

    def __init__(
        self, role: Role, note: Note, *, ports: Mapping[str, int], dice: random.Random, version: int, first: str
    ) -> None:
        super().__init__(role, note)
        self._session = role.session(version, resubscribes=True)
        self._session.subscribe(SubscribeRequest(role.topic, role.qos))
        self.hops = 0
        self._ports = ports
        self._dice = dice
        self._at = first
        self._until = 0.0
        self._staying = False

    def stay(self) -> None:
        """No more hops but those away from a broker that is not there."""
        self._staying = True

    async def run(self) -> None:
        while True:
            address = Address(HOST, self._ports[self._at])
            link = ClientLink(self._session, address, handle=self._on_event, again=lambda _: False)
            connection = asyncio.create_task(link.run())
            try:
                await self._stay_for_a_while(connection)
                if self._dice.random() >= LEAVES_POLITELY and link.channel is not None:
                    link.channel.close("a hop without a DISCONNECT")
            finally:
                connection.cancel()
                await asyncio.gather(connection, return_exceptions=True)
            self._at = self._dice.choice([name for name in self._ports if name != self._at])
            await asyncio.sleep(RETRY_S * self._dice.uniform(0.1, 1.0))

    async def _stay_for_a_while(self, connection: "asyncio.Task[End]") -> None:
        """Until the connection ends or it is time to go; the time begins when the broker accepts the connection."""
        self._until = float("inf")
        while not connection.done() and (self._staying or time.monotonic() < self._until):
            await asyncio.wait((connection,), timeout=0.05)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Welcome):
            self.hops += 1
            self._until = time.monotonic() + self._dice.uniform(*STAY_S)
            present = event.connack.session_present
            self._note(Connected(self.role.name, self._at, present, time.time() * 1000.0))
        super()._on_event(event)
