"""What is about one broker stays at that broker, under every strategy."""

import random

import pytest
from tests.routing.stage import circle, published, subscribed
from tests.routing.worlds import federation_of

from geomq.geo import Location
from geomq.routing.core.actions import DeliverToClients, DeliverToOne
from geomq.routing.core.events import ClientGone, ClientMoved, ClientPublished, ClientSubscribed, ClientUnsubscribed
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.node import Node
from geomq.routing.sharing.own_topics import is_own

LOAD = ClientPublished(ClientId("broker"), "$SYS/load")


def node_of(strategy: str = "flood_events") -> Node:
    return Node(me=BrokerId("ams"), federation=federation_of(), strategy=strategy, rng=random.Random(1))


@pytest.mark.parametrize("strategy", ["flood_events", "dht", "disgb_subscriptions", "mesh"])
def test_what_a_broker_says_of_itself_stays_at_home(strategy: str) -> None:
    node = node_of(strategy)
    told = node.handle(ClientSubscribed(ClientId("c"), "$SYS/#"), now=0)
    told += node.handle(LOAD, now=0)
    assert [type(action) for action in told] == [DeliverToClients]
    node.handle(ClientUnsubscribed(ClientId("c"), "$SYS/#"), now=0)
    assert node.handle(LOAD, now=0) == []


def test_share_groups_serve_one_member_of_what_is_about_the_broker() -> None:
    node = node_of()
    for name in ("c", "d"):
        assert node.handle(ClientSubscribed(ClientId(name), "$SYS/#", None, "crew"), now=0) == []
    (served,) = node.handle(LOAD, now=0)
    assert isinstance(served, DeliverToOne)
    for name in ("c", "d"):
        node.handle(ClientGone(ClientId(name)), now=0)
    assert node.handle(LOAD, now=0) == []


def test_fences_hold_for_what_is_about_the_broker() -> None:
    node = node_of()
    node.handle(subscribed("c", "$SYS/load", circle(50, 5, 10)), now=0)
    assert node.handle(LOAD, now=0) == []
    node.handle(ClientMoved(ClientId("broker"), Location(50, 5)), now=0)
    assert [type(action) for action in node.handle(LOAD, now=0)] == [DeliverToClients]


def test_only_the_first_level_says_what_is_about_the_broker() -> None:
    assert is_own("$SYS/load")
    assert not is_own("a/$SYS/load")
    assert [type(action).__name__ for action in node_of().handle(published("c", "a/$SYS/load"), now=0)] != []
