"""Seats: confirmed by the cloud, taken before the old one is given up, and served until the last event is through."""

import pytest
from tests.routing.strategies.groups.groups_world import OneBroker, federation_of

from geomq.routing.core.actions import SendToPeer
from geomq.routing.core.events import (
    ClientGone,
    ClientSubscribed,
    ClientUnsubscribed,
    FederationChanged,
    PeerDown,
    PeerUp,
)
from geomq.routing.core.messages import ForwardEvent, Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.strategies.groups.membership import FILTERS_MAX
from geomq.routing.strategies.groups.messages import (
    CloudPong,
    CloudPublished,
    Dismissed,
    DropInterest,
    GroupView,
    Join,
    LeaderBeat,
    Leave,
    MemberBeat,
    MergeNotice,
    PutInterest,
    RelayEvent,
)

M, N = BrokerId("m"), BrokerId("n")


def event_of(origin: str, topic: str = "t/1") -> Event:
    return Event(EventId(BrokerId(origin), 0, 1), topic, ClientId("x"), None, None)


def leader_with(members: str) -> OneBroker:
    """Broker `a` with confirmed members, all in term 1."""
    a = OneBroker("a", "b m n", lcm=2.0)
    a.wake(0)
    for number, member in enumerate(members.split(), 1):
        a.hear(1, member, Join(1, ("t/1", f"only/{member}")))
        a.hear(2, "cloud", CloudPong(number))
    a.transcript()
    return a


def member_of_b() -> OneBroker:
    """Broker `a`, member of `b` in term 1, with one client that subscribes to `t/#`."""
    a = OneBroker("a", "b c k")
    a.wake(0)
    a.take(0, ClientSubscribed(ClientId("x"), "t/#"))
    a.strategy.begin_move(BrokerId("b"), now=1)
    a.strategy.take_actions()
    a.hear(2, "b", GroupView(1, 4, (BrokerId("a"), BrokerId("k"))))
    a.transcript()
    return a


def test_a_newcomer_is_confirmed_only_after_the_cloud_has_acted_on_its_subscriptions() -> None:
    a = leader_with("m")
    a.hear(10, "n", Join(1, ("t/1", "u")))
    a.hear(30, "cloud", CloudPong(2))
    assert (
        a.transcript()
        == """\
      10 a: from n: Join term=1 filters=[t/1, u]
           -> to cloud: CloudSubscribe topic_filter=u
           -> to cloud: CloudPing token=2
           -> to m: GroupView term=1 version=2 members=[m, n]
      30 a: from cloud: CloudPong token=2
           -> to n: GroupView term=1 version=2 members=[m, n]"""
    )


def test_a_broker_gives_up_its_own_group_when_the_new_seat_is_confirmed() -> None:
    a = OneBroker("a", "b c")
    a.wake(0)
    a.take(0, ClientSubscribed(ClientId("x"), "t/#"))
    a.transcript()
    a.strategy.begin_move(BrokerId("b"), now=1)
    assert a.strategy.take_actions() == [SendToPeer(BrokerId("b"), Join(1, ("t/#",)))]
    a.take(2, ClientSubscribed(ClientId("x"), "new"))
    a.hear(3, "b", GroupView(1, 1, (BrokerId("a"),)))
    assert (
        a.transcript()
        == """\
       2 a: ClientSubscribed client=x topic_filter=new
           -> to cloud: CloudSubscribe topic_filter=new
           -> to b: PutInterest term=1 topic_filter=new
       3 a: from b: GroupView term=1 version=1 members=[a]
           -> to cloud: CloudUnsubscribe topic_filter=t/#
           -> to cloud: CloudUnsubscribe topic_filter=new
           -> to cloud: CloudUnsubscribe topic_filter=DG/leaders"""
    )


def test_filters_are_told_to_the_leader_with_the_first_and_the_last_client() -> None:
    a = member_of_b()
    one, two = ClientId("one"), ClientId("two")
    assert a.take(5, ClientSubscribed(one, "u")) == [SendToPeer(BrokerId("b"), PutInterest(1, "u"))]
    assert a.take(6, ClientSubscribed(two, "u")) == []
    assert a.take(7, ClientSubscribed(two, "u")) == []
    assert a.take(8, ClientUnsubscribed(one, "u")) == []
    assert a.take(9, ClientGone(two)) == [SendToPeer(BrokerId("b"), DropInterest(1, "u"))]


