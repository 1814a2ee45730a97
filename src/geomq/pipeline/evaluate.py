"""Evaluation on Spark: blocks of clients become packed topics, topics become tallies, tallies are added up.

Owns the three stages and how many tasks each has: pack by topic, evaluate topics, and bring together by client the
moves that topics sent to brokers. All arithmetic is the workload package's, so the numbers are those of the single
process, whatever the partitions. Several evaluations (a sweep) run as one job.
"""

import math
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from geomq.pipeline.mesh_timeline import mesh_timeline, timeline_for
from geomq.pipeline.progress import spark_progress
from geomq.pipeline.session import spark_session
from geomq.workload.evaluation import pair_rows, told_moves
from geomq.workload.evaluation.evaluate import Evaluator, evaluate, outcome_of
from geomq.workload.evaluation.kernel_messages import Tally
from geomq.workload.evaluation.mesh_floods import MeshTimeline
from geomq.workload.evaluation.packed import RECORD, pack, pieces, records_of
from geomq.workload.evaluation.results import Outcome, Run
from geomq.workload.model import Spec
from geomq.workload.world import World

if TYPE_CHECKING:
    Batches = Iterator[pa.RecordBatch]

TASK_BLOCKS = 10
PARTITION_BYTES = 48 * 1024 * 1024
RANGES_MAX = 1000
# Not a topic and not a range of clients: rows under this number are counts, and below it of pairs of brokers.
COUNTS = -1


class Job(NamedTuple):
    """One evaluation: a workload in a world."""

    world: World
    spec: Spec
    seed: int
    paper: bool
    mesh: MeshTimeline | None = None

    def evaluator(self) -> Evaluator:
        return Evaluator(self.world, self.spec, paper=self.paper, mesh=self.mesh)


