"""Studies on Spark: many runs that know nothing of each other, each a task, each a row of the result.

Owns how a list of runs is spread over tasks and how its rows come back. A row depends on its run alone, so the result
is the same on one core and on a cluster.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, get_args, get_type_hints

import pyarrow as pa
from pyspark.sql import SparkSession

from geomq.errors import UsageError

if TYPE_CHECKING:
    Batches = Iterator[pa.RecordBatch]


class Record(Protocol):
    """A dataclass of numbers, texts and bytes."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Row = TypeVar("Row", bound=Record)
Run = TypeVar("Run")

RUNS_MAX = 100_000
NUMBER = "_number"
"""The column that says which run a row is of; rows have columns of their own."""
_ARROW = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_(), bytes: pa.binary()}
_SQL = {int: "bigint", float: "double", str: "string", bool: "boolean", bytes: "binary"}


def run_study(
    spark: SparkSession, runs: Sequence[Run], run_one: Callable[[Run], Row], row_type: type[Row]
) -> list[Row]:
    """The rows of all runs, in their order. The first runs start first: put the longest there."""
    if not 1 <= len(runs) <= RUNS_MAX:
        raise UsageError(f"a study has 1 to {RUNS_MAX} runs, not {len(runs)}")
    columns = _columns(row_type)
    ddl = ", ".join(f"`{name}` {_SQL[kind]}" for name, kind in columns.items())
    numbers = spark.range(0, len(runs), 1, len(runs))
    table = numbers.mapInArrow(_runner(runs, run_one, columns), f"{NUMBER} bigint, {ddl}").toArrow()
    rows = sorted(table.to_pylist(), key=lambda row: int(row[NUMBER]))
    return [row_type(**{name: row[name] for name in columns}) for row in rows]


def _columns(row_type: type[Record]) -> dict[str, type]:
    hints = get_type_hints(row_type)
    return {field.name: _plain(hints[field.name]) for field in fields(row_type)}


def _plain(hint: Any) -> type:
    """The type of a column; every column may have empty cells."""
    (kind,) = set(get_args(hint) or (hint,)) - {NoneType}
    assert isinstance(kind, type)
    return kind


def _runner(
    runs: Sequence[Run], run_one: Callable[[Run], Row], columns: dict[str, type]
) -> "Callable[[Batches], Batches]":
    def run(batches: "Batches") -> "Batches":
        for batch in batches:
            for number in batch.column(0).to_pylist():
                row = asdict(run_one(runs[number]))
                arrays = [pa.array([row[name]], _ARROW[kind]) for name, kind in columns.items()]
                yield pa.RecordBatch.from_arrays([pa.array([number], pa.int64()), *arrays], names=[NUMBER, *columns])

    return run
