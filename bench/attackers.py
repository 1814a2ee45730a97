"""What attackers do: each goes on until it is told to stop, in a process of its own, and comes back when sent away.

They know a broker's ports and nothing of what is measured.
"""

import contextlib
import os
import socket
import struct
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count, product
from typing import Protocol

from bench.swarm import V5, clock, connect, publish, read_packet, subscribe
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Publish, Subscribe, SubscribeRequest, Unsubscribe, Will
from geomq.mqtt.codec.properties import Properties

USERS = 12


class Stop(Protocol):
    """Says when it is enough."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Ports(Protocol):
    """Where the broker is."""

    port: int
    tls_port: int
    websocket_port: int
    admin_port: int


Attack = Callable[[Ports, Stop], None]


class Closed(Exception):  # noqa: N818
    """The broker ended the attacker's connection."""


def _session(broker: Ports, name: str) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", broker.port))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200_000))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200_000))
    made.sendall(connect(f"{name}-{os.getpid()}", version=V5))
    return made


def _pour(made: socket.socket, data: bytes, stop: Stop) -> None:
    """Send it, and throw away what comes back."""
    view = memoryview(data)
    made.setblocking(False)
    while view and not stop.is_set():
        with contextlib.suppress(BlockingIOError):
            while True:
                if not made.recv(1 << 18):
                    raise Closed
        try:
            view = view[made.send(view) :]
        except BlockingIOError:
            time.sleep(0.001)


def _again(attack: Attack) -> Attack:
    """Come back whenever the broker ends the connection."""

    def attack_again(broker: Ports, stop: Stop) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, Closed):
                attack(broker, stop)

    return attack_again


def _located(topic: str, payload: bytes = b"") -> bytes:
    return encode(Publish(topic, payload, properties=Properties(user_properties=(("geo-location", "1,2"),))), V5)


@_again
def many_patterns(broker: Ports, stop: Stop) -> None:
    """Filters with their wildcards everywhere, and 252 kB of events at a time that match all of them."""
    made = _session(broker, "patterns")
    filters = ["bench/" + "/".join(levels) for levels in product("a+", repeat=12)]
    requests = tuple(SubscribeRequest(each) for each in filters)
    _pour(made, encode(Subscribe(1, requests), V5), stop)
    packet = _located("bench/" + "/".join("a" * 12))
    while not stop.is_set():
        _pour(made, packet * (252_000 // len(packet)), stop)


@_again
def many_vertices(broker: Ports, stop: Stop) -> None:
    """A hundred fences of 900 points, and 225 kB of location updates at a time."""
    made = _session(broker, "vertices")
    for number in range(100):
        _pour(made, publish(f"$geo/fence/f{number}", _comb(900).encode(), version=V5), stop)
    moves = b"".join(publish("$geo/location", b"%.4f,5" % (0.5 + i % 7 / 100), version=V5) for i in range(8_000))
    while not stop.is_set():
        _pour(made, moves, stop)


def _comb(teeth: int) -> str:
    """A polygon of which every edge is as long as the whole."""
    edge = [(tooth * 20 / teeth, 0.0 if tooth % 2 else 0.9) for tooth in range(teeth - 2)]
    points = [(0.0, 1.0), *edge, (20.0, 1.0), (0.0, 1.0)]
    return "POLYGON((" + ", ".join(f"{lon:.4f} {lat:.1f}" for lon, lat in points) + "))"


@_again
def many_properties(broker: Ports, stop: Stop) -> None:
    made = _session(broker, "properties")
    packet = encode(Publish("bench/p", properties=Properties(user_properties=(("", ""),) * 390_000)), V5)
    while not stop.is_set():
        _pour(made, packet, stop)


@_again
def many_filters(broker: Ports, stop: Stop) -> None:
    """9,900 filters in one packet, taken back, and again."""
    made = _session(broker, "filters")
    filters = [f"bench/{number}/{'x/' * 5}+" for number in range(9_900)]
    there = encode(Subscribe(1, tuple(SubscribeRequest(each) for each in filters)), V5)
    gone = encode(Unsubscribe(2, tuple(filters)), V5)
    while not stop.is_set():
        _pour(made, there + gone, stop)


@_again
def come_and_go(broker: Ports, stop: Stop) -> None:
    """9,900 filters, then leave, so that all of them have to be forgotten at once."""
    made = _session(broker, "going")
    filters = [f"bench/{number}/{'x/' * 5}+" for number in range(9_900)]
    _pour(made, encode(Subscribe(1, tuple(SubscribeRequest(each) for each in filters)), V5), stop)
    answered = 0
    while answered < len(filters) and not stop.is_set():
        with contextlib.suppress(BlockingIOError):
            answered += len(made.recv(1 << 18))
        time.sleep(0.005)
    made.close()


@_again
def flood(broker: Ports, stop: Stop) -> None:
    """As many plain events as the broker takes, on ever other topics."""
    made = _session(broker, "flood")
    packets = b"".join(publish(f"bench/{number % 999}", b"x" * (number % 7), version=V5) for number in range(10_000))
    while not stop.is_set():
        _pour(made, packets, stop)


def silent_handshakes(broker: Ports, stop: Stop) -> None:
    """1,500 sockets that begin TLS and say nothing, opened anew when they are closed."""
    sockets: list[socket.socket] = []
    while not stop.is_set():
        while len(sockets) < 1_500 and not stop.is_set():
            made = socket.socket()
            made.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                made.connect(("127.0.0.1", broker.tls_port))
            sockets.append(made)
        stop.wait(0.2)
        for made in sockets[:300]:
            made.close()
        del sockets[:300]
    for made in sockets:
        made.close()


def logins_and_away(broker: Ports, stop: Stop) -> None:
    """1,000 times a second or so: CONNECT with a wrong password, and gone."""
    while not stop.is_set():
        for number in range(1_000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", broker.port)) as made:
                made.sendall(encode(Connect(f"x{number}", V5, username=f"user{number % USERS}", password=b"no"), V5))
        stop.wait(0.5)


def log_in(broker: Ports, _stop: Stop) -> dict[str, float]:
    """How long it takes a user that was not seen before, at worst."""
    took = []
    for number in range(USERS):
        begin = clock()
        with socket.create_connection(("127.0.0.1", broker.port), 60.0) as made:
            made.sendall(encode(Connect(f"good{number}", V5, username=f"user{number}", password=b"secret"), V5))
            answer = read_packet(made)
        if answer[3]:
            return {"s to log in": float("inf")}
        took.append(clock() - begin)
    return {"s to log in": max(took)}


def idle_visitors(broker: Ports, stop: Stop) -> None:
    """100 sockets to the admin port that ask for nothing."""
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.admin_port)))
        stop.wait()


