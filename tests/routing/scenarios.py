"""The three scenarios of the DisGB paper, and a mix, as scripts small enough for a test.

Three brokers whose areas touch; clients stay in their area, fences reach across its border now and then.
"""

import random
from collections.abc import Callable

from geomq.geo import Circle, Location, NearestAreas, destination
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed, RoutingEvent
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.sim.script import Step

CITIES = {"paris": (48.88, 2.36), "brussels": (50.85, 4.35), "cologne": (50.94, 6.96)}


class Script:
    """Collects what clients do; the same seed gives the same script."""

    def __init__(self, seconds: float, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.seconds = seconds
        brokers = [BrokerSite(BrokerId(name), Location(*place)) for name, place in CITIES.items()]
        self.federation = Federation(brokers, NearestAreas([broker.location for broker in brokers]))
        self.clients = 0
        self._steps: list[Step] = []

    def newcomer(self, home: BrokerId) -> tuple[ClientId, Location]:
        """A client and a place in its home's area."""
        self.clients += 1
        center = self.federation.location(home)
        while True:
            place = destination(center, self.random.uniform(0, 360), 150_000 * self.random.random() ** 0.5)
            if self.federation.owner(place) == home:
                return ClientId(f"c{self.clients}"), place

    def add(self, t: float, home: BrokerId, event: RoutingEvent) -> None:
        if t < self.seconds:
            self._steps.append(Step(1000 + int(t * 1000), home, event))

    def times(self, low: float, high: float) -> list[float]:
        """From the first seconds on, at random distances."""
        found, t = [], self.random.uniform(0, 3)
        while t < self.seconds:
            found.append(t)
            t += self.random.uniform(low, high)
        return found

    def steps(self) -> list[Step]:
        return sorted(self._steps, key=lambda step: step.t_ms)


def open_data(script: Script, crowd: int, topics: tuple[str, ...] = ("temperature", "humidity", "pressure")) -> None:
    """No event fences, many events, small subscription fences that change rarely."""
    dice = script.random
    for home in script.federation.ids:
        for _ in range(2 * crowd):
            client, place = script.newcomer(home)
            script.add(0, home, ClientMoved(client, place))
            topic = dice.choice(topics)
            for t in script.times(5, 15):
                script.add(3 + t, home, ClientPublished(client, topic))
        for _ in range(crowd):
            client, _ = script.newcomer(home)
            for t in script.times(30, 60):
                place = script.newcomer(home)[1]
                script.add(t, home, ClientMoved(client, place))
                for topic in topics:
                    fence = Circle(place, dice.uniform(1_000, 100_000))
                    script.add(t + 0.001, home, ClientSubscribed(client, topic, fence))


def context_based(script: Script, crowd: int, prefix: str = "") -> None:
    """No subscription fences, subscribers that move all the time, small event fences."""
    dice = script.random
    for home in script.federation.ids:
        for _ in range(crowd):
            client, place = script.newcomer(home)
            for topic in ("temperature", "announcement"):
                script.add(0, home, ClientSubscribed(client, prefix + topic))
            for t in script.times(5, 30):
                place = destination(place, dice.uniform(0, 360), 50.0)
                script.add(t, home, ClientMoved(client, place))
        for _ in range(2 * crowd):
            client, place = script.newcomer(home)
            script.add(0, home, ClientMoved(client, place))
            for t in script.times(10, 60):
                topic, reach_m = ("announcement", 100_000) if dice.random() < 0.1 else ("temperature", 25_000)
                fence = Circle(place, dice.uniform(1_000, reach_m))
                script.add(3 + t, home, ClientPublished(client, prefix + topic, fence))


def hiking(script: Script, crowd: int) -> None:
    """Both kinds of fences small, everybody moves."""
    dice = script.random
    for home in script.federation.ids:
        for _ in range(3 * crowd):
            client, start = script.newcomer(home)
            place, reach_m = start, dice.uniform(1_000, 50_000)
            for t in script.times(5, 30):
                script.add(t, home, ClientMoved(client, place))
                if dice.random() < 0.4:
                    script.add(t + 0.001, home, ClientSubscribed(client, "road", Circle(place, 500.0)))
                    script.add(t + 0.002, home, ClientSubscribed(client, "text", Circle(start, reach_m)))
                if dice.random() < 0.1:
                    script.add(t + 0.003, home, ClientPublished(client, "road", Circle(place, 500.0)))
                if dice.random() < 0.5:
                    fence = Circle(place, dice.uniform(1_000, 50_000))
                    script.add(t + 0.004, home, ClientPublished(client, "text", fence))
                place = destination(place, dice.uniform(0, 360), 30.0)


def mixed(script: Script, crowd: int) -> None:
    """Two kinds of traffic of opposite character at once."""
    open_data(script, crowd, topics=("air",))
    context_based(script, crowd, prefix="alerts/")


SCENARIOS: dict[str, Callable[[Script, int], None]] = {
    "open_data": open_data,
    "context_based": context_based,
    "hiking": hiking,
    "mixed": mixed,
}
