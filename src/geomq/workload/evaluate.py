"""Evaluate a workload in one process: every strategy at once, topic by topic.

Owns the walk over topics and the sum of their tallies. The Spark engine runs the same `evaluate_topic` and adds up
the same tallies, so both give identical numbers. Refuses to print or to write anything.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from geomq.workload.kernel import Scratch, evaluate_events
from geomq.workload.kernel_index import build_index, build_states
from geomq.workload.kernel_messages import STRATEGIES, Counts, Tally, count_updates
from geomq.workload.model import Spec
from geomq.workload.packed import Records, in_client_order, pack, pieces
from geomq.workload.ring import HashRing
from geomq.workload.topic import lay_out
from geomq.workload.views import VIEWS, histogram_size, view_table, with_topic_broker
from geomq.workload.world import World

PACK_BLOCKS = 10


class Evaluator:
    """Everything about a world and a workload that topics have in common, and the tally they add to."""

    def __init__(self, world: World, spec: Spec, *, paper: bool) -> None:
        self._world = world
        self._paper = paper
        self._last_clients = np.cumsum(spec.homes(world))
        self._names = spec.topic_names()
        self._ring = HashRing([place.name for place in world.places])
        self._table = view_table(world)
        self.tally = empty_tally(len(world), histogram_size(self._table), len(self._table.group_leader))

    def evaluate_topic(self, topic: int, records: Records) -> None:
        """Add one whole topic, its records in client order."""
        data, places = lay_out(records, self._world, self._last_clients, paper=self._paper)
        table = with_topic_broker(self._table, self._ring.owner(self._names[topic]))
        count_updates(data, table, self.tally)
        reach = data.event_reach[np.isfinite(data.event_reach)]
        typical = float(reach.mean()) if len(reach) else 1.0
        states = build_states(data, places, typical)
        sub_reach = float(data.sub_reach[0])
        fences = build_index(places.sub_lat, places.sub_lon, sub_reach if np.isfinite(sub_reach) else 30.0)
        scratch = Scratch(empty_counts(len(self._world)), np.full(len(data.home), -1, np.int64))
        evaluate_events(data, states, fences, table, self.tally, scratch)


def evaluate(world: World, spec: Spec, seed: int, *, paper: bool) -> Tally:
    """The tally of a whole workload, without Spark."""
    evaluator = Evaluator(world, spec, paper=paper)
    parts: dict[int, list[Records]] = {}
    count = spec.block_count(world)
    for first in range(0, count, PACK_BLOCKS):
        blocks = [spec.block(world, seed, n) for n in range(first, min(first + PACK_BLOCKS, count))]
        for topic, records in pieces(pack(blocks)):
            parts.setdefault(topic, []).append(records)
    for topic in sorted(parts):
        evaluator.evaluate_topic(topic, in_client_order(np.concatenate(parts.pop(topic))))
    return evaluator.tally


def empty_tally(brokers: int, histogram: int, groups: int) -> Tally:
    def zeros(*shape: int) -> NDArray[np.int64]:
        return np.zeros(shape, np.int64)

    pairs = (brokers, brokers)
    return Tally(
        delays=zeros(STRATEGIES, histogram),
        told=zeros(STRATEGIES, *pairs),
        useful=zeros(STRATEGIES),
        needed=zeros(*pairs),
        relayed=zeros(brokers, groups),
        published=zeros(brokers),
        subscribed=zeros(brokers),
        event_pairs=zeros(*pairs),
        subscription_pairs=zeros(*pairs),
        topic_events=zeros(*pairs),
        topic_subscriptions=zeros(*pairs),
    )


def empty_counts(brokers: int) -> Counts:
    return Counts(
        sure=np.zeros(brokers, np.int64),
        seen=np.zeros((VIEWS, brokers), np.int64),
        first=np.zeros((2, brokers), np.int64),
        homes=np.zeros(brokers, np.int64),
        marked=np.zeros(brokers, np.bool_),
        size=np.zeros(1, np.int64),
        group_hit=np.zeros(brokers, np.bool_),
        relay_used=np.zeros(brokers, np.bool_),
    )


def add_tallies(tallies: Iterable[Tally], start: Tally) -> Tally:
    """The sum of tallies, added into `start`."""
    for tally in tallies:
        for total, part in zip(start, tally, strict=True):
            total += part
    return start
