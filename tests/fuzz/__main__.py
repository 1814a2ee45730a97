"""Coverage-guided fuzzing of everything that reads bytes from strangers: `python -m tests.fuzz`.

The first byte of the input chooses the target. Anything but the refusals a target promises is a finding.
"""

import contextlib
import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["geomq"]):
    from geomq.broker.connections.websocket import BadFrame, FrameReader
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


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    def parse(data: bytes) -> None:
        with contextlib.suppress(GeomqError):
            read(data.decode("utf-8", "replace"))

    return parse


def _frame(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_frame(data)


def _websocket(data: bytes) -> None:
    with contextlib.suppress(BadFrame):
        FrameReader().feed(data)


TARGETS: list[Callable[[bytes], object]] = [
    _codec(Side.SERVER, V5),
    _codec(Side.SERVER, V311),
    _codec(Side.CLIENT, V5),
    _text(parse_fence),
    _text(parse_location),
    _text(check_filter),
    _text(check_topic),
    _frame,
    _websocket,
]


def one_input(data: bytes) -> None:
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


atheris.Setup(sys.argv, one_input)
atheris.Fuzz()
