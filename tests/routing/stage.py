"""A stage for worked examples: a small simulation, everything that happens on it written down as a transcript."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from geomq.geo import Circle, Location, NearestAreas, Polygon, PolygonAreas
from geomq.routing.core.actions import Action
from geomq.routing.core.events import ClientMoved, ClientPublished, ClientSubscribed, ClientUnsubscribed, RoutingEvent
from geomq.routing.core.messages import DeliverEvent, ForwardEvent, Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.routing.node import Node
from geomq.routing.trace.transcript import explain
from geomq.sim.engine import Observer, Origin, Simulation
from geomq.sim.network import Latencies
from geomq.sim.script import Step

LINK_MS = 10
SCENE_MS = 1_000


class Wire(Observer):
    """Every message between brokers and every delivery, in order."""

    def __init__(self) -> None:
        self.messages: list[tuple[BrokerId, BrokerId, Message]] = []
        self.received: list[tuple[ClientId, EventId]] = []
        self.handled_at: list[tuple[BrokerId, RoutingEvent | str]] = []

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        self.messages.append((source, target, message))

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        self.handled_at.append((broker, event))

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        self.received.append((client, event.id))

    def of(self, *kinds: type[Message]) -> list[tuple[str, str]]:
        """Who sent messages of these types to whom."""
        return [(source, target) for source, target, message in self.messages if isinstance(message, kinds)]

    def receivers(self) -> Counter[str]:
        return Counter(client for client, _ in self.received)

    def doubled(self) -> list[tuple[EventId, BrokerId]]:
        """Events of which a broker was sent more than one copy, in whatever form."""
        copies = Counter(
            (message.event.id, target)
            for _, target, message in self.messages
            if isinstance(message, ForwardEvent | DeliverEvent)
        )
        return [key for key, times in copies.items() if times > 1]


class Scribe(Observer):
    """Writes down every step, those that lead to nothing too: in a worked example silence is a result."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        if actions or event != "deadline":
            self.lines += explain(t_ms, broker, event, actions)

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        self.lines.append(f"{t_ms:>8} {client}: received {event.id} on {event.topic} after {t_ms - published_ms} ms")


class Stage:
    """Brokers with links of 10 ms; each `do` plays one client action until nothing is under way."""

    def __init__(self, federation: Federation, strategy: str, options: Mapping[str, Any] | None = None) -> None:
        self.wire, self.scribe = Wire(), Scribe()
        pairs = {(a, b): LINK_MS for a in federation.ids for b in federation.ids if a != b}
        self.simulation = Simulation(
            federation,
            strategy,
            options=options,
            latencies=Latencies(federation, given_ms=pairs),
            observers=[self.wire, self.scribe],
        )
        self.simulation.connect_all()
        self.simulation.advance(SCENE_MS)
        self.forget()

    def forget(self) -> None:
        """Start counting and writing anew."""
        self.scribe.lines.clear()
        self.wire.messages.clear()
        self.wire.received.clear()
        self.wire.handled_at.clear()

    def say(self, text: str) -> None:
        """A heading in the transcript."""
        self.scribe.lines += ["", f"# {text}"] if self.scribe.lines else [f"# {text}"]

    def do(self, home: str, event: RoutingEvent) -> None:
        now = self.simulation.now_ms
        self.simulation.act(Step(now, BrokerId(home), event))
        self.simulation.advance(now + SCENE_MS)

    def at_once(self, *steps: tuple[str, RoutingEvent]) -> None:
        """Several actions in the same millisecond."""
        now = self.simulation.now_ms
        for home, event in steps:
            self.simulation.act(Step(now, BrokerId(home), event))
        self.simulation.advance(now + SCENE_MS)

    def feed(self, broker: str, event: RoutingEvent) -> None:
        """Something happens to a broker that is no client's doing."""
        self.simulation.feed(BrokerId(broker), event, Origin(None, self.simulation.now_ms))
        self.simulation.advance(self.simulation.now_ms + SCENE_MS)

    def node(self, broker: str) -> Node:
        node = self.simulation.nodes[BrokerId(broker)]
        assert isinstance(node, Node)
        return node

    def strategy(self, broker: str) -> Any:
        return self.node(broker).strategy

    def text(self) -> str:
        return "\n".join(self.scribe.lines) + "\n"


def square(south: float, west: float, size: float = 10.0) -> Polygon:
    corners = [(south, west), (south, west + size), (south + size, west + size), (south + size, west), (south, west)]
    return Polygon((tuple(Location(*corner) for corner in corners),))


def row_of_squares(count: int) -> Federation:
    """Brokers b1, b2, ... side by side on the equator, each in the middle of a square of ten degrees."""
    brokers = [BrokerSite(BrokerId(f"b{i + 1}"), Location(5.0, 10.0 * i + 5.0)) for i in range(count)]
    return Federation(brokers, PolygonAreas([square(0.0, 10.0 * i) for i in range(count)]))


def grid_of(side: int) -> Federation:
    """A square of brokers named by row and column."""
    brokers = [
        BrokerSite(BrokerId(f"r{row}c{column}"), Location(10.0 * row, 10.0 * column))
        for row in range(side)
        for column in range(side)
    ]
    return Federation(brokers, NearestAreas([broker.location for broker in brokers]))


def nearest_of(places: Mapping[str, Location]) -> Federation:
    brokers = [BrokerSite(BrokerId(name), place) for name, place in places.items()]
    return Federation(brokers, NearestAreas([broker.location for broker in brokers]))


def circle(lat: float, lon: float, km: float) -> Circle:
    return Circle(Location(lat, lon), km * 1000.0)


def moved(client: str, lat: float, lon: float) -> ClientMoved:
    return ClientMoved(ClientId(client), Location(lat, lon))


def subscribed(client: str, topic_filter: str, fence: Circle | None = None) -> ClientSubscribed:
    return ClientSubscribed(ClientId(client), topic_filter, fence)


def unsubscribed(client: str, topic_filter: str) -> ClientUnsubscribed:
    return ClientUnsubscribed(ClientId(client), topic_filter)


def published(client: str, topic: str, fence: Circle | None = None) -> ClientPublished:
    return ClientPublished(ClientId(client), topic, fence)
