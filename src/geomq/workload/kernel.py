"""The evaluation kernel: one topic, all strategies, exact to the tick.

Owns the pass over the events of a topic. Whether an event reaches a subscriber depends on which version of the
subscriber's subscription and location the matching broker knows when the event gets there. That broker knows the
last version sent at or before `event time + offset`, where the offset follows from link latencies and the order
inside a tick. Each such (broker, instant) is a *view*; `views` has the offsets. Almost always no version
changes within the span of all offsets, all views agree, and one test settles every strategy.

The only module that imports numba. Counts; decides nothing about messages, which is `kernel_messages`.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from geomq.workload.kernel_index import CellIndex, cell_range, column_range
from geomq.workload.kernel_messages import Counts, Tally, tally_event
from geomq.workload.topic import TopicData
from geomq.workload.views import COLUMN, PLACED, ROW, VIEWS, ViewTable


class Scratch(NamedTuple):
    """Space the kernel reuses from event to event."""

    counts: Counts
    stamp: NDArray[np.int64]


@njit(cache=True, nogil=True)
def latest(times: NDArray[np.int32], first: int, end: int, horizon: int) -> int:
    """The last version sent at or before the horizon, or -1."""
    i = end - 1
    while i >= first and times[i] > horizon:
        i -= 1
    return i if i >= first else -1


@njit(cache=True, nogil=True)
def has_bit(masks: NDArray[np.uint64], row: int, bit: int) -> bool:
    return bool((masks[row, bit >> 6] >> np.uint64(bit & 63)) & np.uint64(1))


@njit(cache=True, nogil=True)
def subscription_open(topic: TopicData, event: int, version: int) -> bool:
    """The subscription check: no fence, or the publisher inside it."""
    limit = topic.sub_limit[version]
    if limit == np.inf:
        return True
    if not topic.event_located[event]:
        return False
    dx = topic.publisher_x[event] - topic.sub_x[version]
    dy = topic.publisher_y[event] - topic.sub_y[version]
    dz = topic.publisher_z[event] - topic.sub_z[version]
    return bool(dx * dx + dy * dy + dz * dz <= limit)


@njit(cache=True, nogil=True)
def location_inside(topic: TopicData, event: int, version: int) -> bool:
    """The event check: no fence, or the subscriber inside it."""
    limit = topic.event_limit[event]
    if limit == np.inf:
        return True
    if version < 0:
        return False
    dx = topic.loc_x[version] - topic.event_x[event]
    dy = topic.loc_y[version] - topic.event_y[event]
    dz = topic.loc_z[version] - topic.event_z[event]
    return bool(dx * dx + dy * dy + dz * dz <= limit)


@njit(cache=True, nogil=True)
def matches(topic: TopicData, event: int, client: int, at: int, t_sub: int, t_loc: int, placed: bool) -> bool:
    """Whether a broker that knows the client up to these times finds a match.

    With `placed` the broker `at` knows only the versions it was told of, and holds only those meant for it.
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


@njit(cache=True, nogil=True)
def count_each_view(topic: TopicData, table: ViewTable, counts: Counts, event: int, client: int) -> None:
    """The slow way: ask every view by itself."""
    t, publisher, home = topic.event_t[event], topic.event_home[event], topic.home[client]
    found = 0
    for view in range(VIEWS):
        t_sub = t + table.sub_offset[view, publisher, home]
        t_loc = t + table.loc_offset[view, publisher, home]
        if matches(topic, event, client, publisher, t_sub, t_loc, view == PLACED):
            found |= 1 << view
    if found == 0:
        return
    touch(counts, home)
    for view in range(VIEWS):
        counts.seen[view, home] += (found >> view) & 1
    by_row, by_column = (found >> ROW) & 1, (found >> COLUMN) & 1
    if by_row and (not by_column or table.row_first[publisher, home]):
        counts.first[0, home] += 1
    elif by_column:
        counts.first[1, home] += 1


@njit(cache=True, nogil=True)
def touch(counts: Counts, home: int) -> None:
    if not counts.marked[home]:
        counts.marked[home] = True
        counts.homes[counts.size[0]] = home
        counts.size[0] += 1


