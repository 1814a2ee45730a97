"""Evaluate a workload in one process: every strategy at once, topic by topic.

Owns the walk over topics and the sum of their tallies. The Spark engine runs the same `evaluate_topic` and adds up
the same tallies, so both give identical numbers. Refuses to print or to write anything.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from geomq.mqtt.codec.topics import first_level
from geomq.routing.strategies.ring import HashRing
from geomq.workload.evaluation import pair_rows, sent, told_moves
from geomq.workload.evaluation.adaptive_kernel import run_adaptive
from geomq.workload.evaluation.clairvoyant import run_clairvoyant
from geomq.workload.evaluation.digests_kernel import run_digests
from geomq.workload.evaluation.kernel import Scratch, evaluate_events
from geomq.workload.evaluation.kernel_index import build_fences, build_states
from geomq.workload.evaluation.kernel_messages import (
    CLIENTS_MS,
    PATTERNS,
    STRATEGIES,
    Counts,
    Tally,
    count_moves,
    count_updates,
)
from geomq.workload.evaluation.mesh_floods import Floods, MeshTimeline
from geomq.workload.evaluation.moves import moves_of
from geomq.workload.evaluation.packed import KIND_BITS, Records, in_client_order, pack, pieces
from geomq.workload.evaluation.pair_traffic import PairEvents, events_of, updates_of
from geomq.workload.evaluation.rendezvous_places import Rendezvous, RendezvousMap
from geomq.workload.evaluation.rendezvous_traffic import Firsts, count_refreshes, no_firsts, run_georendezvous
from geomq.workload.evaluation.results import Outcome, Run
from geomq.workload.evaluation.summary import summarise
from geomq.workload.evaluation.topic import FOREVER, TopicData, TopicPlaces, lay_out
from geomq.workload.evaluation.views import (
    VIEWS,
    histogram_size,
    no_mesh_paths,
    view_table,
    with_near,
    with_topic_broker,
)
from geomq.workload.model import Block, Kind, Spec
from geomq.workload.world import World

PACK_BLOCKS = 10


class Evaluator:
    """Everything about a world and a workload that topics have in common, and the tally they add to."""

    def __init__(self, world: World, spec: Spec, *, paper: bool, mesh: MeshTimeline | None = None) -> None:
        self._world = world
        self._paper = paper
        self._end_ms = spec.end_ms
        self._last_clients = np.cumsum(spec.homes(world))
        self._names = spec.topic_names()
        self._ring = HashRing([place.name for place in world.places])
        self._table = view_table(world, paper=paper)
        self._learned = learned(world, spec, paper=paper)
        self._floods = None if mesh is None or paper else Floods(mesh, self._table.latency)
        longest_ms = 0 if mesh is None else mesh.longest_ms
        self.tally = empty_tally(len(world), histogram_size(self._table, longest_ms), len(self._table.group_leader))
        self._rendezvous = RendezvousMap(world)
        self.firsts = no_firsts(len(world))
        self.told_moves: list[told_moves.Rows] = []
        self.pairs: dict[int, list[pair_rows.PairRows]] = {}
        """By pair what `digests` is replayed from when all topics are there."""

    def evaluate_topic(self, topic: int, records: Records) -> None:
        """Add one whole topic, its records in client order."""
        wanted_at = self._note_interest(records)
        data, places = lay_out(records, self._world, self._last_clients, wanted_at, paper=self._paper)
        table = with_topic_broker(self._table, self._owner(self._names[topic]))
        rendezvous = None
        if "georendezvous" in self._learned:
            rendezvous = self._rendezvous.of_topic(self._names[topic])
            with_near(table, rendezvous.near)
        if self._floods is not None:
            table = table._replace(ways=self._floods.of_topic(data.event_t, data.event_home, self.tally))
        else:
            table = table._replace(ways=no_mesh_paths(len(data.event_t), len(self._world)))
        count_updates(data, table, self.tally)
        reach = data.event_circle[:, 2][np.isfinite(data.event_circle[:, 2])]
        typical = float(reach.mean()) if len(reach) else 1.0
        states = build_states(data, places, typical)
        sub_reach = float(data.publisher_circle[:, 2].max(initial=0.0))
        fences = build_fences(data, places, sub_reach if np.isfinite(sub_reach) else 30.0)
        scratch = Scratch(empty_counts(len(self._world)), np.full(len(data.home), -1, np.int64))
        found = evaluate_events(data, states, fences, table, self.tally, scratch)
        if not self._paper:
            self._deliver_at_home(data, found)
            events = events_of(data, found, len(self._world))
            run_clairvoyant(events, self.tally)
        if self._floods is not None:
            self._floods.count(data.event_home, table.ways, found, self.tally)
        if "digests" in self._learned:
            for pair, rows in pair_rows.rows_of(topic, records, data, found, len(self._world)):
                self.pairs.setdefault(pair, []).append(rows)
        if self._learned:
            self._replay(records, data, places, found, events, rendezvous)

    def _replay(
        self,
        records: Records,
        data: TopicData,
        places: TopicPlaces,
        found: NDArray[np.int32],
        events: PairEvents,
        rendezvous: Rendezvous | None,
    ) -> None:
        """Add the strategies that learn from a topic's traffic."""
        kind = records["when"] & ((1 << KIND_BITS) - 1)
        clients = np.unique(records["client"][kind == Kind.SUBSCRIPTION])
        publishers = records["client"][kind == Kind.EVENT]
        told = np.zeros((len(data.loc_t), data.sub_held.shape[1]), np.uint64)
        updates = updates_of(data, places, events, len(self._world))
        run_adaptive(events, updates, self._table, self.tally, told)
        self.told_moves.append(told_moves.rows_of(data, clients, told))
        if rendezvous is not None:
            first = run_georendezvous(data, publishers, clients, found, rendezvous, self._table, self.tally)
            np.minimum(self.firsts, first, out=self.firsts)

    def _deliver_at_home(self, data: TopicData, found: NDArray[np.int32]) -> None:
        """A publisher's broker always serves its own clients."""
        own = found[found[:, 1] == data.event_home[found[:, 0]]]
        self.tally.sent_delays[:, CLIENTS_MS] += own[:, 2 + PATTERNS // 2 : 2 + PATTERNS].sum()

    def add(self, tally: Tally, firsts: Firsts) -> None:
        """Add what another evaluator of the same workload counted."""
        for total, part in zip(self.tally, tally, strict=True):
            total += part
        np.minimum(self.firsts, firsts, out=self.firsts)

    def add_told_moves(self, rows: Sequence[told_moves.Rows]) -> None:
        """Add the moves of some clients that topics sent to brokers; a move's rows come together."""
        told_moves.add_rows(rows, self.tally.sent[sent.ADAPTIVE, sent.LOCATION])

    def add_pair(self, pair: int, parts: Sequence[pair_rows.PairRows]) -> None:
        """Add what one pair of brokers sends under `digests`, with the rows of all topics."""
        publisher, home = divmod(pair, len(self._world))
        run_digests(pair_rows.in_order(parts), publisher, home, self._table.latency, self.tally)

    def finished(self) -> Tally:
        """The tally, when everything is in it."""
        count_refreshes(self.firsts, self._end_ms, self.tally)
        if self._floods is not None:
            self.tally.sent[sent.MESH, sent.CONTROL] += self._floods.timeline.control
        return self.tally

    def add_moves(self, blocks: Sequence[Block]) -> None:
        """Add the location updates of some clients; they concern all topics of a client at once."""
        if not self._paper:
            for block in blocks:
                count_moves(moves_of(block, self._world, self._owners, self._near), self.tally)

    @cached_property
    def _owners(self) -> NDArray[np.int32]:
        """The broker each topic hashes to."""
        return np.array([self._owner(name) for name in self._names], np.int32)

    @cached_property
    def _near(self) -> NDArray[np.int32]:
        """By topic and home the brokers that hold subscriptions under `georendezvous`."""
        if "georendezvous" not in self._learned:
            return np.empty((0, 0, 0), np.int32)
        return np.stack([self._rendezvous.of_topic(name).near for name in self._names])

    def _owner(self, topic: str) -> int:
        return self._ring.owner(first_level(topic) or "")

    def _note_interest(self, records: Records) -> NDArray[np.int64]:
        """When each broadcast group's wish for a topic is known at the cloud; counts the messages for it."""
        groups, leaders = self._table.group, self._table.group_leader
        best: list[tuple[int, int, int, int, int]] = [(FOREVER, 0, 0, 0, -1)] * len(leaders)
        rows = np.flatnonzero((records["when"] & ((1 << KIND_BITS) - 1)) == Kind.SUBSCRIPTION)
        home = np.searchsorted(self._last_clients, records["client"][rows], side="right")
        sent = records["when"][rows] >> KIND_BITS
        for broker in np.unique(home).tolist():
            mine = np.flatnonzero(home == broker)
            first = mine[np.argmin(sent[mine])]
            t, client, leader = int(sent[first]), int(records["client"][rows[first]]), int(self._table.leader[broker])
            self.tally.interested[broker] += 1
            # At the leader, what members send comes before what its own clients send in the same tick.
            told = (t + int(self._table.latency[broker, leader]), int(broker == leader), client, t, broker)
            best[groups[broker]] = min(best[groups[broker]], told)
        for _, _, _, _, broker in best:
            if broker >= 0:
                self.tally.group_interested[broker] += 1
        at = [t + int(self._table.to_cloud[broker]) if broker >= 0 else FOREVER for _, _, _, t, broker in best]
        return np.array(at, np.int64)


def evaluate(world: World, spec: Spec, seed: int, *, paper: bool, mesh: MeshTimeline | None = None) -> Tally:
    """The tally of a whole workload, without Spark."""
    evaluator = Evaluator(world, spec, paper=paper, mesh=mesh)
    parts: dict[int, list[Records]] = {}
    count = spec.block_count(world)
    for first in range(0, count, PACK_BLOCKS):
        blocks = [spec.block(world, seed, n) for n in range(first, min(first + PACK_BLOCKS, count))]
        evaluator.add_moves(blocks)
        for topic, records in pieces(pack(blocks)):
            parts.setdefault(topic, []).append(records)
    for topic in sorted(parts):
        evaluator.evaluate_topic(topic, in_client_order(np.concatenate(parts.pop(topic))))
    evaluator.add_told_moves(evaluator.told_moves)
    for pair in sorted(evaluator.pairs):
        evaluator.add_pair(pair, evaluator.pairs.pop(pair))
    return evaluator.finished()


def learned(world: World, spec: Spec, *, paper: bool) -> tuple[str, ...]:
    """Which strategies that learn from their traffic are evaluated too; the published comparison has none."""
    return () if paper else sent.evaluated(spec.topic_names(), len(world))


def evaluate_locally(
    run: Run, world: World, spec: Spec, seed: int, paper: bool, mesh: MeshTimeline | None = None
) -> Outcome:
    """The outcome of a run, computed in this process."""
    tally = evaluate(world, spec, seed, paper=paper, mesh=mesh)
    return outcome_of(run, world, spec, tally, paper=paper, mesh=mesh is not None)


def outcome_of(run: Run, world: World, spec: Spec, tally: Tally, *, paper: bool, mesh: bool = False) -> Outcome:
    """What a tally says, by strategy."""
    names = learned(world, spec, paper=paper) + (("mesh",) if mesh and not paper else ())
    strategies = summarise(tally, view_table(world, paper=paper), learned=names)
    places = [(place.name, place.lat, place.lon) for place in world.places]
    return Outcome(run, places, int(tally.published.sum()), int(tally.subscribed.sum()), strategies)


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
        interested=zeros(brokers),
        group_interested=zeros(brokers),
        located=zeros(brokers),
        location_pairs=zeros(*pairs),
        topic_locations=zeros(*pairs),
        sent=zeros(sent.STRATEGIES, sent.KINDS, *pairs),
        sent_delays=zeros(sent.STRATEGIES, histogram),
        sent_updates=zeros(sent.STRATEGIES, 2 * histogram),
        sent_useful=zeros(sent.STRATEGIES),
    )


def empty_counts(brokers: int) -> Counts:
    return Counts(
        sure=np.zeros(brokers, np.int64),
        seen=np.zeros((VIEWS + 1, brokers), np.int64),
        first=np.zeros((2, brokers), np.int64),
        homes=np.zeros(brokers, np.int64),
        marked=np.zeros(brokers, np.bool_),
        size=np.zeros(1, np.int64),
        pattern=np.zeros((PATTERNS, brokers), np.int64),
        group_hit=np.zeros(brokers, np.bool_),
        relay_used=np.zeros(brokers, np.bool_),
        since=np.full(brokers, FOREVER, np.int32),
    )
