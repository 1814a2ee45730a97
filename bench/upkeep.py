"""What a broker costs besides messages: memory of idle clients, a subscriber that never reads, start and end."""

import subprocess
import time
from collections.abc import Iterator
from functools import partial

from bench.brokers import geomq_command
from bench.loads import Flow, Shape
from bench.measure import Figure, rss_bytes
from bench.results import Row, Target
from bench.stage import Stage, cpu_us_each
from bench.swarm import Swarm, clock, connect, subscribe

IDLE_CLIENTS = 5_000
IDLE_KB_MAX = 4.0
STALLED_MB_MAX = 16.0
STALLED_SHARE_MAX = 1.25
START_S_MAX, HELP_S_MAX = 1.0, 0.5


def idle(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """Resident memory per client, connected only and with one subscription of its own."""
    bare: dict[str, Figure] = {}
    subscribed: dict[str, Figure] = {}
    for name in stage.brokers:
        stage.say(f"idle {name}")
        with stage.fresh(name) as broker, Swarm(broker.port) as warm, Swarm(broker.port) as swarm:
            first = warm.join([connect(f"warm-{i}") for i in range(100)])
            warm.ask(first, [subscribe(f"bench/warm/{i}") for i in range(100)], 0x90)
            before = _settled_rss(broker.pid)
            clients = swarm.join([connect(f"idle-{i}") for i in range(IDLE_CLIENTS)])
            bare[name] = _kb_each(_settled_rss(broker.pid) - before)
            swarm.ask(clients, [subscribe(f"bench/idle/{i}") for i in range(IDLE_CLIENTS)], 0x90)
            subscribed[name] = _kb_each(_settled_rss(broker.pid) - before)
    verdicts = (Target("KB per idle client", IDLE_KB_MAX, at_least=False).judge(bare["geomq"].median),)
    yield Row("idle", "5000 clients", "KB per client", bare, verdicts)
    yield Row("idle", "5000 clients with a subscription", "KB per client", subscribed)


def _kb_each(grown_bytes: int) -> Figure:
    return Figure.of([grown_bytes / 1024 / IDLE_CLIENTS])


def _settled_rss(pid: int) -> int:
    time.sleep(1.0)
    return rss_bytes(pid)


def stalled(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """Ten readers beside one subscriber that never reads: what the broker's memory does, what the ten notice."""
    shape = Shape("stalled", 1, 10, 1, 50)
    cost: dict[str, Figure] = {}
    notes: dict[str, float] = {}
    for name in stage.among("geomq", "mosquitto"):
        stage.say(f"stalled {name}")
        with stage.fresh(name) as broker:
            flow = Flow(broker.port, shape, 1_000)
            work = partial(cpu_us_each, broker.pid, partial(flow.run, stage.seconds))
            work()
            alone = Figure.of([work() for _ in range(stage.repeats)])
            with Swarm(broker.port) as swarm:
                deaf = swarm.join([connect("deaf")], receive_buffer=4_096)
                swarm.ask(deaf, [subscribe(shape.topic(0))], 0x90)
                before = rss_bytes(broker.pid)
                beside = Figure.of([work() for _ in range(stage.repeats)])
                notes[f"MB grown, {name}"] = (rss_bytes(broker.pid) - before) / 1e6
            flow.close()
        cost[name] = beside
        notes[f"times the cost without it, {name}"] = beside.median / alone.median
    verdicts = (
        Target("MB grown", STALLED_MB_MAX, at_least=False).judge(notes["MB grown, geomq"]),
        Target("times the cost without it", STALLED_SHARE_MAX, at_least=False).judge(
            notes["times the cost without it, geomq"]
        ),
    )
    yield Row("stalled", "10 readers beside one that never reads", "us CPU per delivery", cost, verdicts, notes)


def start(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """From the command to a listening socket; `--help`; the exit code after SIGTERM."""
    stage.say("start")
    listening: dict[str, Figure] = {}
    codes: set[int] = set()
    for name in stage.brokers:
        seconds = []
        for _ in range(stage.repeats):
            with stage.fresh(name) as broker:
                with Swarm(broker.port) as swarm:
                    swarm.join([connect("start")])
                seconds.append(broker.start_s)
                code = broker.stop()
                if name == "geomq":
                    codes.add(code)
        listening[name] = Figure.of(seconds)
    verdicts = (
        Target("s to listen", START_S_MAX, at_least=False).judge(listening["geomq"].median),
        Target("exit code after SIGTERM", 0, at_least=False).judge(max(codes, key=abs)),
    )
    yield Row("start", "command to listening", "s", listening, verdicts)
    helping = {"geomq": Figure.of([_help_s() for _ in range(stage.repeats)])}
    limit = Target("s for --help", HELP_S_MAX, at_least=False).judge(helping["geomq"].median)
    yield Row("start", "geomq --help", "s", helping, (limit,))


def _help_s() -> float:
    begin = clock()
    subprocess.run([geomq_command(), "--help"], check=True, capture_output=True)
    return clock() - begin
