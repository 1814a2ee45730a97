"""What reads bytes from strangers. A target takes any bytes; anything but the refusals it promises is a finding.

Where a target has several doors, the first byte chooses. `tests.fuzz.corpus` has examples for each.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.broker.connections.pretended import received
from tests.fuzz.world import ADMIN, CLIENTS, PEERS, WEBSOCKETS, WORLDS

from geomq.broker.config.load import parse_config
from geomq.broker.config.mosquitto_conf import import_mosquitto
from geomq.broker.config.settings import Listener
from geomq.broker.connections.websocket import BadFrame, BadRequest, FrameReader, accept_upgrade
from geomq.broker.security.acl import parse_acl
from geomq.broker.security.broker_certificate import certificate_problem
from geomq.broker.security.passwords import parse_passwords
from geomq.errors import GeomqError, ProtocolError
from geomq.geo import parse_fence, parse_location
from geomq.mqtt.codec.decoder import Decoder, Side
from geomq.mqtt.codec.topics import check_filter, check_topic
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.strategies.registry import STRATEGIES
from geomq.routing.wire.frames import decode_frame

Feed = Callable[[bytes], object]

FEDERATED = tuple(name for name in STRATEGIES if name != "single")
PIECES_MAX = 20


def _one_of(*doors: Feed) -> Feed:
    def feed(data: bytes) -> None:
        if data:
            doors[data[0] % len(doors)](data[1:])

    return feed


def _decoder(side: Side, version: int) -> Feed:
    def feed(data: bytes) -> None:
        decoder = Decoder(side, version=version, size_max=1 << 16)
        with contextlib.suppress(ProtocolError):
            for start in range(0, len(data), 7):
                list(decoder.feed(data[start : start + 7]))

    return feed


def _admitted(version: int) -> Feed:
    """The broker's side of a connection, fast paths too: the same bytes torn, and again in one piece."""

    def feed(data: bytes) -> None:
        received(version, [data[:7], data[7:], data])

    return feed


def _stranger(port: int, strategy: str = "single") -> Feed:
    """Somebody at a port of a whole broker: the bytes torn, and in one piece."""

    def feed(data: bytes) -> None:
        WORLDS.play(lambda world: [world.send(port, pieces) for pieces in ((data[:7], data[7:]), (data,))], strategy)

    return feed


def _peer(data: bytes) -> None:
    """A peer that is linked, under a strategy that the first byte chooses."""
    if data:
        chosen = FEDERATED[data[0] % len(FEDERATED)]
        WORLDS.play(lambda world: world.speak_as_peer(lambda epoch: list(peer_frames(data[1:], epoch))), chosen)


def peer_frames(data: bytes, epoch: int) -> Iterator[bytes]:
    """Frames of a link: each has a byte for its kind and one for its length before it. Kind 0 is a frame as it is, the
    others are a message to which this adds the envelope with the number that is expected, so that it is not ignored."""
    number, at = 1, 0
    for _ in range(PIECES_MAX):
        if at + 2 > len(data):
            return
        kind, length = data[at], data[at + 1] or 256
        body, at = data[at + 2 : at + 2 + length], at + 2 + length
        if kind == 0:
            yield body
        else:
            yield b"\x94\x01\xce%b\xce%b%b" % (epoch.to_bytes(4), number.to_bytes(4), body)
            number += 1


def _text(read: Callable[[str], object]) -> Feed:
    def parse(data: bytes) -> None:
        with contextlib.suppress(GeomqError):
            read(data.decode("utf-8", "replace"))

    return parse


def _frame(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_frame(data)


def _certificate(data: bytes) -> None:
    certificate_problem("paris", data)


def _websocket_frames(data: bytes) -> None:
    with contextlib.suppress(BadFrame):
        FrameReader().feed(data)


def _upgrade(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        accept_upgrade(data, Listener(kind="websocket", host="127.0.0.1", path="/mqtt", origins=("https://a.example",)))


def _config(text: str) -> None:
    parse_config(text, name="config", base=Path("/nowhere"), files=False)


def _mosquitto(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="geomq-fuzz-") as folder, contextlib.suppress(GeomqError):
        path = Path(folder, "mosquitto.conf")
        path.write_bytes(data)
        import_mosquitto(path)


TARGETS: dict[str, Feed] = {
    "codec": _one_of(_decoder(Side.SERVER, V5), _decoder(Side.SERVER, V311), _decoder(Side.CLIENT, V5)),
    "connection": _one_of(_admitted(V5), _admitted(V311), _stranger(CLIENTS), _stranger(CLIENTS, "disgb_events")),
    "websocket": _one_of(_websocket_frames, _upgrade, _stranger(WEBSOCKETS)),
    "peer": _one_of(_frame, _peer, _stranger(PEERS, "disgb_events")),
    "certificate": _certificate,
    "geometry": _one_of(_text(parse_fence), _text(parse_location)),
    "topic": _one_of(_text(check_filter), _text(check_topic)),
    "config": _one_of(
        _text(_config),
        _text(lambda text: parse_acl(text, name="acl")),
        _text(lambda text: parse_passwords(text, name="users")),
        _mosquitto,
    ),
    "admin": _stranger(ADMIN),
}
