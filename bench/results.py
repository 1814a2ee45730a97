"""What a run found: rows of figures per broker, and verdicts against the targets."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.measure import Figure


@dataclass(frozen=True, slots=True)
class Target:
    """A bound a measured value is held against; `at_least` tells which side is good. `what` follows the number."""

    what: str
    bound: float
    at_least: bool = True

    def judge(self, value: float) -> "Verdict":
        passed = value >= self.bound if self.at_least else value <= self.bound
        return Verdict(self.what, f"{'>=' if self.at_least else '<='} {self.bound:g}", value, passed)


@dataclass(frozen=True, slots=True)
class Verdict:
    what: str
    wanted: str
    value: float
    passed: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One load: a figure per broker (or way of doing it), all in the same unit."""

    section: str
    load: str
    unit: str
    figures: Mapping[str, Figure]
    verdicts: tuple[Verdict, ...] = ()
    notes: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def cheaper(figures: Mapping[str, Figure], than: str, bound: float | None) -> tuple[Verdict, ...]:
    """How many times cheaper GeoMQ is than another broker, if both were measured."""
    if than not in figures or bound is None:
        return ()
    return (Target(f"x cheaper than {than}", bound).judge(figures[than].median / figures["geomq"].median),)
