"""The stream that fills an archive."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from geomq.errors import UsageError
from geomq.pipeline.streaming.archived import CHECKPOINT, PARTITIONS, prepare_archive, with_partitions
from geomq.workload.traffic.archived_traffic import EVENTS

_TIME = re.compile(r"\s*\d{1,6}\s+(?:millisecond|second|minute|hour|day)s?\s*")


def check_time(text: str) -> None:
    """Refuse what Spark would only refuse later, and at length."""
    if _TIME.fullmatch(text) is None:
        raise UsageError(f"{text[:40]!r} is not a time such as '10 seconds' or '5 minutes'")


def land_events(spark: SparkSession, options: Mapping[str, str], archive: Path, *, every: str | None) -> Any:
    """Start landing; without `every`, only what waits now. The query goes on from its checkpoint in the archive."""
    prepare_archive(archive)
    reader = spark.readStream.format("geomq")
    for name, value in options.items():
        reader = reader.option(name, value)
    writer = with_partitions(reader.load()).writeStream.format("parquet").partitionBy(*PARTITIONS)
    writer = writer.option("checkpointLocation", str(archive.absolute() / CHECKPOINT))
    trigger = {"availableNow": True} if every is None else {"processingTime": every}
    return writer.option("path", str(archive.absolute() / EVENTS)).trigger(**trigger).start()
