"""Things go wrong: what the wire, cuts and crashes do, and what they must not do."""

from collections import Counter

import msgspec
import pytest
from tests.routing.stage import Wire, moved, published, row_of_squares, subscribed

from geomq.routing.core.actions import Action
from geomq.routing.core.events import ClientGone, PeerDown, PeerUp, RoutingEvent
from geomq.routing.core.messages import DeliverEvent
from geomq.routing.core.model import BrokerId, ClientId, EventId
from geomq.sim.engine import Observer
from geomq.sim.faults import CALM, Crash, Cut, Disturbance, FaultySimulation
from geomq.sim.network import Latencies
from geomq.sim.script import Step
from geomq.sim.tracing import TraceHash

B1, B2, B3 = (BrokerId(f"b{i}") for i in (1, 2, 3))


class Ups(Observer):
    """When links were seen to come up and to break."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str, str, str]] = []

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        if isinstance(event, PeerUp | PeerDown):
            self.seen.append((t_ms, broker, "up" if isinstance(event, PeerUp) else "down", event.peer))


def faulty(
    strategy: str = "flood_subscriptions", disturbance: Disturbance = CALM, seed: int = 0
) -> tuple[FaultySimulation, Wire, Ups]:
    """Three brokers 10 ms apart; s at b1 wants t. Everything is quiet at 1000 ms."""
    federation = row_of_squares(3)
    ways = {(a, b): 10 for a in federation.ids for b in federation.ids if a != b}
    wire, ups = Wire(), Ups()
    simulation = FaultySimulation(
        federation,
        strategy,
        latencies=Latencies(federation, given_ms=ways),
        seed=seed,
        observers=[wire, ups],
    )
    simulation.connect_all()
    simulation.run([Step(0, B1, moved("s", 5, 5)), Step(0, B1, subscribed("s", "t"))], until_ms=1_000)
    wire.messages.clear()
    ups.seen.clear()
    simulation.disturbance = disturbance
    return simulation, wire, ups


def publish(*times: int, home: BrokerId = B2) -> list[Step]:
    event = msgspec.structs.replace(published("p", "t"), qos=1)
    return [Step(t, home, event) for t in times]


@pytest.mark.parametrize(
    "disturbance",
    [Disturbance(loss=0.4), Disturbance(repeat=0.6), Disturbance(late=0.6), Disturbance(0.3, 0.3, 0.3)],
    ids=["loss", "repeat", "late", "all"],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_rough_wire_loses_nothing_repeats_nothing_and_keeps_the_order(disturbance: Disturbance, seed: int) -> None:
    simulation, wire, _ = faulty(disturbance=disturbance, seed=seed)
    simulation.run(publish(*range(1_000, 2_000, 25)), until_ms=60_000)
    assert [event_id.sequence for _, event_id in wire.received] == list(range(1, 41))


def test_a_wire_that_loses_everything_carries_nothing_until_it_is_mended() -> None:
    simulation, wire, _ = faulty(disturbance=Disturbance(loss=1.0))
    simulation.run(publish(1_000, 1_100), until_ms=20_000)
    assert wire.received == []
    simulation.disturbance = CALM
    simulation.advance(30_000)
    assert wire.receivers() == {"s": 2}


def test_a_message_counts_once_however_often_it_is_sent_again() -> None:
    simulation, wire, _ = faulty(disturbance=Disturbance(loss=0.5))
    simulation.run(publish(*range(1_000, 1_500, 50)), until_ms=60_000)
    assert Counter(wire.of(DeliverEvent)) == {("b2", "b1"): 10}


def test_a_cut_is_noticed_at_both_ends_and_events_wait_for_its_end() -> None:
    simulation, wire, ups = faulty()
    simulation.plan(cuts=[Cut(2_000, 5_000, B1, B2)])
    simulation.run(publish(3_000, 3_500), until_ms=4_900)
    assert wire.received == []
    assert ups.seen == [(2_000, "b1", "down", "b2"), (2_000, "b2", "down", "b1")]
    simulation.advance(10_000)
    assert wire.receivers() == {"s": 2}
    assert {(broker, what) for _, broker, what, _ in ups.seen[2:]} == {("b1", "up"), ("b2", "up")}


def test_others_do_not_feel_a_cut() -> None:
    simulation, wire, _ = faulty()
    simulation.plan(cuts=[Cut(2_000, 5_000, B1, B2)])
    simulation.run(publish(3_000, home=B3), until_ms=3_100)
    assert wire.receivers() == {"s": 1}


def test_cuts_that_overlap_end_with_the_last() -> None:
    simulation, wire, _ = faulty()
    simulation.plan(cuts=[Cut(2_000, 4_000, B1, B2), Cut(3_000, 6_000, B2, B1)])
    simulation.run(publish(3_500), until_ms=5_900)
    assert wire.received == []
    simulation.advance(10_000)
    assert wire.receivers() == {"s": 1}


def test_what_was_on_the_wire_at_a_cut_is_not_lost() -> None:
    simulation, wire, _ = faulty()
    simulation.plan(cuts=[Cut(2_010, 4_000, B1, B2)])
    simulation.run(publish(2_000), until_ms=10_000)
    assert wire.receivers() == {"s": 1}


def test_clients_of_a_crashed_broker_wait_until_it_is_back() -> None:
    simulation, wire, _ = faulty()
    simulation.plan(crashes=[Crash(2_000, 5_000, B2)])
    simulation.run(publish(3_000), until_ms=4_900)
    assert wire.received == []
    simulation.advance(10_000)
    assert wire.received == [("s", EventId(B2, 1, 1))]


def test_a_broker_comes_back_with_its_sessions_and_what_it_held() -> None:
    simulation, wire, _ = faulty()
    simulation.plan(crashes=[Crash(2_000, 5_000, B1), Crash(6_000, 7_000, B2)])
    simulation.run(publish(3_000, 8_000), until_ms=20_000)
    assert wire.received == [("s", EventId(B2, 0, 1)), ("s", EventId(B2, 1, 1))]


def test_an_event_seen_before_a_crash_is_not_delivered_after_it() -> None:
    """The acknowledgement is lost with the crash, so the event is sent again; the broker remembers it."""
    simulation, wire, _ = faulty()
    simulation.plan(crashes=[Crash(2_016, 3_000, B1)])
    simulation.run(publish(2_000), until_ms=10_000)
    assert wire.receivers() == {"s": 1}


def test_a_second_crash_of_a_crashed_broker_changes_nothing() -> None:
    simulation, wire, _ = faulty()
    simulation.plan(crashes=[Crash(2_000, 4_000, B2), Crash(3_000, 5_000, B2)])
    simulation.run(publish(4_500), until_ms=10_000)
    assert wire.received == [("s", EventId(B2, 1, 1))]


def test_what_changed_during_a_cut_is_known_after_it() -> None:
    simulation, wire, _ = faulty()
    simulation.plan(cuts=[Cut(2_000, 5_000, B1, B2)])
    steps = [Step(3_000, B1, ClientGone(ClientId("s"))), Step(3_100, B1, subscribed("late", "t"))]
    simulation.run([*steps, *publish(8_000)], until_ms=10_000)
    assert wire.receivers() == {"late": 1}


def test_the_same_seed_gives_the_same_misfortune() -> None:
    def hashed(seed: int) -> str:
        simulation, _, _ = faulty(disturbance=Disturbance(0.3, 0.3, 0.3), seed=seed)
        observer = TraceHash()
        simulation.observers.append(observer)
        simulation.plan([Cut(1_500, 2_500, B1, B3)], [Crash(2_000, 4_000, B2)])
        simulation.run(publish(*range(1_000, 5_000, 100)), until_ms=20_000)
        return observer.hexdigest()

    assert hashed(1) == hashed(1) != hashed(2)
