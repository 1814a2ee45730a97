"""The rules of formation, sentence by sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.groups.formation import (
    Candidate,
    LatencyMeans,
    Negotiation,
    follows,
    leaves,
    nearest_leader,
    negotiate,
    outranks,
    settled,
)

A, B, C = BrokerId("a"), BrokerId("b"), BrokerId("c")
candidates = st.builds(
    Candidate, st.sampled_from([BrokerId(name) for name in "abcdefgh"]), st.integers(0, 3), st.integers(1, 3)
)


def test_the_leader_with_the_higher_measure_becomes_the_leader_of_the_joint_group() -> None:
    assert negotiate(Candidate(A, 1.0, 9), [Candidate(B, 2.0, 1)]) == Negotiation(B, (A,))
    assert negotiate(Candidate(A, 2.0, 1), [Candidate(B, 1.0, 9)]) == Negotiation(A, (B,))


def test_of_equal_measures_the_larger_group_leads_and_of_equal_groups_the_smaller_id() -> None:
    assert negotiate(Candidate(A, 1.0, 1), [Candidate(B, 1.0, 2)]).leader == B
    assert negotiate(Candidate(A, 1.0, 2), [Candidate(B, 1.0, 2)]).leader == A
    assert negotiate(Candidate(B, 1.0, 2), [Candidate(A, 1.0, 2)]).leader == A


def test_the_asked_one_joins_its_best_requester_alone_or_all_requesters_join_it() -> None:
    requesters = [Candidate(B, 2.0, 1), Candidate(C, 3.0, 1)]
    assert negotiate(Candidate(A, 1.0, 1), requesters) == Negotiation(C, (A,))
    assert negotiate(Candidate(A, 4.0, 1), requesters) == Negotiation(A, (B, C))


@given(st.lists(candidates, min_size=2, max_size=8, unique_by=lambda c: c.id))
def test_a_negotiation_is_won_by_the_one_nobody_outranks(everyone: list[Candidate]) -> None:
    asked, *requesters = everyone
    verdict = negotiate(asked, requesters)
    winner = next(c for c in everyone if c.id == verdict.leader)
    assert not any(outranks(other, winner) for other in everyone if other is not winner)
    assert winner.id not in verdict.joiners
    assert set(verdict.joiners) == ({asked.id} if winner is not asked else {r.id for r in requesters})


@given(candidates, candidates)
def test_exactly_one_of_two_leaders_outranks_the_other(one: Candidate, other: Candidate) -> None:
    if one.id != other.id:
        assert outranks(one, other) != outranks(other, one)


@pytest.mark.parametrize(("latency_ms", "joins"), [(None, False), (4.9, True), (5.0, False), (5.1, False)])
def test_a_broker_joins_below_the_threshold_only(latency_ms: float | None, joins: bool) -> None:
    assert follows(latency_ms, 5.0) is joins


@pytest.mark.parametrize(("latency_ms", "goes"), [(None, False), (7.5, False), (7.6, True)])
def test_a_member_leaves_above_the_threshold_only(latency_ms: float | None, goes: bool) -> None:
    assert leaves(latency_ms, 7.5) is goes


def test_the_nearest_leader_below_the_threshold_is_asked() -> None:
    assert nearest_leader([(C, 4.0), (B, 3.0), (A, None)], 5.0) == (B, 3.0)
    assert nearest_leader([(B, 3.0), (A, 3.0)], 5.0) == (A, 3.0)
    assert nearest_leader([(A, 5.0)], 5.0) is None
    assert nearest_leader([], 5.0) is None


def test_formation_is_settled_when_leaders_are_apart_and_members_near() -> None:
    ms = {frozenset((A, B)): 3.0, frozenset((A, C)): 9.0, frozenset((B, C)): 9.0}

    def latency(one: BrokerId, other: BrokerId) -> float:
        return ms[frozenset((one, other))]

    assert settled({A: A, B: A, C: C}, latency, 5.0)
    assert not settled({A: A, B: B, C: C}, latency, 5.0)
    assert not settled({A: A, B: A, C: A}, latency, 5.0)
    assert not settled({A: B, B: A, C: C}, latency, 5.0)


def test_the_latency_is_the_mean_of_the_last_probes() -> None:
    means = LatencyMeans(3)
    assert means.mean(A) is None
    for ms in (100.0, 1.0, 2.0, 3.0):
        means.add(A, ms)
    assert means.mean(A) == 2.0
    means.forget(A)
    assert means.mean(A) is None
