"""One small study that several tests look at."""

import pytest

from geomq.reproduction.rendezvous.findings import Findings, find
from geomq.reproduction.rendezvous.study import Sample, StudyPlan, measure

SMALL = StudyPlan(sizes=(150, 600, 1500), networks=25, pairs=60, seed=4)


@pytest.fixture(scope="session")
def samples() -> dict[int, list[Sample]]:
    found: dict[int, list[Sample]] = {}
    for nodes, number in SMALL.tasks():
        found.setdefault(nodes, []).append(measure(nodes, number, SMALL))
    return found


@pytest.fixture(scope="session")
def findings(samples: dict[int, list[Sample]]) -> Findings:
    return find(SMALL, samples)
