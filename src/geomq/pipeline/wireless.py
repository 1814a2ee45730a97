"""The GeoRendezvous study on Spark: each network is one task.

Owns only the distribution. A network is measured by the workload package from its number alone, so the samples are
those of the single process.
"""

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession

from geomq.pipeline.progress import spark_progress
from geomq.pipeline.session import spark_session
from geomq.workload.wireless.study import Plan, Sample, measure, unpack

if TYPE_CHECKING:
    Batches = Iterator[pa.RecordBatch]


def study_on_spark(plan: Plan, *, master: str | None) -> dict[int, list[Sample]]:
    """The samples of all networks, by size."""
    compiling = threading.Thread(target=measure, args=(min(plan.sizes), 0, plan), daemon=True)
    compiling.start()
    with spark_session(master) as spark:
        compiling.join()
        with spark_progress(spark, "Measuring networks"):
            return study_networks(spark, plan)


def study_networks(spark: SparkSession, plan: Plan) -> dict[int, list[Sample]]:
    """The samples of all networks, by size, in the order of their numbers."""
    tasks = plan.tasks()
    rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_measurer(plan), "task int, sample binary").collect()
    found = {row.task: unpack(bytes(row.sample)) for row in rows}
    samples: dict[int, list[Sample]] = {}
    for task, (nodes, _) in enumerate(tasks):
        samples.setdefault(nodes, []).append(found[task])
    return samples


def _measurer(plan: Plan) -> "Callable[[Batches], Batches]":
    def run(batches: "Batches") -> "Batches":
        tasks = plan.tasks()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                nodes, number = tasks[task]
                sample = measure(nodes, number, plan).pack()
                yield pa.RecordBatch.from_arrays(
                    [pa.array([task], pa.int32()), pa.array([sample], pa.binary())], names=["task", "sample"]
                )

    return run
