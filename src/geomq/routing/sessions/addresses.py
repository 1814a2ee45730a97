"""Where the clients of each broker connect: brokers announce it, so that they can send clients to one another."""

from collections.abc import Callable, Iterable, Mapping

from geomq.routing.core.actions import Action, SendToPeer
from geomq.routing.core.model import BrokerId
from geomq.routing.sessions.messages import ClientAddress

ADDRESS_CHARS_MAX = 300


class ClientAddresses:
    """What one broker knows of that."""

    def __init__(self, act: Callable[[Action], None]) -> None:
        self._act = act
        self._mine: str | None = None
        self._given: Mapping[BrokerId, str] = {}
        self._learned: dict[BrokerId, str] = {}

    def give(self, addresses: Mapping[BrokerId, str]) -> None:
        """These are configured, and count more than what peers announce."""
        self._given = addresses

    def announce(self, address: str, peers: Iterable[BrokerId]) -> None:
        """Clients reach this broker here: announce it to the peers, and to those whose links come up later."""
        self._mine = address
        for peer in peers:
            self.peer_up(peer)

    def peer_up(self, peer: BrokerId) -> None:
        if self._mine is not None:
            self._act(SendToPeer(peer, ClientAddress(self._mine)))

    def learn(self, peer: BrokerId, address: str) -> None:
        """A peer announces where its clients connect."""
        if len(address) <= ADDRESS_CHARS_MAX and address.isprintable():
            self._learned[peer] = address

    def of(self, broker: BrokerId) -> str | None:
        return self._given.get(broker) or self._learned.get(broker)
