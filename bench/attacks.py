"""Attacks: while clients do the worst they can, another one's QoS 1 round trips and the broker's memory are watched.

An attack is one process or several (`attackers.py`). The canary publishes to itself, one event after the other, each
answered by PUBACK and delivered; a round trip lasts until both are there.
"""

import contextlib
import multiprocessing
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from bench.attackers import (
    USERS,
    Attack,
    Stop,
    ask_health,
    come_and_go,
    deep_patterns,
    expire_together,
    flood,
    half_open_websockets,
    idle_visitors,
    leave_together,
    log_in,
    logins_and_away,
    many_fences,
    many_filters,
    many_groups,
    many_patterns,
    many_properties,
    many_vertices,
    never_read,
    nothing,
    pubrels,
    queues_of_absent,
    retained_flood,
    silent_handshakes,
    unfinished_packets,
    wide_filters,
)
from bench.brokers import GeoMQ
from bench.measure import BenchError, Figure, rss_bytes
from bench.results import Row, Target
from bench.stage import Stage
from bench.swarm import V5, Swarm, clock, connect, publish, read_packet, subscribe
from geomq.broker.local_federation import free_ports
from geomq.broker.security.passwords import hash_password

P99_MS_MAX = 250.0
MEMORY_MB_MAX = 500.0
"""The budget in the broker's settings, and what it may occupy."""
LOGIN_S_MAX = 5.0
HEALTH_MS_MAX = 250.0
FLOODERS = 20
SAMPLE_S = 0.02


def attacks(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """Each attack on a broker of its own."""
    for plan in PLANS:
        stage.say(f"attack: {plan.name}")
        yield _measure(plan, stage, seconds=3.0 if stage.quick else 8.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """One attack by so many attackers, and what is looked at beside the canary."""

    name: str
    attack: Attack
    attackers: int = 1
    files: int | None = None
    aside: Callable[["Fortress", Stop], dict[str, float]] | None = None


def _measure(plan: Plan, stage: Stage, *, seconds: float) -> Row:
    with ExitStack() as stack:
        broker = stack.enter_context(Fortress(stage.core, files=plan.files))
        canary = stack.enter_context(Canary(broker.port))
        canary.beat(0.3)
        canary.times_ms.clear()
        memory = stack.enter_context(Peak(broker.pid))
        asides: dict[str, float] = {}
        with _attacked(plan, broker, asides):
            canary.beat(seconds)
        if broker.exited is not None:
            raise BenchError(f"{plan.name}: the broker exited with {broker.exited}")
    p99 = _percentile(canary.times_ms, 99)
    verdicts = [
        Target("ms p99", P99_MS_MAX, at_least=False).judge(p99),
        Target("MB at most", MEMORY_MB_MAX, at_least=False).judge(memory.bytes / 1e6),
    ]
    for name, value in asides.items():
        bound = {"s to log in": LOGIN_S_MAX, "ms for /health": HEALTH_MS_MAX, "failed": 0.0}[name]
        verdicts.append(Target(name, bound, at_least=False).judge(value))
    figures = {"median": Figure.of([statistics.median(canary.times_ms)]), "worst": Figure.of([max(canary.times_ms)])}
    return Row("attacks", plan.name, "ms round trip", figures, tuple(verdicts))


@contextlib.contextmanager
def _attacked(plan: Plan, broker: "Fortress", asides: dict[str, float]) -> Iterator[None]:
    """Attackers are nice, so that the canary does not wait for them at this end."""
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    processes = [context.Process(target=_be_nice, args=(plan.attack, broker, stop)) for _ in range(plan.attackers)]
    for process in processes:
        process.start()
    watcher = threading.Thread(target=_look_aside, args=(plan, broker, stop, asides))
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        for process in processes:
            process.join(5.0)
            process.kill()
            process.join()


def _be_nice(attack: Attack, broker: "Fortress", stop: Stop) -> None:
    os.nice(10)
    attack(broker, stop)


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


class Peak(AbstractContextManager["Peak"]):
    """The most memory that a process occupies meanwhile."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            while not self._done.wait(SAMPLE_S):
                self.bytes = max(self.bytes, rss_bytes(self._pid))


class Fortress(GeoMQ):
    """With TLS, users, and so many open files at most."""

    def __init__(self, core: int | None, *, files: int | None = None) -> None:
        super().__init__(core, files=files)
        self.tls_port, self.websocket_port, self.admin_port = free_ports(3)

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
            f'[[listeners]]\nkind = "websocket"\nhost = "127.0.0.1"\nport = {self.websocket_port}\n'
        )
        self._limits = f"memory_bytes_max = {int(MEMORY_MB_MAX * 1e6)}"
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


PLANS = (
    Plan("none", nothing),
    Plan("events that match 4,096 filters", many_patterns),
    Plan("moves against 100 fences of 900 points", many_vertices),
    Plan("2 MB of user properties in a packet", many_properties),
    Plan("SUBSCRIBE with 9,900 filters", many_filters),
    Plan("9,900 filters, and gone", come_and_go),
    Plan(f"events that match 4,096 filters, {FLOODERS} clients", many_patterns, attackers=FLOODERS),
    Plan("plain events on 999 topics, 5 clients", flood, attackers=5),
    Plan("events of 150 levels that match 100 deep filters", deep_patterns, attackers=10),
    Plan("events for 1,000 share groups of 10 clients", many_groups, attackers=10),
    Plan("fences of 990 points, defined again and again", many_fences),
    Plan("retained events of 10 kB on ever other topics", retained_flood, attackers=3),
    Plan("filters that match 20,000 retained events", wide_filters, attackers=3),
    Plan("200 clients with wills and subscriptions, gone at once", leave_together),
    Plan("sessions that expire in the same second", expire_together, attackers=3),
    Plan("300 unfinished packets of 1.9 MB", unfinished_packets),
    Plan("200 subscribers that never read", never_read),
    Plan("QoS 1 for 50 sessions that nobody comes back for", queues_of_absent),
    Plan("PUBREL for what was never published, 5 clients", pubrels, attackers=5),
    Plan("1,000 half-open WebSockets", half_open_websockets),
    Plan("1,500 silent TLS handshakes, 1,024 files", silent_handshakes, files=1_024),
    Plan("1,000 CONNECTs with a password, and gone", logins_and_away, aside=log_in),
    Plan("100 idle sockets at the admin port", idle_visitors, aside=ask_health),
)
