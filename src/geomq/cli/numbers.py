"""Numbers on the command line."""

import math
from typing import Any

import click


class NumberRange(click.FloatRange):
    """A range of numbers, without nan, which compares with nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number
