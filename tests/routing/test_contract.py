"""What every registered strategy must do, whatever it is."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomq.routing.events import ClientGone, RoutingEvent
from geomq.routing.model import BrokerId, ClientId, Event
from geomq.routing.registry import STRATEGIES
from geomq.sim.engine import Observer, Simulation
from geomq.sim.oracle import Oracle
from tests.routing.worlds import CLIENTS, actions, federation_of, home_of, script_of

FEDERATED = [name for name in STRATEGIES if name != "single"]
WARM_UP_MS = 20_000
GAP_MS = 5_000


class Ledger(Observer):
    """Who received each event, by the order of publishing."""

    def __init__(self) -> None:
        self.received: dict[int, Counter[ClientId]] = {}

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        self.received.setdefault(published_ms, Counter())[client] += 1


def play(strategy: str, events: list[RoutingEvent]) -> tuple[Simulation, Ledger]:
    federation = federation_of()
    ledger = Ledger()
    simulation = Simulation(federation, strategy, observers=[ledger])
    simulation.connect_all()
    script = script_of(events, federation, gap_ms=GAP_MS, start_ms=WARM_UP_MS)
    simulation.run(script, until_ms=WARM_UP_MS + GAP_MS * (len(events) + 4))
    return simulation, ledger


@pytest.mark.parametrize("strategy", FEDERATED)
@settings(max_examples=60, deadline=None)
@given(events=st.lists(actions, max_size=25))
def test_every_strategy_delivers_what_the_oracle_says_once_quiet(strategy: str, events: list[RoutingEvent]) -> None:
    _, ledger = play(strategy, events)
    oracle = Oracle()
    for number, event in enumerate(events):
        expected = oracle.observe(event)
        if expected is not None:
            got = ledger.received.get(WARM_UP_MS + number * GAP_MS, Counter())
            assert got == Counter(dict.fromkeys(expected, 1)), (number, event)


@pytest.mark.parametrize("strategy", FEDERATED)
@settings(max_examples=25, deadline=None)
@given(events=st.lists(actions, max_size=20))
def test_no_strategy_remembers_clients_that_are_gone(strategy: str, events: list[RoutingEvent]) -> None:
    goodbyes: list[RoutingEvent] = [ClientGone(client) for client in CLIENTS]
    simulation, _ = play(strategy, [*events, *goodbyes])
    for broker, node in simulation.nodes.items():
        assert node.strategy.state_size() == 0, broker  # type: ignore[attr-defined]


def test_clients_live_at_different_homes() -> None:
    federation = federation_of()
    assert {home_of(client, federation) for client in CLIENTS} == set(federation.ids)
