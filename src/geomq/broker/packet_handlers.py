"""Where a connection turns to with what it received: joins the parts that know what packets mean.

Also counts connections, in all, per listener and per address, and refuses those above the limits.
"""

import logging
from collections.abc import Iterator
from functools import partial
from operator import attrgetter

from geomq.broker.clients.delivery import Delivery
from geomq.broker.clients.publishing import Publishing
from geomq.broker.clients.registry import Registry
from geomq.broker.clients.subscribing import Subscribing
from geomq.broker.config.settings import Listener
from geomq.broker.connections.admission import Admission
from geomq.broker.connections.connection import Connection
from geomq.broker.connections.endings import Endings
from geomq.broker.connections.ports import Steps, Together
from geomq.broker.connections.stuck import StuckConnections
from geomq.broker.core import Core
from geomq.broker.fastpath.publishing import FastPath
from geomq.broker.fastpath.qos1 import FastQos1
from geomq.broker.security.limits import AddressCounts
from geomq.broker.state.budget import QUEUE_BYTES, SHORT_OF_MEMORY, Shed
from geomq.broker.state.client import Client
from geomq.mqtt.codec.packets import Auth, Connect, Disconnect, Publish, Subscribe, Unsubscribe
from geomq.mqtt.codec.properties import NO_PROPERTIES
from geomq.mqtt.codec.reasons import ReasonCode

log = logging.getLogger("geomq.broker")

SILENT_MAX = 50
"""So many connections may be silent before CONNECT, TLS handshakes among them, while new clients are refused."""