def test_the_group_is_unsubscribed_with_its_last_reference() -> None:
    a = leader_with("m n")
    a.take(10, ClientSubscribed(ClientId("x"), "t/1"))
    a.hear(11, "m", DropInterest(1, "t/1"))
    a.hear(12, "n", Leave(1))
    a.take(13, ClientGone(ClientId("x")))
    assert (
        a.transcript()
        == """\
      10 a: ClientSubscribed client=x topic_filter=t/1
      11 a: from m: DropInterest term=1 topic_filter=t/1
      12 a: from n: Leave term=1
           -> to cloud: CloudUnsubscribe topic_filter=only/n
           -> to m: GroupView term=1 version=3 members=[m]
           -> to cloud: CloudPing token=3
      13 a: ClientGone client=x
           -> to cloud: CloudUnsubscribe topic_filter=t/1"""
    )


def test_one_that_left_gets_what_the_cloud_had_on_the_way_for_it() -> None:
    a = leader_with("m")
    a.hear(10, "m", Leave(1))
    late = a.hear(11, "cloud", CloudPublished(event_of("b")))
    assert late == [SendToPeer(M, ForwardEvent(event_of("b")))]
    a.hear(12, "cloud", CloudPong(2))
    queued = a.hear(13, "cloud", CloudPublished(event_of("n")))
    assert queued == [SendToPeer(M, ForwardEvent(event_of("n")))]
    assert a.hear(12 + a.strategy.options.drain_ms, "cloud", CloudPublished(event_of("q"))) == []


def test_one_that_left_is_served_on_while_the_cloud_is_away_and_by_the_members_events() -> None:
    """It may have left before the cloud had its own subscriptions."""
    a = leader_with("m n")
    a.hear(10, "m", Leave(1))
    a.take(11, PeerDown(BrokerId("cloud")))
    relayed = a.hear(12, "n", RelayEvent(event_of("n"), 1, 99))
    assert SendToPeer(M, ForwardEvent(event_of("n"))) in relayed
    a.take(13, PeerUp(BrokerId("cloud")))
    late = a.hear(14, "cloud", CloudPublished(event_of("b")))
    assert SendToPeer(M, ForwardEvent(event_of("b"))) in late


def test_an_event_flooded_to_an_older_view_reaches_those_who_joined_since() -> None:
    a = leader_with("m n")
    event = event_of("m")
    a.hear(10, "m", RelayEvent(event, 1, 1))
    assert (
        a.transcript()
        == """\
      10 a: from m: RelayEvent event=m:0:1(x t/1) term=1 version=1
           -> to n: ForwardEvent event=m:0:1(x t/1) hops=1
           -> to cloud: CloudPublish event=m:0:1(x t/1)"""
    )


def test_a_repeated_join_replaces_filters_and_is_no_new_member() -> None:
    a = leader_with("m n")
    a.hear(10, "m", Join(2, ("t/1", "v")))
    assert (
        a.transcript()
        == """\
      10 a: from m: Join term=2 filters=[t/1, v]
           -> to cloud: CloudSubscribe topic_filter=v
           -> to cloud: CloudUnsubscribe topic_filter=only/m
           -> to cloud: CloudPing token=3"""
    )
    assert a.hear(11, "m", Leave(1)) == []
    assert set(a.strategy.members) == {"m", "n"}


def test_a_broker_that_does_not_lead_turns_a_join_away() -> None:
    assert member_of_b().hear(5, "c", Join(9, ())) == [SendToPeer(BrokerId("c"), Dismissed(9))]


def test_a_member_with_too_many_filters_is_turned_away() -> None:
    a = leader_with("m")
    many = tuple(f"f/{number}" for number in range(FILTERS_MAX + 1))
    assert a.hear(10, "n", Join(1, many)) == [SendToPeer(N, Dismissed(1))]
    a.strategy.interest.replace(M, many[:FILTERS_MAX])
    a.strategy.take_actions()
    assert SendToPeer(M, Dismissed(1)) in a.hear(11, "m", PutInterest(1, "one/more"))


