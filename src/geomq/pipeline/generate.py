"""Generate a workload on Spark: each task makes and writes its own parts.

Owns the distribution of parts over tasks. The directory must be one that all executors share.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomq.pipeline.progress import spark_progress
from geomq.pipeline.session import spark_session
from geomq.workload.generation.generate import write_part_of, write_workload
from geomq.workload.generation.presets import Request
from geomq.workload.model import Spec
from geomq.workload.world import World

if TYPE_CHECKING:
    import pyarrow as pa


def write_workload_on_spark(
    directory: Path, world: World, spec: Spec, request: Request, *, master: str | None, overwrite: bool
) -> dict[str, Any]:
    """Write the dataset of a workload, its parts in parallel."""

    def on_spark(target: Path, count: int) -> list[int]:
        shared = str(target.resolve())

        def run(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            import pyarrow as pa

            for batch in batches:
                counts = [
                    write_part_of(Path(shared), world, spec, request.seed, part) for part in batch.column(0).to_pylist()
                ]
                yield pa.RecordBatch.from_arrays([pa.array(counts, pa.int64())], names=["actions"])

        with spark_session(master) as spark, spark_progress(spark, "Generating"):
            rows = spark.range(0, count, 1, count).mapInArrow(run, "actions long").collect()
        return [row.actions for row in rows]

    return write_workload(directory, world, spec, request, overwrite=overwrite, write_parts=on_spark)
