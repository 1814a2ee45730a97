"""What must hold in every run, each as an observer of its own. A broken rule becomes a violation, in one line.

Of the violations of a rule the first thousand are kept; counts go on.
"""

from collections import Counter
from typing import NamedTuple

import msgspec

from geomq.routing.core.actions import Action, DeliverToOne, KeepNote
from geomq.routing.core.events import ClientPublished, ClientSubscribed, RetainedChanged, RoutingEvent
from geomq.routing.core.messages import ForwardEvent, Message
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId, Version
from geomq.routing.node import Node
from geomq.routing.retained.sync import NOTE
from geomq.routing.sharing.groups import Group
from geomq.sim.engine import Observer, Origin, Simulation
from geomq.sim.oracle import Oracle

VIOLATIONS_MAX = 1_000
NAMES_MAX = 20
DELIVERIES_MAX = 4_000_000
"""How many deliveries are remembered to notice a second one; events of the longest ago are forgotten first."""
LATE_MS = 500
"""Longer than most events take when nothing is broken."""


class Checker(Observer):
    """Collects violations."""

    def __init__(self) -> None:
        self.violations: list[str] = []

    def violate(self, line: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(line)

    def finish(self, simulation: Simulation) -> None:
        """The run is over: look at what is left."""


class PlainChecker(Checker):
    """Looks at clients without shared subscriptions: what members of share groups get is another checker's affair."""

    def __init__(self) -> None:
        super().__init__()
        self._members: set[ClientId] = set()

    def acted(self, t_ms: int, home: BrokerId, event: RoutingEvent) -> None:
        if isinstance(event, ClientSubscribed) and event.share is not None:
            self._members.add(event.client)


class NoDuplicates(PlainChecker):
    """No client receives an event twice."""

    def __init__(self) -> None:
        super().__init__()
        self.doubled = 0
        self._had: dict[EventId, set[ClientId]] = {}
        self._deliveries = 0

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        had = self._had.setdefault(event.id, set())
        if client not in had:
            had.add(client)
            self._deliveries += 1
            while self._deliveries > DELIVERIES_MAX:
                self._deliveries -= len(self._had.pop(next(iter(self._had))))
        elif client not in self._members:
            self.doubled += 1
            self.violate(f"{client} received {event.id} again at {t_ms} ms")


class SameAsOracle(PlainChecker):
    """Events published in the given span reach exactly those the oracle names; before it nobody is surprised.

    With `lossy` links, events of QoS 0 may be lost. One that a fault held up for long may also reach those to whom it
    matters by then.
    """

    def __init__(self, *, from_ms: int, until_ms: int | None = None, lossy: bool = False) -> None:
        super().__init__()
        self._lossy = lossy
        self._losable: set[bytes] = set()
        self.expected = self.missed = self.unexpected = 0
        """Deliveries; counted when the run is over."""
        self._from_ms, self._until_ms = from_ms, until_ms
        self._oracle = Oracle()
        self._receivers: dict[bytes, frozenset[ClientId]] = {}
        self._published: dict[bytes, ClientPublished] = {}
        self._got: dict[bytes, set[ClientId]] = {}

    def acted(self, t_ms: int, home: BrokerId, event: RoutingEvent) -> None:
        super().acted(t_ms, home, event)
        receivers = self._oracle.observe(event)
        in_span = t_ms >= self._from_ms and (self._until_ms is None or t_ms < self._until_ms)
        if receivers is not None and in_span and isinstance(event, ClientPublished) and event.payload:
            self._receivers[event.payload] = receivers
            self._published[event.payload] = event
            if self._lossy and not event.qos:
                self._losable.add(event.payload)

    def arrived(self, t_ms: int, home: BrokerId, client: ClientId, event: Event, published_ms: int) -> None:
        receivers = self._receivers.get(event.payload)
        if receivers is None or client in self._members:
            return
        is_late = client not in receivers and t_ms - published_ms > LATE_MS
        if not is_late or client not in self._oracle.receivers(self._published[event.payload]):
            self._got.setdefault(event.payload, set()).add(client)

    def finish(self, simulation: Simulation) -> None:
        for payload, receivers in self._receivers.items():
            got = self._got.get(payload, set())
            missed = [] if payload in self._losable else sorted(receivers - got)
            extra = sorted(got - receivers)
            self.expected += len(receivers)
            self.missed += len(missed)
            self.unexpected += len(extra)
            if missed:
                self.violate(f"event {payload.decode()} did not reach {_some(missed)}")
            if extra:
                self.violate(f"event {payload.decode()} should not have reached {_some(extra)}")


def _some(clients: list[ClientId]) -> str:
    more = len(clients) - NAMES_MAX
    return ", ".join(clients[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


class OneOfEachGroup(Checker):
    """Events published in the given span are given to one member of each share group they are meant for, once.

    With `lossy` links, events of QoS 0 may be lost.
    """

    def __init__(self, *, from_ms: int, until_ms: int | None = None, lossy: bool = False) -> None:
        super().__init__()
        self._lossy = lossy
        self._losable: set[bytes] = set()
        self._from_ms, self._until_ms = from_ms, until_ms
        self._oracle = Oracle()
        self._expected: dict[bytes, dict[Group, frozenset[ClientId]]] = {}
        self._got: dict[bytes, list[tuple[Group, ClientId]]] = {}

    def acted(self, t_ms: int, home: BrokerId, event: RoutingEvent) -> None:
        self._oracle.note(event)
        in_span = t_ms >= self._from_ms and (self._until_ms is None or t_ms < self._until_ms)
        if in_span and isinstance(event, ClientPublished) and event.payload:
            self._expected[event.payload] = self._oracle.candidates(event)
            if self._lossy and not event.qos:
                self._losable.add(event.payload)

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, DeliverToOne) and action.event.payload in self._expected:
                served = (Group(action.share, action.topic_filter), action.members[0])
                self._got.setdefault(action.event.payload, []).append(served)

    def finish(self, simulation: Simulation) -> None:
        for payload, expected in self._expected.items():
            got = self._got.get(payload, [])
            for group in dict.fromkeys((*expected, *(group for group, _ in got))):
                served = [client for each, client in got if each == group]
                if not served and payload in self._losable:
                    continue
                if len(served) != 1 or served[0] not in expected.get(group, ()):
                    allowed = ", ".join(sorted(expected.get(group, ()))) or "nobody"
                    names = ", ".join(served) or "nobody"
                    self.violate(f"event {payload.decode()} went to {names} of {group.share}, not to one of {allowed}")


class NoLoops(Checker):
    """No broker is sent the same event by the same peer more often than its links repeat, nor too many hops."""

    def __init__(self, *, hops_max: int) -> None:
        super().__init__()
        self._hops_max = hops_max
        self._sent: Counter[tuple[EventId, BrokerId, BrokerId]] = Counter()

    def sent(
        self, t_ms: int, source: BrokerId, target: BrokerId, message: Message, origin: Origin, arrives_ms: int
    ) -> None:
        if isinstance(message, ForwardEvent):
            self._sent[message.event.id, source, target] += 1
            if message.hops > self._hops_max:
                self.violate(f"{message.event.id} made {message.hops} hops")

    def finish(self, simulation: Simulation) -> None:
        for (event_id, source, target), times in self._sent.items():
            if times > 2 + len(simulation.nodes):
                self.violate(f"{event_id} went {times} times from {source} to {target}")


class BoundedState(Checker):
    """What brokers keep about others never exceeds what the clients' subscriptions explain."""

    def __init__(self, *, entries_per_subscription: int) -> None:
        super().__init__()
        self._factor = entries_per_subscription

    def finish(self, simulation: Simulation) -> None:
        nodes = [node for node in simulation.nodes.values() if isinstance(node, Node)]
        subscriptions = sum(len(state.subscriptions) for node in nodes for state in node.clients.values())
        bound = self._factor * (subscriptions + len(nodes))
        for node in nodes:
            if node.strategy.state_size() > bound:
                self.violate(f"{node.me} keeps {node.strategy.state_size()} entries, more than {bound}")


class Converged(Checker):
    """When all is healed and quiet, every broker follows the latest edition, and no change is under way any more.

    Brokers that were removed need not know of later editions.
    """

    def finish(self, simulation: Simulation) -> None:
        nodes = [node for node in simulation.nodes.values() if isinstance(node, Node)]
        latest = max(node.editions.edition for node in nodes)
        for node in nodes:
            editions = node.editions
            if editions.edition != latest and node.me in editions.description.names:
                self.violate(f"{node.me} follows edition {editions.edition}, not {latest}")
            if editions.changing:
                waiting = ", ".join(editions.waiting_for()) or "nobody"
                self.violate(f"{node.me} still changes: {editions.phase.name.lower()}, it waits for {waiting}")


class _Change(NamedTuple):
    """What a home made of a topic's retained event, and with which version."""

    version: Version
    t_ms: int
    payload: bytes


class SameRetained(Checker):
    """When all is healed and quiet, every broker retains what the change with the latest version says.

    From `settled_ms` on all brokers know of all changes before, so that each change has the latest version.
    """

    def __init__(self, *, settled_ms: int) -> None:
        super().__init__()
        self._settled_ms = settled_ms
        self._payloads: dict[EventId, bytes] = {}
        self._latest: dict[str, _Change] = {}

    def accepted(self, t_ms: int, home: BrokerId, event: Event) -> None:
        if event.retain:
            self._payloads[event.id] = event.payload

    def handled(self, t_ms: int, broker: BrokerId, event: RoutingEvent | str, actions: list[Action]) -> None:
        if not isinstance(event, RetainedChanged) or event.published is None:
            return
        for action in actions:
            if isinstance(action, KeepNote) and action.kind == NOTE:
                version = Version(*msgspec.msgpack.decode(action.value))
                change = _Change(version, t_ms, self._payloads[event.published])
                before = self._latest.get(event.topic, change)
                if t_ms >= self._settled_ms > before.t_ms and version < before.version:
                    self.violate(f"the change of {event.topic} at {t_ms} ms is older than that at {before.t_ms} ms")
                self._latest[event.topic] = max(before, change)

    def finish(self, simulation: Simulation) -> None:
        assert simulation.retained is not None
        for broker, node in simulation.nodes.items():
            if isinstance(node, Node) and broker in node.editions.description.names:
                held = simulation.retained.events[broker]
                for topic, (_, _, payload) in self._latest.items():
                    found = held[topic].payload if topic in held else b""
                    if found != payload:
                        has, wanted = found.decode() or "nothing", payload.decode() or "nothing"
                        self.violate(f"{broker} retains {has} of {topic}, not {wanted}")
