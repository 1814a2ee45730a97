"""Live runs through Spark: traces of brokers and records of clients become one table, and that becomes results.

A *journey* is one event at one broker: when it got there, in how many messages, whom it served. The rest follows:
messages by kind and link, latencies, excess data, and, judged by `workload.expected`, what was lost or doubled.
Frames are `DataFrame -> DataFrame` functions; runs are told apart by a number, so many are analysed in one job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from geomq.errors import DataError
from geomq.mqtt.codec.topics import topic_matches
from geomq.workload.dataset import MANIFEST, DatasetSpec, read_manifest
from geomq.workload.model import Kind
from geomq.workload.traffic.expected import Comparison, Said, expected, judge

SETTLE_MS = 100.0
"""Added to the longest delivery of a run: how long an action may take to be in force everywhere."""
CLOUD = "cloud"
_VERDICTS = "run int, topic int, " + ", ".join(f"{name} long" for name in Comparison._fields)


@dataclass(frozen=True)
class LiveRun:
    """A directory of `geomq testbed`."""

    number: int
    directory: Path
    manifest: dict[str, Any]

    @property
    def strategy(self) -> str:
        return str(self.manifest["strategy"])

    @property
    def names(self) -> list[str]:
        """The brokers; the one that is the cloud is called so in traces."""
        cloud = self.manifest["cloud"]
        return [CLOUD if name == cloud else str(name) for name in self.manifest["names"]]

    @property
    def workload(self) -> DatasetSpec:
        return DatasetSpec(self.directory / self.manifest["workload"])

    @property
    def settle_ms(self) -> float:
        return float(self.manifest["replay"]["latency"].get("max", 0.0)) + SETTLE_MS


def live_run(number: int, directory: Path) -> LiveRun:
    """A run that has finished."""
    run = LiveRun(number, directory, read_manifest(directory, "testbed"))
    try:
        report = run.manifest["replay"]
        _ = run.strategy, run.names, run.workload, run.settle_ms, float(run.manifest["plan"]["workload"]["speed"])
        _ = [float(report[name]) for name in ("ended_ms", "clients", "events", "subscriptions")]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{directory / MANIFEST} is damaged: {type(error).__name__} {error}") from None
    return run


class Frames(NamedTuple):
    """What was read of all runs, each row with the number of its run."""

    sent: DataFrame
    received: DataFrame
    trace: DataFrame
    brokers: DataFrame


def read_frames(spark: SparkSession, runs: Sequence[LiveRun]) -> Frames:
    """The records of clients and brokers of all runs."""

    def together(place: str) -> DataFrame:
        parts = []
        for run in runs:
            directory = run.directory / place
            if not any(directory.glob("*.parquet")):
                raise DataError(f"{directory} has no records; was tracing off?")
            parts.append(spark.read.parquet(str(directory)).withColumn("run", F.lit(run.number)))
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.unionByName(part)
        return whole

    ended = spark.createDataFrame(
        [(run.number, float(run.manifest["replay"]["ended_ms"])) for run in runs], "run int, ended_ms double"
    )
    brokers = [(run.number, home, name) for run in runs for home, name in enumerate(run.names)]
    # What brokers do after the end is because clients leave.
    trace = together("trace").join(F.broadcast(ended), "run").where("t_ms <= ended_ms").drop("ended_ms")
    return Frames(
        together("replay/sent"),
        together("replay/received"),
        trace,
        spark.createDataFrame(brokers, "run int, home int, broker string"),
    )


def links(trace: DataFrame) -> DataFrame:
    """Messages between brokers by kind."""
    return (
        trace.where("step = 'sent'")
        .groupBy("run", F.col("broker").alias("sender"), F.col("peer").alias("receiver"), "kind")
        .agg(F.count("*").alias("messages"))
        .select("run", "sender", "receiver", "kind", "messages")
    )


def event_ids(trace: DataFrame) -> DataFrame:
    """Which event of which replayed client an event id stands for: brokers number events in the order they came."""
    sequence = F.element_at(F.split("event_id", ":"), -1).cast("long")
    in_order = Window.partitionBy("run", "publisher").orderBy(sequence)
    return (
        trace.where("step = 'published'")
        .withColumn("publisher", F.expr("try_cast(substr(client, 2) as int)"))
        .withColumn("number", F.row_number().over(in_order) - 1)
        .select("run", "event_id", "publisher", "number", "topic", F.col("broker").alias("home"))
    )


def arrivals(trace: DataFrame) -> DataFrame:
    """When each event got to each broker; the cloud keeps no trace, but those who send to it do."""
    carries = F.col("event_id").isNotNull() & F.col("kind").isin("event", "delivery")
    here = trace.where(carries & F.col("step").isin("published", "received"))
    there = trace.where(carries & (F.col("step") == "sent") & (F.col("peer") == CLOUD))
    together = here.select("run", "event_id", "broker", "t_ms", (F.col("step") == "received").alias("message"))
    told = there.select("run", "event_id", F.lit(CLOUD).alias("broker"), "t_ms", F.lit(True).alias("message"))
    return (
        together.unionByName(told)
        .groupBy("run", "event_id", "broker")
        .agg(F.min("t_ms").alias("arrived_ms"), F.sum(F.col("message").cast("long")).alias("messages"))
        .select("run", "event_id", "broker", "arrived_ms", "messages")
    )


def handed_over(received: DataFrame, brokers: DataFrame) -> DataFrame:
    """What clients of each broker received of each event."""
    latency = F.col("t_ms") - F.col("sent_ms")
    return (
        received.groupBy("run", "publisher", "number", "home")
        .agg(
            F.countDistinct("client").alias("clients"),
            F.count("*").alias("copies"),
            F.min(latency).alias("latency_ms_min"),
            F.max(latency).alias("latency_ms_max"),
        )
        .join(F.broadcast(brokers), ["run", "home"])
        .select("run", "publisher", "number", "broker", "clients", "copies", "latency_ms_min", "latency_ms_max")
    )


def journeys(frames: Frames) -> DataFrame:
    """One row for each event at each broker that dealt with it: the one table everything is told from.

    `correct` as the broadcast groups paper has it: the broker serves a subscriber of the event, or its publisher.
    """
    at_home = F.col("broker") == F.col("home")
    return (
        arrivals(frames.trace)
        .join(event_ids(frames.trace), ["run", "event_id"])
        .join(handed_over(frames.received, frames.brokers), ["run", "publisher", "number", "broker"], "left")
        .withColumn("correct", at_home | F.col("clients").isNotNull())
        .select(
            *("run", "event_id", "publisher", "number", "topic", "home", "broker", "arrived_ms", "messages"),
            *(F.coalesce(name, F.lit(0).cast("long")).alias(name) for name in ("clients", "copies")),
            *("latency_ms_min", "latency_ms_max", "correct"),
        )
    )


def excess(journeys: DataFrame) -> DataFrame:
    """Correct and redundant messages that brokers dealt with, by broker and by the first level of the topic."""
    flow = F.regexp_extract("topic", "^(/?[^/]*)", 1)
    return (
        journeys.groupBy("run", "broker", flow.alias("flow"))
        .agg(
            F.sum(F.col("correct").cast("long")).alias("correct"),
            F.sum((~F.col("correct")).cast("long")).alias("redundant"),
            F.sum("clients").alias("deliveries"),
        )
        .select("run", "broker", "flow", "correct", "redundant", "deliveries")
    )


def useful_messages(journeys: DataFrame) -> DataFrame:
    """Events that came to a broker from another one and served a client there."""
    return (
        journeys.where("messages > 0")
        .groupBy("run")
        .agg(F.sum((F.col("clients") > 0).cast("long")).alias("useful"))
        .select("run", "useful")
    )


def latencies(received: DataFrame, *keys: str, step_ms: float = 1.0) -> DataFrame:
    """How many deliveries took how long, in whole steps (rounded down), by `keys`."""
    took = F.floor((F.col("t_ms") - F.col("sent_ms")) / step_ms)
    return (
        received.groupBy("run", *keys, took.cast("int").alias("steps"))
        .agg(F.count("*").alias("count_"))
        .select("run", *keys, "steps", "count_")
    )


def verdicts(frames: Frames, runs: Sequence[LiveRun]) -> DataFrame:
    """What was lost, doubled or unexpected, by run, topic and home."""
    settle_ms = {run.number: run.settle_ms for run in runs}
    matches = frames.sent.sparkSession.createDataFrame(_matches(runs), "run int, topic int, event_topic int")
    located = frames.sent.where(F.col("kind") == int(Kind.LOCATION))
    spoken = frames.sent.where(F.col("kind") != int(Kind.LOCATION))
    on_topic = spoken.join(F.broadcast(matches), ["run", "topic"])
    everywhere = located.drop("topic").join(F.broadcast(matches.select("run", "event_topic").distinct()), "run")
    columns: list[Column | str] = ["run", "event_topic", "t_ms", "client", "home", "kind", "number"]
    columns += ["lat_e7", "lon_e7", "radius_cm"]
    said = on_topic.select(*columns).unionByName(everywhere.select(*columns))
    got = frames.received.select("run", F.col("topic").alias("event_topic"), "client", "home", "publisher", "number")

    def judged(said: pd.DataFrame, got: pd.DataFrame) -> pd.DataFrame:
        some = said if len(said) else got
        run, topic = int(some["run"].iloc[0]), int(some["event_topic"].iloc[0])
        return judge_topic(said, got, run, topic, settle_ms[run])

    return (
        said.groupBy("run", "event_topic").cogroup(got.groupBy("run", "event_topic")).applyInPandas(judged, _VERDICTS)
    )


def judge_topic(said: pd.DataFrame, got: pd.DataFrame, run: int, topic: int, settle_ms: float) -> pd.DataFrame:
    """The verdicts on one topic of one run."""
    events = said[said["kind"] == int(Kind.EVENT)].sort_values("t_ms", kind="stable").reset_index(drop=True)
    columns = ["t_ms", "client", "lat_e7", "lon_e7", "radius_cm"]

    def of_kind(kind: Kind) -> Said:
        chosen = events if kind is Kind.EVENT else said[said["kind"] == int(kind)]
        t_ms, client, *rest = (chosen[name].to_numpy() for name in columns)
        return Said(t_ms.astype("f8"), client.astype("i8"), *(each.astype("i4") for each in rest))

    pairs = expected(of_kind(Kind.EVENT), of_kind(Kind.SUBSCRIPTION), of_kind(Kind.LOCATION), settle_ms=settle_ms)
    rows = pd.Series(events.index, index=pd.MultiIndex.from_frame(events[["client", "number"]]))
    known = rows.reindex(pd.MultiIndex.from_frame(got[["publisher", "number"]])).fillna(len(events)).to_numpy("i8")
    home_of = dict(zip(got["client"].tolist(), got["home"].tolist(), strict=True))
    home_of |= dict(zip(said["client"].tolist(), said["home"].tolist(), strict=True))
    found = judge(pairs, known, got["client"].to_numpy("i8"), home_of)
    return pd.DataFrame([(run, topic, *verdict) for verdict in found], columns=["run", "topic", *Comparison._fields])


def _matches(runs: Sequence[LiveRun]) -> list[tuple[int, int, int]]:
    """Which topics of events a subscription's topic filter matches, as numbers; a topic matches itself."""
    rows = []
    for run in runs:
        names = run.workload.topic_names()
        wild = {number for number, name in enumerate(names) if "+" in name or "#" in name}
        rows += [
            (run.number, number, other)
            for number, name in enumerate(names)
            for other, topic in enumerate(names)
            if other not in wild and topic_matches(name, topic)
        ]
    return rows
