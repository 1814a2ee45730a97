"""Attacks: while clients do the worst they can, another one's QoS 1 round trips and the broker's memory are watched.

An attack is a thread that goes on until it is told to stop. The canary publishes to itself, one event after the other,
each answered by PUBACK and delivered; a round trip lasts until both are there.
"""

import contextlib
import socket
import statistics
import struct
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import product

from bench.brokers import GeoMQ
from bench.measure import BenchError, Figure, rss_bytes
from bench.results import Row, Target
from bench.stage import Stage
from bench.swarm import V5, Swarm, clock, connect, publish, read_packet, subscribe
from geomq.broker.local_federation import free_ports
from geomq.broker.security.passwords import hash_password
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Publish, Subscribe, SubscribeRequest, Unsubscribe
from geomq.mqtt.codec.properties import Properties

P99_MS_MAX = 250.0
GROWN_MB_MAX = 256.0
LOGIN_S_MAX = 5.0
HEALTH_MS_MAX = 250.0
FLOODERS = 20
USERS = 12

Stop = threading.Event
Attack = Callable[["Fortress", Stop], None]


class Closed(Exception):  # noqa: N818
    """The broker ended the attacker's connection."""


def attacks(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """Each attack on a broker of its own."""
    for plan in PLANS:
        stage.say(f"attack: {plan.name}")
        yield _measure(plan, stage, seconds=3.0 if stage.quick else 10.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """One attack by `threads` attackers, and what is looked at beside the canary."""

    name: str
    attack: Attack
    threads: int = 1
    files: int | None = None
    aside: Callable[["Fortress", Stop], dict[str, float]] | None = None


def _measure(plan: Plan, stage: Stage, *, seconds: float) -> Row:
    with ExitStack() as stack:
        broker = stack.enter_context(Fortress(stage.core, files=plan.files))
        canary = stack.enter_context(Canary(broker.port))
        canary.beat(0.3)
        calm = canary.times_ms
        canary.times_ms = []
        before = rss_bytes(broker.pid)
        stop = Stop()
        threads = [threading.Thread(target=plan.attack, args=(broker, stop)) for _ in range(plan.threads)]
        for thread in threads:
            thread.start()
        asides: dict[str, float] = {}
        watcher = threading.Thread(target=_look_aside, args=(plan, broker, stop, asides))
        watcher.start()
        canary.beat(seconds)
        grown = (rss_bytes(broker.pid) - before) / 1e6
        stop.set()
        for thread in [*threads, watcher]:
            thread.join()
        if broker.exited is not None:
            raise BenchError(f"{plan.name}: the broker exited with {broker.exited}")
    p99 = _percentile(canary.times_ms, 99)
    verdicts = [
        Target("ms p99", P99_MS_MAX, at_least=False).judge(p99),
        Target("MB grown", GROWN_MB_MAX, at_least=False).judge(grown),
    ]
    for name, value in asides.items():
        bound = {"s to log in": LOGIN_S_MAX, "ms for /health": HEALTH_MS_MAX, "failed": 0.0}[name]
        verdicts.append(Target(name, bound, at_least=False).judge(value))
    figures = {"median": Figure.of([statistics.median(canary.times_ms)]), "worst": Figure.of([max(canary.times_ms)])}
    figures["calm p99"] = Figure.of([_percentile(calm, 99)])
    return Row("attacks", plan.name, "ms round trip", figures, tuple(verdicts))


def _look_aside(plan: Plan, broker: "Fortress", stop: Stop, found: dict[str, float]) -> None:
    if plan.aside is not None:
        time.sleep(0.5)
        try:
            found.update(plan.aside(broker, stop))
        except (BenchError, OSError):
            found["failed"] = 1.0


def _percentile(values: list[float], percent: int) -> float:
    if len(values) < 2:
        raise BenchError("the canary was hardly answered at all")
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


class Fortress(GeoMQ):
    """With TLS, users, and so many open files at most."""

    def __init__(self, core: int | None, *, files: int | None = None) -> None:
        super().__init__(core, files=files)
        self.tls_port, self.admin_port = free_ports(2)

    def command(self) -> list[str]:
        users, secret = self.folder / "users", hash_password(b"secret")
        users.write_text("".join(f"user{number}:{secret}\n" for number in range(USERS)))
        self._auth = f'password_file = "{users}"\nclient_id = "any"'
        certificate, key = self.folder / "cert.pem", self.folder / "key.pem"
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        subprocess.run(
            ["openssl", "req", "-x509", *kind, "-keyout", key, "-out", certificate, "-subj", "/CN=localhost"],
            check=True,
            capture_output=True,
        )
        self._more = (
            f'[[listeners]]\nkind = "tls"\nhost = "127.0.0.1"\nport = {self.tls_port}\n'
            f'certfile = "{certificate}"\nkeyfile = "{key}"\n'
        )
        return super().command()


class Canary(AbstractContextManager["Canary"]):
    """A client that publishes to itself."""

    def __init__(self, port: int) -> None:
        self._swarm = Swarm(port)
        (self._socket,) = self._swarm.join([connect("canary", version=V5)])
        self._swarm.ask([self._socket], [subscribe("bench/canary", qos=1, version=V5)], 0x90)
        self._number = 0
        self.times_ms: list[float] = []

    def __exit__(self, *_: object) -> None:
        self._swarm.close()

    def beat(self, seconds: float) -> None:
        until = clock() + seconds
        while clock() < until:
            self._number = self._number % 60_000 + 1
            begin = clock()
            self._socket.sendall(publish("bench/canary", b"x" * 20, qos=1, packet_id=self._number, version=V5))
            for _ in range(2):
                answer = read_packet(self._socket)
                if answer[0] >> 4 == 3:
                    topic_end = 2 + 2 + len("bench/canary")
                    self._socket.sendall(b"\x40\x02" + answer[topic_end : topic_end + 2])
            self.times_ms.append((clock() - begin) * 1000)
            time.sleep(0.002)


# What attackers do.


def _session(broker: Fortress, name: str) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", broker.port))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200_000))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200_000))
    made.sendall(connect(f"{name}-{threading.get_ident()}", version=V5))
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


def _again(attack: Callable[[Fortress, Stop], None]) -> Attack:
    """Come back whenever the broker ends the connection."""

    def attack_again(broker: Fortress, stop: Stop) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, Closed):
                attack(broker, stop)

    return attack_again


def _located(topic: str, payload: bytes = b"") -> bytes:
    return encode(Publish(topic, payload, properties=Properties(user_properties=(("geo-location", "1,2"),))), V5)


@_again
def many_patterns(broker: Fortress, stop: Stop) -> None:
    """Filters with their wildcards everywhere, and 252 kB of events at a time that match all of them."""
    made = _session(broker, "patterns")
    filters = ["bench/" + "/".join(levels) for levels in product("a+", repeat=12)]
    requests = tuple(SubscribeRequest(each) for each in filters)
    _pour(made, encode(Subscribe(1, requests), V5), stop)
    packet = _located("bench/" + "/".join("a" * 12))
    while not stop.is_set():
        _pour(made, packet * (252_000 // len(packet)), stop)


@_again
def many_vertices(broker: Fortress, stop: Stop) -> None:
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
def many_properties(broker: Fortress, stop: Stop) -> None:
    made = _session(broker, "properties")
    packet = encode(Publish("bench/p", properties=Properties(user_properties=(("", ""),) * 390_000)), V5)
    while not stop.is_set():
        _pour(made, packet, stop)


@_again
def many_filters(broker: Fortress, stop: Stop) -> None:
    """9,900 filters in one packet, taken back, and again."""
    made = _session(broker, "filters")
    filters = [f"bench/{number}/{'x/' * 5}+" for number in range(9_900)]
    there = encode(Subscribe(1, tuple(SubscribeRequest(each) for each in filters)), V5)
    gone = encode(Unsubscribe(2, tuple(filters)), V5)
    while not stop.is_set():
        _pour(made, there + gone, stop)


@_again
def come_and_go(broker: Fortress, stop: Stop) -> None:
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
def flood(broker: Fortress, stop: Stop) -> None:
    """As many plain events as the broker takes, on ever other topics."""
    made = _session(broker, "flood")
    packets = b"".join(publish(f"bench/{number % 999}", b"x" * (number % 7), version=V5) for number in range(10_000))
    while not stop.is_set():
        _pour(made, packets, stop)


def silent_handshakes(broker: Fortress, stop: Stop) -> None:
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


def logins_and_away(broker: Fortress, stop: Stop) -> None:
    """1,000 times a second or so: CONNECT with a wrong password, and gone."""
    while not stop.is_set():
        for number in range(1_000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", broker.port)) as made:
                made.sendall(encode(Connect(f"x{number}", V5, username=f"user{number % USERS}", password=b"no"), V5))
        stop.wait(0.5)


def log_in(broker: Fortress, _stop: Stop) -> dict[str, float]:
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


def idle_visitors(broker: Fortress, stop: Stop) -> None:
    """100 sockets to the admin port that ask for nothing."""
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.admin_port)))
        stop.wait()


def ask_health(broker: Fortress, stop: Stop) -> dict[str, float]:
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


PLANS = (
    Plan("events that match 4,096 filters", many_patterns),
    Plan("moves against 100 fences of 900 points", many_vertices),
    Plan("2 MB of user properties in a packet", many_properties),
    Plan("SUBSCRIBE with 9,900 filters", many_filters),
    Plan("9,900 filters, and gone", come_and_go),
    Plan(f"events that match 4,096 filters, {FLOODERS} clients", many_patterns, threads=FLOODERS),
    Plan("plain events on 999 topics, 5 clients", flood, threads=5),
    Plan("1,500 silent TLS handshakes, 1,024 files", silent_handshakes, files=1_024),
    Plan("1,000 CONNECTs with a password, and gone", logins_and_away, aside=log_in),
    Plan("100 idle sockets at the admin port", idle_visitors, aside=ask_health),
)
