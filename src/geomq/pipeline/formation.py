"""The formation study on Spark: all runs as one job, the longest first."""

from collections.abc import Sequence

from geomq.pipeline.progress import spark_progress
from geomq.pipeline.session import spark_session
from geomq.pipeline.studies import run_study
from geomq.workload.formation_study import FormationRow, FormationRun, run_formation


def formation_on_spark(runs: Sequence[FormationRun], *, master: str | None) -> list[FormationRow]:
    """The rows of all runs, in their order."""
    order = sorted(range(len(runs)), key=lambda number: -runs[number].cost)
    # The compiled loops are cached on disk: workers that start later find them there.
    run_formation(FormationRun("form", 10, 10))
    with spark_session(master) as spark, spark_progress(spark, "Forming groups"):
        rows = run_study(spark, [runs[number] for number in order], run_formation, FormationRow)
    place = {number: position for position, number in enumerate(order)}
    return [rows[place[number]] for number in range(len(runs))]
