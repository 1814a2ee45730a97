"""From matches to messages: what each strategy sends and delivers for one event.

Owns the rules of FIFO copies: which broker notifies which home, which copy arrives first, which message served nobody.
Given is, per view and home, how many subscribers match. Compiled by numba together with the kernel.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.workload.compiled import compiled
from geomq.workload.evaluation.sent import GEORENDEZVOUS, LOCATION
from geomq.workload.evaluation.topic import FOREVER, TopicData
from geomq.workload.evaluation.views import AT_PUBLISHER, CLOUD, COLUMN, DIRECT, PLACED, RELAYED, ROW, TOPIC, ViewTable

FLOOD_EVENTS = 0
FLOOD_SUBSCRIPTIONS = 1
DISGB_EVENTS = 2
DISGB_SUBSCRIPTIONS = 3
DHT = 4
GRID_QUORUM = 5
BROADCAST_GROUPS = 6
STRATEGIES = 7

CLIENTS_MS = 10
FAR = np.int32(2**31 - 1)
# Ways to match for a home as bits: its two rendezvous, the home itself.
PATTERNS = 8


class Moves(NamedTuple):
    """Location and subscription updates of some clients; `slot` numbers a client's topics, -1 for a location."""

    client: NDArray[np.int32]
    home: NDArray[np.int32]
    slot: NDArray[np.int32]
    lat_e7: NDArray[np.int32]
    lon_e7: NDArray[np.int32]
    mask: NDArray[np.uint64]
    topic_broker: NDArray[np.int32]
    near: NDArray[np.uint64]
    slots: int


class Counts(NamedTuple):
    """Matching subscribers of one event by home: agreed by all views, and seen by single views beyond that; and since
    when the first of those that match at home has been so."""

    sure: NDArray[np.int64]
    seen: NDArray[np.int64]
    first: NDArray[np.int64]
    homes: NDArray[np.int64]
    marked: NDArray[np.bool_]
    size: NDArray[np.int64]
    pattern: NDArray[np.int64]
    group_hit: NDArray[np.bool_]
    relay_used: NDArray[np.bool_]
    since: NDArray[np.int32]


class Tally(NamedTuple):
    """Everything counted, as whole numbers; tallies of parts add up to the tally of the whole.

    `delays[s, ms]` deliveries; `told[s, rendezvous, home]` delivery messages; `useful[s]` event and delivery messages
    that served a client; `needed[b, home]` what the oracle sends; `relayed[b, group]` events the cloud passed to a
    group; `published[b]`, `subscribed[b]` actions;
    `event_pairs`, `subscription_pairs` what disgb sends; `topic_events`, `topic_subscriptions` what dht sends;
    `interested[b]` topics a broker sends its group's leader, `group_interested[b]` those of which it is the first in
    its group; `located[b]` moves of clients with subscriptions, `location_pairs` and `topic_locations` where disgb and
    dht send them. Strategies counted message by message have `sent[s, kind, from, to]`, `sent_delays[s, ms]`
    (deliveries), `sent_updates[s, ms]` (subscription updates) and `sent_useful[s]` (messages that served a client).
    """

    delays: NDArray[np.int64]
    told: NDArray[np.int64]
    useful: NDArray[np.int64]
    needed: NDArray[np.int64]
    relayed: NDArray[np.int64]
    published: NDArray[np.int64]
    subscribed: NDArray[np.int64]
    event_pairs: NDArray[np.int64]
    subscription_pairs: NDArray[np.int64]
    topic_events: NDArray[np.int64]
    topic_subscriptions: NDArray[np.int64]
    interested: NDArray[np.int64]
    group_interested: NDArray[np.int64]
    located: NDArray[np.int64]
    location_pairs: NDArray[np.int64]
    topic_locations: NDArray[np.int64]
    sent: NDArray[np.int64]
    sent_delays: NDArray[np.int64]
    sent_updates: NDArray[np.int64]
    sent_useful: NDArray[np.int64]


@compiled
def tally_event(topic: TopicData, table: ViewTable, tally: Tally, counts: Counts, event: int) -> None:
    """Count what every strategy does for one event, and clear the counts for the next."""
    if not table.paper:
        wake_groups(topic, table, tally, counts, event)
    if counts.size[0] > 0:
        tally_sent_events(topic, table, tally, counts, event)
        tally_told_homes(topic, table, tally, counts, event)
        tally_topic_broker(topic, table, tally, counts, event)
        tally_grid(topic, table, tally, counts, event)
        tally_groups(topic, table, tally, counts, event)
        clear(counts)
    counts.group_hit[:] = False


