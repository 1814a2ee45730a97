"""Statements a paper makes, each with whether it holds here and the numbers that say so."""

from collections.abc import Sequence
from typing import NamedTuple

from geomq.reproduction.tables import table


class Claim(NamedTuple):
    """A statement, whether it holds here, and our numbers."""

    text: str
    holds: bool
    numbers: str


def claims_table(claims: Sequence[Claim]) -> str:
    """The statements as a Markdown table; what does not hold stands out."""
    rows = [(claim.text, "yes" if claim.holds else "**no**", claim.numbers) for claim in claims]
    return table(("statement", "holds", "numbers"), rows)


def deviation(ours: float, published: float) -> float:
    """How far ours is from the published number, as a share of it."""
    return ours / published - 1
