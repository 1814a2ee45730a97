"""How events spread along a mesh, exact to the tick: from the routes of all brokers over time to the way of each event.

Owns the flood of one event and the memory of floods. Which brokers pass an event on to whom changes only with the
mesh, never with events, so one record of it, the *timeline*, serves all events. A *scene* is what holds everywhere
between two changes; floods that begin and end in the same scene are alike and computed once.
"""

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.workload.compiled import compiled
from geomq.workload.evaluation.kernel_messages import CLIENTS_MS, Tally
from geomq.workload.evaluation.sent import EVENT, MESH
from geomq.workload.evaluation.views import NEVER, MeshPaths, no_mesh_paths
from geomq.workload.world import CLIENT_MS

FOREVER_MS = 2**62
# Scenes shorter than this are not worth remembering a flood for.
LASTING_MS = 1_000
ORDER_BITS = 24
UNREACHED = -1


class MeshTimeline(NamedTuple):
    """What every broker does with an event of the application, over time.

    The changes of broker b are rows `first[b]` to `first[b + 1]` of `tick` and `state`. In a state an event from
    the neighbour in `slot[b, source]` (0: an own client) goes to `target[start[state, slot]:start[state, slot + 1]]`.
    Between the ticks `changed` nothing changes anywhere; `scene` numbers what holds after each of them, and before the
    first. `control` are the messages that keep the mesh, by link; `longest_ms` no event takes longer than.
    """

    first: NDArray[np.int64]
    tick: NDArray[np.int64]
    state: NDArray[np.int64]
    start: NDArray[np.int64]
    target: NDArray[np.int64]
    slot: NDArray[np.int64]
    changed: NDArray[np.int64]
    scene: NDArray[np.int64]
    control: NDArray[np.int64]
    longest_ms: int


class Flood(NamedTuple):
    """One event's spread: by broker the delay and from whom it came first, and all messages as (from, to)."""

    delay: NDArray[np.int32]
    via: NDArray[np.int32]
    sent: NDArray[np.int32]


@compiled
def state_at(timeline: MeshTimeline, broker: int, tick: int) -> int:
    """The broker's state after everything up to and including the tick; -1 before its first."""
    low, high = timeline.first[broker], timeline.first[broker + 1]
    while low < high:
        middle = (low + high) // 2
        if timeline.tick[middle] <= tick:
            low = middle + 1
        else:
            high = middle
    return int(timeline.state[low - 1]) if low > timeline.first[broker] else -1


@compiled
def spread(
    timeline: MeshTimeline, latency: NDArray[np.int32], publisher: int, tick: int, lasting: bool, flood: Flood
) -> tuple[int, int]:
    """Send one event on its way; how many messages that takes, and after how many milliseconds the last arrives.

    An event from a client meets what the tick has brought, one from a peer only what was before its tick. With
    `lasting` nothing changes meanwhile.
    """
    flood.delay[:] = UNREACHED
    flood.delay[publisher] = 0
    flood.via[publisher] = publisher
    size, last, here, source, now = 0, tick, publisher, publisher, tick
    queue = [tick for _ in range(0)]
    while True:
        state = state_at(timeline, here, tick if lasting or here == publisher else now - 1)
        if state >= 0:
            slot = timeline.slot[here, source]
            for i in range(timeline.start[state, slot], timeline.start[state, slot + 1]):
                there = timeline.target[i]
                heappush(queue, (now + int(latency[here, there])) << ORDER_BITS | size)
                flood.sent[size, 0], flood.sent[size, 1] = here, there
                size += 1
        while True:
            if len(queue) == 0:
                return size, last - tick
            due = heappop(queue)
            message = due & ((1 << ORDER_BITS) - 1)
            now, source, here = due >> ORDER_BITS, int(flood.sent[message, 0]), int(flood.sent[message, 1])
            last = now
            if flood.delay[here] == UNREACHED:
                flood.delay[here], flood.via[here] = now - tick, source
                break


@compiled
def spread_each(
    timeline: MeshTimeline,
    latency: NDArray[np.int32],
    publisher: NDArray[np.int32],
    tick: NDArray[np.int64],
    delay: NDArray[np.int32],
    via: NDArray[np.int32],
    tally: Tally,
) -> None:
    """The spread of several events while the mesh changes, their messages counted."""
    sent = np.empty((len(timeline.slot) * timeline.start.shape[1], 2), np.int32)
    for event in range(len(tick)):
        flood = Flood(delay[event], via[event], sent)
        size, _ = spread(timeline, latency, int(publisher[event]), int(tick[event]), False, flood)
        for i in range(size):
            tally.sent[MESH, EVENT, sent[i, 0], sent[i, 1]] += 1


