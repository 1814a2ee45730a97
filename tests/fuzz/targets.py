"""What reads bytes from strangers. A target takes any bytes; anything but the refusals it promises is a finding."""

import contextlib
from collections.abc import Callable

from tests.broker.connections.pretended import received

from geomq.broker.connections.websocket import BadFrame, FrameReader
from geomq.broker.security.broker_certificate import certificate_problem
from geomq.errors import GeomqError, ProtocolError
from geomq.geo import parse_fence, parse_location
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.topics import check_filter, check_topic
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.wire.frames import decode_frame


def _codec(side: Side, version: int) -> Callable[[bytes], object]:
    def feed(data: bytes) -> None:
        decoder = Decoder(side, version=version, size_max=1 << 16)
        with contextlib.suppress(ProtocolError):
            for start in range(0, len(data), 7):
                list(decoder.feed(data[start : start + 7]))

    return feed


def _connection(version: int) -> Callable[[bytes], object]:
    """The broker's side of a connection, fast paths too: the same bytes torn, and again in one piece."""

    def feed(data: bytes) -> None:
        received(version, [data[:7], data[7:], data])

    return feed


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    def parse(data: bytes) -> None:
        with contextlib.suppress(GeomqError):
            read(data.decode("utf-8", "replace"))

    return parse


def _frame(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_frame(data)


def _certificate(data: bytes) -> None:
    certificate_problem("paris", data)


def _websocket(data: bytes) -> None:
    with contextlib.suppress(BadFrame):
        FrameReader().feed(data)


TARGETS: dict[str, Callable[[bytes], object]] = {
    "decoder of a server, MQTT 5": _codec(Side.SERVER, V5),
    "decoder of a server, MQTT 3.1.1": _codec(Side.SERVER, V311),
    "decoder of a client, MQTT 5": _codec(Side.CLIENT, V5),
    "fence": _text(parse_fence),
    "location": _text(parse_location),
    "filter": _text(check_filter),
    "topic": _text(check_topic),
    "frame of a peer": _frame,
    "certificate of a broker": _certificate,
    "WebSocket": _websocket,
    "connection, MQTT 5": _connection(V5),
    "connection, MQTT 3.1.1": _connection(V311),
}
