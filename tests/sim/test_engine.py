"""Virtual time: what happens when, and in which order inside one millisecond."""

from itertools import pairwise
from typing import Any

import pytest
from tests.routing.stage import moved, published, row_of_squares, subscribed, unsubscribed
from tests.routing.test_contract import actions_for_trace
from tests.routing.worlds import federation_of, script_of

from geomq.geo import Location
from geomq.routing.core.actions import Action
from geomq.routing.core.events import ClientGone, LatencyMeasured, PeerSaid, PeerUp, RoutingEvent
from geomq.routing.core.messages import (
    DeliverEvent,
    DropClient,
    DropSubscription,
    ForwardEvent,
    Message,
    PutLocation,
    PutSubscription,
    SyncBegin,
    SyncEnd,
)
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Match
from geomq.routing.strategies.groups.cloud import CloudNode
from geomq.sim.engine import Observer, Order, Origin, Simulation
from geomq.sim.network import CLOUD, Latencies
from geomq.sim.script import Step
from geomq.sim.tracing import TraceHash

B1, B2, B3 = (BrokerId(f"b{i}") for i in (1, 2, 3))
TICK = 100
EVENT = Event(EventId(B1, 0, 1), "t", ClientId("p"), None, None)
C = ClientId("c1")

FORWARDED: list[tuple[str, Message]] = [
    ("PutLocation", PutLocation(C, Location(1, 1))),
    ("PutSubscription", PutSubscription(C, "t", None, None)),
    ("DropSubscription", DropSubscription(C, "t")),
    ("ForwardEvent", ForwardEvent(EVENT)),
    ("DeliverEvent", DeliverEvent(EVENT, (Match(C, "t"),))),
    ("SyncBegin", SyncBegin()),
]
BY_CLIENTS: list[tuple[str, RoutingEvent]] = [
    ("ClientMoved", moved("c1", 1, 1)),
    ("ClientSubscribed", subscribed("c1", "t")),
    ("ClientUnsubscribed", unsubscribed("c1", "t")),
    ("ClientPublished", published("c1", "t")),
]
KINDS: dict[str, Message | RoutingEvent] = dict([*FORWARDED, *BY_CLIENTS])