@compiled
def count_deliveries(
    publisher: NDArray[np.int32],
    row: NDArray[np.int32],
    delay: NDArray[np.int32],
    via: NDArray[np.int32],
    found: NDArray[np.int32],
    tally: Tally,
) -> None:
    """What arrives at other homes, and which messages led there; of `found` the last column says how many match."""
    used = np.full(delay.shape[1], -1, np.int64)
    for i in range(len(found)):
        event, home, count = found[i, 0], found[i, 1], found[i, -1]
        way = row[event]
        if count == 0 or home == publisher[event] or delay[way, home] == UNREACHED:
            continue
        tally.sent_delays[MESH, delay[way, home] + CLIENTS_MS] += count
        here = home
        while here != publisher[event] and used[here] != event:
            used[here] = event
            tally.sent_useful[MESH] += 1
            here = via[way, here]


class Floods:
    """The ways of events along the mesh of a timeline, topic by topic."""

    def __init__(self, timeline: MeshTimeline, latency: NDArray[np.int32]) -> None:
        self.timeline = timeline
        self._latency = latency
        self._brokers = len(timeline.slot)
        self._row: dict[int, int] = {}
        """The remembered flood of a scene and a publisher's broker, both as one number."""
        self._remembered: list[Flood] = []
        self._takes_ms: list[int] = []
        self._delay = np.empty((0, self._brokers), np.int32)
        self._via = np.empty((0, self._brokers), np.int32)

    def of_topic(self, t: NDArray[np.int32], publisher: NDArray[np.int32], tally: Tally) -> MeshPaths:
        """The ways of a topic's events; their messages are counted."""
        if not len(t):
            return no_mesh_paths(0, self._brokers)
        tick = t.astype(np.int64) + CLIENT_MS
        row = self._lasting_rows(tick, publisher)
        used = np.bincount(row[row >= 0], minlength=len(self._remembered))
        for number in np.flatnonzero(used).tolist():
            sent = self._remembered[number].sent
            np.add.at(tally.sent[MESH, EVENT], (sent[:, 0], sent[:, 1]), used[number])
        passing = np.flatnonzero(row < 0)
        row[passing] = len(self._remembered) + np.arange(len(passing))
        shape = (len(passing), self._brokers)
        delay, via = np.empty(shape, np.int32), np.empty(shape, np.int32)
        spread_each(self.timeline, self._latency, publisher[passing], tick[passing], delay, via, tally)
        self._delay = np.stack([*(flood.delay for flood in self._remembered), *delay])
        self._via = np.stack([*(flood.via for flood in self._remembered), *via])
        return self._as_ways(row)

    def count(self, publisher: NDArray[np.int32], ways: MeshPaths, found: NDArray[np.int32], tally: Tally) -> None:
        """Count what the events of the topic asked for last deliver, given what was found for each home."""
        count_deliveries(publisher, ways.row, self._delay, self._via, found, tally)

    def _as_ways(self, row: NDArray[np.int32]) -> MeshPaths:
        offset = np.where(self._delay == UNREACHED, NEVER, np.maximum(self._delay - 1, 0)).astype(np.int32)
        return MeshPaths(row, offset, np.maximum(offset.max(axis=1, initial=0), 0).astype(np.int32))

    def _lasting_rows(self, tick: NDArray[np.int64], publisher: NDArray[np.int32]) -> NDArray[np.int32]:
        """The remembered flood of each event that is over before the mesh changes; -1 for the others."""
        changed, scene = self.timeline.changed, self.timeline.scene
        after = np.searchsorted(changed, tick, side="right")
        begun = np.concatenate(([-FOREVER_MS], changed))[after]
        until = np.concatenate((changed, [FOREVER_MS]))[after]
        lasting = np.flatnonzero(until - begun >= LASTING_MS)
        keys = scene[after[lasting]] * self._brokers + publisher[lasting]
        alike, first, which = np.unique(keys, return_index=True, return_inverse=True)
        ticks = tick[lasting[first]].tolist()
        rows = [self._remember(key, at) for key, at in zip(alike.tolist(), ticks, strict=True)]
        row = np.full(len(tick), -1, np.int32)
        row[lasting] = np.array(rows, np.int32)[which]
        takes = np.array([*self._takes_ms, 0], np.int64)
        row[until < tick + takes[row]] = -1
        return row

    def _remember(self, key: int, tick: int) -> int:
        """The row of a scene and a publisher's broker, given a tick in that scene."""
        found = self._row.get(key)
        if found is not None:
            return found
        sent = np.empty((len(self.timeline.slot) * self.timeline.start.shape[1], 2), np.int32)
        flood = Flood(np.empty(self._brokers, np.int32), np.empty(self._brokers, np.int32), sent)
        size, takes_ms = spread(self.timeline, self._latency, key % self._brokers, tick, True, flood)
        self._row[key] = len(self._remembered)
        self._remembered.append(flood._replace(sent=sent[:size].copy()))
        self._takes_ms.append(takes_ms)
        return len(self._remembered) - 1
