"""`python -m bench.spark`: events/s from a broker through the Spark source into Parquet, and out of Spark by the sink.

Everything runs on this machine at once: broker (persistent, synced), publisher, Spark. The source's figure is events
divided by the time from the first publish to the last row in Parquet; the sink's is the time of one `write`.
"""

import json
import multiprocessing
import os
import select
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bench.brokers import GeoMQ
from bench.measure import BenchError, cpu_s
from bench.swarm import V5, Swarm, connect, publish
from geomq.pipeline.session import spark_session

PAYLOAD = 200
PUBLISHERS, EACH = 16, 20
"""Sixteen publishers with as many publishes on their way as a broker grants by default."""
TOPICS = 64
TRIGGER = "2 seconds"
PATIENCE_S = 300.0


def publish_events(port: int, count: int) -> None:
    """Publish `count` events of 200 B with QoS 1, as fast as they are acknowledged."""
    with Swarm(port) as swarm:
        clients = swarm.join([connect(f"bench-{i}", version=V5) for i in range(PUBLISHERS)])
        packets = {
            each.fileno(): [
                publish(f"bench/s/{(i * EACH + n) % TOPICS}", b"x" * PAYLOAD, qos=1, packet_id=n + 1, version=V5)
                for n in range(EACH)
            ]
            for i, each in enumerate(clients)
        }
        poll = select.epoll()
        by_number = {each.fileno(): each for each in clients}
        for number, each in by_number.items():
            poll.register(number, select.EPOLLIN)
            each.sendall(b"".join(packets[number]))
        sent, acknowledged, rest = PUBLISHERS * EACH, 0, dict.fromkeys(by_number, b"")
        while acknowledged < sent:
            for number, _ in poll.poll(20):
                data = rest[number] + by_number[number].recv(1 << 16)
                out, pos = [], 0
                # PUBACK, perhaps with a reason code.
                while pos + 4 <= len(data) and pos + 2 + data[pos + 1] <= len(data):
                    acknowledged += 1
                    if sent < count:
                        sent += 1
                        out.append(packets[number][data[pos + 3] - 1])
                    pos += 2 + data[pos + 1]
                rest[number] = data[pos:]
                if out:
                    by_number[number].sendall(b"".join(out))


def rows_in(query: Any) -> int:
    """How many rows a streaming query has written."""
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def await_rows(query: Any, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while rows_in(query) < count:
        if query.exception() is not None:
            raise BenchError(str(query.exception())[:500])
        if time.monotonic() > deadline:
            raise BenchError(f"{rows_in(query)} of {count} rows within {PATIENCE_S} s")
        time.sleep(0.05)


def measure_source(spark: SparkSession, broker: GeoMQ, folder: Path, count: int, acknowledge: str) -> dict[str, Any]:
    """Events per second into Parquet, with micro-batches as they come."""
    stream = (
        spark.readStream.format("geomq")
        .option("brokers", f"127.0.0.1:{broker.port}")
        .option("topic", "bench/s/#")
        .option("spool", str(folder / "spool"))
        .option("session", f"bench-{acknowledge}")
        .option("acknowledge", acknowledge)
        .load()
    )
    out = folder / f"parquet-{acknowledge}"
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(folder / f"checkpoint-{acknowledge}"))
        .trigger(processingTime=TRIGGER)
        .start()
    )
    warm = 20_000
    _await_started(query)
    publish_events(broker.port, warm)
    await_rows(query, warm)
    before_cpu, before_all, before = cpu_s(broker.pid), family_cpu_s(), len(query.recentProgress)
    publisher = multiprocessing.get_context("spawn").Process(target=publish_events, args=(broker.port, count))
    begin = time.monotonic()
    publisher.start()
    await_rows(query, warm + count)
    elapsed = time.monotonic() - begin
    publisher.join()
    batches = [each for each in query.recentProgress[before:] if each["numInputRows"]]
    query.stop()
    found = spark.read.parquet(str(out))
    distinct = found.select("event_id").distinct().count()
    if distinct != warm + count:
        raise BenchError(f"{distinct} different events in Parquet, not {warm + count}")
    return {
        "acknowledge": acknowledge,
        "events": count,
        "seconds": round(elapsed, 2),
        "events_per_s": round(count / elapsed),
        "micro_batches": len(batches),
        "rows_in_parquet": found.count(),
        "cpu_us_per_event": round((used := family_cpu_s() - before_all) * 1e6 / count, 1),
        "of_which_broker": round((cpu_s(broker.pid) - before_cpu) * 1e6 / count, 1),
        "cores_had": round(used / elapsed, 2),
    }


def family_cpu_s() -> float:
    """CPU seconds of this process and everything it started, directly or not."""
    parents, used = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        used[int(folder.name)] = sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(used.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")


def _await_started(query: Any) -> None:
    deadline = time.monotonic() + 120
    while query.lastProgress is None and query.status["message"] != "Waiting for data to arrive":
        if query.exception() is not None or time.monotonic() > deadline:
            raise BenchError(f"the query does not start: {query.exception()}")
        time.sleep(0.1)


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
    before = family_cpu_s()
    elapsed = write(count)
    used = family_cpu_s() - before
    return {
        "events": count,
        "seconds": round(elapsed, 2),
        "events_per_s": round(count / elapsed),
        "cpu_us_per_event": round(used * 1e6 / count, 1),
        "cores_had": round(used / elapsed, 2),
    }


@click.command()
@click.option("--events", default=400_000, show_default=True, help="Events through the source.")
@click.option("--sink-events", default=100_000, show_default=True, help="Events through the sink.")
@click.option("--acknowledge", default="commit,spool", show_default=True, help="When the source acknowledges.")
def main(events: int, sink_events: int, acknowledge: str) -> None:
    """Measure the Spark source and sink against one broker."""
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-spark-") as name,
        GeoMQ(None) as broker,
        spark_session("local[2]") as spark,
    ):
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
        if sink_events:
            found["sink"] = measure_sink(spark, broker, sink_events)
        for each in filter(None, acknowledge.split(",")):
            found[f"source_{each}"] = measure_source(spark, broker, Path(name), events, each)
    click.echo(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
