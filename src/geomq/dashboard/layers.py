"""What strategies would do in a set-up, as layers over its map: owners of topics, rows and columns, groups, meshes.

Every answer comes from the strategy itself: its ring, its rules or, where only a run can tell, a short simulation.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from geomq.geo import Circle
from geomq.mqtt.codec.topics import first_level
from geomq.routing.core.events import ClientSubscribed, PeerUp
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.core.topology import Federation
from geomq.routing.node import Node
from geomq.routing.strategies.grid_quorum import grid_side
from geomq.routing.strategies.groups.greedy import computed_groups
from geomq.routing.strategies.rendezvous import RendezvousStrategy
from geomq.routing.strategies.ring import HashRing
from geomq.sim.engine import Origin, Simulation
from geomq.sim.mesh_watch import groups_of
from geomq.sim.overlay import geographic_links
from geomq.sim.script import Step

FENCE_M = 500_000.0
GROUP_MS = 100.0
MESH_MS = 10_000
Line = tuple[str, str, str] | tuple[str, str, str, int]
"""From, to, kind and, where it has one, a weight."""


class Mark(msgspec.Struct, frozen=True):
    """What a layer says of one broker; brokers of one group look alike."""

    label: str
    group: str


class Layer(msgspec.Struct, frozen=True):
    """One way to look at a set-up."""

    name: str
    title: str
    text: str
    brokers: dict[str, Mark]
    lines: list[Line]


class Setup(NamedTuple):
    """Brokers, the topics they serve, and how much each broker weighs when groups choose leaders."""

    federation: Federation
    topics: Sequence[str]
    weights: Mapping[str, float]

    @property
    def home(self) -> BrokerId:
        """The broker whose clients' events and subscriptions serve as the example."""
        return self.federation.ids[0]

    @property
    def topic(self) -> str:
        return self.topics[0] if self.topics else "news"


def layers_of(setup: Setup) -> list[Layer]:
    """All layers of a set-up."""
    return [make(setup) for make in _LAYERS.values()]


def _dht(setup: Setup) -> Layer:
    ids = setup.federation.ids
    ring = HashRing(ids)
    keys = [first_level(topic) or "" for topic in setup.topics]
    owned = Counter(ids[ring.owner(key)] for key in keys)
    owner = ids[ring.owner(first_level(setup.topic) or "")]
    marks: dict[str, Mark] = {
        name: Mark(f"owns {count} of {len(keys)} topics", "owner") for name, count in owned.items()
    }
    marks[owner] = Mark(f"owns {owned[owner]} of {len(keys)} topics, {setup.topic} among them", "chosen")
    return Layer(
        "dht",
        "Topic ownership (dht)",
        f"Each topic hashes to a broker. Events and subscriptions of {setup.topic} all go to {owner}.",
        marks,
        [(name, owner, "event") for name in ids if name != owner],
    )


def _grid(setup: Setup) -> Layer:
    ids = setup.federation.ids
    side = grid_side(len(ids))
    cells = {name: divmod(position, side) for position, name in enumerate(ids)}
    marks: dict[str, Mark] = {
        name: Mark(f"row {row + 1}, column {column + 1}", f"row {row + 1}") for name, (row, column) in cells.items()
    }
    home, quorum = setup.home, _targets(setup, "grid_quorum")
    lines: list[Line] = [
        (home, name, "row" if cells[name][0] == cells[home][0] else "column") for name in quorum if name != home
    ]
    text = f"Events and subscriptions go to the row and the column of their home; shown are those of {home}."
    return Layer("grid_quorum", "Rows and columns (grid_quorum)", text, marks, lines)


def _groups(setup: Setup) -> Layer:
    leaders = computed_groups(setup.federation, setup.weights, GROUP_MS)
    sizes = Counter(leaders.values())
    marks: dict[str, Mark] = {
        name: Mark(f"leads a group of {sizes[name]}" if name == leader else f"follows {leader}", leader)
        for name, leader in leaders.items()
    }
    lines: list[Line] = [(name, leader, "member") for name, leader in leaders.items() if name != leader]
    text = f"{len(sizes)} groups of brokers within {GROUP_MS:g} ms of their leader; leaders meet in the cloud."
    return Layer("broadcast_groups", "Groups and leaders (broadcast_groups)", text, marks, lines)