@njit(cache=True, nogil=True)
def settled(topic: TopicData, table: ViewTable, event: int, place: int, client: int) -> int:
    """The subscription version every view sees, -1 if none sees any, -2 if views may differ."""
    t = topic.event_t[event]
    early, late = t + table.span[0], t + table.span[1]
    place_end = topic.loc_start[client + 1]
    if place >= 0 and (topic.loc_t[place] > early or (place + 1 < place_end and topic.loc_t[place + 1] <= late)):
        return -2
    first, end = topic.sub_start[client], topic.sub_start[client + 1]
    version = latest(topic.sub_t, first, end, late)
    if version < 0:
        return -1
    if topic.sub_t[version] > early or not has_bit(topic.sub_held, version, topic.event_home[event]):
        return -2
    return version


@njit(cache=True, nogil=True)
def consider(topic: TopicData, table: ViewTable, scratch: Scratch, event: int, client: int, place: int) -> None:
    """Count one candidate: a subscriber and the version of its location that made it one (-1: nowhere)."""
    version = settled(topic, table, event, place, client)
    if version == -1:
        return
    if version >= 0:
        if subscription_open(topic, event, version):
            home = topic.home[client]
            touch(scratch.counts, home)
            scratch.counts.sure[home] += 1
    elif scratch.stamp[client] != event:
        scratch.stamp[client] = event
        count_each_view(topic, table, scratch.counts, event, client)


@njit(cache=True, nogil=True)
def near_locations(topic: TopicData, index: CellIndex, table: ViewTable, scratch: Scratch, event: int) -> None:
    """Consider every subscriber with a location version inside the event's fence."""
    early = topic.event_t[event] + table.span[0]
    late = topic.event_t[event] + table.span[1]
    bands = cell_range(index, topic.event_lat[event], topic.event_reach[event])
    for band in range(bands[0], bands[1] + 1):
        first, count = column_range(
            index, band, topic.event_lat[event], topic.event_lon[event], topic.event_reach[event]
        )
        columns = index.columns[band]
        for step in range(count):
            cell = index.band_start[band] + (first + step) % columns
            for slot in range(index.cell_start[cell], index.cell_start[cell + 1]):
                place = index.entry[slot]
                if location_inside(topic, event, place):
                    client = topic.loc_client[place]
                    if topic.loc_t[place] <= late and topic.loc_until[place] > early:
                        consider(topic, table, scratch, event, client, place)


@njit(cache=True, nogil=True)
def everyone(topic: TopicData, table: ViewTable, scratch: Scratch, event: int) -> None:
    """Consider every subscriber: the event has no fence, so locations do not matter."""
    for client in range(len(topic.home)):
        consider(topic, table, scratch, event, client, -1)


@njit(cache=True, nogil=True)
def near_subscriptions(
    topic: TopicData, index: CellIndex, table: ViewTable, scratch: Scratch, event: int, seen: NDArray[np.int64]
) -> None:
    """Consider every subscriber that had a fence around the publisher: for events without a fence."""
    bands = cell_range(index, topic.publisher_lat[event], topic.sub_reach[0])
    for band in range(bands[0], bands[1] + 1):
        first, count = column_range(
            index, band, topic.publisher_lat[event], topic.publisher_lon[event], topic.sub_reach[0]
        )
        columns = index.columns[band]
        for step in range(count):
            cell = index.band_start[band] + (first + step) % columns
            for slot in range(index.cell_start[cell], index.cell_start[cell + 1]):
                version = index.entry[slot]
                client = topic.sub_client[version]
                if seen[client] != event and subscription_open(topic, event, version):
                    seen[client] = event
                    consider(topic, table, scratch, event, client, -1)


@njit(cache=True, nogil=True)
def evaluate_events(
    topic: TopicData,
    locations: CellIndex,
    subscriptions: CellIndex,
    table: ViewTable,
    tally: Tally,
    scratch: Scratch,
    seen: NDArray[np.int64],
) -> None:
    """All events of a topic, each against its candidates, into the tally."""
    for event in range(len(topic.event_t)):
        if topic.event_limit[event] != np.inf:
            near_locations(topic, locations, table, scratch, event)
        elif topic.event_located[event] and topic.sub_reach[0] < np.inf:
            near_subscriptions(topic, subscriptions, table, scratch, event, seen)
        else:
            everyone(topic, table, scratch, event)
        tally_event(topic, table, tally, scratch.counts, event)
