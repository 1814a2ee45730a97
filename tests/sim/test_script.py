"""A script is plain data, played in time order."""

from tests.routing.stage import published, row_of_squares, subscribed

from geomq.routing.core.actions import Action
from geomq.routing.core.events import RoutingEvent
from geomq.routing.core.model import BrokerId
from geomq.sim.engine import Observer, Simulation
from geomq.sim.network import CLIENT_LATENCY_MS
from geomq.sim.script import Step

B1 = BrokerId("b1")


class Clock(Observer):
    def __init__(self) -> None:
        self.acted_at: list[int] = []
        self.heard_at: list[int] = []

    def acted(self, t_ms: int, home: BrokerId, event: RoutingEvent) -> None:
        self.acted_at.append(t_ms)

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        self.heard_at.append(t_ms)


def test_the_home_hears_of_a_step_one_client_latency_later() -> None:
    clock = Clock()
    steps = [Step(0, B1, subscribed("s", "t")), Step(3, B1, published("p", "t")), Step(3, B1, published("p", "t"))]
    Simulation(row_of_squares(1), "single", observers=[clock]).run(steps)
    assert clock.acted_at == [step.t_ms for step in steps]
    assert clock.heard_at == [step.t_ms + CLIENT_LATENCY_MS for step in steps]


def test_a_script_may_be_generated_as_it_is_played() -> None:
    clock = Clock()
    simulation = Simulation(row_of_squares(1), "single", observers=[clock])
    simulation.run(Step(t, B1, published("p", "t")) for t in range(0, 1000, 100))
    assert len(clock.heard_at) == 10