def evaluate_on_spark(
    runs: Sequence[tuple[Run, World, Spec, int, bool]], *, master: str | None, mesh: bool = False
) -> list[Outcome]:
    """The outcomes of several runs, all in one Spark job."""
    compiling = warm_up(variants={paper for *_, paper in runs})
    jobs = [
        Job(world, spec, seed, paper, timeline_for(world, spec, seed, paper) if mesh else None)
        for _, world, spec, seed, paper in runs
    ]
    with spark_session(master) as spark:
        compiling.join()
        with spark_progress(spark, "Evaluating"):
            tallies = evaluate_jobs(spark, jobs)
    return [
        outcome_of(run, job.world, job.spec, tally, paper=job.paper, mesh=job.mesh is not None)
        for (run, *_), job, tally in zip(runs, jobs, tallies, strict=True)
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
    evaluated = packed.repartition(_partitions(spark, jobs), "job", "topic").mapInArrow(
        _topic_evaluator(jobs), "job int, clients int, data binary"
    )
    added = evaluated.repartition(_ranges(spark, jobs), "job", "clients").mapInArrow(
        _adder(jobs), "job int, counts binary"
    )
    totals = [job.evaluator() for job in jobs]
    for row in added.collect():
        add_counts(totals[row.job], [bytes(row.counts)])
    return [total.finished() for total in totals]


def _packer(jobs: Sequence[Job], tasks: Sequence[tuple[int, int, int]]) -> "Callable[[Batches], Batches]":
    def run(batches: "Batches") -> "Batches":
        for batch in batches:
            for task in batch.column(0).to_pylist():
                number, first, last = tasks[task]
                job = jobs[number]
                blocks = [job.spec.block(job.world, job.seed, block) for block in range(first, last)]
                evaluator = job.evaluator()
                evaluator.add_moves(blocks)
                rows = [(COUNTS, pack_counts(evaluator))]
                rows += [(topic, records.tobytes()) for topic, records in pieces(pack(blocks))]
                for start in range(0, len(rows), 256):
                    yield _batch(number, rows[start : start + 256], ("job", "topic", "actions"))

    return run


def _topic_evaluator(jobs: Sequence[Job]) -> "Callable[[Batches], Batches]":
    def run(batches: "Batches") -> "Batches":
        for number, parts in _by_job(batches).items():
            evaluator = jobs[number].evaluator()
            add_counts(evaluator, parts.pop(COUNTS, []))
            for topic in sorted(parts):
                evaluator.evaluate_topic(topic, records_of(parts.pop(topic)))
            pairs = ((COUNTS - 1 - pair, pair_rows.to_bytes(rows)) for pair, rows in sorted(evaluator.pairs.items()))
            for row in ((COUNTS, pack_counts(evaluator)), *told_moves.by_clients(evaluator.told_moves), *pairs):
                yield _batch(number, [row], ("job", "clients", "data"))

    return run


def _adder(jobs: Sequence[Job]) -> "Callable[[Batches], Batches]":
    def run(batches: "Batches") -> "Batches":
        for number, parts in _by_job(batches).items():
            evaluator = jobs[number].evaluator()
            add_counts(evaluator, parts.pop(COUNTS, []))
            for pair in sorted(part for part in parts if part < COUNTS):
                evaluator.add_pair(COUNTS - 1 - pair, [pair_rows.from_bytes(data) for data in parts.pop(pair)])
            for clients in sorted(parts):
                rows = [told_moves.rows_from(data, len(jobs[number].world)) for data in parts.pop(clients)]
                evaluator.add_told_moves(rows)
            counts = pa.array([pack_counts(evaluator)], pa.binary())
            yield pa.RecordBatch.from_arrays([pa.array([number], pa.int32()), counts], names=["job", "counts"])

    return run


def _batch(number: int, rows: Sequence[tuple[int, bytes]], names: tuple[str, str, str]) -> pa.RecordBatch:
    """Rows of one job, each under the number it is to be brought together by."""
    columns = [
        pa.array([number] * len(rows), pa.int32()),
        pa.array([part for part, _ in rows], pa.int32()),
        pa.array([data for _, data in rows], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def _by_job(batches: "Batches") -> dict[int, dict[int, list[bytes]]]:
    """What `_batch` made, by job and part."""
    found: dict[int, dict[int, list[bytes]]] = {}
    for batch in batches:
        for number, part, data in zip(*(batch.column(i).to_pylist() for i in range(3)), strict=True):
            found.setdefault(number, {}).setdefault(part, []).append(data)
    return found


def pack_counts(evaluator: Evaluator) -> bytes:
    """What an evaluator counted as compressed bytes; most of it is zeros."""
    arrays = (*evaluator.tally, evaluator.firsts)
    return zlib.compress(b"".join(np.ascontiguousarray(array, "<i8").tobytes() for array in arrays), 1)


def add_counts(evaluator: Evaluator, packed: Iterable[bytes]) -> None:
    """Add what other evaluators of the same job counted."""
    for data in packed:
        numbers, parts, at = np.frombuffer(zlib.decompress(data), "<i8"), [], 0
        for like in (*evaluator.tally, evaluator.firsts):
            parts.append(numbers[at : at + like.size].reshape(like.shape))
            at += like.size
        evaluator.add(Tally(*parts[:-1]), parts[-1])


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


def _ranges(spark: SparkSession, jobs: Sequence[Job]) -> int:
    """As many tasks as there are ranges of clients to bring together, within reason."""
    clients = sum(int(job.spec.homes(job.world).sum()) for job in jobs)
    return min(spark.sparkContext.defaultParallelism + clients // told_moves.CLIENTS_TOGETHER, RANGES_MAX)


def warm_up(variants: set[bool]) -> threading.Thread:
    """Compile the kernel in the background while Spark starts, so that its workers find it compiled."""

    def compile_kernel() -> None:
        from geomq.workload.generation.disgb import preset

        world = World.published()
        spec = preset("paper", clients=30, topics=5, seconds=120)
        for paper in variants:
            evaluate(world, spec, 0, paper=paper, mesh=None if paper else mesh_timeline(world, spec, 0))

    thread = threading.Thread(target=compile_kernel, daemon=True)
    thread.start()
    return thread
