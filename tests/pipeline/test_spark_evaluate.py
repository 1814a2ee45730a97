"""The Spark engine gives the integers of the single process, on local threads and on a cluster."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyspark
import pytest
from pyspark.sql import SparkSession

from geomq.broker.local_federation import free_ports
from geomq.errors import DataError
from geomq.pipeline import evaluate as spark_evaluate
from geomq.pipeline import session
from geomq.pipeline.evaluate import Job, add_counts, evaluate_jobs, pack_counts
from geomq.pipeline.java import cache_directory, find_java_home
from geomq.pipeline.mesh_timeline import mesh_timeline
from geomq.pipeline.session import spark_errors, spark_session
from geomq.pipeline.simulation import Scenario
from geomq.pipeline.sweep import run_numbered, runs_of
from geomq.pipeline.sweep_on_spark import sweep_in
from geomq.workload.dataset import DatasetSpec, part_name
from geomq.workload.evaluation import told_moves
from geomq.workload.evaluation.evaluate import evaluate
from geomq.workload.generation.disgb import preset
from geomq.workload.generation.generate import write_workload
from geomq.workload.generation.presets import Request
from geomq.workload.generation.scenarios import SCENARIOS, scenario_world
from geomq.workload.world import World

SPEC = preset("paper", clients=12_000, topics=30, seconds=300)


def same(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_spark_equals_the_single_process_however_it_is_partitioned(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World.published()
    hiking = SCENARIOS["hiking"]
    mesh = mesh_timeline(world, SPEC, 5)
    jobs = [Job(world, SPEC, 5, True), Job(world, SPEC, 5, False, mesh), Job(scenario_world(), hiking, 2, False)]
    expected = [evaluate(job.world, job.spec, job.seed, paper=job.paper, mesh=job.mesh) for job in jobs]
    small = preset("paper", clients=3000, topics=5, seconds=120)
    write_workload(tmp_path / "data", world, small, Request(clients=3000, seed=9), overwrite=False)
    dataset = DatasetSpec(tmp_path / "data")
    for found, wanted in zip(evaluate_jobs(spark, jobs), expected, strict=True):
        assert same(found, wanted)
    monkeypatch.setattr(spark_evaluate, "TASK_BLOCKS", 1)
    monkeypatch.setattr(spark_evaluate, "_partitions", lambda *_: 7)
    monkeypatch.setattr(told_moves, "CLIENTS_TOGETHER", 1000)
    for found, wanted in zip(evaluate_jobs(spark, jobs[:2]), expected, strict=False):
        assert same(found, wanted)
    from_disk = evaluate_jobs(spark, [Job(dataset.world, dataset, 0, True)])[0]
    assert same(from_disk, evaluate(world, small, 9, paper=True))
    part = tmp_path / "data" / part_name("actions", 0)
    part.write_bytes(part.read_bytes()[:1000])
    with pytest.raises(DataError, match="is not a readable actions file") as caught, spark_errors():
        evaluate_jobs(spark, [Job(dataset.world, dataset, 0, True)])
    assert "\n" not in str(caught.value)


def test_counts_survive_packing_and_add_up() -> None:
    job = Job(World.published(), SPEC, 1, False)
    counted, total = job.evaluator(), job.evaluator()
    for number, part in enumerate(counted.tally):
        part += number
    counted.firsts[3, 4] = 17
    add_counts(total, [pack_counts(counted), pack_counts(counted)])
    assert same(total.tally, tuple(2 * part for part in counted.tally))
    assert np.array_equal(total.firsts, counted.firsts)


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """A standalone master and two workers on loopback, from the pip package alone."""
    home = Path(pyspark.__file__).parent
    java_home = find_java_home(os.environ, cache_directory(os.environ))
    (port,) = free_ports(1)
    environment = os.environ | {"SPARK_HOME": str(home), "JAVA_HOME": str(java_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"SPARK_LOCAL_DIRS": str(directory / "local"), "SPARK_WORKER_DIR": str(directory / "work")}
    options = {
        "Master": ["--port", str(port)],
        "Worker": ["--cores", "1", "--memory", "1g", f"spark://127.0.0.1:{port}"],
    }
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for role in ("Master", "Worker", "Worker"):
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role.lower()}.{role}"]
            command += ["--host", "127.0.0.1", "--webui-port", "0", *options[role]]
            log = (directory / f"{role}-{len(processes)}.log").open("wb")
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            log.close()
            if role == "Master":
                _wait_for(port)
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=60)


OWN = """
from geomq.routing.strategies.flooding import FloodEvents

class Own(FloodEvents):
    pass
"""


def _wait_for(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError("the master did not start")


@pytest.mark.usefixtures("no_spark")
def test_a_standalone_cluster_gives_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.published()
    spec = preset("paper", clients=12_000, topics=8, seconds=200)
    mesh = mesh_timeline(world, spec, 4)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")

    def shipped(_: int) -> bool:
        import sys

        return any(path.endswith("geomq.zip") for path in sys.path)

    with cluster(tmp_path) as master, spark_session(master, memory_gb=1) as spark:
        found = evaluate_jobs(spark, [Job(world, spec, 4, False, mesh)])[0]
        here = spark.sparkContext.range(2, numSlices=2)
        assert not any(here.map(shipped).collect())
        spark.sparkContext.addPyFile(str(session.package_zip(tmp_path)))
        assert all(here.map(shipped).collect())
        (tmp_path / "strategy_of_the_driver.py").write_text(OWN)
        monkeypatch.syspath_prepend(str(tmp_path))
        scenario = Scenario(brokers=4, clients=30, seconds=90, topics=5, preset="steady", seed=1)
        runs = runs_of(scenario, ["strategy_of_the_driver:Own"], ["seed=1,2"])
        assert sweep_in(spark, runs) == [run_numbered(numbered) for numbered in enumerate(runs)]
    assert same(found, evaluate(world, spec, 4, paper=False, mesh=mesh))
