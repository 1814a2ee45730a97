"""`python -m bench.spark`: events/s from a broker through the Spark source into Parquet, and out of Spark by the sink.

Everything runs on this machine at once: broker (persistent, synced), publishers, Spark. Events are published without a
break, at QoS 1; once Spark's code is compiled, the source's figure is the rows of the micro-batches that ended within
the measured seconds, by the time between the ends of the first and the last of them. Afterwards every event that was
acknowledged to its publisher must be in Parquet. The sink's figure is the time of one `write`.
"""

import json
import multiprocessing
import os
import random
import select
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bench.brokers import GeoMQ
from bench.measure import BenchError
from bench.swarm import V5, Swarm, connect, publish
from geomq.pipeline.session import spark_session

PAYLOAD = 200
PUBLISHERS, EACH = 16, 20
"""Sixteen publishers with as many publishes on their way as a broker grants by default."""
VARIANTS = 64
"""Different payloads of each of these publishes."""
TOPICS = 64
TRIGGER = "1 second"
PATIENCE_S = 120.0
LIMITS = "queue_messages_max = 1_000_000\nqueue_bytes_max = 1_000_000_000"
"""A broker that may keep what a reader is late for."""


def publish_events(port: int, rate: int, told: Connection) -> None:
    """Publish events of 200 B with QoS 1 until told to stop, `rate` a second at most; say how many there were."""
    dice = random.Random(1)
    with Swarm(port) as swarm:
        clients = {
            each.fileno(): each for each in swarm.join([connect(f"bench-{i}", version=V5) for i in range(PUBLISHERS)])
        }
        packets = {
            number: [[_packet(i, n, dice) for _ in range(VARIANTS)] for n in range(EACH)]
            for i, number in enumerate(clients)
        }
        poll = select.epoll()
        for number in clients:
            poll.register(number, select.EPOLLIN)
        idle = {number: list(range(EACH)) for number in clients}
        rest = dict.fromkeys(clients, b"")
        begin, sent, acknowledged, stopping = time.monotonic(), 0, 0, False
        while not stopping or acknowledged < sent:
            stopping = stopping or told.poll()
            due = (time.monotonic() - begin) * rate - sent if rate else PUBLISHERS * EACH
            for number, slots in idle.items():
                if slots and due > 0 and not stopping:
                    count = min(len(slots), int(due) + 1)
                    variant = dice.getrandbits(6)
                    clients[number].sendall(b"".join([packets[number][slot][variant] for slot in slots[:count]]))
                    del slots[:count]
                    sent, due = sent + count, due - count
            for number, _ in poll.poll(0.01):
                data = rest[number] + clients[number].recv(1 << 16)
                pos = 0
                # PUBACK, perhaps with a reason code.
                while pos + 4 <= len(data) and pos + 2 + data[pos + 1] <= len(data):
                    acknowledged += 1
                    idle[number].append(data[pos + 3] - 1)
                    pos += 2 + data[pos + 1]
                rest[number] = data[pos:]
        told.send(acknowledged)


