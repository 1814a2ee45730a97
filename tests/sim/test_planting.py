"""A fault is planted where its line stands, and nowhere else."""

import pytest

from geomq.sim.planted import PLANTED
from geomq.sim.planting import PACKAGE, Fault, Found, Search

FAULT = Fault("a sum is a difference", "geomq.sums", "return a + b", "return a - b")


def test_a_fault_replaces_its_line_and_keeps_the_indentation() -> None:
    assert FAULT.plant("def add(a, b):\n    return a + b\n") == "def add(a, b):\n    return a - b\n"


@pytest.mark.parametrize("source", ["", "return a + b\nreturn a + b"])
def test_a_line_that_does_not_stand_once_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match=r"a sum is a difference: 'return a \+ b' stands [02] times in geomq.sums"):
        FAULT.plant(source)


def test_a_module_is_found_by_its_name() -> None:
    assert FAULT.path == PACKAGE / "sums.py"


def test_the_table_names_fault_seed_and_verdict() -> None:
    line = Found(FAULT, 7, "lost: p0:1", 8).line
    assert line.split(maxsplit=5)[:5] == ["a", "sum", "is", "a", "difference"]
    assert line.endswith("   7  lost: p0:1")
    assert " - " in Found(FAULT, None, "NOT FOUND", 200).line


def test_a_fault_may_be_for_the_simulation_of_the_routing_alone() -> None:
    (fault,) = [fault for fault in PLANTED if fault.simulation == "routing"]
    found = Search(0).look_for(fault)
    assert (found.seed, found.seeds_tried) == (fault.seed, 1)
    assert "retains" in found.verdict
