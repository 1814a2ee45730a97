"""Publishes to one broker over several connections, as fast as the broker acknowledges. Runs on executors.

Events of one topic share a connection, so their order is kept. No more are under way than the broker grants. A lost
connection is taken up again and what was not acknowledged is sent again; a refusal ends everything with one line.
"""

import selectors
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from geomq.errors import DataError, ProtocolError
from geomq.mqtt.decoder import Decoder, Side
from geomq.mqtt.encode import publish_parts
from geomq.mqtt.packets import Disconnect, Pingresp, Puback, Publish
from geomq.mqtt.properties import NO_PROPERTIES, Properties
from geomq.mqtt.types import V5
from geomq.pipeline.streaming.connection import Connection
from geomq.pipeline.streaming.options import Address, Login

WAITING_MAX = 2_000
"""Events that wait for one connection before more rows are taken."""
WINDOW_MAX = 4_096
KEEP_ALIVE_S = 60
RETRY_S_MAX = 5.0


class Packet(NamedTuple):
    """A PUBLISH around its packet identifier, which one of QoS 0 has not, and its topic for complaints."""

    head: bytes
    tail: bytes
    topic: str
    qos: int


class Lane:
    """One connection and what goes over it."""

    def __init__(self, address: Address, login: Login, client_id: str) -> None:
        self._address = address
        self._login = login
        self._client_id = client_id
        self._next_id = 1
        self.waiting: deque[Packet] = deque()
        self.under_way: dict[int, Packet] = {}
        self.connect()

    def connect(self) -> None:
        self.connection = Connection.open(
            self._address, self._login, self._client_id, clean=True, keep_alive_s=KEEP_ALIVE_S
        )
        self._decoder = Decoder(Side.CLIENT, version=self._login.version)
        granted = self.connection.connack.properties.receive_maximum or 65_535
        self.window = min(granted, WINDOW_MAX)
        # In the order of the first time; their repeats keep the order of their topics.
        self.waiting.extendleft(reversed(self.under_way.values()))
        self.under_way = {}

    @property
    def busy(self) -> int:
        return len(self.waiting) + len(self.under_way)

    def push(self) -> None:
        """Send what the window allows, in the order it came: the numbers of a writer must only rise."""
        out: list[bytes] = []
        while self.waiting and (len(self.under_way) < self.window or not self.waiting[0].qos):
            packet = self.waiting.popleft()
            if not packet.qos:
                out.append(packet.head + packet.tail)
                continue
            packet_id = self._next_id
            while packet_id in self.under_way:
                packet_id = packet_id % 65_535 + 1
            self._next_id = packet_id % 65_535 + 1
            self.under_way[packet_id] = packet
            out.append(b"%b%c%c%b" % (packet.head, packet_id >> 8, packet_id & 0xFF, packet.tail))
        if out:
            self.connection.send(b"".join(out))

    def take(self) -> None:
        """Read acknowledgements."""
        data, self.connection.rest = self.connection.rest, b""
        data += self.connection.receive(0.0) or b""
        for packet in self._decoder.feed(data):
            if isinstance(packet, Puback):
                done = self.under_way.pop(packet.packet_id, None)
                if done is not None and packet.reason >= 0x80:
                    said = packet.properties.reason_string or packet.reason.name.lower().replace("_", " ")
                    raise DataError(f"broker {self._address} refuses an event on {done.topic[:80]!r}: {said}")
            elif isinstance(packet, Disconnect):
                raise ConnectionResetError(f"broker {self._address} ends the connection: {packet.reason.name.lower()}")
            elif not isinstance(packet, Pingresp):
                raise ProtocolError(f"broker {self._address} sends {type(packet).__name__}")


class Outlet:
    """Publish, then `flush`; use it as a context."""

    def __init__(self, address: Address, login: Login, client_id: str, *, connections: int, timeout_s: float) -> None:
        self._address = address
        self._version = login.version
        self._timeout_s = timeout_s
        self._lanes: list[Lane] = []
        self._selector = selectors.DefaultSelector()
        try:
            for number in range(connections):
                lane = Lane(address, login, f"{client_id}-{number}")
                self._lanes.append(lane)
                self._selector.register(lane.connection.socket, selectors.EVENT_READ, lane)
        except OSError as error:
            self.close()
            raise DataError(f"broker {address} cannot be reached: {error}") from None

    def __enter__(self) -> "Outlet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lane_of(self, topic: str) -> int:
        """Which connection a topic's events take; the same in every run."""
        return sum(topic.encode()) % len(self._lanes)

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool, properties: Properties) -> None:
        lane = self._lanes[self.lane_of(topic)]
        head, tail = publish_parts(
            Publish(topic, payload, qos, retain, properties=properties if self._version == V5 else NO_PROPERTIES),
            self._version,
        )
        lane.waiting.append(Packet(head, tail, topic, qos))
        if len(lane.waiting) >= WAITING_MAX:
            self._run(until=WAITING_MAX // 2)

    def flush(self) -> None:
        """Return when everything is acknowledged."""
        self._run(until=0)

    def _run(self, *, until: int) -> None:
        """Send and listen until no connection has more than `until` events waiting, or with 0 unacknowledged."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            for lane in self._lanes:
                self._try(lane, lane.push, deadline)
            if max((len(lane.waiting) if until else lane.busy) for lane in self._lanes) <= until:
                return
            before = self.busy
            for key, _ in self._selector.select(1.0):
                self._try(key.data, key.data.take, deadline)
            if self.busy < before:
                deadline = time.monotonic() + self._timeout_s
            elif time.monotonic() > deadline:
                raise DataError(f"broker {self._address} has acknowledged nothing for {self._timeout_s:g} s")

    @property
    def busy(self) -> int:
        """Events not yet acknowledged."""
        return sum(lane.busy for lane in self._lanes)

    def _try(self, lane: Lane, act: Callable[[], None], deadline: float) -> None:
        """Do it; if the connection breaks, connect again, and what is not acknowledged goes out again."""
        try:
            act()
        except OSError as error:
            self._selector.unregister(lane.connection.socket)
            lane.connection.close()
            pause_s = 0.1
            while time.monotonic() < deadline:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
                try:
                    lane.connect()
                except OSError:
                    continue
                self._selector.register(lane.connection.socket, selectors.EVENT_READ, lane)
                return
            raise DataError(f"broker {self._address} cannot be reached: {error}") from None

    def close(self) -> None:
        self._selector.close()
        for lane in self._lanes:
            lane.connection.close()
