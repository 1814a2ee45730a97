"""Clients go from broker to broker while frames get lost, links are cut and brokers crash: each event arrives once."""

import pytest

from geomq.routing.core.events import ClientMoved, ClientSubscribed
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.node import Node
from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim.checkers import Checker, NoDuplicates, SameAsOracle
from geomq.sim.engine import Origin
from geomq.sim.faults import Disturbance, FaultySimulation
from geomq.sim.script import Step
from geomq.sim.sessions import KeptSession, SessionDisks
from geomq.sim.soak_world import DRAIN_MS, REROUTING, SETTLED_MS, Dicer

PATIENT = [name for name in STRATEGIES if name != "single" and name not in REROUTING]
R = ClientId("r")


def play(strategy: str, seed: int, *, refuses: bool) -> tuple[SessionDisks, FaultySimulation, list[str]]:
    """A client hops through a federation in trouble, which is healed in the end; what was wrong with what it got."""
    dicer, disks = Dicer(1_000 + seed), SessionDisks(seed, refuses=refuses)
    checkers: list[Checker] = [NoDuplicates(), SameAsOracle(from_ms=SETTLED_MS, until_ms=DRAIN_MS)]
    simulation = FaultySimulation(dicer.federation, strategy, seed=seed, observers=checkers, sessions=disks)
    simulation.connect_all()
    simulation.measure_all()
    ids, place = dicer.federation.ids, dicer.place()
    disks.begin(ids[0], R, KeptSession(place, {"#": None}))
    first = [ClientMoved(R, place), ClientSubscribed(R, "#")]
    settle = [*dicer.setting_up(), *(Step(3_000, ids[0], event) for event in first)]
    simulation.run(sorted(settle, key=lambda step: step.t_ms), until_ms=SETTLED_MS)
    loss = dicer.random.choice([0.0, 0.05, 0.2])
    simulation.disturbance = Disturbance(loss=loss, repeat=loss, late=loss)
    simulation.plan(*dicer.faults(SETTLED_MS, DRAIN_MS))
    for step in dicer.script([dicer.publish() for _ in range(60)], SETTLED_MS, DRAIN_MS):
        simulation.advance(step.t_ms)
        if dicer.random.random() < 0.2:
            go(simulation, disks, dicer.random.choice(ids))
        simulation.act(step)
    simulation.disturbance = Disturbance()
    for _ in range(12):
        if R not in disks.at:
            go(simulation, disks, ids[1])
        simulation.advance(simulation.now_ms + 5_000)
    simulation.advance(simulation.now_ms + 90_000)
    for checker in checkers:
        checker.finish(simulation)
    return disks, simulation, [violation for checker in checkers for violation in checker.violations]


def go(simulation: FaultySimulation, disks: SessionDisks, target: BrokerId) -> None:
    """The client connects at a broker that is up; at one where it is already, it does so once more."""
    if target not in simulation._crashed:
        simulation.feed(target, disks.connect(target, R, simulation.now_ms), Origin(None, simulation.now_ms))


@pytest.mark.parametrize("strategy", PATIENT)
def test_moves_under_faults_lose_and_double_nothing(strategy: str) -> None:
    given = turned_away = 0
    for seed in range(5):
        disks, simulation, violations = play(strategy, seed, refuses=True)
        assert violations == [], seed
        assert disks.new == 0, "the session was always found"
        where = [broker for broker, disk in disks.disks.items() if R in disk.sessions]
        assert where == [disks.at[R]], "there is one session, where the client is"
        nodes = [node for node in simulation.nodes.values() if isinstance(node, Node)]
        assert sum(len(node.session_moves) + node.session_searches.open for node in nodes) == 0, "everything settled"
        assert not any(disk.notes.get(kind) for disk in disks.disks.values() for kind in ("departed", "had"))
        given += disks.given
        turned_away += len(disks.turned_away)
    assert given > 8
    assert turned_away > 3


def test_sessions_at_both_sides_of_a_split_become_one() -> None:
    new = 0
    for seed in range(8):
        disks, _, _ = play("flood_events", seed, refuses=False)
        where = [broker for broker, disk in disks.disks.items() if R in disk.sessions]
        assert where == [disks.at[R]], seed
        new += disks.new
    assert new > 0, "sometimes the client did not wait for its session"
