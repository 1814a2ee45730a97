"""Ready-made questions to events, the same for a stream and for an archive: rates, density, delivery latency.

Every function is `DataFrame -> DataFrame` over the source's columns. Windows are of event time; on a stream, events
later than the watermark are left out and a window is final when the watermark has passed it.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from geomq.pipeline.streaming.archived import with_partitions

PERCENTILES = (0.5, 0.95, 0.99)


def once(events: DataFrame, *, late: str = "10 minutes") -> DataFrame:
    """Each event once, by its id; on a stream, ids are remembered until the watermark has passed their event."""
    if events.isStreaming:
        return events.withWatermark("event_time", late).dropDuplicatesWithinWatermark(["event_id"])
    return events.dropDuplicates(["event_id"])


def rates(events: DataFrame, *, window: str = "1 minute", late: str = "10 minutes") -> DataFrame:
    """Events and bytes a second by topic and cell."""
    grouped = with_partitions(once(events, late=late)).groupBy(F.window("event_time", window), "topic", "cell")
    seconds = F.col("window.end").cast("double") - F.col("window.start").cast("double")
    return grouped.agg(F.count(F.lit(1)).alias("events"), F.sum(F.length("payload")).alias("bytes")).select(
        F.col("window.start").alias("start"),
        "topic",
        "cell",
        "events",
        (F.col("events") / seconds).alias("events_per_s"),
        (F.col("bytes") / seconds).alias("bytes_per_s"),
    )


def density(
    events: DataFrame, *, degrees: float = 0.1, window: str = "10 minutes", late: str = "10 minutes"
) -> DataFrame:
    """How many events, of how many publishers, in each square of a map."""
    south = F.floor(F.col("location.lat") / degrees) * degrees
    west = F.floor(F.col("location.lon") / degrees) * degrees
    placed = once(events, late=late).where(F.col("location").isNotNull()).withColumns({"south": south, "west": west})
    return (
        placed.groupBy(F.window("event_time", window), "south", "west")
        .agg(F.count(F.lit(1)).alias("events"), F.approx_count_distinct("publisher").alias("publishers"))
        .select(F.col("window.start").alias("start"), "south", "west", "events", "publishers")
    )


def latency(events: DataFrame, *, window: str = "1 minute", late: str = "10 minutes") -> DataFrame:
    """Percentiles of the milliseconds from an event's acceptance at its broker to its arrival at the reader."""
    taken = (F.col("received_time").cast("double") - F.col("event_time").cast("double")) * 1000
    names = [f"p{round(share * 100)}_ms" for share in PERCENTILES]
    cut = F.percentile_approx("ms", list(PERCENTILES), 10_000)
    return (
        once(events, late=late)
        .withColumn("ms", taken)
        .groupBy(F.window("event_time", window), "broker")
        .agg(F.count(F.lit(1)).alias("events"), cut.alias("cuts"))
        .select(
            F.col("window.start").alias("start"),
            "broker",
            "events",
            *(F.col("cuts")[place].alias(name) for place, name in enumerate(names)),
        )
    )
