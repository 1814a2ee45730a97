"""Evaluation on Spark: blocks of clients become packed topics, topics become tallies, tallies are added up.

Owns the two stages and how many tasks each has. All arithmetic is the workload package's, so the numbers are those
of the single process, whatever the partitions. Several evaluations (a sweep) run as one job.
"""

import math
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from geomq.pipeline.progress import spark_progress
from geomq.pipeline.session import spark_session
from geomq.workload.evaluate import Evaluator, add_tallies, evaluate, outcome_of
from geomq.workload.kernel_messages import Tally
from geomq.workload.model import Spec
from geomq.workload.packed import RECORD, pack, pieces, records_of
from geomq.workload.rendezvous_traffic import count_refreshes, no_firsts
from geomq.workload.results import Outcome, Run
from geomq.workload.world import World

if TYPE_CHECKING:
    Batches = Iterator[pa.RecordBatch]

TASK_BLOCKS = 10
PARTITION_BYTES = 48 * 1024 * 1024
# Not a topic: the rows under this number are tallies of moves, which concern all topics of a client.
MOVES = -1


class Job(NamedTuple):
    """One evaluation: a workload in a world."""

    world: World
    spec: Spec
    seed: int
    paper: bool


def evaluate_on_spark(jobs: Sequence[tuple[Run, World, Spec, int, bool]], *, master: str | None) -> list[Outcome]:
    """The outcomes of several runs, all in one Spark job."""
    compiling = warm_up(variants={paper for *_, paper in jobs})
    with spark_session(master) as spark:
        compiling.join()
        with spark_progress(spark, "Evaluating"):
            tallies = evaluate_jobs(spark, [Job(*job[1:]) for job in jobs])
    return [
        outcome_of(run, world, spec, tally, paper=paper)
        for (run, world, spec, _, paper), tally in zip(jobs, tallies, strict=True)
    ]


def evaluate_jobs(spark: SparkSession, jobs: Sequence[Job]) -> list[Tally]:
    """The tallies of several evaluations, in their order."""
    tasks = [
        (number, first, min(first + TASK_BLOCKS, blocks))
        for number, job in enumerate(jobs)
        for blocks in [job.spec.block_count(job.world)]
        for first in range(0, blocks, TASK_BLOCKS)
    ]
    packed = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(
        _packer(jobs, tasks), "job int, topic int, actions binary"
    )
    tallied = packed.repartition(_partitions(spark, jobs), "job", "topic").mapInArrow(
        _evaluator(jobs), "job int, tally binary, firsts binary"
    )
    totals = [Evaluator(job.world, job.spec, paper=job.paper).tally for job in jobs]
    firsts = [no_firsts(len(job.world)) for job in jobs]
    for row in tallied.collect():
        add_tallies([unpack_tally(bytes(row.tally), totals[row.job])], totals[row.job])
        first = np.frombuffer(bytes(row.firsts), "<i8").reshape(firsts[row.job].shape)
        np.minimum(firsts[row.job], first, out=firsts[row.job])
    for job, total, first in zip(jobs, totals, firsts, strict=True):
        count_refreshes(first, job.spec.end_ms, total)
    return totals


def _packer(jobs: Sequence[Job], tasks: Sequence[tuple[int, int, int]]) -> "Callable[[Batches], Batches]":
    def run(batches: "Batches") -> "Batches":
        for batch in batches:
            for task in batch.column(0).to_pylist():
                number, first, last = tasks[task]
                job = jobs[number]
                blocks = [job.spec.block(job.world, job.seed, block) for block in range(first, last)]
                evaluator = Evaluator(job.world, job.spec, paper=job.paper)
                evaluator.add_moves(blocks)
                rows = [(MOVES, pack_tally(evaluator.tally))]
                rows += [(topic, records.tobytes()) for topic, records in pieces(pack(blocks))]
                for start in range(0, len(rows), 256):
                    part = rows[start : start + 256]
                    yield pa.RecordBatch.from_arrays(
                        [
                            pa.array([number] * len(part), pa.int32()),
                            pa.array([topic for topic, _ in part], pa.int32()),
                            pa.array([actions for _, actions in part], pa.binary()),
                        ],
                        names=["job", "topic", "actions"],
                    )

    return run


def _evaluator(jobs: Sequence[Job]) -> "Callable[[Batches], Batches]":
    def run(batches: "Batches") -> "Batches":
        parts: dict[tuple[int, int], list[bytes]] = {}
        for batch in batches:
            columns = (batch.column(i).to_pylist() for i in range(3))
            for number, topic, actions in zip(*columns, strict=True):
                parts.setdefault((number, topic), []).append(actions)
        for number, job in enumerate(jobs):
            topics = sorted(topic for of_job, topic in parts if of_job == number)
            if not topics:
                continue
            evaluator = Evaluator(job.world, job.spec, paper=job.paper)
            for topic in topics:
                if topic == MOVES:
                    moves = (unpack_tally(part, evaluator.tally) for part in parts.pop((number, topic)))
                    add_tallies(moves, evaluator.tally)
                    continue
                evaluator.evaluate_topic(topic, records_of(parts.pop((number, topic))))
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([number], pa.int32()),
                    pa.array([pack_tally(evaluator.tally)], pa.binary()),
                    pa.array([evaluator.firsts.astype("<i8").tobytes()], pa.binary()),
                ],
                names=["job", "tally", "firsts"],
            )

    return run


def pack_tally(tally: Tally) -> bytes:
    """A tally as compressed bytes; most of it is zeros."""
    return zlib.compress(b"".join(np.ascontiguousarray(part, "<i8").tobytes() for part in tally), 1)


def unpack_tally(data: bytes, like: Tally) -> Tally:
    """The tally in the bytes; its shapes are those of `like`."""
    numbers = np.frombuffer(zlib.decompress(data), "<i8")
    parts, at = [], 0
    for part in like:
        parts.append(numbers[at : at + part.size].reshape(part.shape))
        at += part.size
    return Tally(*parts)


def _partitions(spark: SparkSession, jobs: Sequence[Job]) -> int:
    """Enough that a task's actions fit comfortably in memory, and every core has some."""
    expected = 0
    for job in jobs:
        blocks = job.spec.block_count(job.world)
        sample = len(pack([job.spec.block(job.world, job.seed, 0)]).records) * RECORD.itemsize
        expected += sample * max(blocks, 1)
    cores = spark.sparkContext.defaultParallelism
    wanted = max(2 * cores, math.ceil(expected / PARTITION_BYTES))
    return min(wanted, sum(len(job.spec.topic_names()) for job in jobs))


def warm_up(variants: set[bool]) -> threading.Thread:
    """Compile the kernel in the background while Spark starts, so that its workers find it compiled."""

    def compile_kernel() -> None:
        from geomq.workload.disgb import preset

        world = World.published()
        spec = preset("paper", clients=30, topics=5, seconds=120)
        for paper in variants:
            evaluate(world, spec, 0, paper=paper)

    thread = threading.Thread(target=compile_kernel, daemon=True)
    thread.start()
    return thread
