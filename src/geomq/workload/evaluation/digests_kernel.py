"""`digests` between two brokers, exact to the tick: both are replayed with all their messages, topic after topic.

Owns the rules of the strategy as arrays: interests, entries and sums at the home, what it has told, and what the publisher's
broker made of that. Pairs do not influence each other, so each runs by itself; what happens in the same phase of a
tick has the same effect in any order, but that what a client does on several topics there is taken in the order of topics.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.geo import EARTH_RADIUS_M, HALF_CIRCUMFERENCE_M
from geomq.geo.sphere import EVERYWHERE, TOLERANCE_M
from geomq.routing.strategies.digests import units
from geomq.routing.strategies.digests.digest import UNITS_MAX
from geomq.routing.strategies.digests.outlook import (
    BACKOFF_MAX,
    LOOSE,
    MARGIN,
    REBUILT_MAX,
    RENEWING,
    SLACKS_M,
    WIDENING,
)
from geomq.routing.strategies.digests.strategy import MESSAGE_UNITS, REFUSED_AFTER, DigestsOptions
from geomq.routing.strategies.digests.units import ANY, LEVELS, NOWHERE
from geomq.workload.compiled import compiled
from geomq.workload.evaluation.kernel_messages import CLIENTS_MS, Tally
from geomq.workload.evaluation.pair_rows import NO_PLACE, PairRows
from geomq.workload.evaluation.pair_traffic import SUBSCRIPTION
from geomq.workload.evaluation.sent import CONTROL, DIGESTS, EVENT
from geomq.workload.evaluation.sent import SUBSCRIPTION as SENT_SUBSCRIPTION
from geomq.workload.model import DEGREE, NO_FENCE
from geomq.workload.world import CLIENT_MS

cell_at, cell_lat, cell_lon = compiled(units.cell_at), compiled(units.cell_lat), compiled(units.cell_lon)
apart_m = compiled(units.apart_m)

PATIENCE = DigestsOptions().patience
REACHES_M = np.array([units.cell_reach_m(level) for level in range(LEVELS)])
SLACKS = np.array(SLACKS_M)
ROUNDING = 1.0 + 2e-15
NEVER = 2**62
# Phases inside a tick: what peers sent, then what clients sent (updates by their kind).
FORWARDED, CONTROLLED, UPDATED, PUBLISHED = 3, 5, 6, 9
PHASES = 16

# The home: whether it has told, versions of all it told, of the last time it told everything, slack now and before, events
# in vain that it would have spared and because of its slack, growth by little, and how much it takes.
TOLD, VERSION, WHOLE_VERSION, SLACK, SLACK_BEFORE, WASTED, LOOSENED, GROWN, PATIENT, WIDENS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 19
# The publisher's broker: whether it has been told, announcements less events saved.
KNOWS, OVERPAID = 9, 10
# How far events and updates have been read, and the queues read and written.
EVENT_AT, UPDATE_AT, FORWARD_AT, FORWARD_END, LOG_AT, LOG_END, ASKED_AT, ASKED_END = 11, 12, 13, 14, 15, 16, 17, 18
STATE = 20

# Columns of an interest: whether there is one, place and fence in degrees, radius; NaN for none.
IS, AT_LAT, AT_LON, OF_LAT, OF_LON, RADIUS = 0, 1, 2, 3, 4, 5
# Columns of a unit, as the home has it and made ready for events.
AT, OF, UNIT_RADIUS = 0, 1, 2
LIMIT, REACH = 6, 7

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


class Entries(NamedTuple):
    """Entries by key: how many units, of which level; and the units themselves. Without an entry the count is -1."""

    count: Longs
    level: Longs
    units: Floats


class Side(NamedTuple):
    """The home's interests, those of key k from `start[k]` to `start[k + 1]`, how many of them there are, for how many of them
    events came in vain since that was looked into, and entries; room for one entry and for one unit made ready."""

    start: Longs
    present: Longs
    passed: Longs
    interest: Floats
    entries: Entries
    fresh: Entries
    ready: Floats


class Pair(NamedTuple):
    """Both brokers, and what is under way between them.

    `log` holds what was told, a number after the other: when it arrives, its version, whether it is everything, the slack, the
    count of entries, and of each entry its key, level, count and units.
    """

    publisher: int
    home: int
    to_home: int
    to_publisher: int
    state: Longs
    forwards: Longs
    asked: Longs
    side: Side
    known: Entries


def run_digests(rows: PairRows, publisher: int, home: int, latency: NDArray[np.int32], tally: Tally) -> None:
    """Add what one pair sends and delivers."""
    if not len(rows.events):
        return
    keys, event_key, update_key = _keys(rows)
    names, sub = np.unique(update_key.astype(np.int64) << 32 | rows.updates["client"], return_inverse=True)
    start = np.searchsorted(names >> 32, np.arange(keys + 1))
    interest, entries = np.zeros((len(names), 6)), _no_entries(keys)
    side = Side(
        start, np.zeros(keys, np.int64), np.zeros(keys, np.int64), interest, entries, _no_entries(1), np.zeros(8)
    )
    state = np.zeros(STATE, np.int64)
    state[PATIENT], state[WIDENS] = PATIENCE, WIDENING
    count = len(rows.events) + len(rows.updates)
    pair = Pair(
        publisher,
        home,
        int(latency[publisher, home]),
        int(latency[home, publisher]),
        state,
        np.empty(len(rows.events), np.int64),
        np.empty((count // REFUSED_AFTER + 2) * 2, np.int64),
        side,
        Entries(np.full(keys, -1), np.zeros(keys, np.int64), np.zeros((keys, UNITS_MAX, 8))),
    )
    run_pair(rows.events, event_key, rows.updates, update_key, sub.astype(np.int64), pair, tally)


def _keys(rows: PairRows) -> tuple[int, Longs, Longs]:
    """How many topics there are, and the number of each row's."""
    topics = np.unique(np.concatenate((rows.events["topic"], rows.updates["topic"])))
    return len(topics), np.searchsorted(topics, rows.events["topic"]), np.searchsorted(topics, rows.updates["topic"])


