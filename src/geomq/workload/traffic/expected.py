"""Who must receive an event of a live run, who may, and who must not: the judge of what was lost or doubled.

A live run has no ticks: an update that is in transit while an event is matched may count or not. So every state of a
subscriber that could be in force while the event was on its way is looked at. If the event matches in all of them it
*must* arrive, if in none it *must not*, else it *may*. An action can take up to `settle_ms` to be in force everywhere.

Owns that judgement, one topic at a time. Refuses to know brokers: every strategy delivers the same.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.geo.sphere import chord_limits, unit_vectors
from geomq.workload.compiled import compiled
from geomq.workload.model import DEGREE, NO_FENCE

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
EVERYWHERE = np.inf


class Timeline(NamedTuple):
    """States of many subscribers, rows of t x y z limit; subscriber i has rows first[i] to first[i + 1], by time."""

    first: Longs
    states: Floats


class Pairs(NamedTuple):
    """Events and subscribers that belong together; the rest must not."""

    event: Longs
    subscriber: Longs
    certain: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Said:
    """Actions of one kind as columns: when, by whom, where, with which fence (NO_FENCE: everywhere)."""

    t_ms: Floats
    client: Longs
    lat_e7: NDArray[np.int32]
    lon_e7: NDArray[np.int32]
    radius_cm: NDArray[np.int32]

    def rows(self) -> Floats:
        """One row of t, x, y, z, limit each."""
        x, y, z = unit_vectors(self.lat_e7 / DEGREE, self.lon_e7 / DEGREE)
        limit = np.where(self.radius_cm == NO_FENCE, EVERYWHERE, chord_limits(np.maximum(self.radius_cm, 0) / 100.0))
        return np.column_stack((self.t_ms, x, y, z, limit)).astype(np.float64)


def timeline(said: Said, subscribers: Longs) -> Timeline:
    """What the subscribers said, subscriber by subscriber."""
    mine = np.isin(said.client, subscribers)
    order = np.lexsort((said.t_ms[mine], said.client[mine]))
    client = said.client[mine][order]
    first = np.searchsorted(client, np.append(subscribers, subscribers[-1:] + 1)).astype(np.int64)
    return Timeline(first, said.rows()[mine][order])


def expected(events: Said, subscriptions: Said, locations: Said, *, settle_ms: float) -> Pairs:
    """The pairs of (row of `events`, client) of one topic that must or may meet; events must be in order of time."""
    subscribers = np.unique(subscriptions.client)
    if not len(subscribers) or not len(events.t_ms):
        none = np.empty(0, np.int64)
        return Pairs(none, none, np.empty(0, np.bool_))
    wanted, places = timeline(subscriptions, subscribers), timeline(locations, subscribers)
    rows = events.rows()
    room = 1 << 16
    while True:
        event, subscriber = np.empty(room, np.int64), np.empty(room, np.int64)
        certain = np.empty(room, np.bool_)
        found = find_pairs(rows, wanted, places, settle_ms, event, subscriber, certain)
        if found <= room:
            return Pairs(event[:found], subscribers[subscriber[:found]], certain[:found])
        room = found


@compiled
def find_pairs(
    events: Floats,
    wanted: Timeline,
    places: Timeline,
    settle_ms: float,
    event_out: Longs,
    subscriber_out: Longs,
    certain_out: NDArray[np.bool_],
) -> int:
    """Fill in the pairs as far as there is room; returns how many there are."""
    count = len(wanted.first) - 1
    at = np.empty((4, count), np.int64)
    for i in range(count):
        at[0, i] = at[1, i] = wanted.first[i] - 1
        at[2, i] = at[3, i] = places.first[i] - 1
    found = 0
    for e in range(len(events)):
        t, x, y, z, limit = events[e]
        early, late = t - settle_ms, t + settle_ms
        for i in range(count):
            at[0, i] = advance(wanted, i, at[0, i], early)
            at[1, i] = advance(wanted, i, at[1, i], late)
            may, must = meets(wanted, i, at[0, i], at[1, i], x, y, z, -1.0)
            if not may:
                continue
            if limit != EVERYWHERE:
                at[2, i] = advance(places, i, at[2, i], early)
                at[3, i] = advance(places, i, at[3, i], late)
                near, surely = meets(places, i, at[2, i], at[3, i], x, y, z, limit)
                if not near:
                    continue
                must = must and surely
            if found < len(event_out):
                event_out[found], subscriber_out[found], certain_out[found] = e, i, must
            found += 1
    return found


@compiled
def advance(line: Timeline, i: int, at: int, until: float) -> int:
    """The last state of subscriber `i` that was said before `until`; one before its first if there is none."""
    while at + 1 < line.first[i + 1] and line.states[at + 1, 0] <= until:
        at += 1
    return at


@compiled
def meets(line: Timeline, i: int, low: int, high: int, x: float, y: float, z: float, limit: float) -> tuple[bool, bool]:
    """Whether any and whether all of these states are within `limit` of a point, or their own if that is negative."""
    any_meets, all_meet = False, low >= line.first[i]
    for k in range(max(low, line.first[i]), high + 1):
        dx, dy, dz = line.states[k, 1] - x, line.states[k, 2] - y, line.states[k, 3] - z
        reach = line.states[k, 4] if limit < 0.0 else limit
        if dx * dx + dy * dy + dz * dz <= reach:
            any_meets = True
        else:
            all_meet = False
    return any_meets, all_meet and any_meets


class Comparison(NamedTuple):
    """What came of the pairs at one home: `lost` had to come and did not, `unexpected` came and must not have."""

    home: int
    required: int
    possible: int
    received: int
    lost: int
    duplicated: int
    unexpected: int


def judge(pairs: Pairs, event: Longs, client: Longs, home_of: dict[int, int]) -> list[Comparison]:
    """Compare the pairs with what clients received, given as columns of rows of events and of clients."""
    base = np.int64(1 << 31)
    due = pairs.event * base + pairs.subscriber
    got, copies = np.unique(event * base + client, return_counts=True)
    came = np.isin(due, got, assume_unique=True)
    wrong = ~np.isin(got, due, assume_unique=True)
    home_due = homes(pairs.subscriber, home_of)
    home_got = homes(got % base, home_of)
    verdicts = []
    for home in sorted(set(home_due.tolist()) | set(home_got.tolist())):
        here, there = home_due == home, home_got == home
        verdicts.append(
            Comparison(
                home,
                int(pairs.certain[here].sum()),
                int((~pairs.certain[here]).sum()),
                int(there.sum()),
                int((pairs.certain & ~came)[here].sum()),
                int((copies[there] - 1).sum()),
                int(wrong[there].sum()),
            )
        )
    return verdicts


def homes(clients: Longs, home_of: dict[int, int]) -> Longs:
    """The home of each client."""
    known, inverse = np.unique(clients, return_inverse=True)
    return np.array([home_of[int(client)] for client in known], np.int64)[inverse]
