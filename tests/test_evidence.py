"""What the documents name as evidence is there: tests, planted faults, commands."""

import re
from pathlib import Path

import pytest

from geomq.sim.planted import PLANTED

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "SECURITY.md", ROOT / "docs" / "topics" / "reliability.md"]
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
FAULT = re.compile(r"\*([a-z][^*\n]{15,})\*")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_is_named_is_there(page: Path) -> None:
    named = TEST.findall(page.read_text())
    assert len(named) > 10
    for path, test in named:
        assert (ROOT / path).exists(), path
        assert not test or f"def {test}(" in (ROOT / path).read_text(), f"{path}::{test}"


def test_every_planted_fault_that_is_named_is_there() -> None:
    named = FAULT.findall(PAGES[1].read_text())
    assert len(named) > 10
    assert sorted(set(named) - {fault.name for fault in PLANTED}) == []
