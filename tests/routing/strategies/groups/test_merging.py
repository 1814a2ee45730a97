"""The live formation: Algorithm 1 of the paper, its thresholds, its failures, and that it always comes to an end."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.strategies.groups.groups_world import GroupWorld, OneBroker

from geomq.routing.core.actions import SendToPeer
from geomq.routing.core.events import FederationChanged, LatencyMeasured, PeerDown
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.groups.formation import settled
from geomq.routing.strategies.groups.messages import (
    CloudAnnounced,
    CloudPong,
    Dismissed,
    GroupView,
    Join,
    LeaderBeat,
    MergeNotice,
    MergeReply,
    MergeRequest,
)

A, B, C = BrokerId("a"), BrokerId("b"), BrokerId("c")
NEAR = {("a", "b"): 2.0, ("a", "c"): 2.0, ("b", "c"): 2.0}


def leader(members: str = "", *, lcm: float = 2.0, **latency_ms: float) -> OneBroker:
    """Broker `a`, leading members in term 1, with latencies to others; `b` has announced itself."""
    a = OneBroker("a", "b c m n", lcm=lcm)
    a.wake(0)
    for number, member in enumerate(members.split(), 1):
        a.hear(1, member, Join(1, ()))
        a.hear(2, "cloud", CloudPong(number))
    a.measure(**latency_ms)
    a.hear(3, "cloud", CloudAnnounced("DG/leaders", B, 1.0))
    a.transcript()
    return a


def member(**latency_ms: float) -> OneBroker:
    """Broker `a`, member of `b` in term 1."""
    a = leader()
    a.measure(b=4.0, **latency_ms)
    a.strategy.merge_into(B, now=4)
    a.strategy.take_actions()
    a.hear(5, "b", GroupView(1, 1, (A,)))
    a.transcript()
    return a


def test_every_broker_starts_as_the_leader_of_its_own_group_and_announces_itself() -> None:
    a = OneBroker("a", "b", lcm=2.0)
    a.wake(0)
    a.wake(500)
    assert (
        a.transcript()
        == """\
       0 a: deadline
           -> to cloud: CloudSubscribe topic_filter=DG/leaders
           -> to cloud: CloudAnnounce topic=DG/leaders leader=a lcm=2
     500 a: deadline
           -> to cloud: CloudAnnounce topic=DG/leaders leader=a lcm=2"""
    )


def test_merge_where_the_asked_one_leads_on() -> None:
    a = leader("m", lcm=2.0)
    a.hear(10, "b", MergeRequest(7, 1.0, 5))
    a.hear(14, "b", Join(3, ("t/#",)))
    a.hear(34, "cloud", CloudPong(2))
    assert (
        a.transcript()
        == """\
      10 a: from b: MergeRequest round=7 lcm=1 size=5
           -> to b: MergeReply round=7 leader=a
      14 a: from b: Join term=3 filters=[t/#]
           -> to cloud: CloudSubscribe topic_filter=t/#
           -> to cloud: CloudPing token=2
           -> to m: GroupView term=1 version=2 members=[m, b]
      34 a: from cloud: CloudPong token=2
           -> to b: GroupView term=3 version=2 members=[m, b]"""
    )


def test_merge_where_the_other_leads_notifies_the_members_and_joins() -> None:
    a = leader("m n", lcm=2.0, b=4.0)
    a.hear(10, "b", MergeRequest(7, 3.0, 1))
    a.hear(20, "b", GroupView(1, 5, (A, C)))
    assert (
        a.transcript()
        == """\
      10 a: from b: MergeRequest round=7 lcm=3 size=1
           -> to b: MergeReply round=7 leader=b
           -> to m: MergeNotice term=1 leader=b
           -> to n: MergeNotice term=1 leader=b
           -> to b: Join term=1
      20 a: from b: GroupView term=1 version=5 members=[a, c]
           -> to cloud: CloudUnsubscribe topic_filter=DG/leaders"""
    )


def test_a_leader_asks_the_nearest_below_the_threshold_and_joins_if_told_to() -> None:
    a = leader(b=4.0, c=4.5, m=9.0)
    for other in ("c", "m"):
        a.hear(100, "cloud", CloudAnnounced("DG/leaders", BrokerId(other), 1.0))
    a.wake(500)
    a.hear(508, "b", MergeReply(1, B))
    assert a.transcript().splitlines()[-5:] == [
        "     500 a: deadline",
        "           -> to cloud: CloudAnnounce topic=DG/leaders leader=a lcm=2",
        "           -> to b: MergeRequest round=1 lcm=2 size=1",
        "     508 a: from b: MergeReply round=1 leader=b",
        "           -> to b: Join term=1",
    ]


def test_a_leader_told_to_lead_waits_for_the_other_to_join() -> None:
    a = leader(b=4.0)
    a.wake(500)
    assert a.hear(508, "b", MergeReply(1, A)) == []
    assert a.strategy.leading


def test_a_notified_member_joins_the_new_leader_if_it_is_near() -> None:
    a = member(c=4.0)
    a.hear(10, "b", MergeNotice(1, C))
    a.hear(20, "c", GroupView(2, 3, (A,)))
    assert (
        a.transcript()
        == """\
      10 a: from b: MergeNotice term=1 leader=c
           -> to c: Join term=2
      20 a: from c: GroupView term=2 version=3 members=[a]
           -> to b: Leave term=1"""
    )


@pytest.mark.parametrize("latency_ms", [{}, {"c": 5.0}])
def test_a_notified_member_beyond_the_threshold_starts_its_own_group(latency_ms: dict[str, float]) -> None:
    a = member(**latency_ms)
    a.hear(10, "b", MergeNotice(1, C))
    a.hear(30, "cloud", CloudPong(1))
    assert (
        a.transcript()
        == """\
      10 a: from b: MergeNotice term=1 leader=c
           -> to cloud: CloudPing token=1
      30 a: from cloud: CloudPong token=1
           -> to b: Leave term=1"""
    )
    assert a.strategy.leading


def test_a_notified_member_turned_away_starts_its_own_group_at_the_next_notice() -> None:
    a = member(c=4.0)
    a.hear(10, "b", MergeNotice(1, C))
    a.hear(20, "c", Dismissed(2))
    assert a.strategy.seat.leader == "b"
    a.hear(500, "b", MergeNotice(1, C))
    a.hear(520, "cloud", CloudPong(1))
    assert a.strategy.leading


def test_a_leader_that_merges_no_more_is_followed_again() -> None:
    a = member(c=4.0)
    a.hear(10, "b", MergeNotice(1, C))
    a.hear(20, "c", Dismissed(2))
    a.hear(500, "b", LeaderBeat(1))
    assert SendToPeer(C, Join(3, ())) in a.hear(1000, "b", MergeNotice(1, C))


def test_a_leader_that_joined_another_repeats_its_notice_and_at_last_dismisses() -> None:
    a = leader("m", b=4.0)
    a.strategy.merge_into(B, now=10)
    a.strategy.take_actions()
    a.hear(20, "b", GroupView(1, 1, (A,)))
    a.strategy.members[BrokerId("m")].heard = math.inf
    a.strategy.seat.heard = math.inf
    assert SendToPeer(BrokerId("m"), MergeNotice(1, B)) in a.wake(500)
    assert SendToPeer(BrokerId("m"), Dismissed(1)) in a.wake(10_020)
    assert not a.strategy.members


def test_both_asking_at_once_agree() -> None:
    world = GroupWorld({"a": 1.0, "b": 1.0}, {}, request_probability=1.0, probes=1)
    world.run(2_100)
    world.latency_ms[frozenset("ab")] = 3.0
    world.run(5_000)
    assert world.sent["MergeRequest"] == 2
    assert world.sent["Join"] == 1
    assert world.groups() == {"a": ["b"]}


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (MergeRequest(1, 3.0, 1), None),  # asking b, so it cannot join c now
        (MergeRequest(1, 1.0, 1), "a"),  # but c may join it
    ],
)
def test_a_leader_that_is_asking_joins_nobody_else(request_: MergeRequest, answer: str | None) -> None:
    a = leader(b=4.0, c=4.5)
    a.wake(500)
    reply = MergeReply(1, None if answer is None else BrokerId(answer))
    assert a.hear(501, "c", request_) == [SendToPeer(C, reply)]


def test_a_leader_that_is_joining_merges_with_nobody() -> None:
    a = leader(b=4.0)
    a.strategy.merge_into(B, now=10)
    a.strategy.take_actions()
    assert a.hear(11, "c", MergeRequest(1, 1.0, 1)) == [SendToPeer(C, MergeReply(1, None))]
    assert a.hear(12, "c", Join(1, ())) == [SendToPeer(C, Dismissed(1))]


def test_nobody_joins_a_leader_it_has_not_measured_to_be_near() -> None:
    a = leader(c=5.0)
    for peer in ("b", "c"):
        assert a.hear(10, peer, MergeRequest(1, 9.0, 1)) == [SendToPeer(BrokerId(peer), MergeReply(1, None))]


def test_questions_and_moves_without_an_answer_are_given_up() -> None:
    a = leader("m", b=4.0)
    a.wake(500)
    a.hear(600, "m", Dismissed(1))
    assert a.strategy.asking is not None
    a.strategy.members[BrokerId("m")].heard = math.inf
    a.wake(2_500)
    assert a.strategy.asking is None
    a.strategy.merge_into(B, now=2_600)
    a.wake(4_600)
    assert a.strategy.leading
    assert a.strategy.members


@pytest.mark.parametrize("word", [MergeReply(2, B), MergeReply(1, C), MergeRequest(1, math.nan, 1), MergeNotice(1, C)])
def test_stale_and_strange_words_move_nobody(word: Message) -> None:
    a = leader(b=4.0, c=4.0)
    a.wake(500)
    a.hear(501, "b", word)
    a.hear(502, "stranger", MergeRequest(1, 9.0, 9))
    assert a.strategy.leading


def test_announcements_expire_and_strangers_are_not_believed() -> None:
    a = leader(b=4.0)
    a.hear(4, "cloud", CloudAnnounced("DG/leaders", BrokerId("stranger"), 1.0))
    a.hear(4, "cloud", CloudAnnounced("DG/leaders", A, 1.0))
    a.hear(4, "c", CloudAnnounced("DG/leaders", C, 1.0))
    assert set(a.strategy.leaders) == {"b"}
    sent = [str(action) for action in a.wake(1_003)]
    assert not [line for line in sent if "MergeRequest" in line]


@pytest.mark.parametrize("latency_ms", [math.nan, math.inf, -1.0])
def test_a_latency_that_is_none_is_not_believed(latency_ms: float) -> None:
    a = leader()
    a.take(5, LatencyMeasured(B, latency_ms))
    assert a.strategy.latency.mean(B) is None


def test_a_member_leaves_above_the_second_threshold_by_the_mean_of_its_probes() -> None:
    a = member()  # joined below 5 ms, leaves above 7.5 ms
    for number in range(20):
        assert a.take(100 + number, LatencyMeasured(B, 7.0)) == []
    for number in range(4):
        assert a.take(200 + number, LatencyMeasured(B, 9.0)) == []
    a.take(300, LatencyMeasured(B, 11.0))  # the mean is 7.6 ms now
    a.hear(320, "cloud", CloudPong(1))
    assert a.transcript().splitlines()[-3:] == [
        "           -> to cloud: CloudPing token=1",
        "     320 a: from cloud: CloudPong token=1",
        "           -> to b: Leave term=1",
    ]


def test_two_thresholds_keep_a_swinging_latency_from_swinging_the_groups() -> None:
    world = GroupWorld({"a": 1.0, "b": 2.0}, {("a", "b"): 4.0})
    world.run(5_000)
    assert world.groups() == {"b": ["a"]}
    before = world.sent["Join"]
    for number in range(100):
        world.latency_ms[frozenset("ab")] = (3.0, 7.4)[number % 2]
        world.run(150)
    assert world.sent["Join"] == before
    world.latency_ms[frozenset("ab")] = 8.0
    world.run(5_000)
    assert world.groups() == {"a": [], "b": []}


def test_a_leader_that_dies_leaves_groups_that_form_again() -> None:
    world = GroupWorld({"a": 3.0, "b": 2.0, "c": 1.0}, NEAR)
    world.run(10_000)
    assert world.groups() == {"a": ["b", "c"]}
    world.crash("a")
    assert world.groups() == {"b": [], "c": []}
    world.run(10_000)
    assert world.groups() == {"b": ["c"]}
    world.restart("a")
    world.run(20_000)
    assert world.groups() == {"a": ["b", "c"]}


def test_a_silent_leader_is_a_dead_one() -> None:
    world = GroupWorld({"a": 3.0, "b": 2.0, "c": 1.0}, NEAR)
    world.run(10_000)
    world.lose = lambda source, target, message: source == "a"
    world.run(2_600)
    assert world.strategy("b").seat.leader == "b"
    world.run(10_000)
    assert world.strategy("c").seat.leader == "b"


def test_a_silent_member_is_dropped_after_the_grace_and_told_so() -> None:
    world = GroupWorld({"a": 3.0, "b": 2.0}, NEAR, grace_ms=5_000)
    world.run(10_000)
    world.lose = lambda source, target, message: source == "b" and target == "a"
    world.run(3_000)
    assert world.strategy("a").members.keys() == world.strategy("a").away.keys() == {"b"}
    world.run(5_000)
    assert not world.strategy("a").members
    assert world.strategy("b").seat.leader == "b"


def test_one_that_refuses_or_does_not_answer_lets_others_have_their_turn() -> None:
    a = leader(b=2.0, c=4.0)
    a.strategy.leaders = {B: 1e9, C: 1e9}
    a.wake(500)
    assert a.strategy.asking is not None
    assert a.strategy.asking.peer == B
    a.hear(501, "b", MergeReply(a.strategy.asking.round, None))
    a.wake(1_000)
    assert a.strategy.asking is not None
    assert a.strategy.asking.peer == C
    a.wake(3_001)
    a.strategy.leaders = {B: 1e9, C: 1e9}
    a.wake(3_501)
    assert a.strategy.asking is not None
    assert a.strategy.asking.peer == B, "asked again after a while"


def test_a_peer_that_goes_down_is_not_asked_any_more() -> None:
    a = leader(b=4.0)
    a.wake(500)
    a.take(501, PeerDown(B))
    assert a.strategy.asking is None
    assert not a.strategy.leaders
    assert a.strategy.latency.mean(B) is None


def test_a_broker_that_left_the_federation_is_forgotten() -> None:
    a = leader(b=4.0)
    a.take(10, FederationChanged(OneBroker("a", "c").node.strategy.federation))
    assert not a.strategy.leaders
    assert a.strategy.latency.mean(B) is None


def test_without_the_cloud_a_member_stays_where_it_is_rather_than_alone() -> None:
    world = GroupWorld({"a": 1.0, "b": 2.0}, {("a", "b"): 4.0})
    world.run(5_000)
    world.crash("cloud")
    world.latency_ms[frozenset("ab")] = 20.0
    world.run(10_000)
    assert world.groups() == {"b": ["a"]}
    world.restart("cloud")
    world.run(3_000)
    assert world.groups() == {"a": [], "b": []}


@st.composite
def worlds(draw: st.DrawFn) -> GroupWorld:
    names = [f"b{number}" for number in range(draw(st.integers(2, 7)))]
    lcm = {name: float(draw(st.integers(0, 4))) for name in names}
    pairs = [(one, other) for one in names for other in names if one < other]
    near = {pair: draw(st.sampled_from([1.0, 2.0, 4.0, 4.9, 5.0, 6.0, 30.0])) for pair in pairs}
    cloud = {name: draw(st.sampled_from([1.0, 20.0, 150.0])) for name in names}
    options: dict[str, Any] = {"request_probability": draw(st.sampled_from([0.6, 1.0]))}
    return GroupWorld(lcm, near, cloud_ms=cloud, seed=draw(st.integers(0, 9)), **options)


@settings(max_examples=60)
@given(worlds())
def test_formation_ends_with_leaders_apart_and_members_near(world: GroupWorld) -> None:
    world.run(30_000)
    assert settled(world.leader_of(), world.latency, 5.0)
    assert world.groups()
    joins = world.sent["Join"]
    world.run(5_000)
    assert world.sent["Join"] == joins
