"""What happens between two brokers on one topic: one's events that concern the other, and the other's updates.

Owns the lists that strategies which learn from their traffic are replayed from, one per ordered pair of brokers and in
the order of ticks and phases. Sends nothing: that is each strategy's kernel.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.routing.strategies.adaptive import RARE
from geomq.workload.compiled import compiled
from geomq.workload.evaluation.kernel_messages import PATTERNS
from geomq.workload.evaluation.topic import TopicData, TopicPlaces

MOVE = 0
SUBSCRIPTION = 1
# Stands after the subscription with which `adaptive` may assume how events of the pair will be.
ASSUMPTION = 2
NEVER = 2**31 - 1
# Columns of what the kernel found: matches at the home itself by pattern, at the publisher's broker, and since when.
FIRST_DIRECT, FOUND_PLACED, FOUND_SINCE = 2 + PATTERNS // 2, 2 + PATTERNS, 4 + PATTERNS

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]
Masks = NDArray[np.uint64]


class PairEvents(NamedTuple):
    """Events by pair `publisher * brokers + home`, each from `start[pair]` to `start[pair + 1]`.

    They are those whose fence meets the home's area; of the home's subscribers match `direct`, at the home itself, and
    `placed`, at the publisher's broker if subscriptions are kept there; the first of the former does `since` that time.
    """

    start: Longs
    t: Ints
    direct: Ints
    placed: Ints
    since: Ints


class PairUpdates(NamedTuple):
    """Updates of the home's subscribers by pair in the same way; a pair without events or assumption has none.

    Each has its kind and version, and whether the subscription's fence met the publisher's area `before` and `now`.
    """

    start: Longs
    t: Ints
    kind: Ints
    row: Ints
    before: Flags
    now: Flags


class _Updates(NamedTuple):
    """Moves and subscription updates of a topic's subscribers, by time and kind; `row` is the version."""

    t: Ints
    kind: Ints
    row: Ints
    client: Ints


def events_of(topic: TopicData, found: Ints, brokers: int) -> PairEvents:
    """The events of a topic; `found` are the matches as the kernel lists them."""
    order = np.argsort(topic.event_t, kind="stable")
    first = np.searchsorted(found[:, 0], np.arange(len(topic.event_t) + 1))
    return _pair_events(topic, order, found, first, brokers)


def updates_of(topic: TopicData, places: TopicPlaces, events: PairEvents, brokers: int) -> PairUpdates:
    """The updates of a topic that `adaptive` heeds."""
    updates = _updates_of(topic, places)
    begun = np.full(brokers, NEVER, np.int64)
    np.minimum.at(begun, topic.event_home, topic.event_t)
    assumed = _assumptions(topic, updates, begun, brokers)
    return _pair_updates(topic, updates, events.start, assumed, brokers)


def _updates_of(topic: TopicData, places: TopicPlaces) -> _Updates:
    """All updates that take effect; who says that it is where it was has not moved."""
    same = (topic.loc_client[1:] == topic.loc_client[:-1]) & (places.loc_lat[1:] == places.loc_lat[:-1])
    stays = np.zeros(len(topic.loc_t), np.bool_)
    stays[1:] = same & (places.loc_lon[1:] == places.loc_lon[:-1])
    moves, versions = np.flatnonzero(~stays), np.arange(len(topic.sub_t))
    t = np.concatenate((topic.loc_t[moves], topic.sub_t))
    kind = np.repeat(np.array([MOVE, SUBSCRIPTION], np.int32), (len(moves), len(versions)))
    row = np.concatenate((moves, versions)).astype(np.int32)
    client = np.concatenate((topic.loc_client[moves], topic.sub_client))
    order = np.argsort(2 * t.astype(np.int64) + kind, kind="stable")
    return _Updates(t[order], kind[order], row[order], client[order])


@compiled
def _bit(masks: Masks, row: int, broker: int) -> bool:
    return row >= 0 and bool((masks[row, broker >> 6] >> np.uint64(broker & 63)) & np.uint64(1))


@compiled
def _others(masks: Masks, row: int, home: int) -> bool:
    """Whether the mask has any broker but the home."""
    if row < 0:
        return False
    for word in range(masks.shape[1]):
        mine = np.uint64(1) << np.uint64(home & 63) if home >> 6 == word else np.uint64(0)
        if masks[row, word] & ~mine != 0:
            return True
    return False