class PacketHandlers:
    """All handlers of one broker."""

    def __init__(
        self,
        core: Core,
        *,
        delivery: Delivery,
        publishing: Publishing,
        subscribing: Subscribing,
        registry: Registry,
        admission: Admission,
        fast: FastPath,
        qos1: FastQos1,
    ) -> None:
        self._core = core
        self._delivery = delivery
        self._publishing = publishing
        self._subscribing = subscribing
        self._registry = registry
        self._admission = admission
        self._fast = fast
        self._qos1 = qos1
        self.together: Together = {0x30: fast.publish, 0x32: qos1.publish, 0x40: qos1.acknowledge}
        self.connections: dict[Connection, None] = {}
        self._opening: dict[Listener, dict[Connection, None]] = {}
        self._per_listener: dict[Listener, int] = {}
        self._stuck: StuckConnections[Connection] = StuckConnections()
        self._held: dict[Connection, None] = {}
        """Connections whose large packet waits for memory."""
        limits = core.config.limits
        self.endings = Endings(core.loop, None)
        self._connections_max = self._allowed_connections()
        self._addresses = AddressCounts(limits.connections_per_address_max)
        self._pending = AddressCounts(limits.pending_per_address_max)

    def make_connection(self, listener: Listener) -> Connection:
        return Connection(self._core, self, listener)

    @property
    def encrypted(self) -> int:
        """Connections with TLS, handshakes among them."""
        return sum(count for listener, count in self._per_listener.items() if listener.tls)

    # What connections call.

    def opened(self, connection: Connection) -> bool:
        """Whether there is room for one more; who has been silent for longest since it came has to make it."""
        counts, listener, address = self._core.counts, connection.listener, connection.address
        if self._core.budget.sheds and sum(map(len, self._opening.values())) >= SILENT_MAX:
            counts.connections_refused += 1
            counts.memory_refused += 1
            return False
        if not self._make_room(listener) or not self._addresses.admit(address):
            counts.connections_refused += 1
            return False
        if not self._pending.admit(address):
            self._addresses.release(address)
            counts.connections_refused += 1
            return False
        counts.connections_opened += 1
        self.connections[connection] = None
        self._opening.setdefault(listener, {})[connection] = None
        self._per_listener[listener] = self._per_listener.get(listener, 0) + 1
        return True

    def _make_room(self, listener: Listener) -> bool:
        """End a connection whose client has not sent CONNECT where there is no room otherwise; whether there is now."""
        if listener.connections_max is not None and self._per_listener.get(listener, 0) >= listener.connections_max:
            oldest = [next(iter(self._opening.get(listener, ())), None)]
        elif len(self.connections) >= self._connections_max:
            oldest = [next(iter(opening), None) for opening in self._opening.values()]
        else:
            return True
        found = [connection for connection in oldest if connection is not None]
        if not found:
            return False
        self._core.counts.connections_refused += 1
        min(found, key=attrgetter("opened_at")).dismiss(ReasonCode.SERVER_BUSY)
        return True

    def _allowed_connections(self) -> int:
        """`connections_max`, unless fewer files may be open."""
        config, descriptors = self._core.config, self._core.platform.descriptors()
        wanted = config.limits.connections_max
        allowed = descriptors.connections(wanted, peers=len(config.peers))
        self.endings.allow(descriptors.endings(allowed, peers=len(config.peers)))
        if allowed < wanted:
            log.info(
                "connections_max is lowered: the system allows this process too few open files",
                extra={"connections_max": allowed, "configured": wanted, "open_files": descriptors.limit},
            )
        return allowed

    def closed(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        del self.connections[connection]
        self._held.pop(connection, None)
        self._per_listener[connection.listener] -= 1
        self._addresses.release(connection.address)
        self._no_longer_pending(connection)
        self._admission.closed(connection)

    def _no_longer_pending(self, connection: Connection) -> None:
        opening = self._opening.get(connection.listener, {})
        if connection in opening:
            del opening[connection]
            self._pending.release(connection.address)

    def connect(self, connection: Connection, packet: Connect) -> None:
        self._core.counts.connects_received += 1
        self._no_longer_pending(connection)
        self._admission.begin(connection, packet)

    def auth(self, connection: Connection, packet: Auth) -> None:
        self._admission.on_auth(connection, packet)

    def publish(self, client: Client, packet: Publish) -> None:
        self._delivery.forget_last()
        if packet.qos or self._core.outbox.is_behind(client.id):
            received = self._publish_in_order(client, packet)
        else:
            received = self._publishing.receive(client, packet)
        # Behind a mount point the topic of the packet is not that of the event.
        plain = not packet.retain and packet.properties is NO_PROPERTIES and not client.session.mount
        if received and plain:
            learner = self._qos1 if packet.qos else self._fast
            learner.learn(packet.topic, self._delivery.last)

    def _publish_in_order(self, client: Client, packet: Publish) -> bool:
        """What waits for the disk is not overtaken by what its publisher publishes later at QoS 0."""
        outbox, connection = self._core.outbox, client.connection
        outbox.hold_back(None if packet.qos else client.id)
        try:
            return self._publishing.receive(client, packet)
        finally:
            outbox.hold_back(None)
            if packet.qos and connection is not None:
                self._fast.promised(client, connection)

    def subscriptions(self, client: Client, packet: Subscribe | Unsubscribe) -> Steps:
        if isinstance(packet, Subscribe):
            return self._subscribing.subscribe(client, packet)
        return self._subscribing.unsubscribe(client, packet)

    def gone(self, client: Client, farewell: Disconnect | None) -> None:
        self._registry.leave(client, farewell)

    # What the broker calls.

    def check_alive(self) -> None:
        now = self._core.loop.time()
        for connection in tuple(self.connections):
            connection.check_alive(now)
        if self._core.budget.sheds >= Shed.SLOW_READERS:
            self._end_stuck(self._stuck.look(self.connections))

    def _end_stuck(self, stuck: list[Connection]) -> None:
        """Memory runs short: disconnect those who let much wait for long."""
        self._core.turns.begin()
        while stuck:
            self._core.counts.memory_disconnected += 1
            stuck.pop().dismiss(ReasonCode.QUOTA_EXCEEDED, SHORT_OF_MEMORY)
            if stuck and self._core.turns.over():
                self._core.turns.wait(partial(self._end_stuck, stuck))
                return

    def hold(self, connection: Connection) -> None:
        """It reads on when there is more memory."""
        self._held[connection] = None

    def bound_memory(self) -> None:
        """What the budget allows connections and queues has changed."""
        core, sheds = self._core, self._core.budget.sheds
        core.backlog.bound(QUEUE_BYTES if sheds >= Shed.GROWTH else None)
        core.outbox.crowd(SHORT_OF_MEMORY if sheds >= Shed.PUBLISHERS else None)
        if sheds < Shed.SLOW_READERS:
            self._stuck.forget()
            held, self._held = self._held, {}
            for connection in held:
                connection.read_on()
        self._bound_buffers(iter(tuple(self.connections)))

    def _bound_buffers(self, connections: Iterator[Connection]) -> None:
        self._core.turns.begin()
        for connection in connections:
            connection.bound_buffer()
            if self._core.turns.over():
                self._core.turns.wait(partial(self._bound_buffers, connections))
                return

    def take_limits(self) -> None:
        """The settings changed."""
        limits = self._core.config.limits
        self._connections_max = self._allowed_connections()
        self._addresses.allow(limits.connections_per_address_max)
        self._pending.allow(limits.pending_per_address_max)
