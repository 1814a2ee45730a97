"""The evaluation kernel: one topic, all strategies, exact to the tick.

Owns the pass over the events of a topic. Whether an event reaches a subscriber depends on which version of the
subscriber's subscription and location the matching broker knows when the event gets there. That broker knows the
last version sent at or before `event time + offset`, where the offset follows from link latencies and the order
inside a tick. Each such (broker, instant) is a *view*; `views` has the offsets. Almost always no version
changes within the span of all offsets, all views agree, and one test settles every strategy.

Counts; decides nothing about messages, which is `kernel_messages`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.workload.compiled import compiled
from geomq.workload.evaluation.kernel_index import FenceIndex, StateIndex, cell_range, column_range
from geomq.workload.evaluation.kernel_messages import PATTERNS, Counts, Tally, tally_event
from geomq.workload.evaluation.topic import LIMIT, TopicData
from geomq.workload.evaluation.views import (
    COLUMN,
    DIRECT,
    MESH,
    NEAR_FIRST,
    NEAR_SECOND,
    NEVER,
    PLACED,
    ROW,
    VIEWS,
    ViewTable,
)

# What is found for an event and a home: both, the patterns, the placed ones, those along a mesh, since when.
FOUND = 5 + PATTERNS


class Scratch(NamedTuple):
    """Space the kernel reuses from event to event."""

    counts: Counts
    stamp: NDArray[np.int64]


@compiled
def latest(times: NDArray[np.int32], first: int, end: int, horizon: int) -> int:
    """The last version sent at or before the horizon, or -1."""
    i = end - 1
    while i >= first and times[i] > horizon:
        i -= 1
    return i if i >= first else -1


@compiled
def has_bit(masks: NDArray[np.uint64], row: int, bit: int) -> bool:
    return bool((masks[row, bit >> 6] >> np.uint64(bit & 63)) & np.uint64(1))


@compiled
def chord(a: NDArray[np.float64], i: int, b: NDArray[np.float64], j: int) -> float:
    """The squared chord between two points of the unit sphere."""
    dx, dy, dz = a[i, 0] - b[j, 0], a[i, 1] - b[j, 1], a[i, 2] - b[j, 2]
    return float(dx * dx + dy * dy + dz * dz)


@compiled
def subscription_open(topic: TopicData, event: int, version: int) -> bool:
    """The subscription check: no fence, or the publisher inside it."""
    limit = topic.sub_point[version, LIMIT]
    if limit == np.inf:
        return True
    return bool(topic.event_located[event] and chord(topic.publisher_point, event, topic.sub_point, version) <= limit)


@compiled
def location_inside(topic: TopicData, event: int, version: int) -> bool:
    """The event check: no fence, or the subscriber inside it."""
    limit = topic.event_point[event, LIMIT]
    if limit == np.inf:
        return True
    return bool(version >= 0 and chord(topic.loc_point, version, topic.event_point, event) <= limit)


@compiled
def matches(topic: TopicData, event: int, client: int, at: int, t_sub: int, t_loc: int, placed: bool) -> bool:
    """Whether a broker that knows the client up to these times finds a match.

    With `placed` the broker `at` knows only the versions it was sent, and holds only those meant for it.
    """
    first, end = topic.sub_start[client], topic.sub_start[client + 1]
    version = latest(topic.sub_t, first, end, t_sub)
    if placed:
        while version >= first and not has_bit(topic.sub_told, version, at):
            version -= 1
        if version < first or not has_bit(topic.sub_held, version, at):
            return False
    if version < 0 or not subscription_open(topic, event, version):
        return False
    place = latest(topic.loc_t, topic.loc_start[client], topic.loc_start[client + 1], t_loc)
    return location_inside(topic, event, place)


@compiled
def count_each_view(topic: TopicData, table: ViewTable, counts: Counts, event: int, client: int) -> None:
    """The slow way: ask every view by itself."""
    t, publisher, home = topic.event_t[event], topic.event_home[event], topic.home[client]
    found = 0
    for view in range(VIEWS):
        t_sub = t + table.sub_offset[view, publisher, home]
        t_loc = t + table.loc_offset[view, publisher, home]
        if matches(topic, event, client, publisher, t_sub, t_loc, view == PLACED):
            found |= 1 << view
    offset = table.ways.offset[table.ways.row[event], home]
    if offset > NEVER and matches(topic, event, client, publisher, t + offset, t + offset, False):
        found |= 1 << MESH
    if found == 0:
        return
    touch(counts, home)
    ways = ((found >> NEAR_FIRST) & 1) | ((found >> NEAR_SECOND) & 1) << 1 | ((found >> DIRECT) & 1) << 2
    counts.pattern[ways, home] += 1
    for view in range(VIEWS + 1):
        counts.seen[view, home] += (found >> view) & 1
    if (found >> DIRECT) & 1:
        counts.since[home] = min(counts.since[home], known_since(topic, table, event, client))
    by_row, by_column = (found >> ROW) & 1, (found >> COLUMN) & 1
    if by_row and (not by_column or table.row_first[publisher, home]):
        counts.first[0, home] += 1
    elif by_column:
        counts.first[1, home] += 1


@compiled
def last_look(table: ViewTable, event: int) -> int:
    """The largest offset of any view of an event."""
    return int(max(table.span[1], table.ways.latest[table.ways.row[event]]))


@compiled
def touch(counts: Counts, home: int) -> None:
    if not counts.marked[home]:
        counts.marked[home] = True
        counts.homes[counts.size[0]] = home
        counts.size[0] += 1


@compiled
def count_sure(topic: TopicData, counts: Counts, client: int, since: int) -> None:
    """All views agree that this subscriber matches, as it has done since that time."""
    home = topic.home[client]
    touch(counts, home)
    counts.sure[home] += 1
    counts.since[home] = min(counts.since[home], since)


@compiled
def known_since(topic: TopicData, table: ViewTable, event: int, client: int) -> int:
    """Since when a subscriber that matches at its home has been as it is then."""
    at = topic.event_t[event] + table.sub_offset[DIRECT, topic.event_home[event], topic.home[client]]
    since = topic.sub_since[latest(topic.sub_t, topic.sub_start[client], topic.sub_start[client + 1], at)]
    if topic.event_point[event, LIMIT] != np.inf:
        since = max(
            since, topic.loc_since[latest(topic.loc_t, topic.loc_start[client], topic.loc_start[client + 1], at)]
        )
    return int(since)


@compiled
def consider(topic: TopicData, table: ViewTable, counts: Counts, event: int, client: int) -> None:
    """Count one candidate of an event without a fence: where the subscriber is does not matter."""
    t = topic.event_t[event]
    first, end = topic.sub_start[client], topic.sub_start[client + 1]
    version = latest(topic.sub_t, first, end, t + last_look(table, event))
    if version < 0:
        return
    if topic.sub_t[version] <= t + table.span[0] and has_bit(topic.sub_held, version, topic.event_home[event]):
        if subscription_open(topic, event, version):
            count_sure(topic, counts, client, int(topic.sub_since[version]))
    else:
        count_each_view(topic, table, counts, event, client)


@compiled
def near_locations(topic: TopicData, states: StateIndex, table: ViewTable, scratch: Scratch, event: int) -> None:
    """Consider every subscriber with a location inside the event's fence around the time of the event."""
    publisher, limit = topic.event_home[event], topic.event_point[event, LIMIT]
    early, late = topic.event_t[event] + table.span[0], topic.event_t[event] + last_look(table, event)
    lat, lon, reach, half = topic.event_circle[event]
    cells = states.cells
    low, high = cell_range(cells, lat, reach)
    for band in range(low, high + 1):
        first, count = column_range(cells, band, lon, half)
        for step in range(count):
            cell = cells.band_start[band] + (first + step) % cells.columns[band]
            for slot in range(cells.cell_start[cell], cells.cell_start[cell + 1]):
                begin, until = states.begin[slot], states.until[slot]
                if begin > late or until <= early:
                    continue
                if chord(states.point, slot, topic.event_point, event) > limit:
                    continue
                version, client = int(states.version[slot]), int(states.client[slot])
                if begin <= early and until > late and (version < 0 or has_bit(topic.sub_held, version, publisher)):
                    if version >= 0 and subscription_open(topic, event, version):
                        count_sure(topic, scratch.counts, client, states.since[slot])
                elif scratch.stamp[client] != event:
                    scratch.stamp[client] = event
                    count_each_view(topic, table, scratch.counts, event, client)


