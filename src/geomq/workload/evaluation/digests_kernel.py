"""`digests` between two brokers, exact to the tick: both are replayed with all their messages, topic after topic.

Owns the rules of the strategy as arrays: interests, entries and sums at the home, what it has told, and what the
publisher's broker made of that. Pairs do not influence each other, so each runs by itself; what happens in the same
phase of a tick has the same effect in any order, but that what a client does on several topics there is taken in the
order of topics.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.routing.strategies.digests.digest import UNITS_MAX
from geomq.routing.strategies.digests.outlook import (
    BACKOFF_MAX,
    LOOSE,
    MARGIN,
    RENEWING,
    SLACKS_M,
    WIDENING,
)
from geomq.routing.strategies.digests.strategy import MESSAGE_UNITS, REFUSED_AFTER, SILENT_MAX, DigestsOptions
from geomq.workload.compiled import compiled
from geomq.workload.evaluation.digest_entries import (
    FINE,
    INTEREST,
    IS,
    NOT_PLAIN,
    REACHES_M,
    READY,
    Entries,
    Floats,
    Longs,
    Side,
    concerns,
    fresh_entry,
    grow,
    make_ready,
    no_entries,
    put,
    rebuild,
    short_of,
    would_concern,
)
from geomq.workload.evaluation.kernel_messages import CLIENTS_MS, Tally
from geomq.workload.evaluation.pair_rows import PairRows
from geomq.workload.evaluation.pair_traffic import SUBSCRIPTION
from geomq.workload.evaluation.sent import CONTROL, DIGESTS, EVENT
from geomq.workload.evaluation.sent import SUBSCRIPTION as SENT_SUBSCRIPTION
from geomq.workload.world import CLIENT_MS

PATIENCE = DigestsOptions().patience
SLACKS = np.array(SLACKS_M)
NEVER = 2**62
# Phases inside a tick: what peers sent, then what clients sent (updates by their kind).
FORWARDED, CONTROLLED, UPDATED, PUBLISHED = 3, 5, 6, 9
PHASES = 16

# The home: whether it has told, versions of all it told, of the last time it told everything, its slack, events
# in vain that it would have spared and because of its slack, growth by little, and how much it takes.
TOLD, VERSION, WHOLE_VERSION, SLACK, WASTED, LOOSENED, GROWN, PATIENT, WIDENS = 0, 1, 2, 3, 4, 5, 6, 7, 8
# The publisher's broker: whether it has been told, announcements less events saved, whether an event came since.
KNOWS, OVERPAID, HEEDS = 9, 10, 19
# How far events and updates have been read, and the queues read and written.
EVENT_AT, UPDATE_AT, FORWARD_AT, FORWARD_END, LOG_AT, LOG_END, ASKED_AT, ASKED_END = 11, 12, 13, 14, 15, 16, 17, 18
STATE = 20


class Pair(NamedTuple):
    """Both brokers, and what is under way between them.

    `log` holds what was told, a number after the other: when it arrives, its version, whether it is everything, the
    slack, the count of entries, and of each entry its key, level, count and units."""

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
    keys, event_key, update_key = _keys(rows)
    names, sub = np.unique(update_key.astype(np.int64) << 32 | rows.updates["client"], return_inverse=True)
    start = np.searchsorted(names >> 32, np.arange(keys + 1))
    interest, entries = np.zeros((len(names), INTEREST)), no_entries(keys)
    side = Side(
        start,
        np.zeros(keys, np.int64),
        np.zeros(keys, np.int64),
        np.full(keys, NOT_PLAIN),
        interest,
        entries,
        no_entries(1),
        np.zeros(READY),
    )
    state = np.zeros(STATE, np.int64)
    state[TOLD] = state[KNOWS] = 1  # when their link came up, that nothing is wanted yet
    state[WIDENS] = WIDENING
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
        Entries(np.full(keys, -1), np.zeros(keys, np.int64), np.zeros((keys, UNITS_MAX, READY))),
    )
    run_pair(rows.events, event_key, rows.updates, update_key, sub.astype(np.int64), pair, tally)


def _keys(rows: PairRows) -> tuple[int, Longs, Longs]:
    """How many topics there are, and the number of each row's."""
    topics = np.unique(np.concatenate((rows.events["topic"], rows.updates["topic"])))
    return len(topics), np.searchsorted(topics, rows.events["topic"]), np.searchsorted(topics, rows.updates["topic"])


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
    if state[KNOWS] != 0 and state[HEEDS] == 0:
        state[HEEDS], state[OVERPAID] = 1, 0
    if state[KNOWS] == 0 or concerns(events[event], pair.known, event_key[event]):
        tally.sent[DIGESTS, EVENT, pair.publisher, pair.home] += 1
        pair.forwards[state[FORWARD_END]] = event
        state[FORWARD_END] += 1
    else:
        state[OVERPAID] = max(0, state[OVERPAID] - 1)


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
        state[KNOWS], state[OVERPAID], state[HEEDS] = 1, 0, 0
    if whole:
        known.filled[:] = -1
    for _ in range(entries):
        key, level, count = int(log[at]), int(log[at + 1]), int(log[at + 2])
        at += 3
        if heeded:
            known.filled[key] = count
            for i in range(count):
                make_ready(known.units[key, i], log[at + 3 * i : at + 3 * i + 3], level, REACHES_M[level] + slack)
        at += 3 * count
    state[LOG_AT] = at
    if heeded and state[OVERPAID] > (REFUSED_AFTER if state[HEEDS] != 0 else SILENT_MAX):
        state[KNOWS] = 0
        tally.sent[DIGESTS, CONTROL, pair.publisher, pair.home] += 1
        pair.asked[2 * state[ASKED_END]], pair.asked[2 * state[ASKED_END] + 1] = tick + pair.to_home, version
        state[ASKED_END] += 1


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
    if side.plain[key] >= 0:
        return not would_concern(event, fresh, slot, slack_m, side.ready) and refines(key, side, state)
    if not would_concern(event, fresh, slot, slack_m, side.ready):
        state[WASTED] += 1
        if state[WASTED] < (RENEWING if state[TOLD] != 0 else state[PATIENT]):
            return False
        state[WASTED] = 0
        rebuild(side)
        return True
    if state[SLACK] == 0 or would_concern(event, fresh, slot, SLACKS[state[SLACK] - 1], side.ready):
        return False
    state[LOOSENED] += 1
    if state[LOOSENED] < LOOSE:
        return False
    state[SLACK], state[LOOSENED], state[GROWN] = state[SLACK] - 1, 0, 0
    state[WIDENS] = min(BACKOFF_MAX, 2 * state[WIDENS])
    rebuild(side)
    return bool(state[TOLD] != 0)


