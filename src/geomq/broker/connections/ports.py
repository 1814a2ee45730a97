"""What a connection needs of others: something to write to, and those who know what packets mean."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from geomq.broker.connections.endings import Endings
from geomq.broker.state.client import Client, ClientConnection
from geomq.geo import Location
from geomq.mqtt.codec.packets import Auth, Connect, Disconnect, Publish, Subscribe, Unsubscribe
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.session.handshake import Agreement

ConnectionT_contra = TypeVar("ConnectionT_contra", contravariant=True)


Steps = Iterator[None]
"""What is left of a packet; it comes back whenever others should have their turn first."""


Together = Mapping[int, Callable[[Any, bytes, int], int]]
"""Who takes packets that begin with this byte and need not be looked at one by one: of a connection that is open, from
this data, from this position on. They return the position after those that they took, and never raise."""


def plain_together(together: Together, mount_point: str | None, qos_max: int) -> Together:
    """The same, of a connection whose events need not be looked at for its mount point or their QoS."""
    if mount_point is None and qos_max > 0:
        return together
    looked_at = (0x30, 0x32) if mount_point is not None else (0x32,)
    return {first: take for first, take in together.items() if first not in looked_at}


class Handlers(Protocol[ConnectionT_contra]):
    """Those who know what the packets of a connection mean."""

    endings: Endings
    together: Together

    def opened(self, connection: ConnectionT_contra) -> bool: ...

    def connect(self, connection: ConnectionT_contra, packet: Connect) -> None: ...

    def auth(self, connection: ConnectionT_contra, packet: Auth) -> None: ...

    def publish(self, client: Client, packet: Publish) -> None: ...

    def subscriptions(self, client: Client, packet: Subscribe | Unsubscribe) -> Steps: ...

    def gone(self, client: Client, farewell: Disconnect | None) -> None: ...

    def hold(self, connection: ConnectionT_contra) -> None: ...

    def closed(self, connection: ConnectionT_contra) -> None: ...


class Exchange(Protocol):
    """One enhanced authentication under way."""

    def step(self, data: bytes | None) -> tuple[bytes | None, str | None]:
        """Take the client's data; return data to send on, or the user it has proved to be.

        Raises PermissionError to refuse.
        """


class Authenticator(Protocol):
    """An enhanced authentication method of MQTT 5."""

    def begin(self, connect: Connect) -> Exchange: ...


class Trouble(NamedTuple):
    """Why a client may not come in."""

    reason: ReasonCode
    text: str


Then = Callable[[Trouble | None, int | None], None]
"""What to do when the search for a session is over, and when the client came if other brokers were told."""


class Elsewhere(Protocol):
    """What other brokers have to do with a client that comes."""

    def address_for(self, connect: Connect, location: Location | None) -> str | None:
        """Where it should rather go; None if it is to be served here."""

    def fetch(
        self, connection: ClientConnection, connect: Connect, agreement: Agreement, user: str | None, then: Then
    ) -> None:
        """Find its session wherever it is, then go on."""

    def came_in(self, client: Client, since_ms: int | None) -> None:
        """The client is connected."""
