"""Publishes to one broker over several connections, as fast as the broker acknowledges. Runs on executors.

Events of one topic share a connection, so their order is kept. No more are under way than the broker grants. A lost
connection is taken up again and what was not acknowledged is sent again; a refusal ends everything with one line.
"""

import random
import selectors
import time
from collections.abc import Callable

from geomq.errors import DataError
from geomq.mqtt.client.backoff import Backoff
from geomq.mqtt.client.events import Acknowledged, Dropped, Ended, Event, words
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.types import V5
from geomq.pipeline.streaming.connection import Connection
from geomq.pipeline.streaming.options import Address, Login

WAITING_MAX = 2_000
"""Events that wait for one connection before more rows are taken."""
WINDOW_MAX = 4_096
KEEP_ALIVE_S = 60
RETRY_S = (0.1, 5.0)


class Stream:
    """One connection and what goes over it, in the order it came: the numbers of a writer must only rise."""

    def __init__(self, address: Address, login: Login, client_id: str) -> None:
        self._address = address
        self.connection = Connection.open(
            address,
            login,
            client_id,
            clean=True,
            keep_alive_s=KEEP_ALIVE_S,
            in_flight_max=WINDOW_MAX,
            queue_max=WAITING_MAX + WINDOW_MAX,
        )
        self.session = self.connection.session

    @property
    def waiting(self) -> int:
        """Events not sent yet."""
        return self.session.requests.messages

    @property
    def busy(self) -> int:
        """Events not finished."""
        return len(self.session.requests)

    def push(self) -> None:
        """Send what the window allows."""
        self.connection.link.flush()
        self._check(self.session.take_events())

    def take(self) -> None:
        """Read acknowledgements."""
        self._check(self.connection.link.step(0.0))

    def _check(self, events: list[Event]) -> None:
        for event in events:
            why = None
            if isinstance(event, Acknowledged) and event.refusal is not None:
                why = event.properties.reason_string or words(event.refusal).lower()
            elif isinstance(event, Dropped):
                why = event.why
            if why is not None:
                assert isinstance(event, Acknowledged | Dropped)
                raise DataError(f"broker {self._address} refused an event on {event.request.subject!r}: {why}")
        for event in events:
            if isinstance(event, Ended):
                raise self.connection.link.ended(event)


class Publisher:
    """Publish, then `flush`; use it as a context."""

    def __init__(self, address: Address, login: Login, client_id: str, *, connections: int, timeout_s: float) -> None:
        self._address = address
        self._version = login.version
        self._timeout_s = timeout_s
        self._streams: list[Stream] = []
        self._selector = selectors.DefaultSelector()
        try:
            for number in range(connections):
                stream = Stream(address, login, f"{client_id}-{number}")
                self._streams.append(stream)
                self._selector.register(stream.connection.link.sock, selectors.EVENT_READ, stream)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise DataError(f"broker {address} cannot be reached: {error}") from None
            raise

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stream_of(self, topic: str) -> int:
        """Which connection a topic's events take; the same in every run."""
        return sum(topic.encode()) % len(self._streams)

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool, properties: Properties) -> None:
        stream = self._streams[self.stream_of(topic)]
        packet = Publish(topic, payload, qos, retain, properties=properties if self._version == V5 else NO_PROPERTIES)
        stream.session.publish(packet, time.monotonic())
        if stream.waiting >= WAITING_MAX:
            self._run(until=WAITING_MAX // 2)

    def flush(self) -> None:
        """Return when everything is acknowledged."""
        self._run(until=0)

    def _run(self, *, until: int) -> None:
        """Send and listen until no connection has more than `until` events waiting, or with 0 unacknowledged."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            for stream in self._streams:
                self._try(stream, stream.push, deadline)
            if max((stream.waiting if until else stream.busy) for stream in self._streams) <= until:
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
        return sum(stream.busy for stream in self._streams)

    def _try(self, stream: Stream, act: Callable[[], None], deadline: float) -> None:
        """Do it; if the connection breaks, connect again, and what is not acknowledged goes out again."""
        try:
            act()
        except OSError as error:
            self._selector.unregister(stream.connection.link.sock)
            stream.connection.link.disconnect()
            backoff = Backoff(*RETRY_S)
            while time.monotonic() < deadline:
                time.sleep(backoff.pause_s(random.random()))
                try:
                    stream.connection.connect()
                except OSError:
                    continue
                self._selector.register(stream.connection.link.sock, selectors.EVENT_READ, stream)
                return
            raise DataError(f"broker {self._address} cannot be reached: {error}") from None

    def close(self) -> None:
        self._selector.close()
        for stream in self._streams:
            stream.connection.close()