@compiled
def everyone(topic: TopicData, table: ViewTable, counts: Counts, event: int) -> None:
    """Consider every subscriber: the event has no fence, so locations do not matter."""
    for client in range(len(topic.home)):
        consider(topic, table, counts, event, client)


@compiled
def near_subscriptions(topic: TopicData, fences: FenceIndex, table: ViewTable, scratch: Scratch, event: int) -> None:
    """Consider every subscriber with a fence around the publisher about then: for events without a fence."""
    publisher = topic.event_home[event]
    early, late = topic.event_t[event] + table.span[0], topic.event_t[event] + last_look(table, event)
    lat, lon, reach, half = topic.publisher_circle[event]
    cells = fences.cells
    low, high = cell_range(cells, lat, reach)
    for band in range(low, high + 1):
        first, count = column_range(cells, band, lon, half)
        for step in range(count):
            cell = cells.band_start[band] + (first + step) % cells.columns[band]
            for slot in range(cells.cell_start[cell], cells.cell_start[cell + 1]):
                begin, until = fences.begin[slot], fences.until[slot]
                if begin > late or until <= early:
                    continue
                if chord(topic.publisher_point, event, fences.point, slot) > fences.point[slot, LIMIT]:
                    continue
                client, held = int(fences.client[slot]), has_bit(topic.sub_held, cells.entry[slot], publisher)
                if begin <= early and until > late and held:
                    count_sure(topic, scratch.counts, client, int(topic.sub_since[cells.entry[slot]]))
                elif scratch.stamp[client] != event:
                    scratch.stamp[client] = event
                    count_each_view(topic, table, scratch.counts, event, client)


