"""What a mesh run shows: announcements by sequence number, when a mesh last changed, who got which event when.

Owns the observers of a mesh study. They count and remember; what follows from it is `mesh_study`.
"""

from collections import Counter
from typing import NamedTuple

from geomq.routing.core.actions import Action
from geomq.routing.core.events import PeerSaid, RoutingEvent
from geomq.routing.core.messages import ForwardEvent, Message
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.node import Node
from geomq.routing.strategies.mesh.group import MeshGroup
from geomq.routing.strategies.mesh.mesh import Mesh
from geomq.routing.strategies.mesh.messages import CoreAnnouncements
from geomq.sim.engine import Observer, Origin, Simulation
from geomq.sim.network import CLIENT_LATENCY_MS


class Arrival(NamedTuple):
    """A client of `home` got an event that long after it left its publisher's broker, at the `copy`-th time."""

    home: BrokerId
    latency_ms: int
    copy: int


class MeshWatch(Observer):
    """Sees announcements, changes of meshes and arrivals."""

    def __init__(self) -> None:
        self.announcements: Counter[tuple[str, BrokerId, int]] = Counter()
        """Announcements sent, by group, core and sequence number."""
        self.changed_ms: dict[str, int] = {}
        """When the mesh of a group last changed anywhere."""
        self.arrivals: dict[bytes, list[Arrival]] = {}
        """Arrivals by the payload of the event."""
        self.event_messages: Counter[bytes] = Counter()
        self.simulation: Simulation | None = None
        self._shapes: dict[tuple[BrokerId, str], object] = {}
        self._received: Counter[tuple[bytes, ClientId]] = Counter()

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        if isinstance(message, CoreAnnouncements):
            for item in message.items:
                self.announcements[item.group, item.core, item.sequence] += 1
        elif isinstance(message, ForwardEvent):
            self.event_messages[message.event.payload] += 1

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        if isinstance(event, PeerSaid) and isinstance(event.message, ForwardEvent):
            return  # events change no mesh
        assert self.simulation is not None
        for name, group in mesh_of(self.simulation, broker).groups.items():
            shape = (group.core, tuple(group.parents), tuple(group.children), group.is_member)
            if self._shapes.get((broker, name)) != shape:
                self._shapes[broker, name] = shape
                self.changed_ms[name] = t_ms

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        self._received[event.payload, client] += 1
        took = t_ms - published_ms - 2 * CLIENT_LATENCY_MS
        arrival = Arrival(home, took, self._received[event.payload, client])
        self.arrivals.setdefault(event.payload, []).append(arrival)


def mesh_of(simulation: Simulation, broker: BrokerId) -> Mesh:
    node = simulation.nodes[broker]
    assert isinstance(node, Node)
    assert isinstance(node.strategy, Mesh)
    return node.strategy


def groups_of(simulation: Simulation, name: str) -> dict[BrokerId, MeshGroup]:
    """A group as every broker that knows it sees it."""
    found = ((broker, mesh_of(simulation, broker).groups.get(name)) for broker in simulation.federation.ids)
    return {broker: group for broker, group in found if group is not None}
