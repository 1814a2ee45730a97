"""The GeoRendezvous study on Spark: each network is one task.

Owns only the distribution. A network is measured from its number alone, so the samples are those of the single process.
"""

from dataclasses import dataclass

from geomq.reproduction.rendezvous.study import Sample, StudyPlan, measure, unpack
from geomq.reproduction.studies import run_on_spark


@dataclass(frozen=True, slots=True)
class _Network:
    nodes: int
    number: int
    plan: StudyPlan

    @property
    def cost(self) -> float:
        return self.nodes


@dataclass(frozen=True, slots=True)
class _Measured:
    sample: bytes


def _measure(network: _Network) -> _Measured:
    return _Measured(measure(network.nodes, network.number, network.plan).pack())


def study_on_spark(plan: StudyPlan, *, master: str | None) -> dict[int, list[Sample]]:
    """The samples of all networks, by size, in the order of their numbers."""
    measure(min(plan.sizes), 0, plan)  # the compiled loops are cached on disk: workers find them there
    networks = [_Network(nodes, number, plan) for nodes, number in plan.tasks()]
    rows = run_on_spark(networks, _measure, _Measured, title="Measuring networks", master=master)
    samples: dict[int, list[Sample]] = {}
    for network, row in zip(networks, rows, strict=True):
        samples.setdefault(network.nodes, []).append(unpack(row.sample))
    return samples