@compiled
def wake_groups(topic: TopicData, table: ViewTable, tally: Tally, counts: Counts, event: int) -> None:
    """The cloud knows topics, not fences: it wakes every group that has said by then that it wants the topic."""
    publisher = topic.event_home[event]
    arrival = topic.event_t[event] + table.to_cloud[publisher]
    for group in range(len(table.group_leader)):
        if topic.wanted_at[group] <= arrival and group != table.group[publisher]:
            counts.group_hit[group] = True
            tally.relayed[publisher, group] += 1


@compiled
def clear(counts: Counts) -> None:
    for i in range(counts.size[0]):
        home = counts.homes[i]
        counts.sure[home] = 0
        counts.seen[:, home] = 0
        counts.first[:, home] = 0
        counts.pattern[:, home] = 0
        counts.marked[home] = False
        counts.since[home] = FOREVER
    counts.size[0] = 0


@compiled
def tally_sent_events(topic: TopicData, table: ViewTable, tally: Tally, counts: Counts, event: int) -> None:
    """flood_events and disgb_events: each home matches for itself."""
    publisher = topic.event_home[event]
    for i in range(counts.size[0]):
        home = counts.homes[i]
        found = counts.sure[home] + counts.seen[DIRECT, home]
        if found == 0:
            continue
        delay = table.latency[publisher, home] + CLIENTS_MS
        tally.delays[FLOOD_EVENTS, delay] += found
        if home != publisher:
            tally.useful[FLOOD_EVENTS] += 1
            tally.needed[publisher, home] += 1
        reached = (topic.event_to[event, home >> 6] >> np.uint64(home & 63)) & np.uint64(1)
        if reached != 0:
            tally.delays[DISGB_EVENTS, delay] += found
            tally.useful[DISGB_EVENTS] += home != publisher


@compiled
def tally_told_homes(topic: TopicData, table: ViewTable, tally: Tally, counts: Counts, event: int) -> None:
    """flood_subscriptions and disgb_subscriptions: the publisher's home matches and notifies the homes."""
    publisher = topic.event_home[event]
    for i in range(counts.size[0]):
        home = counts.homes[i]
        delay = table.latency[publisher, home] + CLIENTS_MS
        for strategy, view in ((FLOOD_SUBSCRIPTIONS, AT_PUBLISHER), (DISGB_SUBSCRIPTIONS, PLACED)):
            found = counts.sure[home] + counts.seen[view, home]
            if found > 0:
                tally.delays[strategy, delay] += found
                if home != publisher:
                    tally.told[strategy, publisher, home] += 1
                    tally.useful[strategy] += 1


@compiled
def tally_topic_broker(topic: TopicData, table: ViewTable, tally: Tally, counts: Counts, event: int) -> None:
    """dht: the topic's broker matches and notifies the homes."""
    publisher, meeting = topic.event_home[event], table.topic_broker[0]
    served = False
    for i in range(counts.size[0]):
        home = counts.homes[i]
        found = counts.sure[home] + counts.seen[TOPIC, home]
        if found > 0:
            served = True
            delay = table.latency[publisher, meeting] + table.latency[meeting, home] + CLIENTS_MS
            tally.delays[DHT, delay] += found
            if home != meeting:
                tally.told[DHT, meeting, home] += 1
                tally.useful[DHT] += 1
    tally.useful[DHT] += served and publisher != meeting


@compiled
def tally_grid(topic: TopicData, table: ViewTable, tally: Tally, counts: Counts, event: int) -> None:
    """grid_quorum: own row and column match for themselves, the others are notified from the row.

    The published code also notifies them from the column; whichever comes second is dropped.
    """
    publisher, side = topic.event_home[event], table.side
    row, column = publisher // side, publisher % side
    for i in range(counts.size[0]):
        home = counts.homes[i]
        if home // side == row or home % side == column:
            found = counts.sure[home] + counts.seen[DIRECT, home]
            if found > 0:
                tally.delays[GRID_QUORUM, table.latency[publisher, home] + CLIENTS_MS] += found
                mark_used(tally, counts, publisher, home)
            continue
        row_first = table.row_first[publisher, home] or not table.paper
        meet_twice = table.meeting[0, publisher, home] != table.meeting[1, publisher, home]
        for turn in range(2 if table.paper and meet_twice else 1):
            meeting, view = table.meeting[turn, publisher, home], ROW if turn == 0 else COLUMN
            if counts.sure[home] + counts.seen[view, home] == 0:
                continue
            tally.told[GRID_QUORUM, meeting, home] += 1
            sure = counts.sure[home] if row_first == (turn == 0) else 0
            served = sure + (counts.first[turn, home] if table.paper else counts.seen[view, home])
            if served > 0:
                delay = table.latency[publisher, meeting] + table.latency[meeting, home] + CLIENTS_MS
                tally.delays[GRID_QUORUM, delay] += served
                tally.useful[GRID_QUORUM] += 1
                mark_used(tally, counts, publisher, meeting)
    counts.relay_used[:] = False


