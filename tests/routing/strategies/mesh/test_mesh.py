"""The strategy at one broker and among several: groups, events, the topic map, and what it refuses."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.strategies.mesh.mesh_world import MeshWorld, federation_of

from geomq.errors import ConfigError
from geomq.routing.core.actions import Action, DropEvent, SendToPeer
from geomq.routing.core.events import (
    ClientPublished,
    ClientSubscribed,
    FederationChanged,
    PeerDown,
    PeerSaid,
    PeerUp,
    RoutingEvent,
)
from geomq.routing.core.messages import ForwardEvent, Message, PutSubscription, SyncBegin
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.node import Node
from geomq.routing.strategies.mesh.messages import (
    Announcement,
    CoreAnnouncements,
    LostRoute,
    Membership,
    MembershipAnnouncements,
    RoutesLost,
    Stamp,
    TopicMap,
    TopicMapWanted,
)

CHAIN = [("0", "1"), ("1", "2"), ("2", "3")]
B0, B1, B2, B3 = (BrokerId(name) for name in "0123")
CLIENT = ClientId("s")


def node_of(me: str = "1", brokers: str = "0123", **options: Any) -> Node:
    return Node(
        me=BrokerId(me),
        federation=federation_of(brokers),
        strategy="geomq.routing.strategies.mesh.mesh:Mesh",
        options=options,
        rng=random.Random(0),
    )


def chained(me: str = "1", **options: Any) -> Node:
    return node_of(me, links=[list(link) for link in CHAIN], **options)


def event_of(topic: str = "a", *, sequence: int = 1) -> Event:
    return Event(EventId(B0, 0, sequence), topic, ClientId("p"), None, None)


def said(node: Node, peer: BrokerId, *items: Any, now: float = 0.0) -> list[Action]:
    kinds: dict[type, Any] = {
        Announcement: CoreAnnouncements,
        Membership: MembershipAnnouncements,
        LostRoute: RoutesLost,
    }
    return node.handle(PeerSaid(peer, kinds[type(items[0])](items)), now=now)


def addressed(actions: list[Action]) -> list[str]:
    return [action.peer for action in actions if isinstance(action, SendToPeer)]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"redundancy": 0}, "redundancy"),
        ({"redundancy": 9}, "redundancy"),
        ({"announce_ms": 1}, "announce_ms"),
        ({"expire_after": 1}, "expire_after"),
        ({"hop_max": 0}, "hop_max"),
        ({"groups_max": 0}, "groups_max"),
        ({"links": [["0"]]}, "links"),
        ({"links": [["0", "9"]]}, "no broker 9"),
        ({"groups": {"a/b": "x"}}, "not one topic level"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as refused:
        node_of(**options)
    assert "\n" not in str(refused.value)


def test_a_broker_alone_serves_its_clients_and_never_wakes() -> None:
    node = node_of("0", "0")
    assert node.handle(ClientSubscribed(CLIENT, "a/#"), now=0) == []
    (delivery,) = node.handle(ClientPublished(ClientId("p"), "a/b"), now=1)
    assert delivery.matches[0].client == CLIENT  # type: ignore[attr-defined]
    assert node.next_deadline() is None


def test_an_event_of_a_group_without_a_core_stays_at_home() -> None:
    node = chained()
    assert node.handle(ClientPublished(CLIENT, "a/b"), now=0) == []


def test_an_event_that_comes_again_is_dropped() -> None:
    node = chained()
    node.handle(PeerSaid(B0, ForwardEvent(event_of())), now=0)
    again = node.handle(PeerSaid(B2, ForwardEvent(event_of(), 3)), now=1)
    assert again == [DropEvent(event_of().id, "duplicate")]


def test_an_event_at_its_hop_limit_is_served_but_not_passed_on() -> None:
    node = chained(hop_max=2)
    node.handle(ClientSubscribed(CLIENT, "a"), now=0)
    said(node, B2, Membership("a", B1, 1))
    delivery, drop = node.handle(PeerSaid(B0, ForwardEvent(event_of(), 2)), now=1)
    assert delivery.matches[0].client == CLIENT  # type: ignore[attr-defined]
    assert drop == DropEvent(event_of().id, "hop limit")


@pytest.mark.parametrize("hops", [-1, 0, 5])
def test_an_event_beyond_the_hop_limit_is_dropped(hops: int) -> None:
    node = chained()
    assert node.handle(PeerSaid(B0, ForwardEvent(event_of(), hops)), now=0) == [DropEvent(event_of().id, "hop limit")]


def test_who_is_no_neighbour_is_not_listened_to() -> None:
    node = chained()
    strange = Announcement("a", B3, 1, 0, True)
    assert said(node, B3, strange) == []
    assert node.handle(PeerSaid(B3, ForwardEvent(event_of())), now=0) == [
        DropEvent(event_of().id, "not from a neighbour")
    ]
    assert node.handle(PeerUp(B3), now=0) == node.handle(PeerDown(B3), now=0) == []
    assert node.strategy.state_size() == 0


def test_messages_of_other_strategies_and_unsound_ones_are_dropped() -> None:
    node = chained()
    for message in (SyncBegin(), PutSubscription(CLIENT, "a", None, None), TopicMap(0, B0, ())):
        assert node.handle(PeerSaid(B0, message), now=0) == []
    assert said(node, B0, Announcement("a", BrokerId("9"), 1, 0, True)) == []
    assert said(node, B0, Announcement("a", B0, 0, 0, True)) == []
    assert said(node, B0, Membership("a", B0, 1)) == []
    assert said(node, B0, LostRoute("a", B0, 1)) == []
    assert node.strategy.state_size() == 0


def test_filters_that_start_with_a_wildcard_get_events_of_every_group() -> None:
    world = MeshWorld(CHAIN)
    for broker, topic_filter in (("0", "#"), ("1", "+/x"), ("2", "a/x"), ("3", "a/#")):
        world.subscribe(broker, f"s{broker}", topic_filter)
        world.settle()
    for topic in ("a/x", "b/x", "$a/x"):
        world.publish("3", topic, payload=topic)
    world.settle()
    assert {c for p, c in world.received if p == "a/x"} == {"s0", "s1", "s2", "s3"}
    assert {c for p, c in world.received if p == "b/x"} == {"s0", "s1"}
    assert {c for p, c in world.received if p == "$a/x"} == set()
    assert set(world.received.values()) == {1}


def test_an_event_for_two_meshes_goes_to_a_neighbour_once() -> None:
    node = chained("0")
    said(node, B1, Announcement("a", B1, 1, 0, True), Announcement("#", B1, 1, 0, True))
    assert addressed(node.handle(ClientPublished(CLIENT, "a"), now=1)) == ["1"]


def test_a_configured_map_spreads_along_the_management_mesh() -> None:
    world = MeshWorld(CHAIN)
    world.mesh("3").advertise({"a": "letters", "b": "letters"}, now=0.0)
    world.run(12_000)
    assert [world.mesh(broker).topics.group_of("a") for broker in "0123"] == ["letters"] * 4


def test_a_later_map_replaces_the_former_and_moves_subscriptions_to_their_new_group() -> None:
    world = MeshWorld(CHAIN, groups={"a": "old", "b": "old"})
    world.subscribe("0", "s", "a")
    world.subscribe("3", "t", "b")
    world.run(100)
    assert world.cores("old") == {"0"}
    mesh = world.mesh("2")
    mesh.advertise({"a": "new"}, now=world.now)
    for action in mesh.take_actions():
        assert isinstance(action, SendToPeer)
        world._transmit(B2, action.peer, action.message)
    world.run(25_000)
    assert world.cores("new") == {"0"}
    assert world.cores("b") == {"3"}
    assert world.cores("old") == {None}
    world.publish("1", "a", payload="x")
    world.publish("1", "b", payload="y")
    world.settle()
    assert set(world.received) == {("x", "s"), ("y", "t")}


def test_a_late_joiner_gets_the_map() -> None:
    world = MeshWorld(CHAIN)
    world.crash("3")
    world.mesh("0").advertise({"a": "letters"}, now=0.0)
    world.run(6_000)
    world.restart("3")
    world.run(100)
    assert world.mesh("3").topics.stamp == Stamp(1, B0)


def test_a_parent_with_an_older_map_asks_its_child_for_the_later() -> None:
    node = chained("0")
    node.on_deadline(now=0)
    asked = said(node, B1, Membership("#management", B0, 1, stamp=Stamp(2, B3)), now=1)
    assert asked == [SendToPeer(B1, TopicMapWanted())]
    node.handle(PeerSaid(B1, TopicMap(2, B3, (("a", "x"),))), now=2)
    shared = said(node, B1, Membership("#management", B0, 1), now=3)
    assert shared == [SendToPeer(B1, TopicMap(2, B3, (("a", "x"),)))]


def test_of_two_maps_of_the_same_version_that_of_the_smallest_origin_is_in_force() -> None:
    node = chained(groups={"a": "mine"})
    node.handle(PeerSaid(B2, TopicMap(1, B3, (("a", "theirs"),))), now=0)
    assert node.strategy.topics.group_of("a") == "mine"  # type: ignore[attr-defined]
    node.handle(PeerSaid(B0, TopicMap(1, B0, (("a", "theirs"),))), now=0)
    assert node.strategy.topics.group_of("a") == "theirs"  # type: ignore[attr-defined]


def test_a_map_that_cannot_be_is_not_advertised() -> None:
    with pytest.raises(ConfigError):
        MeshWorld(CHAIN).mesh("0").advertise({"#": "x"}, now=0.0)


def test_groups_beyond_the_maximum_are_served_all_the_same() -> None:
    world = MeshWorld(CHAIN, groups_max=2)
    for number, broker in enumerate("0123301"):
        world.subscribe(broker, f"s{number}", f"t{number}/#")
        world.settle()
    assert all(len(world.mesh(broker).groups) <= 4 for broker in world.ids)
    for number in range(7):
        for broker in world.ids:
            world.publish(broker, f"t{number}/x", payload=f"{number} from {broker}")
            world.settle()
    expected = {(f"{number} from {broker}", f"s{number}") for number in range(7) for broker in world.ids}
    assert set(world.received) == expected
    assert set(world.received.values()) == {1}


def test_a_broker_that_can_track_fewer_groups_than_the_others_passes_every_event_on() -> None:
    world = MeshWorld(CHAIN)
    world.nodes[B1] = chained("1", groups_max=1)
    for broker, level in (("3", "a"), ("3", "b"), ("0", "c")):
        world.subscribe(broker, level, level)
        world.run(1_000)
    for level in "abc":
        for broker in world.ids:
            world.publish(broker, level, payload=f"{level} from {broker}")
            world.settle()
    assert set(world.received) == {(f"{level} from {broker}", level) for level in "abc" for broker in world.ids}
    for broker, level in (("3", "a"), ("3", "b"), ("0", "c")):
        world.unsubscribe(broker, level, level)
    world.run(40_000)
    assert all(world.mesh(broker).state_size() == 0 for broker in world.ids)


def test_a_broker_that_leaves_the_federation_is_forgotten_and_its_groups_get_another_core() -> None:
    world = MeshWorld([("0", "1"), ("1", "2"), ("0", "2")])
    world.subscribe("0", "s0", "a")
    world.settle()
    for broker in "12":
        world.subscribe(broker, f"s{broker}", "a")
        world.settle()
    del world.nodes[B0]
    smaller = federation_of("12")
    for broker in "12":
        world.feed(broker, FederationChanged(smaller))
    world.settle()
    assert world.cores("a") == {"1"}
    assert world.mesh("1").neighbours == (B2,)
    world.publish("2", "a", payload="x")
    world.settle()
    assert {client for _, client in world.received} == {"s1", "s2"}


def test_a_broker_that_joins_the_federation_is_told_of_the_groups() -> None:
    node = node_of("1", "12")
    node.handle(ClientSubscribed(CLIENT, "a"), now=0)
    actions = node.handle(FederationChanged(federation_of("012")), now=1)
    assert addressed(actions) == ["0"]


def test_the_smallest_broker_announces_management_first_and_the_others_wait_for_it() -> None:
    smallest, other = node_of("0"), node_of("1")
    assert addressed(smallest.on_deadline(now=0)) == ["1", "2", "3"]
    assert other.on_deadline(now=0) == []
    assert addressed(other.on_deadline(now=5_000)) == ["0", "2", "3"]


def test_same_inputs_give_the_same_actions() -> None:
    def play() -> list[str]:
        world = MeshWorld(CHAIN, redundancy=2)
        for broker in "3021":
            world.subscribe(broker, f"s{broker}", "#" if broker == "2" else "a")
        world.run(20_000)
        world.cut("1", "2")
        world.run(20_000)
        return world.lines

    assert play() == play()


brokers = st.sampled_from([BrokerId(name) for name in ["0", "1", "2", "3", "9", ""]])
names = st.sampled_from(["a", "b", "#", "#management", "", "x" * 2_000])
numbers = st.one_of(st.integers(-2, 6), st.just(2**53), st.just(2**70))
announcements = st.builds(
    Announcement, names, brokers, numbers, numbers, st.booleans(), st.lists(brokers, max_size=9).map(tuple),
    st.floats(-1, 20_000),
)  # fmt: skip
stamps = st.one_of(st.none(), st.builds(Stamp, numbers, brokers))
memberships = st.builds(Membership, names, brokers, numbers, st.booleans(), stamps)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(CoreAnnouncements, st.lists(announcements, max_size=3).map(tuple)),
    st.builds(MembershipAnnouncements, st.lists(memberships, max_size=3).map(tuple)),
    st.builds(RoutesLost, st.lists(st.builds(LostRoute, names, brokers, numbers), max_size=3).map(tuple)),
    st.builds(TopicMap, numbers, brokers, st.lists(st.tuples(names, names), max_size=3).map(tuple)),
    st.just(TopicMapWanted()),
    st.builds(ForwardEvent, st.builds(event_of, names, sequence=st.integers(1, 4)), numbers),
)
happenings: st.SearchStrategy[RoutingEvent] = st.one_of(
    st.builds(PeerSaid, brokers, messages),
    st.builds(PeerSaid, brokers, messages),
    st.builds(PeerSaid, brokers, messages),
    st.builds(PeerUp, brokers),
    st.builds(PeerDown, brokers),
    st.builds(ClientSubscribed, st.just(CLIENT), st.sampled_from(["a", "b/c", "#"])),
    st.builds(ClientPublished, st.just(CLIENT), st.sampled_from(["a", "b/c"])),
)


@settings(max_examples=200)
@given(script=st.lists(st.tuples(happenings, st.sampled_from([0.0, 10.0, 6_000.0])), max_size=30))
def test_whatever_peers_say_the_broker_lives_speaks_only_to_neighbours_and_keeps_its_bounds(
    script: list[tuple[RoutingEvent, float]],
) -> None:
    node, now = chained(groups_max=3), 0.0
    for event, pause in script:
        actions = node.handle(event, now=now)
        now += pause
        deadline = node.next_deadline()
        if deadline is not None and deadline <= now:
            actions += node.on_deadline(now=now)
        assert set(addressed(actions)) <= {"0", "2"}
    assert len(node.strategy.groups) <= 5  # type: ignore[attr-defined]
    assert node.strategy.state_size() <= 4 * (1 + 3 * 2)


def test_what_a_broker_that_just_started_has_acknowledged_goes_to_all_neighbours_even_those_away() -> None:
    def targets(node: Node, qos: int, now: float) -> list[BrokerId]:
        published = ClientPublished(CLIENT, "a", None, None, b"", qos, False, b"", 0)
        actions = node.handle(published, now=now)
        return [a.peer for a in actions if isinstance(a, SendToPeer) and isinstance(a.message, ForwardEvent)]

    node = chained(announce_ms=100, expire_after=3)
    node.handle(PeerUp(B0), now=0.0)
    assert targets(node, 0, 1.0) == []
    assert targets(node, 1, 2.0) == [B0, B2]
    assert targets(node, 1, 301.0) == [B2]
    node.handle(PeerUp(B2), now=400.0)
    assert targets(node, 1, 701.0) == []
