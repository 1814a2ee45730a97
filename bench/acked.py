"""QoS 1 loads: CPU per delivery, and acknowledgements per second when each one waits for the disk."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from bench.acking import Acking
from bench.results import Row, Target
from bench.stage import Stage, cpu_us_each, interleaved
from bench.swarm import V5, V311, Swarm, clock, connect, publish, subscribe
from geomq.mqtt.codec.properties import Properties

PAIRS = 100
PAYLOAD = 20
IN_FLIGHT, DURABLE_PAIRS = 128, 8
"""128 publishes on their way in all: GeoMQ, as Mosquitto, grants a client 20 at a time."""

ACKS_PER_S_MIN = 20_000.0

FOREVER = Properties(session_expiry_interval=3_600, receive_maximum=1_000)


def qos1(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """100 pairs, one publish of each on its way; sessions that end with the connection, and sessions that stay."""
    for kept in (False, True):
        load = f"100-to-100 {'kept' if kept else 'clean'} sessions 20 B"
        stage.say(f"qos1 {load}")
        names = stage.among("geomq", "mosquitto") if kept else stage.brokers
        with ExitStack() as stack:
            runs: dict[str, Callable[[], float]] = {}
            for name in names:
                broker = stack.enter_context(stage.fresh(name))
                pairs = stack.enter_context(Swarm(broker.port))
                acking = make_pairs(pairs, PAIRS, each=1, version=V311, kept=kept)
                runs[name] = partial(cpu_us_each, broker.pid, partial(acking.run, stage.seconds))
            figures = interleaved(runs, stage.repeats)
        yield Row("qos1", load, "us CPU per delivery", figures)


def make_pairs(
    swarm: Swarm, pairs: int, *, each: int, version: int, kept: bool, others: Swarm | None = None, name: str = "acked"
) -> Acking:
    """Publishers, of the same broker or of that of `others`, and as many subscribers, one topic a pair.

    `each` publishes of a publisher are on their way.
    """
    properties = FOREVER if kept and version == V5 else Properties()
    clean = not kept or version == V5
    subscribers = swarm.join(
        [connect(f"{name}-{kept}-s{i}", version=version, clean=clean, properties=properties) for i in range(pairs)]
    )
    swarm.ask(subscribers, [subscribe(f"bench/{name}/{i:03}", qos=1, version=version) for i in range(pairs)], 0x90)
    publishers = (others or swarm).join([connect(f"{name}-{kept}-p{i}", version=version) for i in range(pairs)])
    packets = [
        [
            publish(f"bench/{name}/{i:03}", b"x" * PAYLOAD, qos=1, packet_id=number, version=version)
            for number in range(1, each + 1)
        ]
        for i in range(pairs)
    ]
    return Acking(publishers, packets, subscribers)


def durable(stage: Stage, _only: str | None = None) -> Iterator[Row]:
    """Acknowledgements per second with 128 publishes on their way, to subscribers whose sessions stay."""
    stage.say("durable")
    with ExitStack() as stack:
        runs: dict[str, Callable[[], float]] = {}
        for name in stage.among("geomq", "mosquitto"):
            broker = stack.enter_context(stage.fresh(name))
            swarm = stack.enter_context(Swarm(broker.port))
            acking = make_pairs(swarm, DURABLE_PAIRS, each=IN_FLIGHT // DURABLE_PAIRS, version=V5, kept=True)
            runs[name] = partial(_rate, acking, stage.seconds * 3)
        figures = interleaved(runs, stage.repeats)
    verdicts = (Target("acknowledgements/s", ACKS_PER_S_MIN).judge(figures["geomq"].median),)
    row = "128 in flight 20 B (mosquitto does not sync)"
    yield Row("durable", row, "acknowledgements/s", figures, verdicts, {"fsync alone per s": _syncs_per_s()})


def _rate(acking: Acking, seconds: float) -> float:
    begin = clock()
    return acking.run(seconds) / (clock() - begin)


def _syncs_per_s() -> float:
    """What the disk does alone: small appends, each synced."""
    with tempfile.TemporaryFile(buffering=0) as file:
        begin, count = clock(), 0
        while clock() - begin < 0.5:
            file.write(b"x" * 512)
            os.fdatasync(file.fileno())
            count += 1
        return count / (clock() - begin)
