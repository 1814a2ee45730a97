"""The formation study on Spark, all runs as one job."""

from collections.abc import Sequence

from geomq.reproduction.groups.study import FormationRow, FormationRun, run_formation
from geomq.reproduction.studies import run_on_spark


def formation_on_spark(runs: Sequence[FormationRun], *, master: str | None) -> list[FormationRow]:
    """The rows of all runs, in their order."""
    # The compiled loops are cached on disk: workers that start later find them there.
    run_formation(FormationRun("form", 10, 10))
    return run_on_spark(runs, run_formation, FormationRow, title="Forming groups", master=master)