def ask_health(broker: Ports, stop: Stop) -> dict[str, float]:
    worst = 0.0
    while not stop.is_set():
        begin = clock()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{broker.admin_port}/health", timeout=10) as answer:
                answer.read()
        except OSError:
            return {"ms for /health": float("inf")}
        worst = max(worst, clock() - begin)
        stop.wait(0.1)
    return {"ms for /health": worst * 1000}


def nothing(_broker: Ports, stop: Stop) -> None:
    """How it is otherwise."""
    stop.wait()


# Much that adds up.


@_again
def deep_patterns(broker: Ports, stop: Stop) -> None:
    """100 filters of 150 levels with wildcards here and there, and events that match many of them."""
    made = _session(broker, "deep")
    levels = [["+" if (number >> level % 13) & 1 else "a" for level in range(150)] for number in range(100)]
    wanted = tuple(SubscribeRequest("bench/" + "/".join(each)) for each in levels)
    _pour(made, encode(Subscribe(1, wanted), V5), stop)
    packet = _located("bench/" + "/".join("a" * 150))
    while not stop.is_set():
        _pour(made, packet * 100, stop)


@_again
def many_groups(broker: Ports, stop: Stop) -> None:
    """100 share groups of one's own on one topic, and events for all of them."""
    made = _session(broker, "groups")
    wanted = tuple(SubscribeRequest(f"$share/{os.getpid()}-{number}/bench/shared") for number in range(100))
    _pour(made, encode(Subscribe(1, wanted), V5), stop)
    packet = _located("bench/shared")
    while not stop.is_set():
        _pour(made, packet * 100, stop)


@_again
def many_fences(broker: Ports, stop: Stop) -> None:
    """Fences of 990 points, defined again and again."""
    made = _session(broker, "fences")
    for number in count():
        if stop.is_set():
            return
        _pour(made, publish(f"$geo/fence/f{number % 100}", _comb(990 - number % 50).encode(), version=V5), stop)


@_again
def retained_flood(broker: Ports, stop: Stop) -> None:
    """Retained events of 10 kB on ever other topics."""
    made = _session(broker, "retained")
    for number in count():
        if stop.is_set():
            return
        _pour(made, _retained(f"bench/{os.getpid()}/{number}", bytes(10_000)), stop)


@_again
def wide_filters(broker: Ports, stop: Stop) -> None:
    """20,000 retained events, and filters that match all of them, one after the other."""
    made = _session(broker, "wide")
    for number in range(0, 20_000, 100):
        _pour(made, b"".join(_retained(f"bench/w/{number + each}/x/y", b"") for each in range(100)), stop)
        _pour(made, b"".join(_retained(f"bench/w/{number + each}/x/y", b"z") for each in range(100)), stop)
    filters = ("bench/#", "bench/+/+/+/#", "bench/w/+/x/y", "+/+/+/+/+", "bench/w/+/+/none")
    there = b"".join(encode(Subscribe(1, (SubscribeRequest(each),)), V5) for each in filters)
    while not stop.is_set():
        _pour(made, there + encode(Unsubscribe(2, filters), V5), stop)