class Log(Observer):
    """What was taken in, by whom, when."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, str, str]] = []
        self.origins: list[tuple[str, Any]] = []

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        what = event.message if isinstance(event, PeerSaid) else event
        self.steps.append((t_ms, broker, what if isinstance(what, str) else type(what).__name__))
        self.origins.append((broker, getattr(what, "client", None)))

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        self.steps.append((t_ms, home, "arrival"))


def simulation_of(order: Order = "published", strategy: str = "tests.sim.planted:Idle") -> tuple[Simulation, Log]:
    federation = row_of_squares(3)
    ways = {(a, b): TICK for a in federation.ids for b in federation.ids if a != b}
    log = Log()
    simulation = Simulation(
        federation, strategy, latencies=Latencies(federation, given_ms=ways), order=order, observers=[log]
    )
    return simulation, log


def bring(simulation: Simulation, what: Message | RoutingEvent, target: BrokerId, *, peer: int = 0) -> None:
    """Let something be at a broker at the tick, whether one of its two peers or a client is its source."""
    if isinstance(what, Message):
        source = [broker for broker in (B1, B2, B3) if broker != target][peer]
        simulation.transmit(source, target, what, Origin(C, 0))
    else:
        simulation.act(Step(TICK - 5, target, what))


@pytest.mark.parametrize(("earlier", "later"), list(pairwise(KINDS)))
def test_inside_a_tick_all_brokers_finish_a_kind_before_the_next(earlier: str, later: str) -> None:
    simulation, log = simulation_of()
    for target in (B3, B2, B1):
        bring(simulation, KINDS[later], target, peer=0)
        bring(simulation, KINDS[earlier], target, peer=1)
    simulation.advance(None)
    assert [(t, what) for t, _, what in log.steps] == [(TICK, earlier)] * 3 + [(TICK, later)] * 3


@pytest.mark.parametrize(
    ("alike", "other"), [("DropSubscription", DropClient(C)), ("ClientUnsubscribed", ClientGone(C))]
)
def test_the_end_of_a_client_is_a_removal(alike: str, other: Message | RoutingEvent) -> None:
    simulation, log = simulation_of()
    for what in (other, KINDS[alike]):
        bring(simulation, what, B2)
    simulation.advance(None)
    assert [what for _, _, what in log.steps] == [type(other).__name__, alike]


def test_what_clients_receive_comes_last() -> None:
    simulation, log = simulation_of(strategy="flood_events")
    simulation.run([Step(0, B1, subscribed("s", "t")), Step(10, B1, published("p", "t"))], until_ms=16)
    log.steps.clear()
    simulation.act(Step(15, B1, published("q", "u")))
    simulation.advance(None)
    assert [(t, what) for t, _, what in log.steps if t == 20] == [(20, "ClientPublished"), (20, "arrival")]


def test_inside_a_kind_the_smaller_client_goes_first() -> None:
    simulation, log = simulation_of()
    for name in ("c10", "c9", "c2", "c11"):
        simulation.transmit(B1, B2, PutLocation(ClientId(name), None), Origin(ClientId(name), 3))
        simulation.act(Step(TICK - 5, B3, moved(name, 1, 1)))
    simulation.advance(None)
    assert log.origins == [(B2, c) for c in ("c2", "c9", "c10", "c11")] + [(B3, c) for c in ("c2", "c9", "c10", "c11")]


def test_of_one_client_the_older_action_goes_first() -> None:
    simulation, _ = simulation_of()
    for source, tick in ((B1, 7), (B3, 3)):
        simulation.transmit(source, B2, PutSubscription(C, str(tick), None, None), Origin(C, tick))
    topics = []
    simulation.nodes[B2].strategy.said = lambda peer, message, *, now: topics.append(message.topic_filter)  # type: ignore[attr-defined]
    simulation.advance(None)
    assert topics == ["3", "7"]


def test_what_a_link_says_of_one_client_in_a_tick_is_understood_in_that_order() -> None:
    simulation, log = simulation_of()
    of_another = Origin(ClientId("c9"), 3)
    simulation.transmit(B1, B2, DropSubscription(C, "t"), of_another)
    simulation.transmit(B1, B2, PutSubscription(C, "t", None, None), Origin(C, 5))
    simulation.transmit(B1, B2, PutLocation(C, None), Origin(C, 5))
    simulation.transmit(B1, B2, PutLocation(ClientId("c2"), None), Origin(ClientId("c2"), 5))
    simulation.advance(None)
    about_c = ["DropSubscription", "PutSubscription", "PutLocation"]
    assert [what for _, _, what in log.steps] == ["PutLocation", *about_c]


def test_control_messages_go_as_they_were_sent() -> None:
    simulation, log = simulation_of()
    for message, client in ((SyncBegin(), "c9"), (SyncEnd(), "c2")):
        simulation.transmit(B1, B2, message, Origin(ClientId(client), 0))
    simulation.advance(None)
    assert [what for _, _, what in log.steps] == ["SyncBegin", "SyncEnd"]


def test_fifo_keeps_the_order_of_sending() -> None:
    simulation, log = simulation_of("fifo")
    wrong_way_round = list(reversed([name for name in KINDS if name not in dict(BY_CLIENTS)]))
    for name in wrong_way_round:
        bring(simulation, KINDS[name], B2)
    simulation.advance(None)
    assert [what for _, _, what in log.steps] == wrong_way_round


def test_a_client_is_five_milliseconds_from_its_home() -> None:
    simulation, log = simulation_of("fifo", strategy="flood_events")
    simulation.run([Step(10, B1, subscribed("s", "t")), Step(20, B1, published("p", "t"))])
    assert (25, B1, "ClientPublished") in log.steps
    assert log.steps[-1] == (TICK + 25, B3, "ForwardEvent")
    assert (30, B1, "arrival") in log.steps


def test_time_stops_where_it_is_told_to() -> None:
    simulation, log = simulation_of()
    bring(simulation, SyncBegin(), B2)
    simulation.advance(TICK)
    assert (log.steps, simulation.now_ms) == ([], TICK)
    simulation.advance(TICK + 1)
    assert log.steps == [(TICK, B2, "SyncBegin")]


def test_a_deadline_comes_when_it_is_due_and_not_before() -> None:
    simulation, log = simulation_of()
    strategy = simulation.nodes[B1].strategy  # type: ignore[attr-defined]
    strategy.at = 40.5
    simulation.act(Step(0, B1, moved("c1", 1, 1)))
    simulation.advance(1000)
    assert strategy.deadlines == [41]
    assert (41, B1, "deadline") in log.steps


def test_a_deadline_may_move_closer() -> None:
    simulation, _ = simulation_of()
    strategy = simulation.nodes[B1].strategy  # type: ignore[attr-defined]
    for t, at in ((0, 500.0), (10, 50.0)):
        simulation.advance(t)
        strategy.at = at
        simulation.act(Step(t, B1, moved("c1", 1, t)))
        simulation.advance(t + 6)
    simulation.advance(1000)
    assert strategy.deadlines == [50]


def test_timers_alone_keep_no_run_going() -> None:
    simulation, _ = simulation_of()
    strategy = simulation.nodes[B1].strategy  # type: ignore[attr-defined]
    strategy.at = 10_000.0
    simulation.run([Step(0, B1, moved("c1", 1, 1))])
    assert simulation.now_ms < 10_000
    assert strategy.deadlines == []


def test_connecting_and_measuring_reach_every_pair_once() -> None:
    simulation, log = simulation_of()
    simulation.connect_all()
    simulation.measure_all()
    for kind in (PeerUp, LatencyMeasured):
        assert len([step for step in log.steps if step[2] == kind.__name__]) == 6


def test_groups_get_a_cloud() -> None:
    simulation, _ = simulation_of(strategy="broadcast_groups")
    assert isinstance(simulation.nodes[CLOUD], CloudNode)
    other, _ = simulation_of(strategy="mesh")
    assert CLOUD not in other.nodes


@pytest.mark.parametrize("order", ["fifo", "published"])
@pytest.mark.parametrize("strategy", ["broadcast_groups", "adaptive", "digests", "georendezvous"])
def test_the_same_seed_gives_the_same_hash_and_other_traffic_another(strategy: str, order: Order) -> None:
    def hashed(count: int) -> str:
        federation, observer = federation_of(), TraceHash()
        simulation = Simulation(federation, strategy, order=order, seed=3, observers=[observer])
        simulation.connect_all()
        simulation.run(script_of(actions_for_trace()[:count], federation, gap_ms=20), until_ms=5_000)
        return observer.hexdigest()

    assert hashed(30) == hashed(30) != hashed(29)
