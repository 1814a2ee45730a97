"""Of a share group that spans brokers one member gets each event, whatever the strategy."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.routing.stage import Stage, circle, moved, published, row_of_squares, subscribed
from tests.routing.test_contract import CASES, GAP_MS, WARM_UP_MS
from tests.routing.worlds import federation_of, fences, filters, home_of, locations, publishes, subscribes, topics

from geomq.routing.core.actions import Action, DeliverToOne, DropEvent, SendToPeer
from geomq.routing.core.events import (
    ClientGone,
    ClientMoved,
    ClientPublished,
    ClientReady,
    ClientSubscribed,
    ClientUnsubscribed,
    FederationChanged,
    PeerDown,
    PeerSaid,
    PeerUp,
    RoutingEvent,
    SharedReturned,
)
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.sharing.groups import (
    ChangeMember,
    DropMember,
    MembersBegin,
    MembersEnd,
    MembersWanted,
    PutMember,
    ServeShared,
)
from geomq.sim.checkers import Checker, NoDuplicates, OneOfEachGroup, SameAsOracle
from geomq.sim.engine import Simulation
from geomq.sim.network import CLOUD
from geomq.sim.script import Step

B1, B2, B3 = BrokerId("b1"), BrokerId("b2"), BrokerId("b3")
MEMBERS = [ClientId(f"m{number}") for number in range(6)]
members = st.sampled_from(MEMBERS)
shares = st.sampled_from(["crew", "watch"])
moves = st.builds(ClientMoved, members, st.one_of(locations, st.none()))
joins = st.builds(ClientSubscribed, members, filters, fences, shares)
actions: st.SearchStrategy[RoutingEvent] = st.one_of(
    joins,
    joins,
    moves,
    publishes,
    publishes,
    subscribes,
    st.builds(ClientPublished, members, topics, fences),
    st.builds(ClientUnsubscribed, members, filters, shares),
    st.builds(ClientReady, members, st.booleans()),
    st.builds(ClientGone, members),
)


def numbered(events: list[RoutingEvent]) -> list[RoutingEvent]:
    """The same, each event with a payload of its own."""
    return [
        ClientPublished(e.client, e.topic, e.fence, e.location, str(number).encode())
        if isinstance(e, ClientPublished)
        else e
        for number, e in enumerate(events)
    ]


@CASES
@settings(max_examples=15)
@given(events=st.lists(actions, max_size=25))
def test_one_member_that_passes_both_checks_gets_each_event_once_quiet(
    strategy: str, options: dict[str, Any], events: list[RoutingEvent]
) -> None:
    federation = federation_of()
    checkers: list[Checker] = [OneOfEachGroup(from_ms=0), SameAsOracle(from_ms=0), NoDuplicates()]
    simulation = Simulation(federation, strategy, options=options, observers=checkers)
    simulation.connect_all()
    simulation.measure_all()
    script = [
        Step(WARM_UP_MS + number * GAP_MS, home_of(event.client, federation), event)  # type: ignore[attr-defined]
        for number, event in enumerate(numbered(events))
    ]
    simulation.run(script, until_ms=WARM_UP_MS + GAP_MS * (len(events) + 4))
    for checker in checkers:
        checker.finish(simulation)
        assert checker.violations == []


def joined(client: str, share: str = "crew", topic_filter: str = "t", km: float | None = None) -> ClientSubscribed:
    return ClientSubscribed(ClientId(client), topic_filter, None if km is None else circle(5, 5, km), share)


def crew(strategy: str = "disgb_events") -> Stage:
    """Three brokers in a row with a member at each."""
    stage = Stage(row_of_squares(3), strategy)
    for number in range(3):
        stage.do(f"b{number + 1}", joined(f"m{number + 1}"))
    stage.forget()
    return stage


def test_members_take_turns_across_brokers() -> None:
    stage = crew()
    for _ in range(6):
        stage.do("b1", published("p", "t"))
    assert stage.wire.receivers() == Counter({"m1": 2, "m2": 2, "m3": 2})


def test_a_decision_costs_one_message_and_only_if_the_member_is_elsewhere() -> None:
    stage = crew("flood_subscriptions")
    for _ in range(3):
        stage.do("b1", published("p", "t"))
    assert stage.wire.of(ServeShared) == [("b1", "b2"), ("b1", "b3")]
    assert len(stage.wire.messages) == 2


def test_groups_of_different_names_or_filters_are_served_each() -> None:
    stage = crew()
    stage.do("b2", joined("n2", share="watch"))
    stage.do("b3", joined("n3", topic_filter="+"))
    stage.forget()
    stage.do("b1", published("p", "t"))
    found = stage.wire.receivers()
    assert (found["n2"], found["n3"], found["m1"] + found["m2"] + found["m3"]) == (1, 1, 1)


def test_a_client_in_two_groups_may_get_an_event_for_each() -> None:
    stage = Stage(row_of_squares(2), "dht")
    stage.do("b2", joined("m", share="crew"))
    stage.do("b2", joined("m", share="watch"))
    stage.forget()
    stage.do("b1", published("p", "t"))
    assert stage.wire.receivers() == Counter({"m": 2})


def test_a_member_that_is_connected_is_preferred_wherever_it_is() -> None:
    stage = crew()
    for away in ("b1", "b2"):
        stage.do(away, ClientReady(ClientId(f"m{away[1]}"), False))
    stage.forget()
    for _ in range(3):
        stage.do("b1", published("p", "t"))
    assert stage.wire.receivers() == Counter({"m3": 3})
    stage.do("b3", ClientReady(ClientId("m3"), False))
    stage.do("b2", ClientReady(ClientId("m2"), True))
    stage.do("b1", published("p", "t"))
    assert stage.wire.receivers() == Counter({"m3": 3, "m2": 1})


def test_a_broker_that_is_cut_off_is_not_chosen_while_others_have_members() -> None:
    stage = crew()
    stage.feed("b1", PeerDown(B2))
    for _ in range(4):
        stage.do("b1", published("p", "t"))
    assert stage.wire.receivers() == Counter({"m1": 2, "m3": 2})


def test_the_fence_of_an_event_and_of_a_membership_decide_who_can_be_chosen() -> None:
    stage = Stage(row_of_squares(2), "disgb_subscriptions")
    stage.do("b1", moved("m1", 5, 5))
    stage.do("b2", moved("m2", 5, 15))
    stage.do("b1", joined("m1", km=100))
    stage.do("b2", joined("m2"))
    stage.do("b2", moved("p", 5, 15))
    stage.forget()
    for _ in range(2):
        stage.do("b2", published("p", "t"))
    stage.do("b2", published("p", "t", circle(5, 15, 50)))
    assert stage.wire.receivers() == Counter({"m2": 3})
    stage.do("b2", published("p", "t", circle(60, 60, 1)))
    assert stage.wire.receivers() == Counter({"m2": 3})


def event(number: int = 1, origin: BrokerId = B2) -> Event:
    return Event(EventId(origin, 1, number), "t", ClientId("p"), None, None, qos=1)


def answer(stage: Stage, broker: str, said: ServeShared, *, by: BrokerId = B2) -> list[Action]:
    return stage.node(broker).handle(PeerSaid(by, said), now=0)


def test_an_event_is_served_once_however_often_a_link_repeats_it() -> None:
    stage = crew()
    first = answer(stage, "b1", ServeShared(event(), "crew", "t", ()))
    again = answer(stage, "b1", ServeShared(event(), "crew", "t", ()))
    assert first == [DeliverToOne(event(), "crew", "t", (ClientId("m1"),), (B1,))]
    assert again == [DropEvent(event().id, "duplicate")]


def test_what_a_member_left_behind_goes_to_another_as_a_new_event() -> None:
    stage = crew()
    stage.do("b1", ClientGone(ClientId("m1")))
    node, nobody = stage.node("b1"), EventId(B1, 0, 0)
    left = SharedReturned("crew", "t", structs.replace(event(), id=nobody))
    (first,) = node.handle(left, now=0)
    (second,) = node.handle(left, now=0)
    assert isinstance(first, SendToPeer)
    assert isinstance(second, SendToPeer)
    served = [each.message.event for each in (first, second) if isinstance(each.message, ServeShared)]
    assert {first.peer, second.peer} == {B2, B3}
    assert len({each.id for each in served} | {nobody}) == 3
    for gone in ("b2", "b3"):
        stage.do(gone, ClientGone(ClientId(f"m{gone[1]}")))
    (last,) = node.handle(left, now=0)
    assert isinstance(last, DropEvent)
    assert last.reason == "no member left"


def test_a_home_without_a_member_left_passes_the_event_on() -> None:
    stage = crew()
    stage.do("b1", ClientGone(ClientId("m1")))
    found = answer(stage, "b1", ServeShared(event(), "crew", "t", ()))
    assert found == [SendToPeer(B2, ServeShared(event(), "crew", "t", (B1,)))]


def denied(*clients: str) -> Callable[[ClientId, str], bool]:
    return lambda client, _topic: client not in clients


def test_members_that_may_not_read_an_event_take_it_from_nobody() -> None:
    stage = crew()
    for broker in ("b1", "b2"):
        stage.node(broker).ask_rights(denied("m1", "m2"))
    for _ in range(6):
        stage.do("b1", published("p", "t"))
    assert stage.wire.receivers() == Counter({"m3": 6})


def test_a_home_prefers_its_own_members_that_may_read() -> None:
    stage = crew()
    stage.do("b1", joined("n1"))
    stage.node("b1").ask_rights(denied("m1"))
    found = answer(stage, "b1", ServeShared(event(), "crew", "t", ()))
    assert found == [DeliverToOne(event(), "crew", "t", (ClientId("n1"),), (B1,))]


def test_no_broker_is_asked_twice_and_the_last_refuses_its_own() -> None:
    stage = crew()
    for broker in ("b1", "b2", "b3"):
        stage.node(broker).ask_rights(denied("m1", "m2", "m3"))
    first = answer(stage, "b1", ServeShared(event(), "crew", "t", (B2,)))
    last = answer(stage, "b3", ServeShared(event(), "crew", "t", (B2, B1)))
    assert first == [SendToPeer(B3, ServeShared(event(), "crew", "t", (B2, B1)))]
    assert last == [DeliverToOne(event(), "crew", "t", (ClientId("m3"),), (B2, B1, B3))]


def test_an_event_may_come_back_after_others_were_asked() -> None:
    stage = crew()
    stage.node("b1").ask_rights(denied("m1"))
    answer(stage, "b1", ServeShared(event(), "crew", "t", ()))
    stage.do("b1", joined("n1"))
    again = answer(stage, "b1", ServeShared(event(), "crew", "t", (B1, B3)))
    assert again == [DeliverToOne(event(), "crew", "t", (ClientId("n1"),), (B1, B3, B1))]


def test_an_event_that_nobody_is_left_for_is_dropped_and_the_reason_told() -> None:
    stage = Stage(row_of_squares(2), "dht")
    assert answer(stage, "b1", ServeShared(event(), "crew", "t", ())) == [DropEvent(event().id, "no member left")]


def test_an_event_that_was_passed_on_too_often_is_dropped() -> None:
    stage = crew()
    circling = ServeShared(event(), "crew", "t", (B2, B3) * 6)
    assert answer(stage, "b1", circling) == [DropEvent(event().id, "hop limit")]


def test_a_stranger_cannot_bring_members() -> None:
    stage = crew()
    stage.node("b1").handle(PeerSaid(BrokerId("x"), PutMember(ClientId("m"), "crew", "t", None, None, True)), now=0)
    assert len(stage.node("b1").shared) == 3


def test_brokers_without_share_groups_say_nothing_about_them() -> None:
    stage = Stage(row_of_squares(2), "flood_events")
    stage.feed("b1", PeerUp(B2))
    stage.feed("b2", PeerUp(B1))
    ours = (PutMember, DropMember, ChangeMember, MembersBegin, MembersEnd, MembersWanted)
    assert stage.wire.of(*ours) == []


def test_a_broker_that_forgot_everything_hears_of_all_members_again() -> None:
    stage = crew()
    forgetful = stage.simulation.make_node(B1)
    stage.simulation.nodes[B1] = forgetful
    for peer in (B2, B3):
        stage.feed("b1", PeerUp(peer))
        stage.feed(peer, PeerUp(B1))
    assert len(forgetful.shared) == 2
    assert len(stage.node("b2").shared) == len(stage.node("b3").shared) == 2, "m1 is gone with its broker's memory"


def test_members_of_a_broker_that_leaves_the_federation_are_forgotten() -> None:
    stage = crew()
    stage.feed("b1", FederationChanged(row_of_squares(2)))
    assert len(stage.node("b1").shared) == 2


def test_nothing_is_remembered_of_members_that_are_gone() -> None:
    stage = crew()
    stage.do("b1", moved("m1", 5, 5))
    for number in range(3):
        stage.do(f"b{number + 1}", ClientGone(ClientId(f"m{number + 1}")))
    shared = [stage.node(broker).shared for broker in ("b1", "b2", "b3")]
    assert [len(each) for each in shared] == [0, 0, 0]
    assert [dict(each._locations) for each in shared] == [{}, {}, {}]


def test_what_is_about_one_broker_is_shared_there_alone() -> None:
    stage = Stage(row_of_squares(2), "flood_events")
    stage.do("b1", joined("m1", topic_filter="$SYS/#"))
    stage.do("b2", joined("m2", topic_filter="$SYS/#"))
    stage.forget()
    stage.do("b1", published("broker", "$SYS/x"))
    assert stage.wire.receivers() == Counter({"m1": 1})
    assert stage.wire.messages == []


def test_a_client_of_the_cloud_reaches_one_member_too() -> None:
    stage = Stage(row_of_squares(3), "broadcast_groups", {"formation": "fixed", "join_ms": 0})
    for number in range(3):
        stage.do(f"b{number + 1}", joined(f"m{number + 1}"))
    stage.do("b2", subscribed("s", "t"))
    stage.forget()
    for _ in range(6):
        stage.do(CLOUD, published("stranger", "t"))
    assert stage.wire.receivers() == Counter({"s": 6, "m1": 2, "m2": 2, "m3": 2})
    stage.do("b1", ClientGone(ClientId("m1")))
    stage.forget()
    for _ in range(2):
        stage.do(CLOUD, published("stranger", "t"))
    assert stage.wire.receivers() == Counter({"s": 2, "m2": 1, "m3": 1})
