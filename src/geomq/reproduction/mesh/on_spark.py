"""The mesh study on Spark: which runs there are, and all of them as one job."""

from collections.abc import Sequence

from geomq.reproduction.mesh.study import MeshRow, MeshRun, run_mesh
from geomq.reproduction.studies import run_on_spark
from geomq.sim.overlay import TOPOLOGIES
from geomq.workload.cities import choose_cities

SIZES = (16, 36, 64)
LARGE_SIZES = (100, 196)
REDUNDANCIES = (1, 2, 3)
FIELD_DEG = 2
LOSSES = (("none", 0.0), ("links", 0.1), ("brokers", 0.1), ("core", 0.0))
MORE_SHARES = (0.05, 0.2)


def places(brokers: int, seed: int) -> tuple[tuple[float, float], ...]:
    """Large cities of the world, chosen by the seed."""
    return tuple((city.lat, city.lon) for city in choose_cities(brokers, field_deg=FIELD_DEG, seed=seed))


def mesh_runs(*, seed: int = 1, quick: bool = False) -> list[MeshRun]:
    """Every topology with every size, redundancy and loss, and with equal links; in full also more shares lost at the
    largest of these sizes, and larger ones without losses."""
    sizes, seeds = (SIZES[:2], (seed,)) if quick else (SIZES, (seed, seed + 1))
    runs = []
    for each in seeds:
        at = {size: places(size, each) for size in sizes}
        for topology in TOPOLOGIES:
            runs += [
                MeshRun(topology, at[size], redundancy, failure, share, each)
                for size in sizes
                for redundancy in REDUNDANCIES
                for failure, share in LOSSES
            ]
            runs += [MeshRun(topology, at[size], 2, seed=each, equal_links=True) for size in sizes]
            runs += [
                MeshRun(topology, at[sizes[-1]], redundancy, failure, share, each)
                for redundancy in REDUNDANCIES
                for failure in ("links", "brokers")
                for share in (() if quick else MORE_SHARES)
            ]
    large = () if quick else tuple(places(size, seed) for size in LARGE_SIZES)
    return runs + [MeshRun(topology, each, 2, seed=seed) for each in large for topology in TOPOLOGIES]


def mesh_on_spark(runs: Sequence[MeshRun], *, master: str | None) -> list[MeshRow]:
    """The rows of all runs, in their order."""
    return run_on_spark(runs, run_mesh, MeshRow, title="Simulating meshes", master=master)
