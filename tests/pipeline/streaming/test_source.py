"""The source on a real Spark and real brokers: resumed exactly, partitioned, limited, and any broker will do."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.pipeline.streaming.live import geomq_broker, mosquitto_broker, patiently, publish, publisher, wait_until

from geomq.errors import UsageError
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5
from geomq.pipeline.session import spark_errors
from geomq.pipeline.streaming.options import source_options
from geomq.pipeline.streaming.source import EventStreamReader, _limited, _shares
from geomq.pipeline.streaming.spool import Chunk, Piece

BERLIN = Properties(user_properties=(("geo-location", "52.5,13.4"), ("colour", "red")))


def stream(spark: SparkSession, ports: list[int], folder: Path, **options: str) -> Any:
    brokers = ",".join(f"127.0.0.1:{port}" for port in ports)
    reader = spark.readStream.format("geomq").option("brokers", brokers).option("topic", "s/#")
    for name, value in ({"spool": str(folder / "spool")} | options).items():
        reader = reader.option(name, value)
    return reader.load()


def land(frame: Any, folder: Path, **trigger: Any) -> Any:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger).start()


def land_available(frame: Any, folder: Path) -> list[int]:
    """Everything there is now; the rows of each batch."""

    def run() -> Any:
        query = land(frame, folder, availableNow=True)
        assert query.awaitTermination(600)
        return query

    query = patiently(run)
    assert query.exception() is None
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def landed(folder: Path) -> list[dict[str, Any]]:
    """The rows that Spark has committed."""
    rows: list[dict[str, Any]] = pq.read_table(folder / "out").to_pylist()
    return rows


def test_events_arrive_with_all_that_is_known_and_a_stream_goes_on_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    with geomq_broker(tmp_path / "broker") as port:
        frame = stream(spark, [port], tmp_path, maxEventsPerTrigger="40")
        assert land_available(frame, tmp_path) == []
        publish(port, [(f"s/{i % 3}", b"%d" % i) for i in range(100)], properties=BERLIN)
        publish(port, [("other", b"not asked for")])
        assert land_available(frame, tmp_path) == [40, 40, 20]
        publish(port, [("s/1", b"later")])
        assert land_available(frame, tmp_path) == [1]
    rows = landed(tmp_path)
    assert len({row["event_id"] for row in rows}) == len(rows) == 101
    row = next(row for row in rows if row["payload"] == b"4")
    assert row["topic"] == "s/1"
    assert row["location"] == {"lat": 52.5, "lon": 13.4}
    assert row["broker"] == "home"
    assert row["publisher"].startswith("publisher-")
    assert (row["qos"], row["retain"], row["fence"]) == (1, False, None)
    assert dict(row["properties"]) == {"colour": "red"}
    assert 0 <= (row["received_time"] - row["event_time"]).total_seconds() < 60


def test_a_fence_several_brokers_and_shared_sessions(spark: SparkSession, tmp_path: Path) -> None:
    paris = Properties(user_properties=(("geo-location", "48.86,2.35"),))
    with geomq_broker(tmp_path / "a", name="a") as one, geomq_broker(tmp_path / "b", name="b") as two:
        fence = "POLYGON ((13 52, 14 52, 14 53, 13 53, 13 52))"
        frame = stream(spark, [one, two], tmp_path, fence=fence, sessions="2", maxEventsPerPartition="10")
        assert land_available(frame, tmp_path) == []
        for port in (one, two):
            publish(port, [("s/1", b"%d" % i) for i in range(50)], properties=BERLIN)
            publish(port, [("s/1", b"far")], properties=paris)
        assert sum(land_available(frame, tmp_path)) == 100
    rows = landed(tmp_path)
    assert {row["broker"] for row in rows} == {"a", "b"}
    assert len({row["event_id"] for row in rows}) == len(rows) == 100
    assert b"far" not in {row["payload"] for row in rows}
    spools = [folder for folder in (tmp_path / "spool").glob("*/*") if list(folder.glob("*.spool"))]
    assert len(spools) == 4


def test_mosquitto_is_a_source_too(spark: SparkSession, tmp_path: Path) -> None:
    with mosquitto_broker(tmp_path / "broker") as port:
        frame = stream(spark, [port], tmp_path)
        assert land_available(frame, tmp_path) == []
        publish(port, [("s/1", b"%d" % i) for i in range(200)])
        assert sum(land_available(frame, tmp_path)) == 200
    rows = landed(tmp_path)
    assert len({row["event_id"] for row in rows}) == 200
    assert {row["broker"] for row in rows} == {f"127.0.0.1:{port}"}
    assert all(row["event_time"] == row["received_time"] and row["location"] is None for row in rows)


def test_bad_options_give_one_clear_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^option topic: .*#") as caught, spark_errors():
        stream(spark, [1], tmp_path, topic="a/#/b")
    assert "\n" not in str(caught.value)
    with pytest.raises(AnalysisException, match=r"option topic: .*#") as raw:
        stream(spark, [1], tmp_path, topic="a/#/b")
    assert "Traceback" not in str(raw.value)
    with pytest.raises(UsageError, match=r"^broker 127.0.0.1:1 cannot be reached: "), spark_errors():
        land(stream(spark, [1], tmp_path), tmp_path, availableNow=True).awaitTermination(60)


DRIVER = """
import sys
from geomq.pipeline.session import spark_session

