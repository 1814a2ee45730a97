"""A digest: what the clients of one broker want that others publish, a little more than exactly.

It has an entry for each beginning of topics (the literal levels a filter begins with, at most three), and an entry has
units: the cell where subscribers are, the cell in which the centres of their fences are, and the largest radius of
these. Cells are as fine as a bounded number of units allows. All is widened by a slack, within which clients and fences
may move unnoticed.

Owns how interests become units, whether a digest covers an interest, and whether an event may interest somebody.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from geomq.geo import HALF_CIRCUMFERENCE_M, Circle, Fence, Location, chord_limit, unit_vector
from geomq.geo.box import enclosing_circles
from geomq.routing.core.model import Event
from geomq.routing.strategies.digests.units import (
    ANY,
    LEVELS,
    NOWHERE,
    apart_m,
    cell_at,
    cell_lat,
    cell_lon,
    cell_reach_m,
)

UNITS_MAX = 64
"""Units of an entry; if there were more the cells become coarser."""
KEY_LEVELS = 3
REACH_M = tuple(cell_reach_m(level) for level in range(LEVELS))

Cell = Annotated[int, Meta(ge=0, le=NOWHERE)]
Metres = Annotated[float, Meta(ge=0.0, le=HALF_CIRCUMFERENCE_M + 1.0)]
Key = str


class Unit(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Subscribers in a cell whose fences have their centre in a cell, none larger than a radius."""

    at: Cell
    of: Cell
    radius_m: Metres


class Around(NamedTuple):
    """A fence as a circle that holds it."""

    lat: float
    lon: float
    radius_m: float


class Interest(NamedTuple):
    """Of a subscription: what its topics begin with, where the subscriber is and where publishers must be.

    `place` is None for a subscriber without one and ANY where that is not known; `around` is None without a fence.
    """

    key: Key
    place: Location | int | None
    around: Around | None


def key_of(topic_filter: str) -> Key:
    """What all topics begin with that a filter matches."""
    literal: list[str] = []
    for level in topic_filter.split("/")[:KEY_LEVELS]:
        if level in ("+", "#"):
            break
        literal.append(level)
    return "/".join(literal)


def keys_of(topic: str) -> tuple[Key, ...]:
    """The keys of all filters that may match a topic."""
    levels = topic.split("/")[:KEY_LEVELS]
    return ("", *("/".join(levels[: count + 1]) for count in range(len(levels))))


def around(fence: Fence | None) -> Around | None:
    """The circle to reckon with."""
    if fence is None:
        return None
    if isinstance(fence, Circle):
        return Around(*fence.center, fence.radius_m)
    lat, lon, radius = enclosing_circles(np.array([fence.extent]))
    return Around(float(lat[0]), float(lon[0]), float(radius[0]))


class Entry:
    """The units of one key, by their two cells, all of one level."""

    __slots__ = ("level", "units")

    def __init__(self, level: int, units: dict[tuple[int, int], float]) -> None:
        self.level = level
        self.units = units

    @classmethod
    def of(cls, interests: Iterable[Interest]) -> "Entry":
        """The finest that covers all of them."""
        wanted = tuple(interests)
        for level in range(LEVELS):
            entry = cls(level, {})
            if all(entry.add(interest) for interest in wanted):
                return entry
        return cls.everything()

    @classmethod
    def everything(cls) -> "Entry":
        """For which all events are wanted."""
        return cls(0, {(ANY, ANY): 0.0})

    def known(self, slack_m: float) -> "KnownEntry":
        """As it is for a peer that was told."""
        return KnownEntry(self.level, (Unit(at, of, radius) for (at, of), radius in self.units.items()), slack_m)

    def add(self, interest: Interest) -> bool:
        """Take in an interest; whether there is room for it."""
        cells, radius = self._cells(interest)
        self.units[cells] = max(radius, self.units.get(cells, 0.0))
        return len(self.units) <= UNITS_MAX

    def _cells(self, interest: Interest) -> tuple[tuple[int, int], float]:
        place, fence = interest.place, interest.around
        if place is None:
            at = NOWHERE
        elif isinstance(place, int):
            at = ANY
        else:
            at = cell_at(*place, self.level)
        if fence is None:
            return (at, ANY), 0.0
        return (at, cell_at(fence.lat, fence.lon, self.level)), fence.radius_m

    def short_of(self, interest: Interest, slack_m: float) -> float:
        """By how many metres the units would have to be wider to cover an interest: 0 if they do."""
        cells, radius = self._cells(interest)
        if self.units.get(cells, -1.0) >= radius:
            return 0.0
        reach, least, place, fence = REACH_M[self.level] + slack_m, math.inf, interest.place, interest.around
        for (at, of), covered in self.units.items():
            short = 0.0
            if at != ANY and place is not None:
                if at == NOWHERE or isinstance(place, int):
                    continue
                short = apart_m(cell_lat(at, self.level), cell_lon(at, self.level), *place) - reach
            if of != ANY:
                if fence is None:
                    continue
                away = apart_m(cell_lat(of, self.level), cell_lon(of, self.level), fence.lat, fence.lon)
                short = max(short, away + fence.radius_m - covered - reach)
            least = min(least, short)
        return max(0.0, least)


class _Test(NamedTuple):
    """A unit as an event is held against it."""

    of: tuple[float, float, float]
    limit: float
    at: tuple[float, float, float]
    reach_m: float


class KnownEntry:
    """An entry that a peer announced, made ready for events."""

    def __init__(self, level: int, units: Iterable[Unit], slack_m: float) -> None:
        self.tests = [_test(level, unit, slack_m) for unit in units]
        self.any_publisher = any(test.limit == math.inf for test in self.tests)
        """Whether events without a fence always concern somebody."""

    def concerns(self, event: Event, fence: Around | None) -> bool:
        """Whether the event may interest somebody; `fence` is the event's."""
        place = None if event.location is None else unit_vector(*event.location)
        centre = None if fence is None else unit_vector(fence.lat, fence.lon)
        for of, limit, at, reach_m in self.tests:
            if limit != math.inf and (place is None or _chord(place, of) > limit):
                continue
            if centre is None or fence is None or reach_m == math.inf:
                return True
            if reach_m >= 0.0 and _chord(centre, at) <= chord_limit(fence.radius_m + reach_m):
                return True
        return False


def _test(level: int, unit: Unit, slack_m: float) -> _Test:
    reach = REACH_M[level] + slack_m
    of = unit_vector(cell_lat(unit.of, level), cell_lon(unit.of, level))
    at = unit_vector(cell_lat(unit.at, level), cell_lon(unit.at, level))
    limit = math.inf if unit.of == ANY else chord_limit(unit.radius_m + reach)
    return _Test(of, limit, at, math.inf if unit.at == ANY else -1.0 if unit.at == NOWHERE else reach)


def _chord(a: tuple[float, float, float], b: tuple[float, float, float]) -> float:
    dx, dy, dz = a[0] - b[0], a[1] - b[1], a[2] - b[2]
    return dx * dx + dy * dy + dz * dz


def concerns(entries: Mapping[Key, KnownEntry], event: Event, fence: Around | None) -> bool:
    """Whether an event may interest somebody according to a digest."""
    for key in keys_of(event.topic):
        entry = entries.get(key)
        if entry is not None and entry.concerns(event, fence):
            return True
    return False
