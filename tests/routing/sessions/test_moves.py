"""A client whose session moves between brokers gets every event meant for it once, under every strategy."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.routing.stage import Stage, moved, published, row_of_squares, subscribed
from tests.routing.test_contract import CASES
from tests.routing.worlds import federation_of, home_of, publishes

from geomq.geo import Circle, Location
from geomq.routing.core.actions import DeliverToClients, DropEvent, SendToPeer
from geomq.routing.core.events import (
    ClientArrived,
    ClientDeparted,
    ClientMoved,
    ClientPublished,
    ClientReady,
    ClientSubscribed,
    FederationChanged,
    PeerDown,
    PeerSaid,
    PeerUp,
    RoutingEvent,
)
from geomq.routing.core.messages import ForwardEvent
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.node import Node
from geomq.routing.sessions.messages import AskSettled, DeliverMoved, Settled
from geomq.routing.sessions.moves import FORGET_MS, SETTLE_MS
from geomq.routing.sharing.groups import HOPS_MAX
from geomq.sim.checkers import NoDuplicates, SameAsOracle
from geomq.sim.engine import Origin, Simulation
from geomq.sim.script import Step

B1, B2, B3 = BrokerId("b1"), BrokerId("b2"), BrokerId("b3")
R = ClientId("r")


class Journey(Simulation):
    """A simulation whose client `r` moves from broker to broker with its session."""

    def hand_over(self, client: ClientId, source: BrokerId, target: BrokerId) -> None:
        """What the drivers of both brokers do; the session takes as long as a message does."""
        leaving, arriving = self.nodes[source], self.nodes[target]
        assert isinstance(leaving, Node)
        assert isinstance(arriving, Node)
        state, had = leaving.clients[client], leaving.had_by([client])
        location, subscriptions = state.location, dict(state.subscriptions)
        self.feed(source, ClientDeparted(client, target), Origin(None, self.now_ms))
        self.advance(self.now_ms + self.latencies(source, target))
        events: list[RoutingEvent] = [ClientArrived(client, had), ClientMoved(client, location)]
        events += [ClientSubscribed(client, topic_filter, fence) for topic_filter, fence in subscriptions.items()]
        for event in events:
            self.feed(target, event, Origin(None, self.now_ms))


@CASES
@settings(max_examples=8)
@given(
    shots=st.lists(st.tuples(publishes, st.integers(0, 400)), min_size=5, max_size=30),
    moves=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    seed=st.integers(0, 10_000),
)
def test_nothing_is_missed_or_doubled_while_a_client_moves(
    strategy: str,
    options: dict[str, Any],
    shots: list[tuple[ClientPublished, int]],
    moves: list[int],
    seed: int,
) -> None:
    federation, dice = federation_of(), random.Random(seed)
    checkers = [NoDuplicates(), SameAsOracle(from_ms=0)]
    simulation = Journey(federation, strategy, options=options, observers=checkers)
    simulation.connect_all()
    simulation.measure_all()
    home = federation.ids[0]
    place = federation.location(home)
    setting = [ClientMoved(R, place), ClientSubscribed(R, "a/#"), ClientSubscribed(R, "b/c")]
    simulation.run([Step(20_000, home, event) for event in setting], until_ms=40_000)
    path = [federation.ids[number] for number in moves]
    for number, (shot, gap_ms) in enumerate(shots):
        event = ClientPublished(shot.client, shot.topic, payload=str(number).encode())
        simulation.act(Step(simulation.now_ms, home_of(shot.client, federation), event))
        if path and dice.random() < 0.3:
            target = path.pop(0)
            if target != home:
                simulation.hand_over(R, home, target)
                home = target
        simulation.advance(simulation.now_ms + gap_ms)
    simulation.advance(simulation.now_ms + 60_000)
    for checker in checkers:
        checker.finish(simulation)
        assert checker.violations == []
    assert sum(len(node.session_moves) for node in simulation.nodes.values() if isinstance(node, Node)) == 0


def departed(strategy: str = "flood_events") -> Stage:
    """A client with a subscription at b1 whose session has gone to b2 but has not arrived there."""
    stage = Stage(row_of_squares(3), strategy)
    stage.do("b1", moved("r", 5, 5))
    stage.do("b1", subscribed("r", "t"))
    stage.feed("b1", ClientDeparted(R, B2))
    stage.forget()
    return stage


def event(number: int = 1, origin: BrokerId = B3) -> Event:
    return Event(EventId(origin, 1, number), "t", ClientId("p"), None, None, qos=2)


def heard(stage: Stage, broker: str, message: DeliverMoved, *, by: BrokerId = B1) -> list[Any]:
    return stage.node(broker).handle(PeerSaid(by, message), now=stage.simulation.now_ms)


MATCH = Match(R, "t")


def test_what_matches_at_the_former_home_is_sent_on() -> None:
    stage = departed()
    stage.do("b3", published("p", "t"))
    assert stage.wire.of(DeliverMoved) == [("b1", "b2")]
    assert stage.wire.receivers() == Counter()


def test_an_event_the_client_had_at_its_former_home_is_not_given_again() -> None:
    stage = departed()
    stage.feed("b2", ClientArrived(R, (event(1).id,)))
    stage.do("b2", subscribed("r", "t"))
    assert heard(stage, "b2", DeliverMoved(event(1), (MATCH,), (0,), 1)) == [DropEvent(event(1).id, "duplicate")]
    assert heard(stage, "b2", DeliverMoved(event(2), (MATCH,), (0,), 1)) == [DeliverToClients(event(2), (MATCH,))]
    assert heard(stage, "b2", DeliverMoved(event(2), (MATCH,), (0,), 1)) == [DropEvent(event(2).id, "duplicate")]


def test_all_subscriptions_of_a_client_that_arrived_count() -> None:
    stage = departed()
    stage.feed("b2", ClientArrived(R))
    for topic_filter in ("t", "#"):
        stage.do("b2", subscribed("r", topic_filter))
    both = (MATCH, Match(R, "#"))
    assert heard(stage, "b2", DeliverMoved(event(), both, (0, 0), 1)) == [DeliverToClients(event(), both)]
    assert heard(stage, "b2", DeliverMoved(event(), both, (0, 0), 1)) == [DropEvent(event().id, "duplicate")]


def test_an_event_for_where_the_client_was_is_not_given_to_it_where_it_is() -> None:
    stage = departed()
    stage.feed("b2", ClientArrived(R))
    stage.do("b2", moved("r", 5, 15))
    stage.do("b2", subscribed("r", "t"))
    for lat, lon, expected in ((5, 5, DropEvent), (5, 15, DeliverToClients)):
        fenced = replace(event(lon), fence=Circle(Location(lat, lon), 10_000))
        assert [type(action) for action in heard(stage, "b2", DeliverMoved(fenced, (MATCH,), (0,), 1))] == [expected]


def test_what_came_by_itself_is_not_given_again_by_a_former_home_that_goes_on_helping() -> None:
    stage = departed()
    stage.feed("b1", PeerDown(B3))
    stage.feed("b2", ClientArrived(R))
    stage.do("b2", subscribed("r", "t"))
    stage.simulation.advance(stage.simulation.now_ms + int(3 * SETTLE_MS + FORGET_MS))
    assert not stage.node("b2").session_moves
    came = stage.node("b2").handle(PeerSaid(B3, ForwardEvent(event())), now=stage.simulation.now_ms)
    assert came == [DeliverToClients(event(), (MATCH,))]
    assert heard(stage, "b2", DeliverMoved(event(), (MATCH,), (0,), 1)) == [DropEvent(event().id, "duplicate")]


def test_an_event_for_a_client_that_moved_on_follows_it() -> None:
    stage = departed()
    stage.feed("b2", ClientArrived(R))
    stage.do("b2", subscribed("r", "t"))
    stage.feed("b2", ClientDeparted(R, B3))
    (sent,) = heard(stage, "b2", DeliverMoved(event(), (MATCH,), (0,), 1))
    assert sent == SendToPeer(B3, DeliverMoved(event(), (MATCH,), (0,), 2))
    (dropped,) = heard(stage, "b2", DeliverMoved(event(), (MATCH,), (0,), HOPS_MAX))
    assert dropped == DropEvent(event().id, "hop limit")


def test_an_event_for_a_subscription_that_ended_meanwhile_is_dropped() -> None:
    stage = departed()
    assert heard(stage, "b2", DeliverMoved(event(), (MATCH,), (0,), 1)) == [
        DropEvent(event().id, "no longer subscribed")
    ]


def test_the_former_home_forgets_the_client_once_every_broker_has_heard_of_the_new_one() -> None:
    stage = departed()
    stage.feed("b2", ClientArrived(R))
    stage.do("b2", subscribed("r", "t"))
    stage.simulation.advance(stage.simulation.now_ms + int(3 * SETTLE_MS))
    assert R not in stage.node("b1").clients
    assert stage.wire.of(AskSettled)[:1] == [("b1", "b2")]
    assert stage.wire.of(Settled) == [("b2", "b1")]


def test_while_a_link_of_the_new_home_is_down_the_former_home_goes_on_helping() -> None:
    stage = departed()
    stage.feed("b2", PeerDown(B3))
    stage.feed("b2", ClientArrived(R))
    stage.simulation.advance(stage.simulation.now_ms + int(4 * SETTLE_MS))
    assert R in stage.node("b1").clients
    assert stage.node("b2").session_moves
    stage.feed("b2", PeerUp(B3))
    stage.simulation.advance(stage.simulation.now_ms + int(3 * SETTLE_MS + FORGET_MS))
    assert R not in stage.node("b1").clients
    assert not stage.node("b2").session_moves


def test_nobody_but_the_new_home_can_make_the_former_one_forget() -> None:
    stage = departed()
    stage.feed("b1", PeerSaid(B3, Settled((R,))))
    assert R in stage.node("b1").clients


def test_a_client_that_comes_back_is_served_here_again() -> None:
    stage = departed()
    stage.do("b1", subscribed("r", "t"))
    stage.do("b3", published("p", "t"))
    assert stage.wire.receivers() == Counter({"r": 1})
    assert stage.wire.of(DeliverMoved) == []


def test_clients_that_went_to_a_broker_which_left_the_federation_are_forgotten() -> None:
    stage = Stage(row_of_squares(3), "flood_events")
    stage.do("b1", subscribed("r", "t"))
    stage.feed("b1", ClientDeparted(R, B3))
    stage.feed("b1", FederationChanged(row_of_squares(2)))
    assert R not in stage.node("b1").clients


@pytest.mark.parametrize("others", [True, False])
def test_a_member_of_a_share_group_that_left_is_served_at_its_new_home(others: bool) -> None:
    stage = Stage(row_of_squares(2), "dht")
    stage.do("b1", ClientSubscribed(R, "t", None, "crew"))
    if others:
        stage.do("b1", ClientSubscribed(ClientId("q"), "t", None, "crew"))
        stage.do("b1", ClientReady(ClientId("q"), False))
    stage.feed("b1", ClientDeparted(R, B2))
    stage.feed("b2", ClientArrived(R))
    stage.do("b2", ClientSubscribed(R, "t", None, "crew"))
    stage.forget()
    for _ in range(4):
        stage.do("b1", published("p", "t"))
    assert stage.wire.receivers().total() == 4
    assert stage.wire.receivers()["r"] >= (2 if others else 4)
