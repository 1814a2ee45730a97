"""A sweep on Spark: each run is a task, the longest first, and the modules of own strategies go along."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from geomq.pipeline.own_modules import own_modules_zip
from geomq.pipeline.progress import spark_progress
from geomq.pipeline.session import spark_session
from geomq.pipeline.studies import run_study
from geomq.pipeline.sweep import SimulationRow, SimulationRun, longest_first, run_numbered


def sweep_on_spark(runs: Sequence[SimulationRun], *, master: str | None) -> list[SimulationRow]:
    """The rows of all runs, in their order."""
    with spark_session(master) as spark, spark_progress(spark, "Simulating"):
        return sweep_in(spark, runs)


def sweep_in(spark: SparkSession, runs: Sequence[SimulationRun]) -> list[SimulationRow]:
    """The same on a Spark that runs already."""
    with TemporaryDirectory(prefix="geomq-sweep-") as scratch:
        modules = own_modules_zip(Path(scratch), (run.strategy for run in runs))
        if modules is not None:
            spark.sparkContext.addPyFile(str(modules))
        rows = run_study(spark, longest_first(runs), run_numbered, SimulationRow)
    return sorted(rows, key=lambda row: row.run)
