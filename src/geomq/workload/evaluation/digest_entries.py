"""Digests as arrays: interests, the entries and units made of them, and whether events concern these.

Owns the geometry of `digests` on one pair of brokers. What is told when is `digests_kernel`.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.geo import EARTH_RADIUS_M, HALF_CIRCUMFERENCE_M
from geomq.geo.sphere import EVERYWHERE, TOLERANCE_M
from geomq.routing.strategies.digests import units
from geomq.routing.strategies.digests.digest import UNITS_MAX
from geomq.routing.strategies.digests.outlook import REBUILT_MAX
from geomq.routing.strategies.digests.units import ANY, LEVELS, NOWHERE
from geomq.workload.compiled import compiled
from geomq.workload.evaluation.pair_rows import NO_PLACE
from geomq.workload.model import DEGREE, NO_FENCE

cell_at, cell_lat, cell_lon = compiled(units.cell_at), compiled(units.cell_lat), compiled(units.cell_lon)
apart_m = compiled(units.apart_m)

REACHES_M = np.array([units.cell_reach_m(level) for level in range(LEVELS)])
ROUNDING = 1.0 + 2e-15

# Columns of an interest: whether there is one, place and fence in degrees, radius; NaN for none.
IS, AT_LAT, AT_LON, OF_LAT, OF_LON, RADIUS = 0, 1, 2, 3, 4, 5
INTEREST = 6
# Columns of a unit as the home has it; made ready for events it is two vectors, the fences' and the subscribers', and
# these.
AT, OF, UNIT_RADIUS = 0, 1, 2
LIMIT, REACH = 6, 7
READY = 8
# Of entries: they do not say that all is wanted, and they did so before.
NOT_PLAIN, FINE = -1, -2

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


class Entries(NamedTuple):
    """Entries by key: how many units, of which level; and the units themselves. Without an entry the count is -1."""

    filled: Longs
    level: Longs
    units: Floats


class Side(NamedTuple):
    """The home's interests, those of key k from `start[k]` to `start[k + 1]`, how many of them there are, for how many
    of them events came in vain since that was looked into, how many came in vain because the entry says that all is
    wanted, and entries; room for one entry and for one unit made ready."""

    start: Longs
    present: Longs
    passed: Longs
    plain: Longs
    interest: Floats
    entries: Entries
    fresh: Entries
    ready: Floats


def no_entries(keys: int) -> Entries:
    return Entries(np.full(keys, -1), np.zeros(keys, np.int64), np.zeros((keys, UNITS_MAX + 1, 3)))


@compiled
def limit_of(radius_m: float) -> float:
    """As `geomq.geo.chord_limit`."""
    radius = radius_m + TOLERANCE_M
    if radius >= HALF_CIRCUMFERENCE_M:
        return EVERYWHERE
    half_chord = math.sin(radius / (2.0 * EARTH_RADIUS_M))
    return 4.0 * half_chord * half_chord * ROUNDING


@compiled
def chord_to(lat: float, lon: float, unit: Floats, first: int) -> float:
    """The squared chord between a place and a vector of a unit."""
    phi, lam = lat * (math.pi / 180.0), lon * (math.pi / 180.0)
    x, y, z = math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam), math.sin(phi)
    dx, dy, dz = x - unit[first], y - unit[first + 1], z - unit[first + 2]
    return float(dx * dx + dy * dy + dz * dz)


@compiled
def concerns(event: np.void, known: Entries, key: int) -> bool:
    """Whether the event may interest somebody, as the publisher's broker sees it."""
    found = False
    for i in range(known.filled[key]):
        found = found or meets(event, known.units[key, i])
    return found


@compiled
def meets(event: np.void, unit: Floats) -> bool:
    """Whether the event may interest a subscriber of a unit that was made ready."""
    if unit[LIMIT] != np.inf:
        if event["from_lat"] == NO_PLACE:
            return False
        if chord_to(event["from_lat"] / DEGREE, event["from_lon"] / DEGREE, unit, 0) > unit[LIMIT]:
            return False
    if event["radius_cm"] == NO_FENCE or unit[REACH] == np.inf:
        return True
    if unit[REACH] < 0.0:
        return False
    limit = limit_of(event["radius_cm"] / 100.0 + unit[REACH])
    return bool(chord_to(event["lat"] / DEGREE, event["lon"] / DEGREE, unit, 3) <= limit)


@compiled
def would_concern(event: np.void, entries: Entries, key: int, slack_m: float, ready: Floats) -> bool:
    """Whether the event may interest somebody, as the home sees it."""
    level = entries.level[key]
    for i in range(entries.filled[key]):
        make_ready(ready, entries.units[key, i], level, REACHES_M[level] + slack_m)
        if meets(event, ready):
            return True
    return False


@compiled
def make_ready(ready: Floats, unit: Floats, level: int, reach_m: float) -> None:
    for first, cell in ((0, int(unit[OF])), (3, int(unit[AT]))):
        phi, lam = cell_lat(cell, level) * (math.pi / 180.0), cell_lon(cell, level) * (math.pi / 180.0)
        ready[first], ready[first + 1] = math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam)
        ready[first + 2] = math.sin(phi)
    ready[LIMIT] = np.inf if int(unit[OF]) == ANY else limit_of(unit[UNIT_RADIUS] + reach_m)
    ready[REACH] = np.inf if int(unit[AT]) == ANY else -1.0 if int(unit[AT]) == NOWHERE else reach_m


