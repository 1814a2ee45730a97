"""The archive on a real Spark and a real broker: landed, compacted, read back, asked."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from tests.pipeline.streaming.live import (
    CITIES,
    geomq_broker,
    geomq_federation,
    patiently,
    publish,
    subscribe,
    wait_until,
)
from tests.pipeline.streaming.test_receiver import receiver

from geomq.cli import main
from geomq.errors import DataError, UsageError
from geomq.mqtt.codec.properties import Properties
from geomq.pipeline.recent import Admin
from geomq.pipeline.session import spark_errors
from geomq.pipeline.snapshots import take_snapshot
from geomq.pipeline.streaming import jobs
from geomq.pipeline.streaming.archived import compact, prepare_archive
from geomq.pipeline.streaming.decode import DDL
from geomq.pipeline.streaming.landing import land_events
from geomq.workload.traffic.archived_traffic import EVENTS, FENCED_AWAY

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def place(lat: float, lon: float) -> Properties:
    return Properties(user_properties=(("geo-location", f"{lat},{lon}"),))


def files(archive: Path) -> list[Path]:
    return sorted((archive / EVENTS).glob("date=*/cell=*/*.parquet"))


def test_events_are_landed_by_day_and_cell_compacted_and_read_back(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "archive"

    def land(port: int) -> None:
        options = {"brokers": f"127.0.0.1:{port}", "topic": "s/#", "spool": str(tmp_path / "spool")}
        assert patiently(lambda: land_events(spark, options, archive, every=None).awaitTermination(600))

    with geomq_broker(tmp_path / "broker") as port:
        receiver(port, tmp_path / "spool").stop()
        for round_ in range(2):
            publish(port, [("s/1", b"%d" % (10 * round_ + i)) for i in range(10)], properties=place(52.5, 13.4))
            publish(port, [("s/2", b"south")], properties=place(-0.5, -0.5))
            publish(port, [("s/3", b"nowhere")])
            # Without its checkpoint Spark counts batches from 0 again, which its sink has in its log.
            shutil.rmtree(archive / "_checkpoint", ignore_errors=True)
            land(port)
    cells = {file.parent.name for file in files(archive)}
    assert cells == {"cell=52_13", "cell=-1_-1", "cell=none"}
    before = len(files(archive))
    # A batch that was not finished before a crash leaves files behind, whole ones and others.
    (twin := files(archive)[0]).with_name("twin.parquet").write_bytes(twin.read_bytes())
    twin.with_name("half.parquet").write_bytes(twin.read_bytes()[:100])
    assert compact(spark, archive) == (before, 3)
    assert compact(spark, archive) == (0, 0)
    told = CliRunner().invoke(main, ["archive", "compact", "--json", str(archive)])
    assert json.loads(told.stdout) == {"files_before": 0, "files_after": 0}
    events = spark.read.format("geomq").load(str(archive))
    assert events.count() == events.select("event_id").distinct().count() == 24
    berlin = spark.read.format("geomq").option("topic", "s/+").option("fence", "geo:52.5,13.4;u=1000")
    assert sorted(int(bytes(row.payload)) for row in berlin.load(str(archive)).collect()) == list(range(20))
    found = {
        row.cell: row.events
        for row in jobs.rates(events, window="1 day").groupBy("cell").sum("events").toDF("cell", "events").collect()
    }
    assert found == {"52_13": 20, "-1_-1": 2, "none": 2}


def test_advice_from_an_archive_knows_who_subscribed(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with geomq_federation(tmp_path / "brokers") as members:
        port, _ = members["berlin"]
        admins = [Admin(f"127.0.0.1:{admin}", None) for _, admin in members.values()]
        options = {"brokers": f"127.0.0.1:{port}", "topic": "s/#", "spool": str(tmp_path / "spool")}
        land = lambda: land_events(spark, options, archive, every=None).awaitTermination(600)  # noqa: E731
        receiver(port, tmp_path / "spool").stop()
        for name, (home, _) in members.items():
            subscribe(home, f"reader-{name}", CITIES[name], f"s/{name}", fence=f"geo:{CITIES[name]};u=5000")
        prepare_archive(archive)
        take_snapshot(archive, admins)
        for name, (home, _) in members.items():
            lat, lon = map(float, CITIES[name].split(","))
            publish(home, [(f"s/{name}", b"x" * 20)] * 10, properties=place(lat, lon))
        assert wait_until(lambda: patiently(land) and count(archive) == 30)
    done = CliRunner().invoke(main, ["advise", "--engine", "local", "--samples", "1", "--json", str(archive)])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["present"] == "flood_events"
    assert (answer["traffic"]["brokers"], answer["traffic"]["events"]) == (3, 30)
    # Twenty events must reach the archive's reader in Berlin; everything else stays at home.
    assert answer["oracle"]["messages"] == 20
    assert answer["costs"]["flood_events"]["messages"] == 60
    assert "locations and subscriptions come from 1 snapshots" in answer["notes"]
    assert FENCED_AWAY in answer["notes"]


def count(archive: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in files(archive))


def row(number: int, *, seconds: float, late_ms: float = 5.0, **more: Any) -> tuple[Any, ...]:
    at = NOON + timedelta(seconds=seconds)
    values: dict[str, Any] = {
        "event_id": f"b:1:{number}",
        "topic": "t",
        "payload": b"x" * 10,
        "publisher": f"p{number % 2}",
        "location": (52.55, 13.41),
        "fence": None,
        "event_time": at,
        "received_time": at + timedelta(milliseconds=late_ms),
        "broker": "b",
        "qos": 1,
        "retain": False,
        "properties": {},
    }
    return tuple((values | more).values())


def test_rates_density_and_latency_count_each_event_once(spark: SparkSession) -> None:
    rows = [row(i, seconds=i, late_ms=i) for i in range(100)] + [row(5, seconds=5)]
    events = spark.createDataFrame(rows, DDL)
    rates = jobs.rates(events, window="50 seconds").orderBy("start").collect()
    assert [each.events for each in rates] == [50, 50]
    assert rates[0].events_per_s == 1.0
    assert rates[0].bytes_per_s == 10.0
    (dense,) = jobs.density(events, window="1 hour").collect()
    assert (round(dense.south, 1), round(dense.west, 1), dense.events, dense.publishers) == (52.5, 13.4, 100, 2)
    (slow,) = jobs.latency(events, window="1 hour").collect()
    assert (slow.events, round(slow.p50_ms), round(slow.p99_ms)) == (100, 49, 98)


def test_a_report_is_a_line_of_json_for_each_row_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    prepare_archive(tmp_path / "archive")
    cell = tmp_path / "archive" / EVENTS / "date=2026-05-04" / "cell=52_13"
    spark.createDataFrame([row(i, seconds=i) for i in range(100)], DDL).coalesce(1).write.parquet(str(cell))
    words = ["archive", "report", "rates", str(tmp_path / "archive"), "--window", "50 seconds"]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stderr) == (0, "")
    assert [json.loads(line)["events"] for line in done.stdout.splitlines()] == [50, 50]


def test_on_a_stream_late_events_count_until_the_watermark_has_passed(spark: SparkSession, tmp_path: Path) -> None:
    steps = [
        [row(1, seconds=0), row(2, seconds=30)],
        [row(3, seconds=700), row(1, seconds=0)],
        [row(4, seconds=10), row(5, seconds=660)],
        [row(6, seconds=2000)],
    ]
    source = tmp_path / "in"
    source.mkdir()
    stream = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(source))
    for number, rows in enumerate(steps):
        spark.createDataFrame(rows, DDL).coalesce(1).write.parquet(str(tmp_path / "step"))
        (part,) = (tmp_path / "step").glob("*.parquet")
        part.rename(source / f"{number}.parquet")
        for left in (tmp_path / "step").iterdir():
            left.unlink()
        (tmp_path / "step").rmdir()
        writer = jobs.rates(stream, late="5 minutes").writeStream.format("parquet").outputMode("append")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).option("path", str(tmp_path / "out"))
        assert query.trigger(availableNow=True).start().awaitTermination(100)
    found = {each.start.minute: each.events for each in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert found[0] == 2
    assert found[11] == 2


def test_an_archive_is_not_made_of_something_else(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is neither empty nor an archive"):
        prepare_archive(tmp_path)
    with pytest.raises(DataError, match="is not an archive of events"):
        compact(spark, tmp_path)
    with pytest.raises(DataError, match=r"is not an archive of events"), spark_errors():
        spark.read.format("geomq").load(str(tmp_path)).count()