def test_a_refused_move_leaves_everything_as_it_was() -> None:
    a = leader_with("m")
    a.strategy.begin_move(BrokerId("b"), now=10)
    a.strategy.take_actions()
    a.hear(11, "b", Dismissed(1))
    assert a.strategy.leading
    assert a.strategy.seat.leader == "a"


@pytest.mark.parametrize("word", [Dismissed(1), None])
def test_a_member_without_its_leader_leads_itself_at_once(word: Message | None) -> None:
    a = member_of_b()
    if word is None:
        a.take(10, PeerDown(BrokerId("b")))
    else:
        a.hear(10, "b", word)
    _, rest = a.transcript().split("\n", 1)
    assert (
        rest
        == """\
           -> to cloud: CloudSubscribe topic_filter=t/#
           -> to cloud: CloudPing token=1"""
    )
    assert a.strategy.leading


def test_a_leader_whose_link_was_renewed_is_told_everything_again() -> None:
    a = member_of_b()
    a.take(10, PeerUp(BrokerId("b")))
    a.hear(12, "b", GroupView(2, 1, (BrokerId("a"),)))
    assert (
        a.transcript()
        == """\
      10 a: PeerUp peer=b
           -> to b: Join term=2 filters=[t/#]
      12 a: from b: GroupView term=2 version=1 members=[a]"""
    )
    assert a.strategy.seat.term == 2


def test_a_leader_that_forgot_its_member_is_left() -> None:
    a = member_of_b()
    a.take(10, PeerUp(BrokerId("b")))
    a.hear(12, "b", Dismissed(2))
    assert a.strategy.leading


@pytest.mark.parametrize("word", [LeaderBeat(7), GroupView(7, 1, ()), MergeNotice(7, BrokerId("k"))])
def test_words_about_a_seat_never_taken_are_answered_with_a_leave(word: Message) -> None:
    assert member_of_b().hear(5, "c", word) == [SendToPeer(BrokerId("c"), Leave(7))]


def test_a_beat_of_one_that_is_no_member_is_answered_with_a_dismissal() -> None:
    assert member_of_b().hear(5, "c", MemberBeat(3)) == [SendToPeer(BrokerId("c"), Dismissed(3))]


@pytest.mark.parametrize(
    "word",
    [
        PutInterest(1, "t"),
        DropInterest(1, "t"),
        Leave(1),
        Dismissed(1),
        GroupView(99, 0, (BrokerId("stranger"),)),
        CloudPong(99),
        CloudPublished(event_of("b")),
        RelayEvent(event_of("b"), 1, 1),
    ],
)
def test_what_strangers_say_changes_nothing(word: Message) -> None:
    a = member_of_b()
    for stranger in ("stranger", "a", "k"):
        sent = [x for x in a.hear(5, stranger, word) if isinstance(x, SendToPeer)]
        assert all(isinstance(each.message, Leave) for each in sent)
    assert (a.strategy.seat.leader, a.strategy.seat.term, a.strategy.members) == ("b", 1, {})


def test_a_member_with_malformed_filters_is_served_with_the_others() -> None:
    a = leader_with("m")
    a.hear(10, "n", Join(1, ("a#b", "", "fine")))
    a.hear(11, "n", PutInterest(1, "#/x"))
    assert a.strategy.interest.held_by(N) == 1


def test_a_view_names_only_brokers_of_the_federation() -> None:
    a = member_of_b()
    a.hear(5, "b", GroupView(1, 5, (BrokerId("k"), BrokerId("stranger"), BrokerId("k"))))
    assert a.strategy.seat.members == ("k",)


def test_brokers_that_leave_the_federation_are_forgotten() -> None:
    a = leader_with("m n")
    a.take(10, FederationChanged(federation_of(["a", "b", "n"])))
    assert set(a.strategy.members) == {"n"}
    b = member_of_b()
    b.take(10, FederationChanged(federation_of(["a", "c"])))
    assert b.strategy.leading
    assert "to b" not in b.transcript()
