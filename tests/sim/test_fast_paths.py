"""Plain events on the fast path of the simulator: they go where the plans say, in batches, and are noted as seen."""

import random

from tests.routing.stage import nearest_of, subscribed

from geomq.geo import Location
from geomq.routing.core.actions import Action
from geomq.routing.core.events import ClientPublished, PeerSaid, PeerUp, RoutingEvent
from geomq.routing.core.messages import ForwardEvent, is_promised
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.core.plan import DurableBatch, EventBatch
from geomq.routing.node import Node
from geomq.sim.engine import Observer, Simulation
from geomq.sim.fast_paths import FastPaths
from geomq.sim.script import Step

PLACES = {"a": Location(50.0, 0.0), "b": Location(50.0, 20.0)}
A, B = BrokerId("a"), BrokerId("b")


class Seen(Observer):
    def __init__(self) -> None:
        self.batches: list[EventBatch] = []
        self.received: dict[ClientId, list[int]] = {}

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        if isinstance(event, PeerSaid) and isinstance(event.message, EventBatch):
            self.batches.append(event.message)

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        self.received.setdefault(client, []).append(int(event.payload))


def run(seed: int, **changed: int) -> Seen:
    """Eight events of one client in one millisecond; a client at each broker wants them."""
    seen = Seen()
    simulation = Simulation(nearest_of(PLACES), "flood_events", observers=[seen], fast_paths=FastPaths(seed))
    simulation.connect_all()
    simulation.run([Step(0, A, subscribed("near", "t")), Step(0, B, subscribed("far", "t"))], until_ms=1_000)
    events = [ClientPublished(ClientId("p"), "t", payload=str(n).encode(), **changed) for n in range(8)]  # type: ignore[arg-type]
    simulation.run([Step(1_000, A, event) for event in events], until_ms=3_000)
    return seen


def test_events_that_follow_each_other_share_batches_and_entries_and_all_arrive_in_order() -> None:
    runs = [run(seed) for seed in range(20)]
    assert all(seen.received == {"near": [*range(8)], "far": [*range(8)]} for seen in runs)
    entries = [entry for seen in runs for batch in seen.batches for entry in batch.entries]
    assert any(entry.events > 1 for entry in entries)
    assert any(len(batch.entries) > 1 for seen in runs for batch in seen.batches)


def test_events_of_qos_1_go_in_batches_that_are_not_lost() -> None:
    runs = [run(seed, qos=1) for seed in range(20)]
    assert all(seen.received == {"near": [*range(8)], "far": [*range(8)]} for seen in runs)
    batches = [batch for seen in runs for batch in seen.batches]
    assert batches
    assert all(is_promised(batch) and batch.once_sent() is batch for batch in batches)


def test_events_of_qos_1_for_a_peer_that_is_away_go_one_by_one() -> None:
    node = Node(me=A, federation=nearest_of(PLACES), strategy="flood_events", rng=random.Random(1))
    paths = FastPaths(1)
    for number in range(8):
        paths.publish(node, ClientPublished(ClientId("p"), "t", payload=b"%d" % number, qos=1))
    assert {type(action.message) for action in paths.send(node)} == {ForwardEvent}
    node.handle(PeerUp(B), now=0.0)
    for number in range(8):
        paths.publish(node, ClientPublished(ClientId("p"), "t", payload=b"%d" % number, qos=1))
    assert [type(action.message) for action in paths.send(node)] == [DurableBatch]


def test_events_of_qos_2_go_one_by_one() -> None:
    seen = run(0, qos=2)
    assert seen.batches == []
    assert seen.received == {"near": [*range(8)], "far": [*range(8)]}


def test_the_same_seed_takes_the_same_paths() -> None:
    assert run(3).batches == run(3).batches
