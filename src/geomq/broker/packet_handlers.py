"""Where a connection turns to with what it received: joins the parts that know what packets mean.

Also counts connections, in all, per listener and per address, and refuses those above the limits.
"""

from geomq.broker.clients.delivery import Delivery
from geomq.broker.clients.publishing import Publishing
from geomq.broker.clients.registry import Registry
from geomq.broker.clients.subscribing import Subscribing
from geomq.broker.config.settings import Listener
from geomq.broker.connections.admission import Admission
from geomq.broker.connections.connection import Connection
from geomq.broker.connections.ports import Steps
from geomq.broker.core import Core
from geomq.broker.fastpath.publishing import FastPath
from geomq.broker.fastpath.qos1 import FastQos1
from geomq.broker.security.limits import AddressCounts
from geomq.broker.state.client import Client
from geomq.mqtt.codec.packets import Auth, Connect, Disconnect, Publish, Subscribe, Unsubscribe
from geomq.mqtt.codec.properties import NO_PROPERTIES


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
        self.publish_fast = fast.publish
        self.publish_qos1 = qos1.publish
        self.connections: dict[Connection, None] = {}
        self._opening: dict[Connection, None] = {}
        self._per_listener: dict[Listener, int] = {}
        limits = core.config.limits
        self._addresses = AddressCounts(limits.connections_per_address_max)
        self._pending = AddressCounts(limits.pending_per_address_max)

    def make_connection(self, listener: Listener) -> Connection:
        return Connection(self._core, self, listener)

    # What connections call.

    def opened(self, connection: Connection) -> bool:
        """Whether there is room for one more."""
        limits, counts = self._core.config.limits, self._core.counts
        listener, address = connection.listener, connection.address
        open_here = self._per_listener.get(listener, 0)
        full = len(self.connections) >= limits.connections_max or (
            listener.connections_max is not None and open_here >= listener.connections_max
        )
        if full or not self._addresses.admit(address):
            counts.connections_refused += 1
            return False
        if not self._pending.admit(address):
            self._addresses.release(address)
            counts.connections_refused += 1
            return False
        counts.connections_opened += 1
        self.connections[connection] = None
        self._opening[connection] = None
        self._per_listener[listener] = open_here + 1
        return True

    def closed(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        del self.connections[connection]
        self._per_listener[connection.listener] -= 1
        self._addresses.release(connection.address)
        self._no_longer_pending(connection)
        self._admission.closed(connection)

    def _no_longer_pending(self, connection: Connection) -> None:
        if connection in self._opening:
            del self._opening[connection]
            self._pending.release(connection.address)

    def connect(self, connection: Connection, packet: Connect) -> None:
        self._no_longer_pending(connection)
        self._admission.begin(connection, packet)

    def auth(self, connection: Connection, packet: Auth) -> None:
        self._admission.on_auth(connection, packet)

    def publish(self, client: Client, packet: Publish) -> None:
        self._delivery.forget_last()
        if self._publishing.receive(client, packet) and not packet.retain and packet.properties is NO_PROPERTIES:
            learner = self._qos1 if packet.qos else self._fast
            learner.learn(packet.topic, self._delivery.last)

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

    def take_limits(self) -> None:
        """The settings changed."""
        limits = self._core.config.limits
        self._addresses.allow(limits.connections_per_address_max)
        self._pending.allow(limits.pending_per_address_max)
