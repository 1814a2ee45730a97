"""How broadcast groups form among thousands of brokers, tick by tick, without a message being sent.

Owns the rounds of the published simulation. The rules are those of `routing/strategies/groups/formation.py`, written
for all brokers at once; a test holds both to the same groups. Every broker starts as the leader of its own
group. In a tick

1. a member that measures its leader above the leave threshold starts its own group,
2. a leader asks, with probability 0.6, the nearest leader below the join threshold to merge,
3. a leader that was asked and did not ask joins its best requester if that outranks it, else its requesters join it;
   one that asked is busy and answers nobody,
4. a leader that joins notifies its members: who measures the new leader below the join threshold follows, the
   others start their own groups.
"""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geomq.errors import UsageError
from geomq.reproduction.groups.latency import Indexes, Numbers, Space, measured_pairs, nearest_leaders

REQUEST_PROBABILITY = 0.6
TICKS_MAX = 100_000
LEADER_JOIN_MESSAGES = 3
"""Request with the measure, reply with the proposal, join."""


@dataclass(slots=True)
class Counts:
    """What happened, and what it cost."""

    ticks: int = 0
    leader_joins: int = 0
    member_joins: int = 0
    notifications: int = 0
    splits: int = 0
    departures: int = 0
    requests: int = 0
    measurements: int = 0

    @property
    def messages(self) -> int:
        """Messages at the least: three for a leader that joins, two for a member, one for one that does not follow."""
        return LEADER_JOIN_MESSAGES * self.leader_joins + self.notifications + self.member_joins

    def since(self, before: "Counts") -> "Counts":
        return Counts(**{name: value - getattr(before, name) for name, value in asdict(self).items()})


class Formation:
    """The groups of one world and how they change."""

    def __init__(
        self, space: Space, lcm: ArrayLike, join_ms: float, *, leave_ms: float | None = None, seed: int = 0
    ) -> None:
        self.space = space
        self.lcm: Numbers = np.asarray(lcm, np.float64)
        self.join_ms = float(join_ms)
        self.leave_ms = float(join_ms if leave_ms is None else leave_ms)
        if not 0 <= self.join_ms <= self.leave_ms < np.inf:
            raise UsageError(f"the thresholds must be 0 <= join <= leave, not {join_ms:g} and {self.leave_ms:g} ms")
        self.leader_of: Indexes = np.arange(len(space.x))
        self.active: NDArray[np.bool_] = np.ones(len(space.x), bool)
        self.counts = Counts()
        self._now = 0
        self._rng = np.random.Generator(np.random.Philox(key=[seed, 0xF0124]))

    @property
    def leaders(self) -> Indexes:
        return np.flatnonzero(self.active & (self.leader_of == np.arange(len(self.leader_of))))

    @property
    def members(self) -> Indexes:
        return np.flatnonzero(self.active & (self.leader_of != np.arange(len(self.leader_of))))

    def stable_measurements(self) -> int:
        """Pairs to watch: every member its leader, every leader all the others."""
        leaders = len(self.leaders)
        return len(self.members) + leaders * (leaders - 1)

    def run(self, *, ticks_max: int = TICKS_MAX) -> Counts:
        """Go on until the groups are stable; the counts of this run alone."""
        before = Counts(**asdict(self.counts))
        while not self.tick():
            if self.counts.ticks - before.ticks >= ticks_max:
                raise UsageError(f"no stable groups after {ticks_max} ticks")
        return self.counts.since(before)

    def tick(self) -> bool:
        """One round; True, and nothing else but new probes, if the groups are stable at it."""
        now, self._now = self._now, self._now + 1
        far = self._beyond_leave(now)
        self.leader_of[far] = far
        leaders = self.leaders
        target = nearest_leaders(self.space, leaders, self.join_ms, now)
        if not len(far) and bool((target < 0).all()):
            return True
        self.counts.ticks += 1
        self.counts.departures += len(far)
        self.counts.measurements += self.stable_measurements()
        asks = (self._rng.random(len(leaders)) < REQUEST_PROBABILITY) & (target >= 0)
        self.counts.requests += int(asks.sum())
        self._merge(negotiated(leaders, target, asks, self.lcm, self._sizes()), now)
        return False

    def _beyond_leave(self, tick: int) -> Indexes:
        members = self.members
        measured = measured_pairs(self.space, members, self.leader_of[members], tick)
        return members[measured > self.leave_ms]

    def _sizes(self) -> Indexes:
        return np.bincount(self.leader_of[self.active], minlength=len(self.leader_of))

    def _merge(self, joined: Indexes, tick: int) -> None:
        """`joined` says per broker the leader it joins as a leader itself, or -1."""
        notified = self.members
        proposed = joined[self.leader_of[notified]]
        notified, proposed = notified[proposed >= 0], proposed[proposed >= 0]
        follows = measured_pairs(self.space, notified, proposed, tick) < self.join_ms
        self.leader_of[notified] = np.where(follows, proposed, notified)
        joining = np.flatnonzero(joined >= 0)
        self.leader_of[joining] = joined[joining]
        self.counts.leader_joins += len(joining)
        self.counts.notifications += len(notified)
        self.counts.member_joins += int(follows.sum())
        self.counts.splits += len(notified) - int(follows.sum())

    def arrive(self, brokers: ArrayLike) -> None:
        """Brokers that were away come, each as its own leader."""
        came = np.asarray(brokers, np.int64)
        self.active[came] = True
        self.leader_of[came] = came

    def depart(self, brokers: ArrayLike) -> None:
        """Brokers vanish; the members of a leader that did start their own groups."""
        gone = np.asarray(brokers, np.int64)
        self.active[gone] = False
        self.leader_of[gone] = gone
        orphans = self.members[~self.active[self.leader_of[self.members]]]
        self.leader_of[orphans] = orphans

    def slow(self, brokers: ArrayLike, access_ms: float) -> None:
        """The access of brokers takes this much longer from now on."""
        access = self.space.access_ms.copy()
        access[np.asarray(brokers, np.int64)] += access_ms
        self.space = self.space._replace(access_ms=access)


def negotiated(leaders: Indexes, target: Indexes, asks: NDArray[np.bool_], lcm: Numbers, sizes: Indexes) -> Indexes:
    """Who joins whom after all negotiations of a tick: per broker the leader it joins, or -1."""
    joined = np.full(len(lcm), -1)
    busy = np.zeros(len(lcm), bool)
    busy[leaders[asks]] = True
    requester, asked = leaders[asks], target[asks]
    requester, asked = requester[~busy[asked]], asked[~busy[asked]]
    if not len(asked):
        return joined
    order = np.lexsort((requester, -sizes[requester], -lcm[requester], asked))
    requester, asked = requester[order], asked[order]
    first = np.concatenate(([True], asked[1:] != asked[:-1]))
    best, host = requester[first], asked[first]
    wins = _outranks(best, host, lcm, sizes)
    joined[host[wins]] = best[wins]
    stays = np.zeros(len(lcm), bool)
    stays[host[~wins]] = True
    joined[requester[stays[asked]]] = asked[stays[asked]]
    return joined


def _outranks(one: Indexes, other: Indexes, lcm: Numbers, sizes: Indexes) -> NDArray[np.bool_]:
    """The higher measure, of equals the larger group, of those the lower number."""
    by_size = (sizes[one] > sizes[other]) | ((sizes[one] == sizes[other]) & (one < other))
    result: NDArray[np.bool_] = (lcm[one] > lcm[other]) | ((lcm[one] == lcm[other]) & by_size)
    return result
