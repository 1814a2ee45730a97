"""A broker's core: what it tells its strategy, and what it keeps to itself."""

import random
from typing import Any

import pytest
from tests.routing.stage import circle, moved, published, row_of_squares, subscribed, unsubscribed
from tests.routing.worlds import federation_of

from geomq.errors import ConfigError, GeomqError, UsageError
from geomq.geo import Fence, Location
from geomq.routing.core.actions import DeliverToClients, SendToPeer
from geomq.routing.core.events import (
    ClientGone,
    ClientMoved,
    ClientPublished,
    FederationChanged,
    LatencyMeasured,
    PeerDown,
    PeerSaid,
    PeerUp,
)
from geomq.routing.core.messages import ForwardEvent, Message, SyncBegin
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.core.strategy import ClientState, Strategy
from geomq.routing.core.topology import Federation
from geomq.routing.federation.description import describe
from geomq.routing.node import Node


class Recorder(Strategy):
    """Writes down which hooks are called, and what the node knew by then."""

    def __init__(self, **context: Any) -> None:
        super().__init__(**context)
        self.heard: list[tuple[Any, ...]] = []

    def published(self, event: Event, *, now: float) -> None:
        self.heard.append(("published", event.id.sequence, event.location, now))

    def subscribed(self, client: ClientId, topic_filter: str, fence: Fence | None, *, now: float) -> None:
        self.heard.append(("subscribed", client, dict(self.clients[client].subscriptions)))

    def unsubscribed(self, client: ClientId, topic_filter: str, *, now: float) -> None:
        self.heard.append(("unsubscribed", client, dict(self.clients[client].subscriptions)))

    def moved(self, client: ClientId, location: Location | None, *, now: float) -> None:
        self.heard.append(("moved", client, self.clients[client].location))

    def gone(self, client: ClientId, state: ClientState, *, now: float) -> None:
        self.heard.append(("gone", client, client in self.clients, list(state.subscriptions)))

    def said(self, peer: BrokerId, message: Message, *, now: float) -> None:
        self.heard.append(("said", peer, type(message).__name__))

    def peer_up(self, peer: BrokerId, *, now: float) -> None:
        self.heard.append(("up", peer))
        self.send(peer, SyncBegin())

    def peer_down(self, peer: BrokerId, *, now: float) -> None:
        self.heard.append(("down", peer))

    def latency_measured(self, peer: BrokerId, latency_ms: float, *, now: float) -> None:
        self.heard.append(("latency", peer, latency_ms))

    def federation_changed(self, before: Federation, *, now: float) -> None:
        self.heard.append(("federation", len(before.ids), len(self.federation.ids)))

    def next_deadline(self) -> float | None:
        return 42.0

    def on_deadline(self, *, now: float) -> None:
        self.heard.append(("deadline", now))


RECORDER = "tests.routing.test_node:Recorder"


def node_of(strategy: str = RECORDER, epoch: int = 0) -> Node:
    return Node(me=BrokerId("b1"), federation=row_of_squares(2), strategy=strategy, epoch=epoch, rng=random.Random(1))


def heard(node: Node) -> list[tuple[Any, ...]]:
    return node.strategy.heard  # type: ignore[attr-defined, no-any-return]


def test_the_node_knows_before_the_strategy_hears() -> None:
    node = node_of()
    node.handle(moved("c", 1, 2), now=0)
    node.handle(subscribed("c", "t"), now=0)
    node.handle(unsubscribed("c", "t"), now=0)
    node.handle(ClientGone(ClientId("c")), now=0)
    assert heard(node) == [
        ("moved", "c", Location(1, 2)),
        ("subscribed", "c", {"t": None}),
        ("unsubscribed", "c", {}),
        ("gone", "c", False, []),
    ]
    assert node.clients == {}


def test_what_changes_nothing_is_not_passed_on() -> None:
    node = node_of()
    node.handle(moved("c", 1, 2), now=0)
    node.handle(moved("c", 1, 2), now=0)
    node.handle(unsubscribed("c", "t"), now=0)
    node.handle(unsubscribed("stranger", "t"), now=0)
    node.handle(ClientGone(ClientId("stranger")), now=0)
    assert heard(node) == [("moved", "c", Location(1, 2))]


