"""What all parts of a running broker share: settings, clients, the routing node, the store, the outbox and links."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from msgspec import structs

from geomq.broker.config.settings import Config, Listener
from geomq.broker.platform import SYSTEM, Platform
from geomq.broker.security.access import Security
from geomq.broker.security.acl import ALL_RIGHTS, Rights
from geomq.broker.state.budget import Budget
from geomq.broker.state.client import Client, split_subscription_key
from geomq.broker.state.counts import Counts
from geomq.broker.state.drops import Drops
from geomq.broker.state.fence_texts import FenceTexts
from geomq.broker.state.filters import Filters
from geomq.broker.state.links import Outgoing
from geomq.broker.state.pressure import Pressure
from geomq.broker.state.steady import SteadyClock
from geomq.broker.state.tracer import SinkEntry, Tracer
from geomq.broker.state.turns import Turns
from geomq.broker.storage.outbox import Outbox
from geomq.broker.storage.store import Store
from geomq.geo import FenceLimits
from geomq.mqtt.codec.topics import TopicNames
from geomq.mqtt.session.backlog import Backlog
from geomq.mqtt.session.handshake import Policy
from geomq.mqtt.session.outbound import PACKET_IDS
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.node import Node
from geomq.routing.trace.recorder import Sink
from geomq.routing.trace.records import STEPS, Step

PACKET_ID_BLOCKS: Final = 16
"""So many brokers have packet identifiers of their own."""


class Core:
    """One per broker.

    `wall_s` is Unix time, for people and other brokers; `now_s` is what expiry counts in. Who connects, subscribes,
    leaves or begins to listen to the trace calls `topology_changed`.
    """

    def __init__(
        self,
        config: Config,
        *,
        loop: asyncio.AbstractEventLoop,
        node: Node,
        store: Store,
        outbox: Outbox,
        security: Security,
        topology_changed: Callable[[], None],
        turns: Turns,
        now_s: SteadyClock,
        platform: Platform = SYSTEM,
    ) -> None:
        self.config = config
        self._policies = make_policies(config, _packet_ids(node.me, node.strategy.federation.ids))
        self.loop = loop
        self.platform = platform
        self.wall_s = platform.wall_s
        self.turns = turns
        self.now_s = now_s
        self.node = node
        self.store = store
        self.outbox = outbox
        self.security = security
        self.clients: dict[str, Client] = {}
        node.ask_rights(self._may_read)
        self.moved: dict[str, Client] = {}
        """Clients with kept sessions whose place is not written down yet."""
        self.counts = Counts()
        self.backlog = Backlog()
        """Of all sessions."""
        self.filters = Filters()
        """Of all sessions, too."""
        self.budget = Budget()
        self.drops = Drops(self.counts, now_s=loop.time)
        self.pressure = Pressure(config, self.clients, self.counts, outbox, loop)
        self.tracer: Tracer | None = None
        self.names = TopicNames()
        self.fence_texts = FenceTexts(fence_limits(config))
        self.links = Outgoing()
        self.topology_changed = topology_changed

    def policy_at(self, listener: Listener | None) -> Policy:
        """What clients are offered that came in there."""
        return self._policies.get(listener) or self._policies[None]

    def _may_read(self, client: ClientId, topic: str) -> bool:
        """Whether one of the clients may read a topic; of one that has left its new home says so."""
        found = self.clients.get(split_subscription_key(client)[0])
        return found is None or found.rights.may_read(topic)

    def rights_of_peer(self, peer: BrokerId) -> Rights:
        """What the clients of a peer may do here. A cloud is no broker of the federation: its own rules are for it."""
        if self.security.peer_acl is None or any(peer in each.outside for each in self.node.routings.strategies):
            return ALL_RIGHTS
        return self.security.rights_of_peer(peer)

    def now_ms(self) -> float:
        """The routing core's clock."""
        return self.loop.time() * 1000.0

    def trace(self, sink: Sink, *, steps: Iterable[Step] = STEPS) -> Callable[[], None]:
        """Call `sink` with every record of the trace, or of these steps, until the returned function is called."""
        tracer = self.tracer
        if tracer is None:
            tracer = self.tracer = Tracer(self.node, self.clients, self.wall_s)
            for client in self.clients.values():
                tracer.watch(client)
        entry = tracer.add(sink, steps)
        self.topology_changed()
        return partial(self._untrace, tracer, entry)

    def _untrace(self, tracer: Tracer, entry: SinkEntry) -> None:
        tracer.remove(entry)
        if tracer.idle and self.tracer is tracer:
            self.tracer = None
            for client in self.clients.values():
                client.session.watch(None)

    def take_config(self, config: Config, security: Security) -> None:
        """Go on under changed settings; they bind new connections."""
        self.config = config
        self.security = security
        self._policies = make_policies(config, self._policies[None].packet_ids)
        self.fence_texts = FenceTexts(fence_limits(config))
        self.pressure.take_config(config)


def make_policies(config: Config, packet_ids: range = PACKET_IDS) -> dict[Listener | None, Policy]:
    """What clients are offered at each listener, and those that have not come by any."""
    return {each: make_policy(config, each, packet_ids) for each in (None, *config.listeners)}


def make_policy(config: Config, listener: Listener | None = None, packet_ids: range = PACKET_IDS) -> Policy:
    limits = config.limits
    policy = Policy(
        receive_max=limits.receive_maximum,
        in_flight_max=limits.inflight_messages_max,
        queue_max=limits.queue_messages_max,
        queue_bytes_max=limits.queue_bytes_max,
        alias_max=limits.topic_alias_maximum,
        packet_size_max=limits.packet_bytes_max,
        keep_alive_max_s=limits.keep_alive_max_s,
        session_expiry_max_s=limits.session_expiry_max_s,
        qos_max=limits.qos_max,
        retain_available=limits.retain,
        packet_ids=packet_ids,
    )
    if listener is None:
        return policy
    own = {
        "alias_max": listener.topic_alias_maximum,
        "packet_size_max": listener.packet_bytes_max,
        "keep_alive_max_s": listener.keep_alive_max_s,
        "qos_max": listener.qos_max,
        "retain_available": listener.retain,
    }
    return structs.replace(policy, **{name: value for name, value in own.items() if value is not None})


def _packet_ids(me: BrokerId, brokers: Sequence[BrokerId]) -> range:
    """The packet identifiers for messages to clients. A client that got a new session while its broker was away has two
    of them for a while: what one sends must not look to it like a repeat of what the other has sent."""
    if len(brokers) == 1:
        return PACKET_IDS
    count = len(PACKET_IDS) // PACKET_ID_BLOCKS
    first = PACKET_IDS.start + sum(broker < me for broker in brokers) % PACKET_ID_BLOCKS * count
    return range(first, first + count)


def fence_limits(config: Config) -> FenceLimits:
    limits = config.limits
    return FenceLimits(limits.fence_text_bytes_max, limits.fence_vertices_max, limits.fence_depth_max)
