"""What every registered strategy must do, whatever it is."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.worlds import (
    CLIENTS,
    PLACES,
    actions,
    federation_of,
    home_of,
    on_one_topic,
    quiet_actions,
    script_of,
)

from geomq.geo import Circle, Location
from geomq.routing.core.events import ClientGone, ClientMoved, ClientPublished, ClientSubscribed, RoutingEvent
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.node import Node
from geomq.routing.parts import PARTS
from geomq.routing.strategies.registry import STRATEGIES, messages_of
from geomq.sim.engine import Observer, Origin, Simulation
from geomq.sim.oracle import Oracle
from geomq.sim.tracing import TraceHash

FEDERATED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in STRATEGIES if name != "single"),
    ("broadcast_groups", {"formation": "fixed", "join_ms": 20}),
    ("mesh", {"redundancy": 1, "links": [["ams", "ber"], ["ber", "nyc"], ["nyc", "syd"]]}),
    ("adaptive", {"patience": 1.0}),
    ("digests", {"patience": 1}),
    ("georendezvous", {"nearest": 1}),
    ("georendezvous", {"rendezvous": 1, "refresh_ms": 2_000}),
    ("grid_quorum", {"notify_twice": True}),
]
CASES = pytest.mark.parametrize(
    ("strategy", "options"), FEDERATED, ids=[f"{name}{options or ''}" for name, options in FEDERATED]
)
WARM_UP_MS = 20_000
GAP_MS = 5_000


class Ledger(Observer):
    """Who received each event, by the order of publishing."""

    def __init__(self) -> None:
        self.received: dict[int, Counter[ClientId]] = {}

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        self.received.setdefault(published_ms, Counter())[client] += 1


def play(strategy: str, options: dict[str, Any], events: list[RoutingEvent]) -> tuple[Simulation, Ledger]:
    federation = federation_of()
    ledger = Ledger()
    simulation = Simulation(federation, strategy, options=options, observers=[ledger])
    simulation.connect_all()
    simulation.measure_all()
    script = script_of(events, federation, gap_ms=GAP_MS, start_ms=WARM_UP_MS)
    simulation.run(script, until_ms=WARM_UP_MS + GAP_MS * (len(events) + 4))
    return simulation, ledger


@CASES
@settings(max_examples=40)
@given(events=st.lists(actions, max_size=25))
def test_every_strategy_delivers_what_the_oracle_says_once_quiet(
    strategy: str, options: dict[str, Any], events: list[RoutingEvent]
) -> None:
    _, ledger = play(strategy, options, events)
    check_against_oracle(events, ledger)


def check_against_oracle(events: list[RoutingEvent], ledger: Ledger) -> None:
    oracle = Oracle()
    for number, event in enumerate(events):
        expected = oracle.observe(event)
        if expected is not None:
            got = ledger.received.get(WARM_UP_MS + number * GAP_MS, Counter())
            assert got == Counter(dict.fromkeys(expected, 1)), (number, event)


@CASES
@settings(max_examples=15)
@given(events=st.lists(actions, max_size=20))
def test_no_strategy_remembers_clients_that_are_gone(
    strategy: str, options: dict[str, Any], events: list[RoutingEvent]
) -> None:
    goodbyes: list[RoutingEvent] = [ClientGone(client) for client in CLIENTS]
    simulation, _ = play(strategy, options, [*events, *goodbyes, *(pause() for _ in range(6))])
    untouched, _ = play(strategy, options, [])
    assert sizes(simulation) == sizes(untouched)


def pause() -> RoutingEvent:
    """Something that changes nothing, to let time pass."""
    return ClientGone(CLIENTS[0])


def sizes(simulation: Simulation) -> dict[BrokerId, int]:
    """How much each broker remembers of others."""
    return {
        broker: node.strategy.state_size() if isinstance(node, Node) else node.state_size()  # type: ignore[attr-defined]
        for broker, node in simulation.nodes.items()
    }


@CASES
@settings(max_examples=20)
@given(before=st.lists(quiet_actions, max_size=12), busy=st.lists(on_one_topic, min_size=20, max_size=60))
def test_long_traffic_on_one_topic_is_delivered_as_the_oracle_says(
    strategy: str, options: dict[str, Any], before: list[RoutingEvent], busy: list[RoutingEvent]
) -> None:
    events = before + busy
    _, ledger = play(strategy, options, events)
    check_against_oracle(events, ledger)


@CASES
def test_same_seed_gives_the_same_trace(strategy: str, options: dict[str, Any]) -> None:
    events = actions_for_trace()
    assert trace_hash(strategy, options, events) == trace_hash(strategy, options, events)


def trace_hash(strategy: str, options: dict[str, Any], events: list[RoutingEvent]) -> str:
    federation, hashed = federation_of(), TraceHash()
    simulation = Simulation(federation, strategy, options=options, observers=[hashed])
    simulation.connect_all()
    simulation.run(script_of(events, federation, gap_ms=50), until_ms=20_000)
    return hashed.hexdigest()


class Senders(Observer):
    """Which kinds of messages go from broker to broker."""

    def __init__(self) -> None:
        self.kinds: dict[type[Message], None] = {}

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        if source in PLACES and target in PLACES:
            self.kinds[type(message)] = None


@CASES
def test_every_message_that_a_strategy_sends_to_a_peer_is_one_it_declares(
    strategy: str, options: dict[str, Any]
) -> None:
    federation, senders = federation_of(), Senders()
    simulation = Simulation(federation, strategy, options=options, observers=[senders])
    simulation.connect_all()
    simulation.measure_all()
    simulation.run(script_of(actions_for_trace(), federation, gap_ms=50, start_ms=WARM_UP_MS), until_ms=2 * WARM_UP_MS)
    alone = (strategy, options) == ("broadcast_groups", {})  # far apart, each leads a group of its own
    assert bool(senders.kinds) != alone
    declared = {*messages_of(STRATEGIES[strategy]), *(message for part in PARTS.values() for message in part)}
    assert senders.kinds.keys() <= declared


def actions_for_trace() -> list[RoutingEvent]:
    near, far = Circle(Location(52.0, 9.0), 400_000.0), Circle(Location(40.0, -74.0), 100_000.0)
    moves = [ClientMoved(client, Location(52.0, 4.0 + number)) for number, client in enumerate(CLIENTS)]
    subscribes = [ClientSubscribed(client, "a/#", near) for client in CLIENTS]
    publishes = [ClientPublished(client, "a/b", fence) for client in CLIENTS for fence in (near, far, None)]
    return [*moves, *subscribes, *publishes]


def test_clients_live_at_different_homes() -> None:
    federation = federation_of()
    assert {home_of(client, federation) for client in CLIENTS} == set(federation.ids)
