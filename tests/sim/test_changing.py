"""The federation changes while events flow: every strategy goes on delivering what the oracle says."""

import random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from geomq.geo import Circle, Fence, Location
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed, RoutingEvent
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.federation.changes import Change, RemoveBroker, SetAreas, SetStrategy
from geomq.routing.federation.description import BrokerEntry, Description
from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim.changing import Ask, ChangingSimulation, Join
from geomq.sim.checkers import NoDuplicates, SameAsOracle
from geomq.sim.faults import Crash, Cut, Disturbance
from geomq.sim.script import Step

PLACES = {"ams": (52.4, 4.9), "ber": (52.5, 13.4), "lyo": (45.8, 4.8), "mad": (40.4, -3.7), "rom": (41.9, 12.5)}
NAMES = ("ams", "ber", "lyo", "mad")
AMS, BER, LYO, MAD, ROM = (BrokerId(name) for name in PLACES)
FAST: dict[str, dict[str, Any]] = {"mesh": {"announce_ms": 500}}
SETTLED_MS, STREAM_MS, END_MS = 10_000, 40_000, 75_000
STREAMING = [name for name in STRATEGIES if name != "single"]


def entry(name: str) -> BrokerEntry:
    return BrokerEntry(name, PLACES[name], f"{name}:1")


def description(strategy: str) -> Description:
    return Description(tuple(entry(n) for n in NAMES), strategy=strategy, options=FAST.get(strategy, {}))


def switch(strategy: str) -> SetStrategy:
    return SetStrategy(strategy, FAST.get(strategy, {}))


class World:
    """Eight clients at four brokers, a stream of events of QoS 1, and the checkers."""

    def __init__(self, strategy: str, seed: int = 0) -> None:
        self.dice = random.Random(seed)
        self.checkers = [NoDuplicates(), SameAsOracle(from_ms=SETTLED_MS, until_ms=STREAM_MS)]
        self.simulation = ChangingSimulation(
            description(strategy), late={ROM: entry("rom")}, seed=seed, observers=self.checkers
        )
        self.clients = [ClientId(f"c{number}") for number in range(8)]

    def home(self, client: ClientId) -> BrokerId:
        return BrokerId(NAMES[self.clients.index(client) % len(NAMES)])

    def place(self) -> Location:
        return Location(self.dice.uniform(36, 58), self.dice.uniform(-8, 18))

    def fence(self) -> Fence | None:
        radius_m = self.dice.choice([None, 300_000.0, 1_500_000.0])
        return None if radius_m is None else Circle(self.place(), radius_m)

    def step(self, t_ms: int, event: RoutingEvent) -> Step:
        return Step(t_ms, self.home(event.client), event)  # type: ignore[attr-defined]

    def play(self, gap_ms: int = 100) -> list[str]:
        simulation = self.simulation
        simulation.connect_all()
        simulation.measure_all()
        start = [self.step(0, ClientMoved(client, self.place())) for client in self.clients]
        start += [
            self.step(10, ClientSubscribed(client, topic_filter, self.fence()))
            for client in self.clients
            for topic_filter in self.dice.sample(["a/x", "a/+", "b", "#", "+/x"], 2)
        ]
        simulation.run(start, until_ms=SETTLED_MS)
        stream = []
        for number, t_ms in enumerate(range(SETTLED_MS, STREAM_MS, gap_ms)):
            client, topic = self.dice.choice(self.clients), self.dice.choice(["a/x", "a/y", "b", "c/x"])
            published = ClientPublished(client, topic, self.fence(), payload=str(number).encode(), qos=1)
            stream.append(self.step(t_ms, published))
        simulation.run(stream, until_ms=END_MS)
        for checker in self.checkers:
            checker.finish(simulation)
        return [violation for checker in self.checkers for violation in checker.violations]

    def editions(self) -> set[str]:
        return {str(self.simulation.node(BrokerId(name)).editions.edition) for name in NAMES}

    def settled(self, *names: str) -> bool:
        return not any(self.simulation.node(BrokerId(name)).editions.changing for name in (*NAMES, *names))


