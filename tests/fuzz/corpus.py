"""A small corpus for every target: what well-behaved clients, peers, people and browsers send, and what once broke.

Fuzzing begins with these, and the ordinary tests feed all of them.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from tests.routing.message_examples import EXAMPLES

from geomq.broker.config.load import default_config
from geomq.broker.config.text import config_text
from geomq.broker.peers.channel import Greeting, Proof
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsubscribe,
    Will,
)
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.wire.frames import PROTOCOL_VERSION, encode_frame
from geomq.routing.wire.link import Ack, Data, Hello, Run

FENCE, PLACE = "geo:48.88,2.36;u=50000", "48.88,2.36"
_USER = Properties(user_properties=(("geo-location", PLACE), ("geo-fence", FENCE)))
CONNECT = Connect("car", V5, clean_start=False, will=Will("gone", b"x", 1), properties=_USER)

CLIENT_PACKETS: tuple[Packet, ...] = (
    Subscribe(1, (SubscribeRequest("a/+", 2), SubscribeRequest("$share/g/b/#", 1)), properties=_USER),
    Publish("a/b", b"x", 0, properties=_USER),
    Publish("a/b", b"y", 1, retain=True, packet_id=2),
    Publish("a/b", b"z", 2, packet_id=3, properties=Properties(topic_alias=1, message_expiry_interval=5)),
    Publish("$geo/location", PLACE.encode(), 0),
    Publish("$geo/fence/home", FENCE.encode(), 0),
    Pubrel(3),
    Puback(1),
    Pubrec(2),
    Pubcomp(2),
    Unsubscribe(4, ("a/+",)),
    Pingreq(),
    Disconnect(),
)
SERVER_PACKETS: tuple[Packet, ...] = (
    Connack(properties=Properties(receive_maximum=5)),
    Suback(1, (ReasonCode.SUCCESS,)),
    Publish("a"),
)

FENCES = (
    FENCE,
    "POLYGON ((0 0, 0 5, 5 5, 5 0, 0 0), (1 1, 1 2, 2 2, 1 1))",
    "MULTIPOLYGON (((0 0, 0 1, 1 1, 0 0)), ((5 5, 5 6, 6 6, 5 5)))",
    '{"type": "Polygon", "coordinates": [[[0, 0], [0, 5], [5, 5], [0, 0]]]}',
    '{"type": "MultiPolygon", "coordinates": [[[[0, 0], [0, 1], [1, 1], [0, 0]]]]}',
    "here;u=500",
)
LOCATIONS = (PLACE, "geo:48.88,2.36", "geo:-90,180;u=3;crs=wgs84")
FILTERS = ("a/+/c/#", "$share/group/a/#", "$geo/within/geo:1,2;u=3/a/#", "+", "a//b")

UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost:9001\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
    b"Origin: http://localhost\r\n\r\n"
)
REQUESTS = (
    "GET /health",
    "GET /metrics",
    "GET /openapi.json",
    "GET /api/v1/config",
    "GET /api/v1/sessions?limit=5&after=a",
    "GET /api/v1/sessions/watcher",
    "DELETE /api/v1/sessions/watcher?discard=true",
    "GET /api/v1/subscriptions?limit=1",
    "GET /api/v1/trace?since=1&limit=7",
    "GET /api/v1/federation",
    "DELETE /api/v1/federation/peers/berlin?dry_run=1",
)
BODIES = (
    ("POST /api/v1/federation/peers", b'{"name": "rome", "address": "r:1", "location": "1,2", "strategy": "mesh"}'),
    ("PUT /api/v1/federation/areas", b'{"kind": "given", "areas": {"paris": "geo:1,2;u=3"}}'),
    ("POST /api/v1/federation/strategy?dry_run=true", b'{"strategy": "mesh", "options": {"links": [["a", "b"]]}}'),
)
ACL = "user ann\ntopic readwrite a/#\ntopic deny b\npattern write c/%u/%c\nfence geo:1,2;u=3 a/#\n"
USERS = "ann:$7$1000$c2FsdHNhbHQ=$" + "A" * 86 + "==\n# a comment\n"
MOSQUITTO = (
    "listener 1883 0.0.0.0\nallow_anonymous true\nmax_queued_messages 0\npersistent_client_expiration 2w\n"
    "connection b\naddress h:1883\ntopic a/# both 2 x/ y/\nlog_type all\ninclude_dir conf.d\nprotocol websockets\n"
)


def _masked(payload: bytes, first: int = 0x82) -> bytes:
    """A frame as browsers send it; a mask of zeros leaves the payload readable to the fuzzer."""
    return bytes((first, 0x80 | len(payload))) + bytes(4) + payload


def _peer_input(messages: Iterable[bytes]) -> bytes:
    return b"".join(bytes((1, len(each) & 0xFF)) + each for each in messages if len(each) <= 256)


def _asking(request: str, body: bytes) -> bytes:
    head = f"{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


NESTED = b"[" * 900 + b"]" * 900
ONCE_BROKE: dict[str, list[bytes]] = {
    "admin": [
        b'POST /api/v1/federation/peers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n{"name": "\xed"}',
        b"PUT /api/v1/federation/areas HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
        _asking("POST /api/v1/federation/strategy", b'{"strategy": "mesh", "options": {"a": %b}}' % (b"1" * 40)),
        _asking("POST /api/v1/federation/strategy", b'{"strategy": "mesh", "options": {"a": %b}}' % NESTED),
        _asking("PUT /api/v1/federation/areas", b'{"kind": "grid", "grid_deg": %b}' % (b"1" * 40)),
    ],
    "config": [b"\x03include_dir a\x00b\n"],
    "peer": [b"\x02\x00\x00\x00\x1d\x95\xa5geomq\x07\xa2\xff\xff\xc4\x10" + bytes(16) + b"\x05"],
}
"""Text that is not UTF-8 in JSON and in a greeting, a body that ends early, options that no message can carry, a path
with NUL."""


def _codec() -> list[bytes]:
    server = [
        bytes((door,)) + encode(packet, version)
        for door, version in ((0, V5), (1, V311))
        for packet in (msgspec.structs.replace(CONNECT, version=version), *CLIENT_PACKETS)
    ]
    return server + [b"\x02" + encode(packet, V5) for packet in SERVER_PACKETS]


def _connection() -> list[bytes]:
    all_of = {
        version: b"".join(encode(packet, version) for packet in CLIENT_PACKETS[:-1]) + encode(Disconnect(), version)
        for version in (V5, V311)
    }
    burst = b"".join(encode(Publish("a/b", b"n", qos, packet_id=9 * qos), V5) for qos in (0, 0, 1, 1, 0, 0))
    opening = {version: encode(msgspec.structs.replace(CONNECT, version=version), version) for version in all_of}
    return [
        b"\x00" + all_of[V5],
        b"\x01" + all_of[V311],
        b"\x00" + burst,
        *(bytes((door,)) + opening[version] + all_of[version] for door in (2, 3) for version in all_of),
    ]


def _peer() -> list[bytes]:
    wired = [encode_frame(Data(1, 1, message)) for message in EXAMPLES.values()]
    bodies = [frame[4:] for frame in wired]  # behind the head of the array, its tag, the epoch and the number
    frames = [Hello(1, 1, None, 0, True), Ack(1, 1), Run(1, 1, tuple(EXAMPLES.values())[:5])]
    opening = [msgspec.msgpack.encode(Greeting("geomq", PROTOCOL_VERSION, "berlin", bytes(16), 5)), b"\x91\xc4\x00"]
    assert msgspec.msgpack.decode(opening[1], type=Proof) == Proof(b"")
    return [
        *(b"\x00" + frame for frame in wired),
        *(b"\x00" + encode_frame(frame) for frame in frames),
        *(bytes((1, strategy)) + _peer_input(bodies[:20]) for strategy in range(10)),
        *(bytes((1, number % 10)) + _peer_input((body,)) for number, body in enumerate(bodies)),
        b"\x02" + b"".join(len(each).to_bytes(4) + each for each in opening),
    ]


def _websocket() -> list[bytes]:
    mqtt = encode(CONNECT, V5)
    frames = _masked(mqtt[:9], 0x02) + _masked(mqtt[9:], 0x80) + _masked(b"x", 0x89) + _masked(b"\x03\xe8", 0x88)
    return [b"\x00" + frames, b"\x01" + UPGRADE[:-4], b"\x02" + UPGRADE + frames]


def _admin() -> list[bytes]:
    asked = [f"{request} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for request in REQUESTS]
    return asked + [_asking(request, body) for request, body in BODIES]


def _certificate() -> list[bytes]:
    return [path.read_bytes() for path in sorted((Path(__file__).parent / "certificates").glob("*.der"))]


CORPUS: dict[str, list[bytes]] = {
    "codec": _codec(),
    "connection": _connection(),
    "websocket": _websocket(),
    "peer": _peer(),
    "certificate": _certificate(),
    "geometry": [b"\x00" + text.encode() for text in FENCES] + [b"\x01" + text.encode() for text in LOCATIONS],
    "topic": [bytes((door,)) + text.encode() for door in (0, 1) for text in FILTERS],
    "config": [
        b"\x00" + config_text(default_config()).encode(),
        b"\x00[[listeners]]\nkind = 'tls'\n[auth]\nanonymous = 'never'\n[federation]\nadmit = ['rome', 'edge-*']\n",
        b"\x01" + ACL.encode(),
        b"\x02" + USERS.encode(),
        b"\x03" + MOSQUITTO.encode(),
    ],
    "admin": _admin(),
}
for _target, _inputs in ONCE_BROKE.items():
    CORPUS[_target] += _inputs