@_again
def leave_together(broker: Ports, stop: Stop) -> None:
    """200 clients with 100 subscriptions and a will of 16 kB each that are gone at once."""
    wanted = encode(Subscribe(1, tuple(SubscribeRequest(f"bench/{each}/+/x") for each in range(100))), V5)
    with ExitStack() as stack:
        for number in range(200):
            made = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 5.0))
            will = Will("bench/will", bytes(15_000))
            made.sendall(encode(Connect(f"will-{os.getpid()}-{number}", V5, will=will), V5) + wanted)
        stop.wait(0.5)


@_again
def expire_together(broker: Ports, stop: Stop) -> None:
    """Sessions of 20 subscriptions, as many as can be made in two seconds, that all end in the same one."""
    wanted = encode(Subscribe(1, tuple(SubscribeRequest(f"bench/{each}/+/x") for each in range(20))), V5)
    ends = time.time() + 3.0
    for number in count():
        left = ends - time.time()
        if left < 1.0 or stop.is_set():
            break
        keeps = Properties(session_expiry_interval=max(1, round(left)))
        with socket.create_connection(("127.0.0.1", broker.port), 5.0) as made:
            made.sendall(encode(Connect(f"exp-{os.getpid()}-{number}", V5, properties=keeps), V5) + wanted)
            read_packet(made)
    stop.wait(1.5)


@_again
def unfinished_packets(broker: Ports, stop: Stop) -> None:
    """300 packets of 1.9 MB that lack their last byte."""
    packet = encode(Publish("bench/u", bytes(1_900_000)), V5)[:-1]
    with ExitStack() as stack:
        for _ in range(300):
            if stop.is_set():
                return
            made = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 5.0))
            made.settimeout(0.5)
            made.sendall(connect(f"part-{os.getpid()}-{_}", version=V5) + packet)
        stop.wait()


@_again
def never_read(broker: Ports, stop: Stop) -> None:
    """200 subscribers that read nothing, and 40 kB events for each of them."""
    with ExitStack() as stack:
        for number in range(200):
            made = stack.enter_context(socket.socket())
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            made.connect(("127.0.0.1", broker.port))
            name = f"deaf-{os.getpid()}-{number}"
            made.sendall(connect(name, version=V5) + subscribe(f"bench/deaf/{number}", version=V5))
        sender = _session(broker, "sender")
        for number in count():
            if stop.is_set():
                return
            _pour(sender, publish(f"bench/deaf/{number % 200}", bytes(40_000), version=V5), stop)


@_again
def queues_of_absent(broker: Ports, stop: Stop) -> None:
    """Kept sessions that nobody comes back for, and 50 kB events of QoS 1 for them."""
    keeps = Properties(session_expiry_interval=100_000)
    for number in range(50):
        with socket.create_connection(("127.0.0.1", broker.port), 5.0) as made:
            made.sendall(connect(f"gone-{number}", version=V5, properties=keeps))
            made.sendall(subscribe(f"bench/gone/{number}", qos=1, version=V5))
            read_packet(made)
            read_packet(made)
    sender = _session(broker, "sender")
    for number in count():
        if stop.is_set():
            return
        packet = publish(f"bench/gone/{number % 50}", bytes(50_000), qos=1, packet_id=number % 10 + 1, version=V5)
        _pour(sender, packet, stop)
        if number % 10 == 9:
            time.sleep(0.01)


@_again
def pubrels(broker: Ports, stop: Stop) -> None:
    """PUBREL for what was never published."""
    made = _session(broker, "pubrel")
    packets = b"".join(b"\x62\x02" + number.to_bytes(2) for number in range(1, 20_000))
    while not stop.is_set():
        _pour(made, packets, stop)


def half_open_websockets(broker: Ports, stop: Stop) -> None:
    """1,000 upgrade requests that lack their end, a byte more now and then."""
    with ExitStack() as stack:
        sockets = []
        for _ in range(1_000):
            made = stack.enter_context(socket.socket())
            made.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                made.connect(("127.0.0.1", broker.websocket_port))
            sockets.append(made)
        while not stop.is_set():
            for made in sockets:
                with contextlib.suppress(OSError):
                    made.send(b"GET /mqtt HTTP/1.1\r\nX: y")
            stop.wait(0.2)


def _retained(topic: str, payload: bytes) -> bytes:
    return encode(Publish(topic, payload, 0, True), V5)
