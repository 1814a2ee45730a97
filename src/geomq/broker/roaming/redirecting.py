"""Clients are sent to the broker in whose area they are: when they connect, or when they have been outside for long.

It does not matter whether they moved or the areas did.
Only those that can follow, and want to. Their sessions wait here until the other broker asks for them.
"""

from geomq.broker.clients.registry import Registry, roams
from geomq.broker.core import Core
from geomq.broker.state.client import Client
from geomq.geo import Location
from geomq.mqtt.codec.packets import Connect
from geomq.mqtt.codec.types import V5
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import Federation

CHECKED_MAX = 2_000
"""Clients looked at in one sweep at most after a change, so that many of them never hold up events."""


class Redirecting:
    """Knows which own clients belong to another broker."""

    def __init__(self, core: Core, registry: Registry) -> None:
        self._core = core
        self._registry = registry
        given = {BrokerId(p.name): p.client_address for p in core.config.peers if p.client_address is not None}
        core.node.session_searches.addresses.give(given)
        self._outside: dict[str, float] = {}
        self._rules: tuple[Federation, str] | None = None
        """What decided who is to be sent away when clients were last looked at."""
        self._unchecked: list[str] = []

    def address_for(self, connect: Connect, location: Location | None) -> str | None:
        """Where a connecting client should rather go; None if it is to be served here."""
        if connect.version != V5 or not self._may_send(roams(connect)):
            return None
        return self._better_address(location)

    def look_at(self, client: Client) -> None:
        """A client came, or is somewhere else: note since when it has been outside the area."""
        if not self._is_sent(client) or self._core.node.better_home(client.location) is None:
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
        searches = self._core.node.session_searches
        return searches.addresses.of(home) if home is not None and home in searches.up else None

    def sweep(self) -> None:
        """Now and then: send away who has been outside for long enough."""
        core = self._core
        self._look_again()
        due = core.loop.time() - core.config.federation.redirect_after_s
        for client_id in [client_id for client_id, since in self._outside.items() if since <= due]:
            client = core.clients.get(client_id)
            if client is None or not self._is_sent(client):
                del self._outside[client_id]
            elif (address := self._better_address(client.location)) is not None:
                del self._outside[client_id]
                self._registry.send_away(client, address)

    def _look_again(self) -> None:
        """Once after each change of areas or rules: look at all clients, some at a time."""
        core = self._core
        federation, policy = rules = core.node.strategy.federation, core.config.federation.redirect
        if self._rules is None or self._rules[0] is not federation or self._rules[1] != policy:
            self._rules, self._unchecked = rules, list(core.clients)
        checked = self._unchecked[-CHECKED_MAX:]
        del self._unchecked[-CHECKED_MAX:]
        for client_id in checked:
            client = core.clients.get(client_id)
            if client is not None:
                self.look_at(client)