def _packet(client: int, number: int, dice: random.Random) -> bytes:
    topic = f"bench/s/{(client * EACH + number) % TOPICS}"
    payload = dice.randbytes(PAYLOAD // 2).hex().encode()
    return publish(topic, payload, qos=1, packet_id=number + 1, version=V5)


@contextmanager
def publishing(port: int, rate: int) -> Iterator[list[int]]:
    """Publishers at work in a process of their own; afterwards the list holds how many events were acknowledged."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=publish_events, args=(port, rate, theirs), daemon=True)
    process.start()
    counted: list[int] = []
    try:
        yield counted
    finally:
        ours.send("stop")
        if not ours.poll(PATIENCE_S):
            process.kill()
            raise BenchError("the broker does not acknowledge what was published")
        counted.append(ours.recv())
        process.join()


def measure_source(
    spark: SparkSession, broker: GeoMQ, folder: Path, *, rate: int, warm_s: float, seconds: float, acknowledge: str
) -> dict[str, Any]:
    """Events per second into Parquet while they are published."""
    out = folder / f"parquet-{acknowledge}"
    query = _start(spark, broker, folder, out, acknowledge)
    with publishing(broker.port, rate) as counted:
        time.sleep(warm_s)
        before, begin = cpu_by_role(broker.pid), time.monotonic()
        time.sleep(seconds)
        elapsed, used = time.monotonic() - begin, cpu_by_role(broker.pid)
        until = time.time()
    published = counted[0]
    _await_rows(query, published)
    batches = [_ended(each) for each in query.recentProgress if each["numInputRows"]]
    query.stop()
    found = spark.read.parquet(str(out))
    distinct = found.select("event_id").distinct().count()
    if distinct != published:
        raise BenchError(f"{distinct} different events in Parquet, not the {published} that were acknowledged")
    within = [each for each in batches if until - elapsed <= each[0] <= until]
    if len(within) < 3:
        raise BenchError(f"only {len(within)} micro-batches ended within {seconds:g} s")
    landed, took = sum(rows for _, rows in within[1:]), within[-1][0] - within[0][0]
    spent = {role: used[role] - before.get(role, 0.0) for role in used}
    return {
        "acknowledge": acknowledge,
        "events_per_s": round(landed / took),
        "published_per_s": rate or None,
        "seconds": round(took, 1),
        "micro_batches": len(within) - 1,
        "published_and_found": published,
        "rows_in_parquet": found.count(),
        "cpu_us_per_event": {role: round(s * 1e6 * took / elapsed / landed, 1) for role, s in spent.items()},
        "cores_had": round(sum(spent.values()) / elapsed, 2),
    }


def _start(spark: SparkSession, broker: GeoMQ, folder: Path, out: Path, acknowledge: str) -> Any:
    stream = (
        spark.readStream.format("geomq")
        .option("brokers", f"127.0.0.1:{broker.port}")
        .option("topic", "bench/s/#")
        .option("spool", str(folder / "spool"))
        .option("session", f"bench-{acknowledge}")
        .option("acknowledge", acknowledge)
        .load()
    )
    writer = stream.writeStream.format("parquet").option("path", str(out)).trigger(processingTime=TRIGGER)
    query = writer.option("checkpointLocation", str(folder / f"checkpoint-{acknowledge}")).start()
    deadline = time.monotonic() + PATIENCE_S
    while query.lastProgress is None and query.status["message"] != "Waiting for data to arrive":
        if query.exception() is not None or time.monotonic() > deadline:
            raise BenchError(f"the query does not start: {query.exception()}")
        time.sleep(0.1)
    return query


def _await_rows(query: Any, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (rows := sum(progress["numInputRows"] for progress in query.recentProgress)) < count:
        if query.exception() is not None:
            raise BenchError(str(query.exception())[:500])
        if time.monotonic() > deadline:
            raise BenchError(f"{rows} of {count} rows within {PATIENCE_S} s")
        time.sleep(0.5)


def _ended(progress: Any) -> tuple[float, int]:
    """When a micro-batch ended, and its rows."""
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return began + progress["durationMs"]["triggerExecution"] / 1000, progress["numInputRows"]


def cpu_by_role(broker: int) -> dict[str, float]:
    """CPU seconds of this process and everything it started, by what it is there for."""
    parents, used, names = {}, {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text(errors="replace")
        except OSError:
            continue
        pid = int(folder.name)
        parents[pid], used[pid] = int(fields[1]), sum(map(int, fields[11:15]))
        names[pid] = "broker" if pid == broker else _role(command)
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    found = dict.fromkeys(("broker", "publishers", "spark", "spark_python"), 0.0)
    for pid in family & used.keys():
        found[names[pid]] += used[pid] / os.sysconf("SC_CLK_TCK")
    return found


def _role(command: str) -> str:
    if "pyspark.daemon" in command or "python_streaming" in command:
        return "spark_python"
    return "spark" if "java" in command.split("\0")[0] else "publishers"


def measure_sink(spark: SparkSession, broker: GeoMQ, count: int) -> dict[str, Any]:
    """Events per second out of Spark, every one acknowledged."""

    def rows(n: int) -> DataFrame:
        return spark.range(0, n, 1, 2).select(
            F.concat(F.lit("bench/sink/"), (F.col("id") % TOPICS).cast("string")).alias("topic"),
            F.lit("x" * PAYLOAD).cast("binary").alias("payload"),
        )

    def write(n: int) -> float:
        begin = time.monotonic()
        target = f"127.0.0.1:{broker.port}"
        rows(n).write.format("geomq").mode("append").option("brokers", target).save()
        return time.monotonic() - begin

    write(2_000)
    before = sum(cpu_by_role(broker.pid).values())
    elapsed = write(count)
    used = sum(cpu_by_role(broker.pid).values()) - before
    return {
        "events": count,
        "seconds": round(elapsed, 2),
        "events_per_s": round(count / elapsed),
        "cpu_us_per_event": round(used * 1e6 / count, 1),
        "cores_had": round(used / elapsed, 2),
    }


@click.command()
@click.option("--seconds", default=25.0, show_default=True, help="Measured seconds of the source.")
@click.option("--warm", default=45.0, show_default=True, help="Seconds before them.")
@click.option("--rate", default=0, show_default=True, help="Events published a second; 0 is as fast as acknowledged.")
@click.option("--sink-events", default=100_000, show_default=True, help="Events through the sink.")
@click.option("--acknowledge", default="commit,spool", show_default=True, help="When the source acknowledges.")
def main(seconds: float, warm: float, rate: int, sink_events: int, acknowledge: str) -> None:
    """Measure the Spark source and sink against one broker."""
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-spark-") as name,
        GeoMQ(None, limits=LIMITS) as broker,
        spark_session("local[2]") as spark,
    ):
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
        if sink_events:
            found["sink"] = measure_sink(spark, broker, sink_events)
        for each in filter(None, acknowledge.split(",")):
            found[f"source_{each}"] = measure_source(
                spark, broker, Path(name), rate=rate, warm_s=warm, seconds=seconds, acknowledge=each
            )
    click.echo(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