@compiled
def fresh_entry(side: Side, key: int) -> tuple[Entries, int]:
    """Where the entry is as it would be if it were made anew."""
    if 0 < side.present[key] <= REBUILT_MAX:
        make_entry(side, key, side.fresh, 0)
    elif side.present[key] == 0:
        side.fresh.filled[0] = -1
    else:
        side.passed[key] += REBUILT_MAX
        if side.passed[key] < side.present[key]:
            return side.entries, key
        side.passed[key] = 0
        make_entry(side, key, side.fresh, 0)
    return side.fresh, 0


@compiled
def put(row: np.void, side: Side, sub: int, key: int) -> bool:
    """Note what the subscriber wants now; whether it wanted something before."""
    interest = side.interest[sub]
    wanted, before = row["meets"] != 0, interest[IS] != 0.0
    side.present[key] += int(wanted) - int(interest[IS])
    if side.present[key] == 0:
        side.passed[key], side.plain[key] = 0, NOT_PLAIN
    interest[IS] = 1.0 if wanted else 0.0
    located, fenced = row["at_lat"] != NO_PLACE, row["radius_cm"] != NO_FENCE
    interest[AT_LAT] = row["at_lat"] / DEGREE if located else np.nan
    interest[AT_LON] = row["at_lon"] / DEGREE if located else np.nan
    interest[OF_LAT] = row["lat"] / DEGREE if fenced else np.nan
    interest[OF_LON] = row["lon"] / DEGREE if fenced else np.nan
    interest[RADIUS] = row["radius_cm"] / 100.0 if fenced else 0.0
    return bool(before)


@compiled
def cells_of(interest: Floats, level: int) -> tuple[int, int]:
    at, of = NOWHERE, ANY
    if not np.isnan(interest[AT_LAT]):
        at = cell_at(interest[AT_LAT], interest[AT_LON], level)
    if not np.isnan(interest[OF_LAT]):
        of = cell_at(interest[OF_LAT], interest[OF_LON], level)
    return at, of


@compiled
def short_of(side: Side, key: int, interest: Floats, slack_m: float) -> float:
    """By how many metres the entry would have to be wider to cover the interest."""
    count, level = side.entries.filled[key], side.entries.level[key]
    if count < 0:
        return np.inf
    at, of = cells_of(interest, level)
    for i in range(count):
        unit = side.entries.units[key, i]
        if int(unit[AT]) == at and int(unit[OF]) == of and unit[UNIT_RADIUS] >= interest[RADIUS]:
            return 0.0
    reach, least = REACHES_M[level] + slack_m, np.inf
    for i in range(count):
        unit = side.entries.units[key, i]
        there, centre, short = int(unit[AT]), int(unit[OF]), 0.0
        if there != ANY and at != NOWHERE:
            if there == NOWHERE:
                continue
            away = apart_m(cell_lat(there, level), cell_lon(there, level), interest[AT_LAT], interest[AT_LON])
            short = away - reach
        if centre != ANY:
            if of == ANY:
                continue
            away = apart_m(cell_lat(centre, level), cell_lon(centre, level), interest[OF_LAT], interest[OF_LON])
            short = max(short, away + interest[RADIUS] - unit[UNIT_RADIUS] - reach)
        least = min(least, short)
    return max(0.0, least)


@compiled
def grow(side: Side, key: int, interest: Floats) -> None:
    """Make the entry anew, or if that takes long only larger."""
    few = side.entries.filled[key] < 0 or side.present[key] <= REBUILT_MAX
    if np.isnan(interest[OF_LAT]) and side.plain[key] != FINE:
        side.plain[key] = 0
        want_all(side.entries, key)
    elif few or not add(side.entries, key, interest):
        make_entry(side, key, side.entries, key)


@compiled
def add(entries: Entries, key: int, interest: Floats) -> bool:
    """Take in an interest; whether there is room for it."""
    at, of = cells_of(interest, entries.level[key])
    for i in range(entries.filled[key]):
        unit = entries.units[key, i]
        if int(unit[AT]) == at and int(unit[OF]) == of:
            unit[UNIT_RADIUS] = max(unit[UNIT_RADIUS], interest[RADIUS])
            return True
    unit = entries.units[key, entries.filled[key]]
    unit[AT], unit[OF], unit[UNIT_RADIUS] = at, of, interest[RADIUS]
    entries.filled[key] += 1
    return bool(entries.filled[key] <= UNITS_MAX)


@compiled
def make_entry(side: Side, key: int, entries: Entries, slot: int) -> None:
    """The finest that covers all interests of the key."""
    for level in range(LEVELS):
        entries.filled[slot], entries.level[slot] = 0, level
        fits = True
        for i in range(side.start[key], side.start[key + 1]):
            if side.interest[i, IS] != 0.0 and not add(entries, slot, side.interest[i]):
                fits = False
                break
        if fits:
            return
    want_all(entries, slot)


@compiled
def want_all(entries: Entries, slot: int) -> None:
    entries.filled[slot], entries.level[slot] = 1, 0
    entries.units[slot, 0, AT], entries.units[slot, 0, OF], entries.units[slot, 0, UNIT_RADIUS] = ANY, ANY, 0.0


@compiled
def rebuild(side: Side) -> None:
    for key in range(len(side.present)):
        side.entries.filled[key] = -1
        if side.plain[key] >= 0:
            want_all(side.entries, key)
        elif side.present[key] > 0:
            make_entry(side, key, side.entries, key)
