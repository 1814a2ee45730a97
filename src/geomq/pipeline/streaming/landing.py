"""The stream that fills an archive."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from geomq.pipeline.streaming.archived import EVENTS, PARTITIONS, prepare_archive, with_partitions


def land_events(spark: SparkSession, options: Mapping[str, str], archive: Path, *, every: str | None) -> Any:
    """Start landing; without `every`, only what waits now. The query goes on from its checkpoint in the archive."""
    prepare_archive(archive)
    reader = spark.readStream.format("geomq")
    for name, value in options.items():
        reader = reader.option(name, value)
    writer = with_partitions(reader.load()).writeStream.format("parquet").partitionBy(*PARTITIONS)
    writer = writer.option("checkpointLocation", str(archive.absolute() / "_checkpoint"))
    trigger = {"availableNow": True} if every is None else {"processingTime": every}
    return writer.option("path", str(archive.absolute() / EVENTS)).trigger(**trigger).start()
