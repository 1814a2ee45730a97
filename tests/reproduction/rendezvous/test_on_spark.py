"""The GeoRendezvous study gives the same samples on Spark as in one process."""

import pytest

from geomq.reproduction.rendezvous.on_spark import study_on_spark
from geomq.reproduction.rendezvous.study import StudyPlan, measure


@pytest.mark.usefixtures("spark")
def test_spark_measures_each_network_as_one_process_does() -> None:
    plan = StudyPlan(sizes=(150, 80), networks=2, pairs=5, seed=2)
    found = study_on_spark(plan, master="local[2]")
    assert list(found) == [150, 80]
    for nodes, samples in found.items():
        assert [each.pack() for each in samples] == [measure(nodes, number, plan).pack() for number in range(2)]
