"""Every fault is one line that still stands once in its module, and leaves a module that can be compiled."""

import ast

import pytest

from geomq.sim.planted import PLANTED
from geomq.sim.planting import Fault


def test_no_name_is_given_twice() -> None:
    assert len({fault.name for fault in PLANTED}) == len(PLANTED)
    assert len(PLANTED) >= 30


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_planted_line_stands_once_and_leaves_a_module(fault: Fault) -> None:
    before = fault.path.read_text()
    after = fault.plant(before)
    changed = [(old, new) for old, new in zip(before.split("\n"), after.split("\n"), strict=True) if old != new]
    assert [(old.strip(), new.strip()) for old, new in changed] == [(fault.old, fault.new)]
    ast.parse(after)
