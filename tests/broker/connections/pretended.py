"""A broker's connections without sockets: its loop runs when it is told to, its transports keep what is written."""

import itertools
import logging
from collections.abc import Callable
from typing import Any

from geomq.broker.config.settings import Config, Limits, Listener
from geomq.broker.packet_handlers import PacketHandlers
from geomq.broker.parts import Parts
from geomq.broker.platform import Platform
from geomq.broker.security.access import Security
from geomq.broker.storage.memory import MemoryStore
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Subscribe, SubscribeRequest
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import Federation
from geomq.routing.node import Node


class PretendedLoop:
    def __init__(self) -> None:
        self.now = 0.0
        self.ready: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.ready.append((callback, args))

    def call_later(self, _delay: float, callback: Callable[..., object], *args: Any) -> None:
        self.now += _delay
        self.ready.append((callback, args))

    def run(self) -> None:
        while self.ready:
            callback, args = self.ready.pop(0)
            callback(*args)


class Failures(logging.Filter):
    """Notes errors inside the broker and keeps the log quiet."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[logging.LogRecord] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info:
            self.seen.append(record)
        return False


class PretendedTransport:
    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data

    def nothing(self, *_: object) -> None: ...

    close = abort = pause_reading = resume_reading = set_write_buffer_limits = set_protocol = nothing

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default


QUICK = Limits(publish_rate_per_s=1e6, location_rate_per_s=1e6)


def handlers_of_a_broker(step_ns: int = 0, limits: Limits = QUICK) -> tuple[PacketHandlers, Any]:
    """Those of a broker for which each step of a connection takes so long."""
    loop: Any = PretendedLoop()
    me = BrokerId("b")
    node = Node(me=me, federation=Federation.alone(me), strategy="single", rng=None)  # type: ignore[arg-type]
    config = Config(limits=limits)
    parts = Parts(
        config,
        loop=loop,
        node=node,
        store=MemoryStore(),
        security=Security(None, None),
        platform=Platform(wall_s=loop.time, turn_ns=itertools.count(0, step_ns or 1).__next__),
    )
    return parts.handlers, loop


def received(version: int, pieces: list[bytes]) -> bytes:
    """What a subscriber to everything, at QoS 0, is sent when a client that is let in sends these bytes.

    Raises what fails inside. Nothing limits the client's rate, so that plain events may take the fast paths.
    """
    handlers, loop = handlers_of_a_broker(limits=Limits())
    log, failures = logging.getLogger("geomq.broker"), Failures()
    log.addFilter(failures)
    try:
        transports = [PretendedTransport(), PretendedTransport()]
        subscriber, publisher = (handlers.make_connection(Listener(host="127.0.0.1")) for _ in transports)
        for connection, transport in zip((subscriber, publisher), transports, strict=True):
            connection.connection_made(transport)
            name = "subscriber" if connection is subscriber else "publisher"
            connection.data_received(encode(Connect(name, version), version))
        subscriber.data_received(encode(Subscribe(1, (SubscribeRequest("#", 0),)), version))
        loop.run()
        transports[0].written.clear()
        for piece in pieces:
            if piece and not publisher.closed:
                publisher.data_received(piece)
            loop.run()
        for connection in (subscriber, publisher):
            connection.connection_lost(None)
        loop.run()
    finally:
        log.removeFilter(failures)
    assert not failures.seen, failures.seen[0].exc_info
    return bytes(transports[0].written)