@compiled
def _pair_events(topic: TopicData, order: Longs, found: Ints, first: Longs, brokers: int) -> PairEvents:
    start = np.zeros(brokers * brokers + 1, np.int64)
    for event in order:
        publisher = topic.event_home[event]
        for home in range(brokers):
            start[publisher * brokers + home + 1] += home != publisher and _bit(topic.event_to, event, home)
    start = np.cumsum(start)
    filled = start[:-1].copy()
    t = np.empty(start[-1], np.int32)
    direct, placed = np.zeros(start[-1], np.int32), np.zeros(start[-1], np.int32)
    since = np.full(start[-1], NEVER, np.int32)
    slot = np.empty(brokers, np.int64)
    for event in order:
        publisher = topic.event_home[event]
        for home in range(brokers):
            slot[home] = -1
            if home != publisher and _bit(topic.event_to, event, home):
                pair = publisher * brokers + home
                slot[home] = filled[pair]
                t[filled[pair]] = topic.event_t[event]
                filled[pair] += 1
        for i in range(first[event], first[event + 1]):
            at = slot[found[i, 1]]
            if at >= 0:
                direct[at], placed[at] = found[i, FIRST_DIRECT:FOUND_PLACED].sum(), found[i, FOUND_PLACED]
                since[at] = found[i, FOUND_SINCE]
    return PairEvents(start, t, direct, placed, since)


@compiled
def _assumptions(topic: TopicData, updates: _Updates, begun: Longs, brokers: int) -> Longs:
    """By pair the update with which hardly any of many subscriptions concerns the publisher's broker, if that is
    before the home's first event."""
    assumed = np.full(brokers * brokers, NEVER, np.int64)
    total, concerned = np.zeros(brokers, np.int64), np.zeros(brokers * brokers, np.int64)
    current = np.full(len(topic.home), -1, np.int64)
    for i in range(len(updates.t)):
        client = updates.client[i]
        home, last, version = topic.home[client], current[client], updates.row[i]
        if updates.kind[i] != SUBSCRIPTION or updates.t[i] > begun[home]:
            continue
        current[client] = version
        total[home] += last < 0
        for broker in range(brokers):
            pair = broker * brokers + home
            concerned[pair] += int(_bit(topic.sub_held, version, broker)) - int(_bit(topic.sub_held, last, broker))
            rare = total[home] >= max(RARE, brokers) and RARE * concerned[pair] <= total[home]
            if broker != home and rare and assumed[pair] == NEVER:
                assumed[pair] = i
    return assumed


@compiled
def _pair_updates(topic: TopicData, updates: _Updates, event_start: Longs, assumed: Longs, brokers: int) -> PairUpdates:
    """First counts what each pair gets, then hands it out."""
    start = np.zeros(brokers * brokers + 1, np.int64)
    filled = start[1:]
    t, kind, row = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int32)
    before, now = np.empty(0, np.bool_), np.empty(0, np.bool_)
    for counting in (True, False):
        if not counting:
            start = np.cumsum(start)
            filled = start[:-1].copy()
            t, kind, row = np.empty(start[-1], np.int32), np.empty(start[-1], np.int32), np.empty(start[-1], np.int32)
            before, now = np.zeros(start[-1], np.bool_), np.zeros(start[-1], np.bool_)
        current = np.full(len(topic.home), -1, np.int64)
        last_assumed = assumed[assumed < NEVER].max() if (assumed < NEVER).any() else -1
        for i in range(len(updates.t)):
            client = updates.client[i]
            home, last = topic.home[client], current[client]
            version = updates.row[i] if updates.kind[i] == SUBSCRIPTION else last
            current[client] = version
            concerns = _others(topic.sub_held, last, home) or _others(topic.sub_held, version, home)
            if not concerns and i > last_assumed:
                continue
            for broker in range(brokers):
                was, meets = _bit(topic.sub_held, last, broker), _bit(topic.sub_held, version, broker)
                pair = broker * brokers + home
                if broker == home or (event_start[pair] == event_start[pair + 1] and assumed[pair] == NEVER):
                    continue
                if was or meets:
                    at = filled[pair]
                    filled[pair] += 1
                    if not counting:
                        t[at], kind[at], row[at] = updates.t[i], updates.kind[i], updates.row[i]
                        before[at], now[at] = was, meets
                if assumed[pair] == i:
                    if not counting:
                        t[filled[pair]], kind[filled[pair]], row[filled[pair]] = updates.t[i], ASSUMPTION, -1
                    filled[pair] += 1
    return PairUpdates(start, t, kind, row, before, now)
