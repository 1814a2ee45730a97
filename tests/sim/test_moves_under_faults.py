"""Sessions move between brokers while frames get lost, links are cut and brokers crash: each event arrives once."""

import random
from typing import Any

import pytest

from geomq.routing.core.events import ClientArrived, ClientDeparted, ClientMoved, ClientSubscribed, PeerSaid
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.node import Node
from geomq.routing.sessions.moves import HandOver
from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim.checkers import Checker, NoDuplicates, SameAsOracle
from geomq.sim.engine import Origin
from geomq.sim.faults import Disturbance, FaultySimulation
from geomq.sim.script import Step
from geomq.sim.soak_world import DRAIN_MS, REROUTING, SETTLED_MS, Dicer

PATIENT = [name for name in STRATEGIES if name != "single" and name not in REROUTING]


class Host(Node):
    """A node whose driver takes in sessions."""

    sessions: dict[int, Any]
    taken: set[int]

    def _peer_said(self, happened: PeerSaid, now: float) -> None:
        message = happened.message
        if not isinstance(message, HandOver):
            super()._peer_said(happened, now)
        elif message.token not in self.taken:
            self.taken.add(message.token)
            location, subscriptions, had = self.sessions[message.token]
            self._arrived(ClientArrived(message.client, had), now)
            self._moved(ClientMoved(message.client, location), now)
            for topic_filter, fence in subscriptions.items():
                self._subscribed(ClientSubscribed(message.client, topic_filter, fence), now)


class MovingDay(FaultySimulation):
    """A faulty simulation in which sessions are handed over as drivers do it, by a durable message."""

    def __init__(self, *context: Any, **more: Any) -> None:
        self.sessions: dict[int, Any] = {}
        self.taken: dict[BrokerId, set[int]] = {}
        super().__init__(*context, **more)

    def make_node(self, broker: BrokerId, epoch: int = 0) -> Node:
        node = Host(
            me=broker,
            federation=self.federation,
            strategy=self.strategy,
            options=self.options,
            epoch=epoch,
            rng=random.Random(f"{self.seed}/{broker}/{epoch}"),
        )
        node.sessions, node.taken = self.sessions, self.taken.setdefault(broker, set())
        return node

    def home_of(self, client: ClientId) -> BrokerId | None:
        """Where the client's session is, if it is not under way."""
        for broker, node in self.nodes.items():
            if isinstance(node, Node) and client in node.clients and not node.travellers.left(client):
                return broker
        return None

    def hand_over(self, client: ClientId, target: BrokerId) -> bool:
        source = self.home_of(client)
        if source is None or source == target or source in self._crashed:
            return False
        node = self.nodes[source]
        assert isinstance(node, Node)
        state, token = node.clients[client], len(self.sessions)
        self.sessions[token] = (state.location, dict(state.subscriptions), node.had_by([client]))
        origin = Origin(None, self.now_ms)
        self.feed(source, ClientDeparted(client, target), origin)
        self.transmit(source, target, HandOver(client, token, 0, 1, b""), origin)
        return True


@pytest.mark.parametrize("strategy", PATIENT)
def test_moves_under_faults_lose_and_double_nothing(strategy: str) -> None:
    moves = 0
    for seed in range(5):
        dicer = Dicer(1_000 + seed)
        checkers: list[Checker] = [NoDuplicates(), SameAsOracle(from_ms=SETTLED_MS, until_ms=DRAIN_MS)]
        simulation = MovingDay(dicer.federation, strategy, seed=seed, observers=checkers)
        simulation.connect_all()
        simulation.measure_all()
        traveller = ClientId("r")
        first = [ClientMoved(traveller, dicer.place()), ClientSubscribed(traveller, "#")]
        settle = [*dicer.setting_up(), *(Step(3_000, dicer.federation.ids[0], event) for event in first)]
        simulation.run(sorted(settle, key=lambda step: step.t_ms), until_ms=SETTLED_MS)
        loss = dicer.random.choice([0.0, 0.05, 0.2])
        simulation.disturbance = Disturbance(loss=loss, repeat=loss, late=loss)
        simulation.plan(*dicer.faults(SETTLED_MS, DRAIN_MS))
        for step in dicer.script([dicer.publish() for _ in range(60)], SETTLED_MS, DRAIN_MS):
            simulation.advance(step.t_ms)
            if dicer.random.random() < 0.2:
                moves += simulation.hand_over(traveller, dicer.random.choice(dicer.federation.ids))
            simulation.act(step)
        simulation.disturbance = Disturbance()
        simulation.advance(DRAIN_MS + 90_000)
        for checker in checkers:
            checker.finish(simulation)
            assert checker.violations == [], (seed, checker.violations)
        nodes = [node for node in simulation.nodes.values() if isinstance(node, Node)]
        assert sum(len(node.travellers) for node in nodes) == 0, "everything settled"
    assert moves > 8
