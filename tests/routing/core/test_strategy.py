"""The base of all strategies: a strategy that does nothing does no harm."""

import random
from typing import Annotated

import msgspec
import pytest
from tests.routing.stage import moved, published, row_of_squares, subscribed, unsubscribed

from geomq.errors import ConfigError
from geomq.geo import Location
from geomq.routing.core.actions import DeliverToClients, DropEvent
from geomq.routing.core.events import ClientGone, FederationChanged, LatencyMeasured, PeerDown, PeerSaid, PeerUp
from geomq.routing.core.messages import SyncBegin
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.strategy import Strategy, StrategyOptions
from geomq.routing.node import Node


class Options(StrategyOptions, frozen=True):
    size: Annotated[int, msgspec.Meta(ge=1, le=9)] = 3


class Sized(Strategy):
    Options = Options


def idle() -> Node:
    return Node(
        me=BrokerId("b1"),
        federation=row_of_squares(2),
        strategy="geomq.routing.core.strategy:Strategy",
        rng=random.Random(1),
    )


def test_hooks_that_are_not_overridden_do_nothing() -> None:
    node, peer = idle(), BrokerId("b2")
    inputs = [
        PeerUp(peer),
        PeerSaid(peer, SyncBegin()),
        moved("c", 1, 1),
        subscribed("c", "t"),
        published("c", "t"),
        unsubscribed("c", "t"),
        ClientGone(ClientId("c")),
        LatencyMeasured(peer, 1.0),
        PeerDown(peer),
        FederationChanged(row_of_squares(3)),
    ]
    assert [node.handle(event, now=0) for event in inputs] == [[]] * len(inputs)
    assert node.next_deadline() is None
    assert node.on_deadline(now=1) == []
    assert node.strategy.state_size() == 0


def event() -> Event:
    return Event(EventId(BrokerId("b1"), 0, 1), "t", ClientId("p"), Location(0, 0), None)


def test_a_delivery_to_nobody_is_no_action() -> None:
    strategy = idle().strategy
    strategy.deliver(event(), ())
    assert strategy.take_actions() == []


def test_actions_come_in_the_order_they_were_asked_for() -> None:
    strategy = idle().strategy
    strategy.drop(event().id, "why")
    strategy.deliver(event(), (Match(ClientId("c"), "t"),))
    assert [type(action) for action in strategy.take_actions()] == [DropEvent, DeliverToClients]
    assert strategy.take_actions() == []


def test_a_successor_inherits_what_was_seen() -> None:
    before, after = idle().strategy, idle().strategy
    before.seen.first(event().id)
    after.inherit(before)
    assert not after.seen.first(event().id)


def test_options_have_defaults_and_limits() -> None:
    assert Sized.parse_options({}) == Options(size=3)
    assert Sized.parse_options({"size": 9}) == Options(size=9)


@pytest.mark.parametrize("options", [{"size": 0}, {"size": 10}, {"size": "3"}, {"size": None}, {"weight": 1}])
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"^strategy options: [^\n]+$"):
        Sized.parse_options(options)
