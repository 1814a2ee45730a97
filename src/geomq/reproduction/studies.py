"""A study's runs on Spark, the longest first, their rows in the order they were asked for."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from geomq.pipeline.progress import spark_progress
from geomq.pipeline.session import spark_session
from geomq.pipeline.studies import Row, run_study


class Costly(Protocol):
    """A run that knows how long it takes compared with others."""

    @property
    def cost(self) -> float: ...


Run = TypeVar("Run", bound=Costly)


def run_on_spark(
    runs: Sequence[Run], run_one: Callable[[Run], Row], row_type: type[Row], *, title: str, master: str | None
) -> list[Row]:
    """The rows of all runs, in their order."""
    order = sorted(range(len(runs)), key=lambda number: -runs[number].cost)
    with spark_session(master) as spark, spark_progress(spark, title):
        rows = run_study(spark, [runs[number] for number in order], run_one, row_type)
    found = dict(zip(order, rows, strict=True))
    return [found[number] for number in range(len(runs))]