port, folder = sys.argv[1:]
with spark_session("local[2]") as spark:
    frame = (
        spark.readStream.format("geomq")
        .option("brokers", f"127.0.0.1:{port}").option("topic", "s/#").option("spool", f"{folder}/spool")
        .option("maxEventsPerTrigger", "2000").load()
    )
    query = (
        frame.writeStream.format("parquet").option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint").start()
    )
    query.awaitTermination()
"""


def committed_batches(folder: Path) -> int:
    return len([name for name in os.listdir(folder) if name.isdigit()]) if folder.exists() else 0


def test_a_killed_driver_loses_nothing_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """kill -9 in mid-stream while events are published; a second driver goes on from the checkpoint."""
    with geomq_broker(tmp_path / "broker") as port, open(tmp_path / "log", "wb") as log, publisher(port) as out:
        sent = 0
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(port), str(tmp_path)], stdout=log, stderr=log, start_new_session=True
        )
        try:
            assert wait_until(lambda: list((tmp_path / "spool").glob("*/*/subscribed")), seconds=600)
            while committed_batches(tmp_path / "checkpoint" / "commits") < 2:
                assert driver.poll() is None, (tmp_path / "log").read_text()[-2000:]
                for _ in range(500):
                    out.publish(f"s/{sent % 5}", b"%d" % sent, 1, retain=False, properties=BERLIN)
                    sent += 1
                out.flush()
                time.sleep(0.3)
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        for _ in range(3000):
            out.publish(f"s/{sent % 5}", b"%d" % sent, 1, retain=False, properties=BERLIN)
            sent += 1
        out.flush()
        frame = stream(spark, [port], tmp_path, maxEventsPerTrigger="20000")
        land_available(frame, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "out"))
    unique = rows.dropDuplicates(["event_id"]).select("payload").collect()
    assert sorted(int(bytes(row.payload)) for row in unique) == list(range(sent))


def test_read_limits_are_shared_fairly() -> None:
    start, end = {"a": 0, "b": 10, "c": 5}, {"a": 100, "b": 12, "c": 5}
    assert _limited(start, end, None) == end
    assert _limited(start, end, 10) == {"a": 8, "b": 12, "c": 5}
    assert _limited(start, end, 1) == {"a": 1, "b": 10, "c": 5}
    assert _limited(end, start, 10) == end


def test_pieces_are_shared_out_among_partitions() -> None:
    pieces = [Piece(Chunk("s", 0, 10, 5, 5 * i, 5 * i, 0), 0, 5) for i in range(5)]
    assert [len(share) for share in _shares(pieces, 10)] == [2, 2, 1]
    assert list(_shares([], 10)) == []
    assert len(list(_shares(pieces, 1))) == 5


def test_readers_of_several_brokers_give_no_number_twice(tmp_path: Path) -> None:
    options = source_options({"brokers": "127.0.0.1:1,127.0.0.1:2", "topic": "s/#", "spool": str(tmp_path)})
    reader = EventStreamReader(options)
    start = reader.initialOffset()
    count = 2 * (max(start.values()) - min(start.values()))  # spools are born a moment apart
    for receiver in reader._receivers:
        receiver.spool.append(count * encode(Publish("s/1", b""), V5), count)
        receiver.spool.sync()
    shares = reader.partitions(start, reader.reportLatestOffset() or {})
    ids = [event for share in shares for rows in reader.read(share) for event in rows.column("event_id").to_pylist()]
    assert len(set(ids)) == len(ids) == 2 * count
    reader.stop()
