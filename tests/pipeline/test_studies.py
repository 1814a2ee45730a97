"""Studies as Spark jobs: the rows are those of a single process, in order, whatever ran where."""

from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from geomq.errors import UsageError
from geomq.pipeline.studies import run_study
from geomq.reproduction.groups.on_spark import formation_on_spark
from geomq.reproduction.groups.study import FormationRow, FormationRun, run_formation
from geomq.reproduction.mesh.on_spark import mesh_on_spark, mesh_runs
from geomq.reproduction.mesh.study import MeshRow, MeshRun, run_mesh
from geomq.sim.overlay import TOPOLOGIES

FORMATION_RUNS = [
    FormationRun("form", 60, 30),
    FormationRun("change", 120, 30, change="depart", share=0.05),
    FormationRun("watch", 40, 30, noise=0.1, leave_ms=45),
]
MESH_PLACES = tuple((10.0 * (i % 3), 15.0 * i) for i in range(9))
MESH_RUNS = [MeshRun("ring", MESH_PLACES, 1), MeshRun("grid", MESH_PLACES, 2, "links", 0.1)]


@dataclass(frozen=True)
class Square:
    number: int
    root: float
    name: str
    even: bool


def square(number: int) -> Square:
    return Square(number * number, number / 2, str(number), number % 2 == 0)


def test_a_study_returns_a_typed_row_for_each_run_in_order(spark: SparkSession) -> None:
    assert run_study(spark, [3, 1, 2], square, Square) == [square(3), square(1), square(2)]


def test_formation_and_mesh_rows_are_those_of_a_single_process(spark: SparkSession) -> None:
    assert run_study(spark, FORMATION_RUNS, run_formation, FormationRow) == [run_formation(r) for r in FORMATION_RUNS]
    assert run_study(spark, MESH_RUNS, run_mesh, MeshRow) == [run_mesh(run) for run in MESH_RUNS]


def test_a_study_without_runs_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="1 to 100000 runs"):
        run_study(spark, [], square, Square)


def test_a_wrong_master_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="not a Spark master"):
        formation_on_spark(FORMATION_RUNS, master="nonsense")
    with pytest.raises(UsageError, match="not a Spark master"):
        mesh_on_spark(MESH_RUNS, master="nonsense")


def test_the_mesh_study_covers_every_overlay_size_redundancy_and_loss() -> None:
    runs = mesh_runs()
    assert {run.topology for run in runs} == set(TOPOLOGIES)
    assert {run.redundancy for run in runs} == {1, 2, 3}
    assert {run.failure for run in runs} == {"none", "links", "brokers", "core"}
    assert len({len(run.places) for run in runs}) == 5
    assert len(mesh_runs(quick=True)) < len(runs) / 3
