"""The example of the testbed's page, run once for all tests of this directory."""

import re
from pathlib import Path

import pytest

from geomq.testbed.plan_load import parse_plan
from geomq.testbed.runner import RunReport, run_testbed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "testbed.md"


@pytest.fixture(scope="session")
def example() -> str:
    found = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.S)
    assert found is not None
    return found[1]


@pytest.fixture(scope="session")
def run(example: str, tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    out = tmp_path_factory.mktemp("testbed") / "run"
    return run_testbed(parse_plan(example, name="example", base=out.parent), out)
