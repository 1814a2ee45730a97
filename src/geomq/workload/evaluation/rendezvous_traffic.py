"""`georendezvous` around its kernel: one topic's events by publisher's broker, subscription updates, and refreshes.

Owns what of the strategy needs no replay. Homes repeat their interest to all brokers that hold any of their
subscriptions, whatever the topic, so topics say since when that is, and the repetitions are counted at the end.
"""

import numpy as np
from numpy.typing import NDArray

from geomq.workload.evaluation.georendezvous_kernel import (
    SUBSCRIBED,
    TOLD,
    Interests,
    Published,
    nothing_learned,
    run_publisher,
)
from geomq.workload.evaluation.kernel_messages import Tally
from geomq.workload.evaluation.rendezvous_places import OPTIONS, Rendezvous
from geomq.workload.evaluation.sent import CONTROL, GEORENDEZVOUS, SUBSCRIPTION
from geomq.workload.evaluation.topic import FOREVER, TopicData
from geomq.workload.evaluation.views import ViewTable
from geomq.workload.world import CLIENT_MS

Ints = NDArray[np.int32]
Firsts = NDArray[np.int64]


def run_georendezvous(
    topic: TopicData,
    publishers: Ints,
    clients: Ints,
    found: Ints,
    places: Rendezvous,
    table: ViewTable,
    tally: Tally,
) -> Firsts:
    """Add one topic; returns since when homes have holders, as `no_firsts` lays it out."""
    _count_updates(topic, places, table, tally)
    interests, firsts = _interests(topic, clients, places, table)
    order = np.lexsort((publishers, topic.event_t, topic.event_home))
    first = np.searchsorted(found[:, 0], np.arange(len(order) + 1))
    home = topic.event_home[order]
    for publisher in np.unique(home).tolist():
        mine = order[np.searchsorted(home, publisher) : np.searchsorted(home, publisher, side="right")]
        events = Published(topic.event_t[mine], publishers[mine], first[mine], first[mine + 1], found)
        learned = nothing_learned(len(mine), len(places.near))
        run_publisher(publisher, events, interests, places, table, tally, learned)
    return firsts


def _count_updates(topic: TopicData, places: Rendezvous, table: ViewTable, tally: Tally) -> None:
    """Every subscription update goes to the holders."""
    made = np.bincount(topic.home[topic.sub_client], minlength=len(places.near))
    for home in np.flatnonzero(made).tolist():
        for holder in places.near[home][places.near[home] >= 0].tolist():
            tally.sent[GEORENDEZVOUS, SUBSCRIPTION, home, holder] += made[home]
            tally.sent_updates[GEORENDEZVOUS, table.latency[home, holder]] += made[home]


def _interests(topic: TopicData, clients: Ints, places: Rendezvous, table: ViewTable) -> tuple[Interests, Firsts]:
    """When which broker first learns of a home's interest."""
    rows: list[tuple[int, ...]] = []
    firsts = no_firsts(len(places.near))
    home_of = topic.home[topic.sub_client]
    for home in np.unique(home_of).tolist():
        mine = np.flatnonzero(home_of == home)
        version = mine[np.lexsort((topic.sub_client[mine], topic.sub_t[mine]))[0]]
        t, client = int(topic.sub_t[version]), int(clients[topic.sub_client[version]])
        tick = t + CLIENT_MS
        rows.append((tick, SUBSCRIBED, client, t, home, home))
        firsts[home, -1] = min(firsts[home, -1], tick)
        for holder in places.near[home][places.near[home] >= 0].tolist():
            arrival = tick + int(table.latency[home, holder])
            rows.append((arrival, TOLD, client, t, holder, home))
            firsts[home, holder] = tick
            firsts[holder, -1] = min(firsts[holder, -1], arrival)
    columns = np.array(rows, np.int32).reshape(-1, len(Interests._fields)).T
    return Interests(*(np.ascontiguousarray(column) for column in columns)), firsts


def no_firsts(brokers: int) -> Firsts:
    """By home and holder since when the holder has a subscription; in the last column since when there is interest."""
    return np.full((brokers, brokers + 1), FOREVER, np.int64)


def count_refreshes(firsts: Firsts, end_ms: int, tally: Tally) -> None:
    """Add the repetitions of interest that fall into the time of the workload."""
    every = int(OPTIONS.refresh_ms)
    brokers = len(firsts)
    for home in range(brokers):
        for tick in range(int(firsts[home, -1]) + every, end_ms, every):
            tally.sent[GEORENDEZVOUS, CONTROL, home] += firsts[home, :brokers] < tick
