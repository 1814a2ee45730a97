"""Testbed files: what is wrong with one is said in one line."""

from pathlib import Path

import pytest

from geomq.errors import ConfigError
from geomq.testbed.emulated_link import Conditions
from geomq.testbed.plan import conditions_of
from geomq.testbed.plan_load import load_plan, parse_plan

WORKLOAD = '[workload]\npreset = "hiking"\n'


def test_the_example_of_the_page_reads_as_it_says(example: str, tmp_path: Path) -> None:
    plan = parse_plan(example, name="example", base=tmp_path)
    assert plan.testbed.strategy == "disgb_subscriptions"
    assert plan.workload.speed == 10
    assert conditions_of(plan.brokers[0]) == Conditions(5, 2)
    assert conditions_of(plan.links[0]) == Conditions(11, 0, 100, 0.001)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[workload]\n", "give either dataset or preset"),
        ('[workload]\npreset = "hikking"\n', "'hikking' is unknown; choose one of"),
        (WORKLOAD + "sped = 3\n", "unknown key 'sped'; did you mean 'speed'?"),
        (WORKLOAD + "[testbet]\n", "unknown section 'testbet'; did you mean 'testbed'?"),
        (WORKLOAD + '[testbed]\nstrategy = "disgb_event"\n', "did you mean disgb_events?"),
        (WORKLOAD + '[[links]]\nbetween = ["a", "b"]\nloss = 2\n', "loss: Expected float <= 0.9"),
        (WORKLOAD + '[[links]]\nbetween = ["a", "a"]\n', "a and a already have a link, or are the same"),
        (WORKLOAD + '[[links]]\nbetween = ["a", "cloud"]\n', "there is no cloud"),
        (WORKLOAD + '[[brokers]]\nname = "a"\n[[brokers]]\nname = "a"\n', "'a' already has a table"),
        ('[workload]\ndataset = "nowhere"\n', "cannot read"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_plan(text, name="bad.toml", base=tmp_path)
    assert said in str(caught.value)
    assert str(caught.value).startswith("bad.toml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read it"):
        load_plan(tmp_path / "none.toml")
