"""A plan says exactly what a strategy would do with every plain event, until it says that plans have changed."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.routing.stage import grid_of, moved, published, subscribed, unsubscribed

from geomq.errors import ProtocolError
from geomq.geo import Circle, Location
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.core.actions import Action, DeliverToClients, SendToPeer
from geomq.routing.core.events import ClientGone, ClientMoved, ClientPublished, ClientSubscribed, PeerSaid
from geomq.routing.core.messages import DeliverEvent, ForwardEvent
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.core.plan import Batched, EventBatch, Plan, ToPeer, singly, spread
from geomq.routing.node import Node
from geomq.routing.strategies.flooding import FloodEvents
from geomq.routing.strategies.registry import STRATEGIES
from geomq.routing.strategies.rendezvous import RendezvousStrategy
from geomq.sim.engine import Simulation
from geomq.sim.script import Step

PLANNING = [name for name, kind in STRATEGIES.items() if kind.__dict__.get("plans") and name != "single"]
TOPICS = ("a", "a/b", "c", "d/e")
FILTERS = (*TOPICS, "a/#", "+/b", "#")


def as_plan(actions: Sequence[Action]) -> Plan:
    """What was done, in the form of a plan."""
    own: tuple[Match, ...] = ()
    peers: list[ToPeer] = []
    for action in actions:
        if isinstance(action, DeliverToClients):
            own = action.matches
        else:
            assert isinstance(action, SendToPeer)
            assert isinstance(action.message, ForwardEvent | DeliverEvent)
            peers.append(ToPeer(action.peer, getattr(action.message, "matches", None)))
    return Plan(own, tuple(peers))


def some_step(dice: random.Random, t_ms: int) -> Step:
    number = dice.randrange(12)
    name, home = f"c{number}", BrokerId(f"r{number % 2}c{number // 2 % 2}")
    spot = Location(dice.uniform(-5.0, 15.0), dice.uniform(-5.0, 15.0))
    fence = Circle(spot, 900_000.0) if dice.random() < 0.05 else None
    choice = dice.random()
    if choice < 0.4:
        event: Any = ClientSubscribed(ClientId(name), dice.choice(FILTERS), fence)
    elif choice < 0.6:
        event = unsubscribed(name, dice.choice(FILTERS))
    elif choice < 0.8:
        event = moved(name, spot.lat, spot.lon)
    elif choice < 0.85:
        event = ClientGone(ClientId(name))
    else:
        event = published(name, dice.choice(TOPICS))
    return Step(t_ms, home, event)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strategy", PLANNING)
def test_a_plan_is_what_would_be_done(strategy: str, seed: int) -> None:
    dice, simulation = random.Random(seed), Simulation(grid_of(2), strategy)
    simulation.connect_all()
    simulation.advance(None)
    known: dict[tuple[BrokerId, str], tuple[object, Plan | None]] = {}
    planned = 0
    for number in range(120):
        step = some_step(dice, 1_000 * (number + 1))
        simulation.run([step], until_ms=step.t_ms + 900)
        for name, node in simulation.nodes.items():
            assert isinstance(node, Node)
            for topic in TOPICS:
                plan, since = node.plan(topic), node.plans_since()
                before = known.get((name, topic))
                if before is not None and before[0] == since:
                    assert plan == before[1]
                known[name, topic] = since, plan
        topic, name = dice.choice(TOPICS), dice.choice(list(simulation.nodes))
        node = simulation.nodes[name]
        assert isinstance(node, Node)
        plan = node.plan(topic)
        if plan is not None:
            planned += 1
            client = next(iter(node.clients), ClientId("somebody"))
            assert as_plan(node.handle(ClientPublished(client, topic), now=simulation.now_ms)) == plan
            check_arrivals(simulation, node, plan, topic)
    assert planned > 10


def check_arrivals(simulation: Simulation, origin: Node, plan: Plan, topic: str) -> None:
    """What arrives at the peers is planned there as it is handled."""
    assert origin.latest is not None
    for peer, matches in plan.peers:
        node = simulation.nodes[peer]
        assert isinstance(node, Node)
        message = ForwardEvent(origin.latest) if matches is None else DeliverEvent(origin.latest, matches)
        expected = node.plan_arrival(topic, origin.me, matches, None)
        actions = [
            action
            for action in node.handle(PeerSaid(origin.me, message), now=simulation.now_ms)
            if isinstance(action, DeliverToClients | SendToPeer)
        ]
        if expected is not None:
            assert as_plan(actions) == (expected, ())


def test_a_fence_on_the_topic_or_a_share_group_leaves_no_plan() -> None:
    simulation = Simulation(grid_of(2), "flood_subscriptions")
    simulation.connect_all()
    node = simulation.nodes[BrokerId("r0c0")]
    assert isinstance(node, Node)
    node.handle(subscribed("s", "t"), now=0)
    assert node.plan("t") == ((Match(ClientId("s"), "t"),), ())
    since = node.plans_since()
    node.handle(ClientSubscribed(ClientId("s"), "#", Circle(Location(0.0, 0.0), 10.0)), now=0)
    assert node.plans_since() != since
    assert node.plan("t") is None
    node.handle(unsubscribed("s", "#"), now=0)
    assert node.plan("t") is not None
    node.handle(ClientSubscribed(ClientId("s"), "t", None, "group"), now=0)
    assert node.plan("t") is None
    assert node.plan("$SYS/x") is None


def test_while_a_client_roams_unconfirmed_there_is_no_plan() -> None:
    simulation = Simulation(grid_of(2), "disgb_events")
    simulation.connect_all()
    simulation.advance(None)
    node = simulation.nodes[BrokerId("r0c0")]
    assert isinstance(node, Node)
    assert node.plan("t") is not None
    since = node.plans_since()
    simulation.run([Step(1_000, BrokerId("r0c0"), ClientMoved(ClientId("c"), Location(14.0, 14.0)))], until_ms=1_006)
    assert node.plan("t") is None
    assert node.plans_since() != since
    simulation.advance(10_000)
    assert node.plan("t") is not None


def test_a_derived_strategy_makes_no_plans_unless_it_says_so() -> None:
    class Mine(FloodEvents):
        pass

    federation = grid_of(2)
    made = [
        kind(me=federation.ids[0], federation=federation, clients={}, options=kind.Options(), rng=random.Random(1))
        for kind in (FloodEvents, Mine)
    ]
    assert all(isinstance(one, RendezvousStrategy) for one in made)
    assert [one.plan("t") is None for one in made] == [False, True]
    assert [one.plan_forwarded("t", BrokerId("x")) is None for one in made] == [False, True]
    assert [one.plan_delivered(()) is None for one in made] == [False, True]


def batch_of(*packets: bytes, **changed: Any) -> tuple[EventBatch, Batched, bytes]:
    data = b"".join(packets)
    fields: dict[str, Any] = {"events": len(packets), "is_v5": False, "matches": None, "place": (1.0, 2.0)}
    entry = Batched(publisher=ClientId("p"), sequence=7, size=len(data), **(fields | changed))
    return EventBatch(3, 99, (entry,), (data,)), entry, data


def plain(topic: str, payload: bytes = b"x", version: int = V311) -> bytes:
    return encode(Publish(topic, payload), version)


@pytest.mark.parametrize("version", [V311, V5])
def test_a_batch_stands_for_its_events_one_by_one(version: int) -> None:
    packets = [plain("a", b"1", version), plain("b/c", b"2" * 200, version)]
    batch, entry, data = batch_of(*packets, is_v5=version == V5)
    first, second = singly(BrokerId("paris"), batch, entry, data)
    where = Location(1.0, 2.0)
    assert first == ForwardEvent(
        Event(EventId(BrokerId("paris"), 3, 7), "a", ClientId("p"), where, None, b"1", at_ms=99)
    )
    assert isinstance(second, ForwardEvent)
    assert (second.event.id.sequence, second.event.topic, len(second.event.payload)) == (8, "b/c", 200)
    assert list(singly(BrokerId("paris"), batch, entry, data, skip=1)) == [second]
    matches = (Match(ClientId("s"), "#"),)
    _, entry, data = batch_of(*packets, is_v5=version == V5, matches=matches, place=None)
    deliver = list(singly(BrokerId("paris"), batch, entry, data))
    assert [(one.matches, one.event.location) for one in deliver if isinstance(one, DeliverEvent)] == [
        (matches, None)
    ] * 2


@pytest.mark.parametrize(
    ("packets", "changed"),
    [
        ([plain("a")], {"events": 2}),
        ([plain("a"), plain("a")], {"events": 1}),
        ([plain("a")], {"place": (91.0, 0.0)}),
        ([plain("a")], {"place": (float("nan"), 0.0)}),
        ([plain("a")], {"is_v5": True}),
        ([b"\x31" + plain("a")[1:]], {}),
        ([b"\x30\x05\x00\x01"], {}),
        ([b"\x30\x03\x00\x01+"], {}),
        ([b"\x30\x02\x00\x00"], {}),
        ([b"\x30\x04\x00\x02\xff\xff"], {}),
        ([b"\x30\xff\xff\xff\xff\x7f"], {}),
        ([b""], {}),
    ],
)
def test_a_batch_that_makes_no_sense_is_refused(packets: list[bytes], changed: dict[str, Any]) -> None:
    batch, entry, data = batch_of(*packets, **changed)
    with pytest.raises(ProtocolError):
        list(singly(BrokerId("paris"), batch, entry, data))


def sized(*sizes: int) -> EventBatch:
    entries = tuple(Batched(ClientId("p"), None, 1, 1, False, None, size) for size in sizes)
    return EventBatch(1, 2, entries, (b"",))


def test_the_packets_of_a_batch_are_spread_over_its_entries() -> None:
    batch = sized(3, 0, 5)
    assert [(start, end) for _, start, end in spread(batch, 8)] == [(0, 3), (3, 3), (3, 8)]
    assert list(spread(sized(), 0)) == []


@pytest.mark.parametrize(("sizes", "size"), [((3, 5), 7), ((3, 5), 9), ((-1, 4), 3), ((4, -1), 3), ((), 1), ((9,), 3)])
def test_entries_that_claim_more_or_less_than_there_is_are_refused(sizes: tuple[int, ...], size: int) -> None:
    with pytest.raises(ProtocolError):
        list(spread(sized(*sizes), size))