def _no_entries(keys: int) -> Entries:
    return Entries(np.full(keys, -1), np.zeros(keys, np.int64), np.zeros((keys, UNITS_MAX + 1, 3)))


@compiled
def run_pair(
    events: NDArray[np.void],
    event_key: Longs,
    updates: NDArray[np.void],
    update_key: Longs,
    sub: Longs,
    pair: Pair,
    tally: Tally,
) -> None:
    """Take what happens at either broker in order until nothing is left."""
    state, log = pair.state, np.empty(1024)
    while True:
        told = forward = asked = update = event = NEVER
        if state[LOG_AT] < state[LOG_END]:
            told = int(log[state[LOG_AT]]) * PHASES + CONTROLLED
        if state[FORWARD_AT] < state[FORWARD_END]:
            t = events[pair.forwards[state[FORWARD_AT]]]["t"]
            forward = (t + CLIENT_MS + pair.to_home) * PHASES + FORWARDED
        if state[ASKED_AT] < state[ASKED_END]:
            asked = pair.asked[2 * state[ASKED_AT]] * PHASES + CONTROLLED
        if state[UPDATE_AT] < len(updates):
            row = updates[state[UPDATE_AT]]
            update = (row["t"] + CLIENT_MS) * PHASES + UPDATED + row["kind"]
        if state[EVENT_AT] < len(events):
            event = (events[state[EVENT_AT]]["t"] + CLIENT_MS) * PHASES + PUBLISHED
        due = min(told, forward, asked, update, event)
        if due == NEVER:
            return
        if due == forward:
            log = take_forward(events, event_key, pair, tally, log, due // PHASES)
        elif due == told:
            take_told(pair, tally, log, due // PHASES)
        elif due == asked:
            take_asked(pair)
        elif due == update:
            log = take_updates(updates, update_key, sub, pair, tally, log)
        else:
            take_event(events, event_key, pair, tally)


# The publisher's broker.


@compiled
def take_event(events: NDArray[np.void], event_key: Longs, pair: Pair, tally: Tally) -> None:
    """Send it, or save it."""
    state = pair.state
    event = state[EVENT_AT]
    state[EVENT_AT] += 1
    if state[KNOWS] == 0 or concerns(events[event], pair.known, event_key[event]):
        tally.sent[DIGESTS, EVENT, pair.publisher, pair.home] += 1
        pair.forwards[state[FORWARD_END]] = event
        state[FORWARD_END] += 1
    else:
        state[OVERPAID] = max(0, state[OVERPAID] - 1)


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
    for i in range(known.count[key]):
        if meets(event, known.units[key, i]):
            return True
    return False


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
    for i in range(entries.count[key]):
        make_ready(ready, entries.units[key, i], level, REACHES_M[level] + slack_m)
        if meets(event, ready):
            return True
    return False


@compiled
def take_told(pair: Pair, tally: Tally, log: Floats, tick: int) -> None:
    """Take in what the home wants; refuse it if that costs more than it saves."""
    state, known = pair.state, pair.known
    at = state[LOG_AT]
    version, whole, slack, entries = int(log[at + 1]), log[at + 2] != 0.0, log[at + 3], int(log[at + 4])
    at += 5
    heeded = state[KNOWS] != 0 or whole
    if state[KNOWS] != 0:
        state[OVERPAID] += 1
    elif whole:
        state[KNOWS], state[OVERPAID] = 1, 0
    if whole:
        known.count[:] = -1
    for _ in range(entries):
        key, level, count = int(log[at]), int(log[at + 1]), int(log[at + 2])
        at += 3
        if heeded:
            known.count[key] = count
            for i in range(count):
                make_ready(known.units[key, i], log[at + 3 * i : at + 3 * i + 3], level, REACHES_M[level] + slack)
        at += 3 * count
    state[LOG_AT] = at
    if heeded and state[OVERPAID] > REFUSED_AFTER:
        state[KNOWS] = 0
        tally.sent[DIGESTS, CONTROL, pair.publisher, pair.home] += 1
        pair.asked[2 * state[ASKED_END]], pair.asked[2 * state[ASKED_END] + 1] = tick + pair.to_home, version
        state[ASKED_END] += 1


@compiled
def make_ready(ready: Floats, unit: Floats, level: int, reach_m: float) -> None:
    for first, cell in ((0, int(unit[OF])), (3, int(unit[AT]))):
        phi, lam = cell_lat(cell, level) * (math.pi / 180.0), cell_lon(cell, level) * (math.pi / 180.0)
        ready[first], ready[first + 1] = math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam)
        ready[first + 2] = math.sin(phi)
    ready[LIMIT] = np.inf if int(unit[OF]) == ANY else limit_of(unit[UNIT_RADIUS] + reach_m)
    ready[REACH] = np.inf if int(unit[AT]) == ANY else -1.0 if int(unit[AT]) == NOWHERE else reach_m


# The home.


@compiled
def take_forward(
    events: NDArray[np.void], event_key: Longs, pair: Pair, tally: Tally, log: Floats, tick: int
) -> Floats:
    """Deliver it, or count it as in vain and perhaps tell everything."""
    state = pair.state
    event = pair.forwards[state[FORWARD_AT]]
    direct = events[event]["direct"]
    state[FORWARD_AT] += 1
    if direct > 0:
        tally.sent_useful[DIGESTS] += 1
        tally.sent_delays[DIGESTS, pair.to_home + CLIENTS_MS] += direct
        return log
    if not speaks_for_telling(events[event], event_key[event], pair.side, state):
        return log
    state[TOLD] = 1
    return tell_all(pair, tally, log, tick, pair.to_home)


@compiled
def speaks_for_telling(event: np.void, key: int, side: Side, state: Longs) -> bool:
    """Whether so much came in vain that everything is to be told, now that it is made anew."""
    slack_m = SLACKS[state[SLACK]]
    if state[TOLD] != 0 and not would_concern(event, side.entries, key, slack_m, side.ready):
        return False
    fresh, slot = fresh_entry(side, key)
    if not would_concern(event, fresh, slot, slack_m, side.ready):
        state[WASTED] += 1
        if state[WASTED] < (RENEWING if state[TOLD] != 0 else state[PATIENT]):
            return False
        state[WASTED] = 0
        rebuild(side)
        return True
    if state[SLACK] <= state[SLACK_BEFORE]:
        return False
    if would_concern(event, fresh, slot, SLACKS[state[SLACK_BEFORE]], side.ready):
        return False
    state[LOOSENED] += 1
    if state[LOOSENED] < LOOSE:
        return False
    state[SLACK], state[LOOSENED], state[GROWN] = state[SLACK_BEFORE], 0, 0
    state[WIDENS] = min(BACKOFF_MAX, 2 * state[WIDENS])
    rebuild(side)
    return bool(state[TOLD] != 0)


@compiled
def fresh_entry(side: Side, key: int) -> tuple[Entries, int]:
    """Where the entry is as it would be if it were made anew."""
    if 0 < side.present[key] <= REBUILT_MAX:
        make_entry(side, key, side.fresh, 0)
    elif side.present[key] == 0:
        side.fresh.count[0] = -1
    else:
        side.passed[key] += REBUILT_MAX
        if side.passed[key] < side.present[key]:
            return side.entries, key
        side.passed[key] = 0
        make_entry(side, key, side.fresh, 0)
    return side.fresh, 0


@compiled
def take_asked(pair: Pair) -> None:
    """The publisher's broker refuses the digest."""
    state = pair.state
    version = pair.asked[2 * state[ASKED_AT] + 1]
    state[ASKED_AT] += 1
    if state[TOLD] != 0 and version >= state[WHOLE_VERSION]:
        state[TOLD], state[WASTED] = 0, 0
        state[PATIENT] = min(BACKOFF_MAX, 2 * state[PATIENT])


@compiled
def take_updates(
    updates: NDArray[np.void], update_key: Longs, sub: Longs, pair: Pair, tally: Tally, log: Floats
) -> Floats:
    """A subscription, or a move on all topics of a client: tell what the digest lacks."""
    state, side = pair.state, pair.side
    first = end = state[UPDATE_AT]
    row = updates[first]
    while end < len(updates) and updates[end]["t"] == row["t"] and updates[end]["kind"] == row["kind"]:
        if updates[end]["client"] != row["client"] or updates[end]["turn"] != row["turn"]:
            break
        if end > first and row["kind"] == SUBSCRIPTION:
            break
        put(updates[end], side, sub[end], update_key[end])
        end += 1
    state[UPDATE_AT] = end
    tick = row["t"] + CLIENT_MS
    most, lacking, short = 0.0, 0, np.zeros(end - first)
    for i in range(first, end):
        if side.interest[sub[i], IS] != 0.0:
            short[i - first] = short_of(side, update_key[i], side.interest[sub[i]], MARGIN * SLACKS[state[SLACK]])
            most = max(most, short[i - first])
            lacking += short[i - first] > 0.0
    if lacking == 0:
        return log
    state[WASTED] = max(0, state[WASTED] - 1)
    if widens(state, most):
        rebuild(side)
        return tell_all(pair, tally, log, tick, 0)
    for i in range(first, end):
        if short[i - first] > 0.0:
            grow(side, update_key[i], side.interest[sub[i]])
    if state[TOLD] == 0:
        return log
    log = begin(pair, log, tick, False, lacking)
    total = 0
    for i in range(first, end):
        if short[i - first] > 0.0:
            log = write_entry(pair, log, update_key[i])
            total += side.entries.count[update_key[i]]
    count_told(pair, tally, total, 0)
    return log


@compiled
def put(row: np.void, side: Side, sub: int, key: int) -> None:
    """Note what the subscriber wants now."""
    interest = side.interest[sub]
    wanted = row["meets"] != 0
    side.present[key] += int(wanted) - int(interest[IS])
    if side.present[key] == 0:
        side.passed[key] = 0
    interest[IS] = 1.0 if wanted else 0.0
    located, fenced = row["at_lat"] != NO_PLACE, row["radius_cm"] != NO_FENCE
    interest[AT_LAT] = row["at_lat"] / DEGREE if located else np.nan
    interest[AT_LON] = row["at_lon"] / DEGREE if located else np.nan
    interest[OF_LAT] = row["lat"] / DEGREE if fenced else np.nan
    interest[OF_LON] = row["lon"] / DEGREE if fenced else np.nan
    interest[RADIUS] = row["radius_cm"] / 100.0 if fenced else 0.0


@compiled
def widens(state: Longs, by_m: float) -> bool:
    """Whether the digest was too narrow by little often enough to make it wider."""
    enough = MARGIN * SLACKS[state[SLACK]] + by_m
    if enough > MARGIN * SLACKS[-1]:
        return False
    state[GROWN] += 1
    if state[GROWN] < state[WIDENS]:
        return False
    state[GROWN], state[LOOSENED], state[SLACK_BEFORE], state[SLACK] = 0, 0, state[SLACK], 0
    while MARGIN * SLACKS[state[SLACK]] < enough:
        state[SLACK] += 1
    return True


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
    count, level = side.entries.count[key], side.entries.level[key]
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
    few = side.entries.count[key] < 0 or side.present[key] <= REBUILT_MAX
    if few or not add(side.entries, key, interest):
        make_entry(side, key, side.entries, key)


@compiled
def add(entries: Entries, key: int, interest: Floats) -> bool:
    """Take in an interest; whether there is room for it."""
    at, of = cells_of(interest, entries.level[key])
    for i in range(entries.count[key]):
        unit = entries.units[key, i]
        if int(unit[AT]) == at and int(unit[OF]) == of:
            unit[UNIT_RADIUS] = max(unit[UNIT_RADIUS], interest[RADIUS])
            return True
    unit = entries.units[key, entries.count[key]]
    unit[AT], unit[OF], unit[UNIT_RADIUS] = at, of, interest[RADIUS]
    entries.count[key] += 1
    return bool(entries.count[key] <= UNITS_MAX)


@compiled
def make_entry(side: Side, key: int, entries: Entries, slot: int) -> None:
    """The finest that covers all interests of the key."""
    for level in range(LEVELS):
        entries.count[slot], entries.level[slot] = 0, level
        fits = True
        for i in range(side.start[key], side.start[key + 1]):
            if side.interest[i, IS] != 0.0 and not add(entries, slot, side.interest[i]):
                fits = False
                break
        if fits:
            return
    entries.count[slot], entries.level[slot] = 1, 0
    entries.units[slot, 0, AT], entries.units[slot, 0, OF], entries.units[slot, 0, UNIT_RADIUS] = ANY, ANY, 0.0


@compiled
def rebuild(side: Side) -> None:
    for key in range(len(side.present)):
        side.entries.count[key] = -1
        if side.present[key] > 0:
            make_entry(side, key, side.entries, key)


@compiled
def tell_all(pair: Pair, tally: Tally, log: Floats, tick: int, since_ms: int) -> Floats:
    """Tell everything anew, if anything has been told; the cause is `since_ms` old."""
    state, entries = pair.state, pair.side.entries
    if state[TOLD] == 0:
        return log
    log = begin(pair, log, tick, True, int((entries.count >= 0).sum()))
    state[WHOLE_VERSION] = state[VERSION]
    total = 0
    for key in range(len(entries.count)):
        if entries.count[key] >= 0:
            log = write_entry(pair, log, key)
            total += entries.count[key]
    count_told(pair, tally, total, since_ms)
    return log


@compiled
def begin(pair: Pair, log: Floats, tick: int, whole: bool, entries: int) -> Floats:
    """Begin a message with so many entries."""
    state = pair.state
    state[VERSION] += 1
    log = with_room(log, state, 5)
    at = state[LOG_END]
    log[at], log[at + 1], log[at + 2] = tick + pair.to_publisher, state[VERSION], 1.0 if whole else 0.0
    log[at + 3], log[at + 4] = SLACKS[state[SLACK]], entries
    state[LOG_END] += 5
    return log


@compiled
def with_room(log: Floats, state: Longs, more: int) -> Floats:
    """The log with room for more; what was read of it goes when nothing is left to be read."""
    if state[LOG_AT] == state[LOG_END]:
        state[LOG_AT] = state[LOG_END] = 0
    if state[LOG_END] + more <= len(log):
        return log
    larger = np.empty(2 * len(log) + more)
    larger[: state[LOG_END]] = log[: state[LOG_END]]
    return larger


@compiled
def write_entry(pair: Pair, log: Floats, key: int) -> Floats:
    """Write an entry behind what has been begun."""
    entries, count = pair.side.entries, pair.side.entries.count[key]
    at = pair.state[LOG_END]
    if at + 3 + 3 * count > len(log):
        larger = np.empty(2 * len(log) + 3 * count + 3)
        larger[:at] = log[:at]
        log = larger
    log[at], log[at + 1], log[at + 2] = key, entries.level[key], count
    for i in range(count):
        log[at + 3 + 3 * i : at + 6 + 3 * i] = entries.units[key, i]
    pair.state[LOG_END] += 3 + 3 * count
    return log


@compiled
def count_told(pair: Pair, tally: Tally, total: int, since_ms: int) -> None:
    """Count the messages that so many units take."""
    messages = max(1, -(-total // MESSAGE_UNITS))
    tally.sent[DIGESTS, SENT_SUBSCRIPTION, pair.home, pair.publisher] += messages
    tally.sent_updates[DIGESTS, since_ms + pair.to_publisher] += messages