@compiled
def mark_used(tally: Tally, counts: Counts, publisher: int, receiver: int) -> None:
    """The event's copy for this receiver served somebody; count it once."""
    if receiver != publisher and not counts.relay_used[receiver]:
        counts.relay_used[receiver] = True
        tally.useful[GRID_QUORUM] += 1


@compiled
def tally_groups(topic: TopicData, table: ViewTable, tally: Tally, counts: Counts, event: int) -> None:
    """broadcast_groups: the own group matches for itself, the cloud wakes the groups that match there."""
    publisher = topic.event_home[event]
    own, leader = table.group[publisher], table.leader[publisher]
    for i in range(counts.size[0]):
        home = counts.homes[i]
        group = table.group[home]
        found = counts.sure[home] + counts.seen[CLOUD, home]
        if table.paper and found > 0 and group != own and not counts.group_hit[group]:
            counts.group_hit[group] = True
            tally.relayed[publisher, group] += 1
    leader_used = False
    cloud_used = False
    for i in range(counts.size[0]):
        home = counts.homes[i]
        if table.group[home] == own:
            found = counts.sure[home] + counts.seen[DIRECT, home]
            delay = table.latency[publisher, home] + CLIENTS_MS
            leader_used |= found > 0 and home == leader
            tally.useful[BROADCAST_GROUPS] += found > 0 and home != publisher and home != leader
        elif counts.group_hit[table.group[home]]:
            found = counts.sure[home] + counts.seen[RELAYED, home]
            delay = table.to_cloud[publisher] + table.from_cloud[home] + CLIENTS_MS
            if found > 0:
                cloud_used = True
                counts.relay_used[table.group[home]] = True
                tally.useful[BROADCAST_GROUPS] += home != table.leader[home]
        else:
            found = 0
            delay = 0
        if found > 0:
            tally.delays[BROADCAST_GROUPS, delay] += found
    for group in range(len(counts.group_hit)):
        tally.useful[BROADCAST_GROUPS] += counts.group_hit[group] and counts.relay_used[group]
    counts.relay_used[:] = False
    tally.useful[BROADCAST_GROUPS] += cloud_used
    tally.useful[BROADCAST_GROUPS] += (leader_used or cloud_used) and leader != publisher


@compiled
def count_updates(topic: TopicData, table: ViewTable, tally: Tally) -> None:
    """Count what is sent whether or not anything matches: events and subscription updates."""
    meeting = table.topic_broker[0]
    for event in range(len(topic.event_t)):
        home = topic.event_home[event]
        tally.published[home] += 1
        tally.topic_events[home, meeting] += 1
        add_pairs(tally.event_pairs, home, topic.event_to, event)
    for version in range(len(topic.sub_t)):
        home = topic.home[topic.sub_client[version]]
        tally.subscribed[home] += 1
        tally.topic_subscriptions[home, meeting] += 1
        add_pairs(tally.subscription_pairs, home, topic.sub_told, version)


@compiled
def add_pairs(pairs: NDArray[np.int64], home: int, masks: NDArray[np.uint64], row: int) -> None:
    """One message from the home to every broker in the mask but itself."""
    for word in range(masks.shape[1]):
        bits = masks[row, word]
        broker = word << 6
        while bits != 0:
            if bits & np.uint64(1) != 0 and broker != home:
                pairs[home, broker] += 1
            bits >>= np.uint64(1)
            broker += 1


@compiled
def count_moves(moves: Moves, tally: Tally) -> None:
    """Where moves are sent, client by client: to every broker that holds one of the client's subscriptions.

    Rows are one client after the other, each in time order. A client that says it is where it was has not moved.
    """
    words = moves.mask.shape[1]
    held = np.zeros((moves.slots, words), np.uint64)
    topics, near = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    union = np.zeros((1, words), np.uint64)
    for row in range(len(moves.client)):
        home = moves.home[row]
        if row == 0 or moves.client[row] != moves.client[row - 1]:
            held[:] = 0
            topics[:] = 0
            near[:] = 0
            subscribed, lat, lon = False, FAR, FAR
        if moves.slot[row] >= 0:
            subscribed = True
            held[moves.slot[row]] = moves.mask[row]
            owner = moves.topic_broker[row]
            topics[owner >> 6] |= np.uint64(1) << np.uint64(owner & 63)
            near |= moves.near[row]
            continue
        moved = moves.lat_e7[row] != lat or moves.lon_e7[row] != lon
        lat, lon = moves.lat_e7[row], moves.lon_e7[row]
        if moved and subscribed:
            tally.located[home] += 1
            union[0] = topics
            add_pairs(tally.topic_locations, home, union, 0)
            union[0] = near
            add_pairs(tally.sent[GEORENDEZVOUS, LOCATION], home, union, 0)
            union[:] = 0
            for slot in range(moves.slots):
                union[0] |= held[slot]
            add_pairs(tally.location_pairs, home, union, 0)
