"""What keeps replicas true: repetition after a break, clients that end, brokers that leave, bounds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.stage import Stage, circle, moved, nearest_of, published, row_of_squares, subscribed, unsubscribed

from geomq.geo import Location
from geomq.routing.core.actions import DeliverToClients, DropEvent
from geomq.routing.core.events import ClientGone, FederationChanged, PeerSaid, PeerUp
from geomq.routing.core.messages import (
    DeliverEvent,
    DropClient,
    DropSubscription,
    Message,
    PutLocation,
    PutSubscription,
    SyncBegin,
    SyncEnd,
)
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match, Subscriber
from geomq.routing.strategies import rendezvous as module
from geomq.routing.strategies.rendezvous import Replicas

PEER = BrokerId("b2")


def flooded(brokers: int = 2) -> Stage:
    return Stage(row_of_squares(brokers), "flood_subscriptions")


def say(stage: Stage, *messages: Message, peer: str = "b2") -> None:
    for message in messages:
        stage.node("b1").handle(PeerSaid(BrokerId(peer), message), now=stage.simulation.now_ms)


def put(client: str, topic_filter: str) -> PutSubscription:
    return PutSubscription(ClientId(client), topic_filter, None, None)


def held(stage: Stage) -> set[tuple[str, str, str]]:
    table = stage.strategy("b1").table
    return {(who.home, who.client, topic) for who in table.subscribers() for topic in table.filters(who)}


def test_what_a_repetition_does_not_mention_is_swept_out() -> None:
    stage = flooded()
    say(stage, put("x", "a"), put("x", "b"), put("y", "a"))
    say(stage, SyncBegin(), put("x", "b"), put("z", "c"), SyncEnd())
    assert held(stage) == {("b2", "x", "b"), ("b2", "z", "c")}


def test_a_repetition_that_breaks_off_sweeps_nothing() -> None:
    stage = flooded()
    say(stage, put("x", "a"), SyncBegin(), put("y", "b"))
    assert held(stage) == {("b2", "x", "a"), ("b2", "y", "b")}
    say(stage, SyncBegin(), put("y", "b"), SyncEnd())
    assert held(stage) == {("b2", "y", "b")}


def test_an_end_without_a_beginning_sweeps_nothing() -> None:
    stage = flooded()
    say(stage, put("x", "a"), SyncEnd())
    assert held(stage) == {("b2", "x", "a")}


def test_a_repetition_speaks_for_its_sender_alone() -> None:
    stage = flooded(3)
    say(stage, put("x", "a"))
    say(stage, SyncBegin(), SyncEnd(), peer="b3")
    say(stage, DropClient(ClientId("x")), DropSubscription(ClientId("x"), "a"), peer="b3")
    say(stage, PutLocation(ClientId("x"), Location(1, 1)), peer="b3")
    assert held(stage) == {("b2", "x", "a")}


def test_a_peer_that_comes_up_is_told_everything_it_should_hold() -> None:
    stage = flooded()
    stage.do("b1", moved("c", 5, 5))
    stage.do("b1", subscribed("c", "a", circle(5, 5, 10)))
    stage.do("b1", subscribed("d", "b"))
    stage.forget()
    stage.feed("b1", PeerUp(PEER))
    assert [message for source, _, message in stage.wire.messages if source == "b1"] == [
        SyncBegin(),
        PutSubscription(ClientId("c"), "a", circle(5, 5, 10), Location(5, 5)),
        put("d", "b"),
        SyncEnd(),
    ]


def deliver(*matches: tuple[str, str]) -> DeliverEvent:
    event = Event(EventId(PEER, 0, 1), "a", ClientId("p"), None, None)
    return DeliverEvent(event, tuple(Match(ClientId(client), topic) for client, topic in matches))


def test_a_match_of_a_subscription_that_ended_meanwhile_is_not_served() -> None:
    stage = flooded()
    stage.do("b1", subscribed("c", "a"))
    stage.do("b1", unsubscribed("c", "a"))
    actions = stage.node("b1").handle(PeerSaid(PEER, deliver(("c", "a"))), now=0)
    assert actions == [DropEvent(EventId(PEER, 0, 1), "no longer subscribed")]


def test_a_match_that_comes_twice_is_served_once() -> None:
    stage = flooded()
    stage.do("b1", subscribed("c", "a"))
    stage.do("b1", subscribed("d", "+"))
    node = stage.node("b1")
    first = node.handle(PeerSaid(PEER, deliver(("c", "a"))), now=0)
    second = node.handle(PeerSaid(PEER, deliver(("c", "a"), ("d", "+"))), now=0)
    third = node.handle(PeerSaid(PEER, deliver(("c", "a"))), now=0)
    assert [type(action) for action in first + second + third] == [DeliverToClients, DeliverToClients, DropEvent]
    assert second[0].matches == (Match(ClientId("d"), "+"),)  # type: ignore[attr-defined]
    assert third == [DropEvent(EventId(PEER, 0, 1), "duplicate")]


def test_a_match_for_a_stranger_is_dropped() -> None:
    actions = flooded().node("b1").handle(PeerSaid(PEER, deliver(("nobody", "a"))), now=0)
    assert actions == [DropEvent(EventId(PEER, 0, 1), "no longer subscribed")]


def test_a_broker_that_leaves_the_federation_is_forgotten() -> None:
    places = {f"b{i}": Location(5.0, 10.0 * i) for i in (1, 2, 3)}
    stage = Stage(nearest_of(places), "flood_subscriptions")
    stage.do("b3", subscribed("x", "a"))
    stage.do("b2", subscribed("y", "a"))
    del places["b3"]
    stage.feed("b1", FederationChanged(nearest_of(places)))
    assert held(stage) == {("b2", "y", "a")}


def test_a_broker_that_joins_is_given_what_it_should_hold() -> None:
    places = {f"b{i}": Location(5.0, 10.0 * i) for i in (1, 2)}
    stage = Stage(nearest_of(places), "flood_subscriptions")
    stage.do("b1", subscribed("c", "a"))
    stage.forget()
    places["b3"] = Location(5.0, 30.0)
    actions = stage.node("b1").handle(FederationChanged(nearest_of(places)), now=0)
    assert [(action.peer, action.message) for action in actions] == [("b3", put("c", "a"))]  # type: ignore[attr-defined]


def test_nothing_is_left_of_a_client_that_is_gone() -> None:
    stage = flooded()
    stage.do("b1", moved("c", 5, 5))
    stage.do("b1", subscribed("c", "a"))
    stage.do("b1", ClientGone(ClientId("c")))
    assert [stage.strategy(broker).state_size() for broker in ("b1", "b2")] == [0, 0]
    stage.forget()
    stage.do("b1", moved("c", 6, 6))
    assert not stage.wire.messages


def test_a_broker_holds_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLICAS_MAX", 5)
    stage = flooded()
    say(stage, *(put(f"c{number}", "a") for number in range(20)))
    assert len(stage.strategy("b1").table) == 5
    say(stage, PutSubscription(ClientId("c0"), "a", circle(5, 5, 1), None))
    assert stage.strategy("b1").table.filters(Subscriber(PEER, ClientId("c0"))) == {"a": circle(5, 5, 1)}
    say(stage, DropClient(ClientId("c0")), put("late", "a"))
    assert ("b2", "late", "a") in held(stage)


names = st.sampled_from("xyz")
topics = st.sampled_from("abc")


@settings(max_examples=60)
@given(st.lists(st.tuples(names, topics)), st.lists(st.tuples(names, topics)), st.lists(st.tuples(names, topics)))
def test_after_a_repetition_a_table_holds_exactly_what_was_repeated(
    before: list[tuple[str, str]], other: list[tuple[str, str]], repeated: list[tuple[str, str]]
) -> None:
    table, neighbour = Replicas(), BrokerId("n")
    for client, topic in before:
        table.put(Subscriber(PEER, ClientId(client)), topic, None, None)
    for client, topic in other:
        table.put(Subscriber(neighbour, ClientId(client)), topic, None, None)
    table.begin(PEER)
    for client, topic in repeated:
        table.put(Subscriber(PEER, ClientId(client)), topic, None, None)
    table.end(PEER)
    kept = {(who.home, who.client, topic) for who in table.subscribers() for topic in table.filters(who)}
    assert kept == {(PEER, *pair) for pair in repeated} | {(neighbour, *pair) for pair in other}
    table.drop_home(PEER)
    assert {who.home for who in table.subscribers()} <= {neighbour}


def test_an_event_is_matched_where_it_is_published_first() -> None:
    stage = flooded()
    stage.do("b1", subscribed("c", "a"))
    stage.do("b1", published("c", "a"))
    assert stage.wire.receivers() == {"c": 1}
