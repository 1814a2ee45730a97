"""The vectorised formation against the rules of the core, and the paper's statements on small worlds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.errors import UsageError
from geomq.reproduction.groups.formation import REQUEST_PROBABILITY, Formation
from geomq.reproduction.groups.latency import Numbers, latency_ms, measured_ms, space_of
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.groups.formation import Candidate, follows, nearest_leader, negotiate, settled
from geomq.routing.strategies.groups.greedy import greedy_groups

World = tuple[list[float], list[float], list[int]]


@st.composite
def worlds(draw: st.DrawFn, *, distinct: bool = False) -> World:
    """Up to 14 brokers in a small region, with few different measures so that ties are common."""
    count = draw(st.integers(1, 14))
    spots = st.tuples(st.floats(-9, 9), st.floats(-9, 9))
    places = draw(st.lists(spots, min_size=count, max_size=count, unique_by=lambda p: (round(p[0], 3), round(p[1], 3))))
    measures = (
        st.permutations(range(count)) if distinct else st.lists(st.integers(1, 4), min_size=count, max_size=count)
    )
    return [lat for lat, _ in places], [lon for _, lon in places], list(draw(measures))


class RuleByRule:
    """The same ticks, one leader at a time, asking the rules of the core for everything."""

    def __init__(self, world: World, join_ms: float, seed: int) -> None:
        self.space = space_of(world[0], world[1])
        self.ids = [BrokerId(f"{number:03}") for number in range(len(world[0]))]
        self.lcm = dict(zip(self.ids, world[2], strict=True))
        self.join_ms = join_ms
        self.leader_of = {broker: broker for broker in self.ids}
        self.rng = np.random.Generator(np.random.Philox(key=[seed, 0xF0124]))
        self.joins = self.member_joins = self.notifications = self.ticks = 0

    def ms(self, a: BrokerId, b: BrokerId) -> float:
        return latency_ms(self.space, int(a), int(b))

    def candidate(self, leader: BrokerId) -> Candidate:
        return Candidate(leader, self.lcm[leader], list(self.leader_of.values()).count(leader))

    def tick(self) -> None:
        self.ticks += 1
        leaders = [b for b in self.ids if self.leader_of[b] == b]
        nearest = {
            leader: nearest_leader([(o, self.ms(leader, o)) for o in leaders if o != leader], self.join_ms)
            for leader in leaders
        }
        asked: dict[BrokerId, list[BrokerId]] = {}
        askers = set()
        for leader, dice in zip(leaders, self.rng.random(len(leaders)), strict=True):
            target = nearest[leader]
            if dice < REQUEST_PROBABILITY and target is not None:
                askers.add(leader)
                asked.setdefault(target[0], []).append(leader)
        verdicts = [
            negotiate(self.candidate(leader), [self.candidate(r) for r in requesters])
            for leader, requesters in asked.items()
            if leader not in askers
        ]
        joins = {joiner: verdict.leader for verdict in verdicts for joiner in verdict.joiners}
        for member in [b for b in self.ids if self.leader_of[b] != b and self.leader_of[b] in joins]:
            self.notifications += 1
            proposed = joins[self.leader_of[member]]
            near = follows(self.ms(member, proposed), self.join_ms)
            self.member_joins += near
            self.leader_of[member] = proposed if near else member
        self.leader_of.update(joins)
        self.joins += len(joins)


@settings(max_examples=150)
@given(world=worlds(), join_ms=st.sampled_from([2.0, 5.0, 10.0, 20.0]), seed=st.integers(0, 1000))
def test_vectorised_ticks_are_the_rules_of_the_core_tick_by_tick(world: World, join_ms: float, seed: int) -> None:
    vectorised = Formation(space_of(world[0], world[1]), world[2], join_ms, seed=seed)
    reference = RuleByRule(world, join_ms, seed)
    while not vectorised.tick():
        reference.tick()
        assert [int(reference.leader_of[b]) for b in reference.ids] == vectorised.leader_of.tolist()
    assert settled(reference.leader_of, reference.ms, join_ms)
    counts = vectorised.counts
    assert (counts.ticks, counts.leader_joins) == (reference.ticks, reference.joins)
    assert (counts.member_joins, counts.notifications) == (reference.member_joins, reference.notifications)


@settings(max_examples=100)
@given(
    world=worlds(distinct=True), join_ms=st.sampled_from([2.0, 5.0, 10.0]), seeds=st.tuples(*[st.integers(0, 99)] * 2)
)
def test_who_leads_in_the_end_depends_on_places_and_measures_not_on_chance(
    world: World, join_ms: float, seeds: tuple[int, int]
) -> None:
    space = space_of(world[0], world[1])
    count = len(world[0])
    latency = np.array([[latency_ms(space, a, b) for b in range(count)] for a in range(count)])
    greedy = sorted(set(greedy_groups(latency, world[2], join_ms).tolist()))
    for seed in seeds:
        formation = Formation(space, world[2], join_ms, seed=seed)
        formation.run()
        assert formation.leaders.tolist() == greedy


def random_world(count: int, seed: int = 0) -> tuple[Numbers, Numbers, Numbers]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-20, 20, count), rng.uniform(-20, 20, count), rng.permutation(count).astype(float)


def form(count: int, join_ms: float, *, leave_ms: float | None = None) -> Formation:
    lats, lons, lcm = random_world(count)
    return Formation(space_of(lats, lons), lcm, join_ms, leave_ms=leave_ms)


def test_a_threshold_of_zero_is_cloud_relay_and_a_very_large_one_is_a_single_group() -> None:
    relay, flooding = form(100, 0.0), form(100, 500.0)
    relay.run()
    flooding.run()
    assert len(relay.leaders) == 100
    assert relay.stable_measurements() == 100 * 99
    assert len(flooding.leaders) == 1
    assert flooding.stable_measurements() == 99


def test_a_broker_that_comes_joins_a_leader_and_disturbs_nobody_else() -> None:
    formation = form(200, 20.0)
    weakest = int(np.argmin(formation.lcm))
    formation.depart([weakest])
    first = formation.run()
    before = formation.leader_of.copy()
    formation.arrive([weakest])
    cost = formation.run()
    changed = np.flatnonzero(formation.leader_of != before)
    assert changed.tolist() == [weakest]
    assert cost.leader_joins == 1
    assert cost.messages < first.messages / 50


def test_members_of_a_vanished_leader_form_anew_and_the_others_stay() -> None:
    formation = form(200, 20.0)
    first = formation.run()
    gone = int(formation.leaders[0])
    orphans = set(np.flatnonzero(formation.leader_of == gone).tolist()) - {gone}
    formation.depart([gone])
    cost = formation.run()
    assert gone not in formation.leader_of[formation.active]
    assert all(formation.leader_of[broker] != gone for broker in orphans)
    assert 0 < cost.messages < first.messages


def test_a_member_whose_leader_became_slow_leaves_it() -> None:
    formation = form(60, 15.0)
    formation.run()
    member = int(formation.members[0])
    formation.slow([member], 100.0)
    cost = formation.run()
    assert cost.departures == 1
    assert formation.leader_of[member] == member


def test_with_two_thresholds_a_member_between_them_stays() -> None:
    formation = form(60, 15.0, leave_ms=200.0)
    formation.run()
    before = formation.leader_of.copy()
    formation.slow(formation.members[:5], 100.0)
    formation.run()
    assert (formation.leader_of == before).all()


def test_the_mean_of_many_probes_is_nearer_to_the_truth_than_one_probe() -> None:
    lats, lons, _ = random_world(40)
    one, many = (space_of(lats, lons, noise=0.2, probes=probes, seed=3) for probes in (1, 20))
    pairs = [(a, b) for a in range(40) for b in range(40) if a != b]
    errors = [
        np.std([measured_ms(space, a, b, 50) / latency_ms(space, a, b) - 1 for a, b in pairs]) for space in (one, many)
    ]
    assert errors[0] == pytest.approx(0.2, rel=0.1)
    assert errors[1] == pytest.approx(0.2 / 20**0.5, rel=0.1)


def test_impossible_thresholds_and_noise_are_refused() -> None:
    with pytest.raises(UsageError, match="thresholds"):
        form(3, 20.0, leave_ms=10.0)
    with pytest.raises(UsageError, match="noise"):
        space_of([0.0], [0.0], noise=0.5)
    with pytest.raises(UsageError, match="probes"):
        space_of([0.0], [0.0], probes=0)
    with pytest.raises(UsageError, match="no stable groups after 1 ticks"):
        form(100, 20.0).run(ticks_max=1)