@compiled
def refines(key: int, side: Side, state: Longs) -> bool:
    """An event came in vain that a finer entry would have spared: whether to tell of such."""
    side.plain[key] += 1
    if side.plain[key] < PATIENCE:
        return False
    side.plain[key] = FINE
    rebuild(side)
    return bool(state[TOLD] != 0)


@compiled
def take_asked(pair: Pair) -> None:
    """The publisher's broker refuses the digest."""
    state = pair.state
    version = pair.asked[2 * state[ASKED_AT] + 1]
    state[ASKED_AT] += 1
    if state[TOLD] != 0 and version >= state[WHOLE_VERSION]:
        state[TOLD], state[WASTED] = 0, 0
        state[PATIENT] = min(BACKOFF_MAX, max(PATIENCE, 2 * state[PATIENT]))


@compiled
def take_updates(
    updates: NDArray[np.void], update_key: Longs, sub: Longs, pair: Pair, tally: Tally, log: Floats
) -> Floats:
    """A subscription, or a move on all topics of a client: tell what the digest lacks."""
    state, side = pair.state, pair.side
    first = end = state[UPDATE_AT]
    row = updates[first]
    known = np.zeros(len(side.present), np.bool_)
    while end < len(updates) and updates[end]["t"] == row["t"] and updates[end]["kind"] == row["kind"]:
        if updates[end]["client"] != row["client"] or updates[end]["turn"] != row["turn"]:
            break
        if end > first and row["kind"] == SUBSCRIPTION:
            break
        known[end - first] = put(updates[end], side, sub[end], update_key[end])
        end += 1
    state[UPDATE_AT] = end
    tick = row["t"] + CLIENT_MS
    less_m = SLACKS[max(0, state[SLACK] - 1)]
    spare_m = MARGIN * (SLACKS[state[SLACK]] - less_m)
    most, lacking, spared, short = -np.inf, 0, False, np.full(end - first, -np.inf)
    for i in range(first, end):
        if side.interest[sub[i], IS] != 0.0:
            short[i - first] = short_of(side, update_key[i], side.interest[sub[i]], MARGIN * less_m) - spare_m
            if known[i - first]:
                most = max(most, short[i - first])
            lacking += short[i - first] > 0.0
            spared = spared or short[i - first] > -spare_m
    if lacking == 0:
        if spared:
            state[LOOSENED] = max(0, state[LOOSENED] - 1)
        return log
    state[WASTED] = max(0, state[WASTED] - 1)
    if most > 0.0 and widens(state, most):
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
            total += side.entries.filled[update_key[i]]
    count_told(pair, tally, total, 0)
    return log


@compiled
def widens(state: Longs, by_m: float) -> bool:
    """Whether the digest was too narrow by little often enough to make it wider."""
    enough = MARGIN * SLACKS[state[SLACK]] + by_m
    if enough > MARGIN * SLACKS[-1]:
        return False
    state[GROWN] += 1
    if state[GROWN] < state[WIDENS]:
        return False
    state[GROWN], state[LOOSENED], state[SLACK] = 0, 0, 0
    while MARGIN * SLACKS[state[SLACK]] < enough:
        state[SLACK] += 1
    return True


@compiled
def tell_all(pair: Pair, tally: Tally, log: Floats, tick: int, since_ms: int) -> Floats:
    """Tell everything anew, if anything has been told; the cause is `since_ms` old."""
    state, entries = pair.state, pair.side.entries
    if state[TOLD] == 0:
        return log
    log = begin(pair, log, tick, True, int((entries.filled >= 0).sum()))
    state[WHOLE_VERSION] = state[VERSION]
    total = 0
    for key in range(len(entries.filled)):
        if entries.filled[key] >= 0:
            log = write_entry(pair, log, key)
            total += entries.filled[key]
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
    entries, count = pair.side.entries, pair.side.entries.filled[key]
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