def _mesh(setup: Setup) -> Layer:
    """Run the mesh until it settles, with a subscriber at every third broker."""
    federation = setup.federation
    links = geographic_links(federation)
    simulation = Simulation(federation, "mesh", options={"links": links, "groups": {setup.topic: "group"}})
    for one, other in links:
        for broker, peer in ((one, other), (other, one)):
            simulation.feed(broker, PeerUp(peer), Origin(None, 0))
    wanting = [ClientSubscribed(ClientId(f"client-{name}"), setup.topic, None) for name in federation.ids[::3]]
    steps = [Step(0, name, event) for name, event in zip(federation.ids[::3], wanting, strict=True)]
    simulation.run(steps, until_ms=MESH_MS)
    marks: dict[str, Mark] = {}
    lines: list[Line] = [(one, other, "overlay") for one, other in links]
    for name, group in groups_of(simulation, "group").items():
        if group.is_member or group.is_core:
            marks[name] = Mark("core of the mesh", "core") if group.is_core else Mark("in the mesh", "member")
            lines += [(name, parent, "mesh") for parent in group.parents]
    text = f"Brokers with subscribers of {setup.topic} (every third one here) form a mesh, announced by its core."
    return Layer("mesh", "Mesh and core (mesh)", text, marks, lines)


def _targeted(strategy: str, title: str, text: str) -> Callable[[Setup], Layer]:
    """A layer that shows where an example event and an example subscription go."""

    def layer(setup: Setup) -> Layer:
        home = setup.home
        events, subscriptions = (_targets(setup, strategy, subscribing=each) for each in (False, True))
        marks: dict[str, Mark] = {name: Mark("gets its events", "event") for name in events}
        for name in subscriptions:
            both = name in marks
            marks[name] = Mark("gets both", "both") if both else Mark("gets its subscriptions", "subscription")
        marks[home] = Mark("home", "home")
        lines: list[Line] = [(home, name, "event") for name in events if name != home]
        lines += [(home, name, "subscription") for name in subscriptions if name != home]
        return Layer(strategy, f"{title} ({strategy})", text.format(home=home, topic=setup.topic), marks, lines)

    return layer


def _targets(setup: Setup, strategy: str, *, subscribing: bool = False) -> tuple[BrokerId, ...]:
    """Where the home's strategy sends an event or subscription with a fence around the home."""
    home = setup.home
    node = Node(me=home, federation=setup.federation, strategy=strategy, rng=random.Random(1))
    assert isinstance(node.strategy, RendezvousStrategy)
    client, place = ClientId("client"), setup.federation.location(home)
    fence = Circle(place, FENCE_M)
    if subscribing:
        return node.strategy.subscription_targets(client, setup.topic, fence)
    return node.strategy.event_targets(Event(EventId(home, 0, 1), setup.topic, client, place, fence))


_LAYERS: dict[str, Callable[[Setup], Layer]] = {
    "disgb_events": _targeted(
        "disgb_events",
        "Rendezvous near the subscribers",
        "An event of {home} with a fence of 500 km goes to the brokers whose area the fence meets.",
    ),
    "disgb_subscriptions": _targeted(
        "disgb_subscriptions",
        "Rendezvous near the publishers",
        "A subscription of {home} with a fence of 500 km goes to the brokers whose area the fence meets.",
    ),
    "dht": _dht,
    "grid_quorum": _grid,
    "georendezvous": _targeted(
        "georendezvous",
        "Rendezvous places",
        "{topic} hashes to eight places; events of {home} go to their owners, subscriptions to the nearest two.",
    ),
    "broadcast_groups": _groups,
    "mesh": _mesh,
}