@compiled
def with_room(found: NDArray[np.int32], size: int, more: int) -> NDArray[np.int32]:
    """The rows, with room for more of them."""
    if size + more <= len(found):
        return found
    grown = np.empty((2 * len(found) + more, found.shape[1]), np.int32)
    grown[:size] = found[:size]
    return grown


@compiled
def list_found(counts: Counts, event: int, found: NDArray[np.int32], size: int) -> int:
    """Append the event's row for each home with a match; returns the new number of rows."""
    for i in range(counts.size[0]):
        home = counts.homes[i]
        found[size, 0], found[size, 1] = event, home
        found[size, 2 : 2 + PATTERNS] = counts.pattern[:, home]
        found[size, 1 + PATTERNS] += counts.sure[home]
        found[size, 2 + PATTERNS] = counts.sure[home] + counts.seen[PLACED, home]
        found[size, 3 + PATTERNS] = counts.sure[home] + counts.seen[MESH, home]
        found[size, 4 + PATTERNS] = counts.since[home]
        size += 1
    return size


@compiled
def evaluate_events(
    topic: TopicData, states: StateIndex, fences: FenceIndex, table: ViewTable, tally: Tally, scratch: Scratch
) -> NDArray[np.int32]:
    """All events of a topic, each against its candidates, into the tally.

    Returns rows of event, home, how many match by each pattern of ways, of those placed, and along a mesh, and since
    when the first that matches at home does; no rows for the paper variant.
    """
    found, size = np.empty((0 if table.paper else 1024, FOUND), np.int32), 0
    for event in range(len(topic.event_t)):
        if topic.event_point[event, LIMIT] != np.inf:
            near_locations(topic, states, table, scratch, event)
        elif topic.event_located[event] and topic.publisher_circle[event, 2] < np.inf:
            near_subscriptions(topic, fences, table, scratch, event)
        else:
            everyone(topic, table, scratch.counts, event)
        if not table.paper:
            found = with_room(found, size, scratch.counts.size[0])
            size = list_found(scratch.counts, event, found, size)
        tally_event(topic, table, tally, scratch.counts, event)
    return found[:size]
