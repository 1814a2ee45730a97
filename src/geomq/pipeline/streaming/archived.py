"""The archive: events as Parquet by day and cell, written by a stream, compacted by a batch, read back as events.

    <archive>/_geomq_archive                 marks the directory, and says how large cells are
    <archive>/events/date=2026-05-04/cell=52_13/part-....parquet
    <archive>/clients/                       snapshots of who subscribed where, for advice

A cell is a square of whole degrees, named by the latitude and longitude of its south-west corner; events without a
location are in the cell `none`. The date is that of the event's time, UTC. Repeats by event id are removed when an
archive is compacted, and by `once` of the jobs. What a killed landing left half written does not count.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSourceReader, InputPartition

from geomq.errors import DataError, UsageError
from geomq.geo import Location
from geomq.mqtt.codec.topics import topic_matches
from geomq.pipeline.streaming.decode import SCHEMA
from geomq.pipeline.streaming.options import ArchiveOptions
from geomq.pipeline.streaming.plainly import plainly, yielded_plainly
from geomq.workload.traffic.archived_traffic import COMPACTED, EVENTS, LOG, MARK, event_files, is_archive

CELL_DEG = 1
CHECKPOINT = "_checkpoint"
PARTITIONS = ("date", "cell")
NOWHERE = "none"


def cell_of(latitude: Column, longitude: Column) -> Column:
    """The name of a place's cell."""
    south, west = F.floor(latitude / CELL_DEG) * CELL_DEG, F.floor(longitude / CELL_DEG) * CELL_DEG
    return F.coalesce(F.concat_ws("_", south.cast("int"), west.cast("int")).alias("cell"), F.lit(NOWHERE))


def with_partitions(events: DataFrame) -> DataFrame:
    """Events with their date and cell."""
    place = F.col("location")
    cell = F.when(place.isNull(), F.lit(NOWHERE)).otherwise(cell_of(place["lat"], place["lon"]))
    return events.withColumns({"date": F.to_date("event_time"), "cell": cell})


def prepare_archive(archive: Path) -> None:
    """Make the directory an archive; refuse one that is something else."""
    mark = archive / MARK
    try:
        if archive.exists() and not mark.exists() and any(archive.iterdir()):
            raise UsageError(f"{archive} is neither empty nor an archive; choose another directory")
        (archive / EVENTS).mkdir(parents=True, exist_ok=True)
        _set_old_log_aside(archive)
        mark.write_text(json.dumps({"cell_deg": CELL_DEG, "version": 1}))
    except OSError as error:
        raise DataError(f"cannot write {archive}: {error.strerror or error}") from None


def _set_old_log_aside(archive: Path) -> None:
    """Begin a new log where the checkpoint is gone or older than the log of Spark's file sink.

    The sink leaves out batches that its log knows by their number, whatever is in them.
    """
    log = archive / EVENTS / LOG
    if _last_batch(log) > _last_batch(archive / CHECKPOINT / "offsets"):
        log.rename(log.with_name(f"{LOG}.{time.time_ns()}"))


def _last_batch(folder: Path) -> int:
    names = [path.stem for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def check_archive(archive: Path) -> None:
    if not is_archive(archive):
        raise DataError(f"{archive} is not an archive of events; geomq archive makes one")


def compact(spark: SparkSession, archive: Path, *, date: str | None = None) -> tuple[int, int]:
    """Rewrite each day's cells as one file each, repeats removed; the number of files before and after."""
    check_archive(archive)
    events = archive / EVENTS
    days = sorted(folder.name for folder in events.glob("date=*") if date in (None, folder.name.removeprefix("date=")))
    before = after = 0
    for day in days:
        files = event_files(archive, day)
        if len(files) <= len({file.parent for file in files}):
            continue
        rows = spark.read.option("basePath", str(events)).parquet(*map(str, files))
        fresh = archive / f".compacting-{day}"
        unique = rows.dropDuplicates(["event_id"]).repartition("cell").sortWithinPartitions("cell", "event_time")
        unique.drop("date").write.mode("overwrite").partitionBy("cell").parquet(str(fresh))
        before += len(files)
        after += _replace(events / day, files, fresh)
    return before, after


def _replace(day: Path, old: list[Path], fresh: Path) -> int:
    """Put the new files beside the old, then remove those. Between the two events are there twice, never missing."""
    import shutil

    new = sorted(fresh.glob("cell=*/*.parquet"))
    for file in new:
        target = day / file.parent.name
        target.mkdir(exist_ok=True)
        file.rename(target / f"{COMPACTED}{file.name}")
    for file in old:
        file.unlink()
    shutil.rmtree(fresh)
    return len(new)


@dataclass
class ArchiveFile(InputPartition):
    """One Parquet file."""

    path: str


class ArchiveReader(DataSourceReader):
    """Reads the events of an archive, only the topics and places asked for."""

    def __init__(self, options: ArchiveOptions) -> None:
        self._options = options

    @plainly
    def partitions(self) -> list[InputPartition]:
        check_archive(self._options.path)
        return [ArchiveFile(str(file)) for file in event_files(self._options.path)] or [ArchiveFile("")]

    @yielded_plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ArchiveFile)
        if not partition.path:
            return
        try:
            with pq.ParquetFile(partition.path) as file:
                for batch in file.iter_batches(10_000, columns=SCHEMA.names):
                    table = pa.Table.from_batches([batch]).select(SCHEMA.names).cast(SCHEMA)
                    yield from self._wanted(table).to_batches()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{partition.path} is not a readable file of an archive: {str(error)[:200]}") from None

    def _wanted(self, table: pa.Table) -> pa.Table:
        topic, fence = self._options.topic, self._options.fence
        if topic is not None:
            names = table.column("topic").to_pylist()
            table = table.filter(
                pa.array([name is not None and topic_matches(topic, name) for name in names], pa.bool_())
            )
        if fence is not None:
            places = table.column("location").to_pylist()
            inside = [at is not None and None not in at.values() and fence.contains(Location(**at)) for at in places]
            table = table.filter(pa.array(inside, pa.bool_()))
        return table
