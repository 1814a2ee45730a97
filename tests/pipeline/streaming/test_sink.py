"""The sink on a real Spark and a real broker: every row acknowledged, repeats dropped, places and fences kept."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, MapType, StringType, StructType
from tests.pipeline.streaming.live import geomq_broker, mosquitto_broker, publisher, wait_until
from tests.pipeline.streaming.test_receiver import count, receiver, rows

from geomq.errors import DataError, UsageError
from geomq.mqtt.codec.properties import Properties
from geomq.pipeline.session import spark_errors
from geomq.pipeline.streaming import sink
from geomq.pipeline.streaming.options import SinkOptions, sink_options
from geomq.pipeline.streaming.publisher import Publisher
from geomq.pipeline.streaming.sink import check_columns, publish_rows


def batch(first: int, last: int) -> pa.RecordBatch:
    numbers = range(first, last)
    return pa.RecordBatch.from_pydict(
        {"topic": [f"s/{i % 7}" for i in numbers], "payload": [b"%d" % i for i in numbers]}
    )


def test_a_frame_is_published_with_places_and_fences(spark: SparkSession, tmp_path: Path) -> None:
    with geomq_broker(tmp_path / "broker") as port:
        reading = receiver(port, tmp_path / "spool")
        frame = spark.range(0, 1000, 1, 2).select(
            F.concat(F.lit("s/"), F.col("id") % 5).alias("topic"),
            F.col("id").cast("string").alias("payload"),
            F.struct(F.lit(52.5).alias("lat"), F.lit(13.4).alias("lon")).alias("location"),
            F.create_map(F.lit("colour"), F.lit("red")).alias("properties"),
            F.lit(1).alias("qos"),
        )
        frame.write.format("geomq").mode("append").option("brokers", f"127.0.0.1:{port}").save()
        assert wait_until(lambda: count(reading.spool) == 1000)
        assert {int(payload) for _, payload in rows(reading.spool)} == set(range(1000))
        bad = spark.createDataFrame([("s/1", "x", "POINT (1 2)")], "topic string, payload string, fence string")
        with pytest.raises(DataError, match=r"refused an event on 's/1': a POINT has no area"), spark_errors():
            bad.write.format("geomq").mode("append").option("brokers", f"127.0.0.1:{port}").save()
        wrong = spark.createDataFrame([("a", 1)], "topic string, colour int")
        with pytest.raises(UsageError, match=r"^column colour cannot be published"), spark_errors():
            wrong.write.format("geomq").mode("append").option("brokers", "a").save()
        reading.stop()


def test_a_stream_is_published_once(spark: SparkSession, tmp_path: Path) -> None:
    with geomq_broker(tmp_path / "broker") as port:
        reading = receiver(port, tmp_path / "spool")
        (tmp_path / "in").mkdir()

        def run(checkpoint: str) -> Any:
            source = spark.readStream.schema("topic string, payload string").json(str(tmp_path / "in"))
            writer = source.writeStream.format("geomq").option("brokers", f"127.0.0.1:{port}").option("name", "alerts")
            query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
            assert query.awaitTermination(100)
            return query

        (tmp_path / "in" / "1.json").write_text(
            '{"topic": "s/1", "payload": "one"}\n{"topic": "s/2", "payload": "two"}'
        )
        run("checkpoint")
        assert wait_until(lambda: count(reading.spool) == 2)
        # The same batch again, as after a crash before its commit.
        run("lost")
        (tmp_path / "in" / "2.json").write_text('{"topic": "s/1", "payload": "three"}')
        run("checkpoint")
        assert wait_until(lambda: count(reading.spool) >= 3)
        assert sorted(payload for _, payload in rows(reading.spool)) == [b"one", b"three", b"two"]
        reading.stop()


class Breaking(Publisher):
    """Breaks after 250 rows, which it has sent."""

    rows = 0

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool, properties: Properties) -> None:
        super().publish(topic, payload, qos, retain=retain, properties=properties)
        self.rows += 1
        if self.rows == 250:
            self.flush()
            raise DataError("broken")


def half_sent(options: SinkOptions, number: int, *batches: pa.RecordBatch) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink, "Publisher", Breaking)
        with pytest.raises(DataError, match="broken"):
            publish_rows(options, "run", number, iter(batches))


def test_a_batch_that_was_half_sent_is_completed_not_doubled(tmp_path: Path) -> None:
    with geomq_broker(tmp_path / "broker") as port:
        reading = receiver(port, tmp_path / "spool")
        options = sink_options({"brokers": f"127.0.0.1:{port}"})
        half_sent(options, 7, batch(0, 200), batch(200, 500))
        publish_rows(options, "run", 7, iter([batch(0, 200), batch(200, 500)]))
        publish_rows(options, "run", 8, iter([batch(500, 600)]))
        assert wait_until(lambda: count(reading.spool) >= 600)
        assert sorted(int(payload) for _, payload in rows(reading.spool)) == list(range(600))
        reading.stop()


def test_rows_computed_otherwise_the_second_time_are_not_taken_for_repeats(tmp_path: Path) -> None:
    with geomq_broker(tmp_path / "broker") as port:
        reading = receiver(port, tmp_path / "spool")
        options = sink_options({"brokers": f"127.0.0.1:{port}"})
        fewer = sink_options({"brokers": f"127.0.0.1:{port}", "connections": "3"})
        half_sent(options, 0, batch(0, 400))
        publish_rows(options, "run", 0, iter([batch(0, 400).slice(100)]))
        half_sent(options, 1, batch(0, 400))
        publish_rows(fewer, "run", 1, iter([batch(0, 400)]))
        assert wait_until(lambda: count(reading.spool) >= 250 + 300 + 250 + 400), count(reading.spool)
        reading.stop()


def test_rows_of_both_qualities_of_service_all_arrive(tmp_path: Path) -> None:
    with geomq_broker(tmp_path / "broker") as port:
        reading = receiver(port, tmp_path / "spool")
        mixed = batch(0, 5_000).append_column("qos", pa.array([i % 2 for i in range(5_000)], pa.int32()))
        publish_rows(sink_options({"brokers": f"127.0.0.1:{port}", "connections": "1"}), "run", 0, iter([mixed]))
        assert wait_until(lambda: count(reading.spool) >= 5_000)
        assert sorted(int(payload) for _, payload in rows(reading.spool)) == list(range(5_000))
        reading.stop()


def test_an_id_that_came_with_an_event_is_not_its_rows(tmp_path: Path) -> None:
    with geomq_broker(tmp_path / "broker") as port:
        reading = receiver(port, tmp_path / "spool")
        kind = pa.map_(pa.string(), pa.string())
        passed_on = pa.array([[("geo-once", "elsewhere:7"), ("colour", "red")]] * 3, kind)
        options = sink_options({"brokers": f"127.0.0.1:{port}"})
        publish_rows(options, "run", 0, iter([batch(0, 3).append_column("properties", passed_on)]))
        assert wait_until(lambda: count(reading.spool) == 3), count(reading.spool)
        reading.stop()


def test_a_broker_that_restarts_gets_what_it_had_not_acknowledged(tmp_path: Path) -> None:
    with geomq_broker(tmp_path / "broker") as port:
        reading = receiver(port, tmp_path / "spool")
        out = publisher(port, connections=2)
        for i in range(500):
            properties = Properties(user_properties=(("geo-once", f"w{out.stream_of(f's/{i % 3}')}:{i}"),))
            out.publish(f"s/{i % 3}", b"%d" % i, 1, retain=False, properties=properties)
    with geomq_broker(tmp_path / "broker", port=port):
        out.flush()
        out.close()
        assert wait_until(lambda: count(reading.spool) >= 500)
        assert sorted(int(payload) for _, payload in rows(reading.spool)) == list(range(500))
        reading.stop()


def test_behind_another_broker_repeats_are_known_by_their_id(tmp_path: Path) -> None:
    with mosquitto_broker(tmp_path / "broker") as port:
        reading = receiver(port, tmp_path / "spool")
        options = sink_options({"brokers": f"127.0.0.1:{port}", "connections": "2"})
        for _ in range(2):
            publish_rows(options, "run", 0, iter([batch(0, 50)]))
        assert wait_until(lambda: count(reading.spool) == 100)
        reading.stop()


def test_rows_that_cannot_be_published_are_named() -> None:
    options = sink_options({"brokers": "127.0.0.1:1"})
    with pytest.raises(DataError, match=r"127.0.0.1:1 cannot be reached"):
        publish_rows(options, "run", 0, iter([batch(0, 1)]))
    assert publish_rows(options, "run", 0, iter([])).rows == 0


def test_properties_are_texts() -> None:
    needed = StructType().add("topic", StringType()).add("payload", StringType())
    check_columns(needed.add("properties", MapType(StringType(), StringType())))
    numbers = StructType().add("topic", StringType()).add("properties", MapType(StringType(), IntegerType()))
    with pytest.raises(UsageError, match=r"column properties must be map<string, string>, not map<string,int>"):
        check_columns(numbers)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("payload string", "there is no column topic"),
        ("topic string", "there is no column payload"),
        ("topic int, payload string", "column topic must be string, not int"),
        ("topic string, payload int", "column payload must be binary or string, not int"),
        ("topic string, payload string, place string", "column place cannot be published; known columns are topic"),
    ],
)
def test_wrong_columns_give_one_clear_line(columns: str, words: str) -> None:
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    with pytest.raises(UsageError, match=words):
        check_columns(schema)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("topic", None, "a row has no topic"),
        ("topic", "a/#", "a row's topic"),
        ("qos", 2, "qos must be 0 or 1, not 2"),
        ("location", {"lat": 1.0, "lon": None}, "needs both lat and lon"),
    ],
)
def test_wrong_rows_give_one_clear_line(column: str, value: object, words: str, tmp_path: Path) -> None:
    row = {"topic": ["t"], "payload": [b""]} | {column: [value]}
    with geomq_broker(tmp_path / "broker") as port, pytest.raises(DataError, match=words):
        publish_rows(sink_options({"brokers": f"127.0.0.1:{port}"}), "run", 0, iter([pa.RecordBatch.from_pydict(row)]))
