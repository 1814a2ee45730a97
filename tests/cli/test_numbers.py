"""Numbers on the command line: those in the range, and nothing else."""

import click
import pytest

from geomq.cli.numbers import NumberRange


def test_numbers_of_the_range_are_taken() -> None:
    assert NumberRange(1, 2).convert("1.5", None, None) == 1.5


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "0.9", "2.1", "inf", "x"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        NumberRange(1, 2).convert(text, None, None)