@pytest.mark.parametrize("strategy", STREAMING)
def test_a_broker_joins_and_leaves_under_load_and_nothing_is_lost(strategy: str) -> None:
    world = World(strategy)
    world.simulation.plan_changes(
        Join(12_000, entry("rom"), seed=BER),
        Ask(26_000, AMS, RemoveBroker("rom")),
    )
    assert world.play() == []
    assert world.editions() == {"2:ams"}
    assert world.settled()
    assert world.simulation.node(ROM).editions.description.names == NAMES
    assert world.simulation.node(ROM).editions.peers == ()


@pytest.mark.parametrize("strategy", STREAMING)
def test_areas_are_redrawn_under_load_and_nothing_is_lost(strategy: str) -> None:
    world = World(strategy, seed=1)
    halves = {"ams": (-180, 0, 0, 90), "ber": (0, 0, 180, 90), "lyo": (-180, -90, 0, 0), "mad": (0, -90, 180, 0)}
    given_areas = {
        name: f"POLYGON(({w} {s}, {e} {s}, {e} {n}, {w} {n}, {w} {s}))" for name, (w, s, e, n) in halves.items()
    }
    world.simulation.plan_changes(
        Ask(12_000, MAD, SetAreas("grid", grid_deg=3)),
        Ask(24_000, LYO, SetAreas("given", areas=given_areas)),
    )
    assert world.play() == []
    assert world.editions() == {"2:lyo"}
    assert world.settled()


def test_the_strategy_changes_under_load_and_nothing_is_lost() -> None:
    world = World("flood_events", seed=2)
    tour = ["disgb_subscriptions", "broadcast_groups", "dht", "mesh", "digests", "adaptive"]
    for number, strategy in enumerate(tour):
        at = BrokerId(NAMES[number % 4])
        world.simulation.plan_changes(Ask(11_000 + 6_000 * number, at, switch(strategy)))
    assert world.play(gap_ms=40) == []
    assert world.settled()
    assert {world.simulation.node(BrokerId(name)).editions.description.strategy for name in NAMES} == {"adaptive"}


def test_two_changes_at_once_are_both_made() -> None:
    world = World("disgb_events", seed=3)
    world.simulation.plan_changes(
        Ask(12_000, AMS, SetAreas("grid", grid_deg=3)),
        Ask(12_001, MAD, switch("dht")),
        Join(12_002, entry("rom"), seed=LYO),
    )
    assert world.play() == []
    assert len(world.editions()) == 1
    found = world.simulation.node(AMS).editions.description
    assert (found.grid_deg, found.strategy, len(found.names)) == (3, "dht", 5)
    assert world.settled("rom")


PROMISING = [name for name in STREAMING if name not in ("mesh", "broadcast_groups")]
"""The others look for another way when a broker is gone, instead of waiting for it."""
moments = st.integers(10_500, 34_000)


@settings(max_examples=15, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    seed=st.integers(0, 10_000),
    first=st.sampled_from(PROMISING),
    asked=st.lists(
        st.tuples(
            moments,
            st.sampled_from(NAMES),
            st.one_of(
                st.sampled_from(PROMISING).map(switch),
                st.sampled_from([SetAreas("grid", grid_deg=3), SetAreas("nearest"), SetAreas("grid", grid_deg=1)]),
                st.just(RemoveBroker("rom")),
            ),
        ),
        max_size=4,
    ),
    joins=st.booleans(),
    crashed=st.lists(st.tuples(moments, st.sampled_from(NAMES)), max_size=2),
    cut=st.lists(st.tuples(moments, st.sampled_from(["ber", "lyo", "mad"])), max_size=3),
    loss=st.sampled_from([0.0, 0.1]),
)
def test_changes_among_faults_lose_nothing_and_everybody_converges(
    seed: int,
    first: str,
    asked: list[tuple[int, str, Change]],
    joins: bool,
    crashed: list[tuple[int, str]],
    cut: list[tuple[int, str]],
    loss: float,
) -> None:
    world = World(first, seed)
    simulation = world.simulation
    simulation.disturbance = Disturbance(loss=loss, repeat=loss, late=loss)
    simulation.plan_changes(*(Ask(t, BrokerId(at), change) for t, at, change in asked))
    if joins:
        simulation.plan_changes(Join(13_000, entry("rom"), seed=LYO))
    simulation.plan(
        cuts=[Cut(t, t + 2_500, AMS, BrokerId(other)) for t, other in cut],
        crashes=[Crash(t, t + 1_500, BrokerId(broker)) for t, broker in crashed],
    )
    assert world.play() == []
    assert len(world.editions()) == 1
    assert world.settled()