def test_an_event_carries_the_newest_place_and_a_running_number() -> None:
    node = node_of()
    node.handle(published("c", "t"), now=1)
    node.handle(moved("c", 1, 2), now=2)
    node.handle(published("c", "t"), now=3)
    node.handle(ClientPublished(ClientId("c"), "t", location=Location(3, 4)), now=4)
    assert [entry for entry in heard(node) if entry[0] == "published"] == [
        ("published", 1, None, 1),
        ("published", 2, Location(1, 2), 3),
        ("published", 3, Location(3, 4), 4),
    ]
    assert node.clients[ClientId("c")].location == Location(3, 4)


def test_a_restarted_broker_never_reuses_an_event_id() -> None:
    ids = set()
    for epoch in range(3):
        node = node_of("flood_events", epoch=epoch)
        for _ in range(3):
            actions = node.handle(published("c", "t"), now=0)
            ids |= {
                a.message.event.id for a in actions if isinstance(a, SendToPeer) and isinstance(a.message, ForwardEvent)
            }
    assert len(ids) == 9


def test_every_other_input_has_its_hook() -> None:
    node = node_of()
    peer = BrokerId("b2")
    actions = node.handle(PeerUp(peer), now=0)
    assert actions == [SendToPeer(peer, SyncBegin())]
    node.handle(PeerSaid(peer, SyncBegin()), now=0)
    node.handle(PeerDown(peer), now=0)
    node.handle(LatencyMeasured(peer, 7.5), now=0)
    node.handle(FederationChanged(row_of_squares(3)), now=0)
    assert node.next_deadline() == 42.0
    assert node.on_deadline(now=43.0) == []
    assert [entry[0] for entry in heard(node)] == ["up", "said", "down", "latency", "federation", "deadline"]


def test_actions_are_handed_out_once() -> None:
    node = node_of("flood_events")
    node.handle(subscribed("c", "t"), now=0)
    first = node.handle(published("c", "t"), now=0)
    assert [type(action) for action in first] == [SendToPeer, DeliverToClients]
    assert node.handle(moved("c", 1, 1), now=0) == []


def test_a_broker_outside_its_federation_is_refused() -> None:
    with pytest.raises(GeomqError, match="not in its own federation"):
        Node(me=BrokerId("stranger"), federation=row_of_squares(2), strategy="dht", rng=random.Random(1))


def test_a_strategy_that_cannot_serve_is_refused_at_the_start_and_at_a_change() -> None:
    with pytest.raises(ConfigError, match="serves one broker"):
        node_of("single")
    node = Node(me=BrokerId("b1"), federation=row_of_squares(1), strategy="single", rng=random.Random(1))
    with pytest.raises(ConfigError, match="serves one broker"):
        node.handle(FederationChanged(row_of_squares(3)), now=0)
    assert len(node.strategy.federation.ids) == 1


@pytest.mark.parametrize("options", [{"patiance": 2}, {"patience": "many"}, {"patience": 0}])
def test_wrong_options_are_refused_in_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        Node(
            me=BrokerId("b1"),
            federation=row_of_squares(2),
            strategy="adaptive",
            options=options,
            rng=random.Random(1),
        )
    assert str(refused.value).startswith("strategy options: ")
    assert "\n" not in str(refused.value)


def test_a_withdrawn_location_passes_no_fence() -> None:
    node = node_of("flood_events")
    node.handle(subscribed("c", "t"), now=0)
    node.handle(moved("c", 5, 5), now=0)
    near = circle(5, 5, 10)
    assert any(isinstance(action, DeliverToClients) for action in node.handle(published("p", "t", near), now=0))
    node.handle(ClientMoved(ClientId("c"), None), now=0)
    assert not any(isinstance(action, DeliverToClients) for action in node.handle(published("p", "t", near), now=0))


def test_a_node_without_a_federation_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a federation"):
        Node(me=BrokerId("b1"), rng=random.Random(1))


@pytest.mark.parametrize("made", [federation_of(), None])
def test_a_description_or_a_federation_as_it_stands_make_the_same_node(made: Federation | None) -> None:
    described = describe(federation_of(), "flood_events", {})
    node = Node(me=BrokerId("ams"), description=described, federation=made, rng=random.Random(1))
    plain = Node(me=BrokerId("ams"), federation=federation_of(), strategy="flood_events", rng=random.Random(1))
    events = [subscribed("c", "t"), moved("c", 50, 5), published("c", "t"), PeerUp(BrokerId("ber"))]
    assert [node.handle(event, now=0) for event in events] == [plain.handle(event, now=0) for event in events]
    assert node.editions.peers == plain.editions.peers
