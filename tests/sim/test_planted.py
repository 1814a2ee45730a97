"""Every fault is one line that still stands once in its module, and leaves a module that can be compiled."""

import ast

import pytest

from geomq.sim import soak
from geomq.sim.planted import PLANTED
from geomq.sim.planted_broker import IN_BROKER
from geomq.sim.planted_routing import IN_ROUTING
from geomq.sim.planted_workers import IN_WORKERS
from geomq.sim.planting import Fault, Search

CHEAP = (
    "what goes to many misses the first of them",
    "the node asks for nothing",
    "a plan sends nowhere",
    "own events keep to the old routing",
)
"""Faults that are looked for here, each where it was found last; `make soak` looks for all."""


def test_no_name_is_given_twice() -> None:
    assert len({fault.name for fault in PLANTED}) == len(PLANTED) == len(IN_BROKER) + len(IN_ROUTING) + len(IN_WORKERS)
    assert len(PLANTED) >= 30


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_planted_line_stands_once_and_leaves_a_module(fault: Fault) -> None:
    before = fault.path.read_text()
    after = fault.plant(before)
    changed = [(old, new) for old, new in zip(before.split("\n"), after.split("\n"), strict=True) if old != new]
    assert [(old.strip(), new.strip()) for old, new in changed] == [(fault.old, fault.new)]
    ast.parse(after)


@pytest.mark.parametrize("name", CHEAP)
def test_the_seed_beside_a_fault_finds_it(name: str) -> None:
    (fault,) = [fault for fault in PLANTED if fault.name == name]
    found = Search(0).look_for(fault)
    assert (found.seed, found.seeds_tried) == (fault.seed, 1)


def test_a_fault_that_changes_nothing_is_not_found() -> None:
    line = "self._sequence += count"
    found = Search(0).look_for(Fault("nothing", "geomq.routing.node", line, line + " * 1", seed=38))
    assert (found.seed, found.verdict) == (None, "NOT FOUND")


def test_no_fault_of_that_name_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--planted", "--fault", "no such fault"]) == 1
    assert capsys.readouterr().out == "0 planted faults: 0 not found\n"


def test_a_fault_that_cannot_be_planted_is_not_found() -> None:
    fault = PLANTED[0]._replace(old="a line that is nowhere")
    with pytest.raises(ValueError, match="0 times"):
        Search().look_for(fault)
