"""Clients are sent to the broker in whose area they are: when they connect, or when they have been outside for long.

Only those that can follow, and want to. Their sessions wait here until the other broker asks for them.
"""

from collections.abc import Container

from geomq.broker.clients import Client
from geomq.broker.core import Core
from geomq.broker.registry import Registry, roams
from geomq.geo import Location
from geomq.mqtt.packets import Connect
from geomq.mqtt.types import V5
from geomq.routing.model import BrokerId

ADDRESS_CHARS_MAX = 300


class Redirecting:
    """Knows where clients of other brokers connect, and which own clients belong there; `up` are the linked brokers."""

    def __init__(self, core: Core, registry: Registry, up: Container[BrokerId]) -> None:
        self._core = core
        self._registry = registry
        self._up = up
        self._given = {BrokerId(p.name): p.client_address for p in core.config.peers if p.client_address is not None}
        self._addresses: dict[BrokerId, str] = dict(self._given)
        self._outside: dict[str, float] = {}
        core.client_moved = self.moved

    def learn(self, peer: BrokerId, address: str) -> None:
        """A peer says where its clients connect; what the config says counts more."""
        if peer not in self._given and len(address) <= ADDRESS_CHARS_MAX and address.isprintable():
            self._addresses[peer] = address

    def address_for(self, connect: Connect, location: Location | None) -> str | None:
        """Where a connecting client should rather go; None if it is to be served here."""
        if connect.version != V5 or not self._may_send(roams(connect)):
            return None
        return self._better_address(location)

    def moved(self, client: Client) -> None:
        """A client is somewhere else: note since when it has been outside the area."""
        if self._core.node.better_home(client.location) is None or not self._is_sent(client):
            self._outside.pop(client.id, None)
        else:
            self._outside.setdefault(client.id, self._core.loop.time())

    def _is_sent(self, client: Client) -> bool:
        return client.connection is not None and client.session.version == V5 and self._may_send(client.roams)

    def _may_send(self, wish: bool | None) -> bool:
        policy = self._core.config.federation.redirect
        return wish is True if policy == "asked" else policy == "all" and wish is not False

    def _better_address(self, location: Location | None) -> str | None:
        home = self._core.node.better_home(location)
        return self._addresses.get(home) if home is not None and home in self._up else None

    def sweep(self) -> None:
        """Now and then: send away who has been outside for long enough."""
        core = self._core
        due = core.loop.time() - core.config.federation.redirect_after_s
        for client_id in [client_id for client_id, since in self._outside.items() if since <= due]:
            client = core.clients.get(client_id)
            if client is None or not self._is_sent(client):
                del self._outside[client_id]
            elif (address := self._better_address(client.location)) is not None:
                del self._outside[client_id]
                self._registry.send_away(client, address)
