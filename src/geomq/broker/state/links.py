"""Where messages to other brokers go: to the links with peers, to the cloud, or nowhere."""

import sys
from collections.abc import Callable
from typing import Protocol

from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId, Edition
from geomq.routing.core.plan import EventBatch

Send = Callable[[BrokerId, Message], None]


class Links(Protocol):
    """Links with other brokers."""

    def send(self, peer: BrokerId, message: Message) -> None:
        """Send a message, at the end of this tick."""

    def send_batch(self, peer: BrokerId, batch: EventBatch, edition: Edition | None) -> None:
        """Send plain events, now."""

    def room(self, peer: BrokerId, size: int) -> int:
        """How many more events may wait for a peer, of so many bytes together; less than one if none may."""

    def once_flushed(self, peer: BrokerId, message: Message, send: Send) -> None:
        """Have a message sent as soon as all that was sent so far, to any peer, has arrived."""


class Cloud(Protocol):
    """The link with a cloud."""

    name: BrokerId

    @property
    def up(self) -> bool: ...

    def send(self, message: Message) -> None: ...

    async def stop(self) -> None: ...


class Outgoing:
    """The links there are now. `send`, `send_batch`, `room` and `once_flushed` are those of the links themselves."""

    def __init__(self) -> None:
        self.lead(None)

    def lead(self, links: Links | None) -> None:
        """From now on messages go to these links; `active` is whether there are any."""
        self.active = links is not None
        self.send = _nowhere if links is None else links.send
        self.send_batch = _nowhere_at_once if links is None else links.send_batch
        self.room = _endless if links is None else links.room
        self.once_flushed = _never if links is None else links.once_flushed


def _nowhere(peer: BrokerId, message: Message) -> None:
    """A broker without links sends nothing."""


def _nowhere_at_once(peer: BrokerId, batch: EventBatch, edition: Edition | None) -> None:
    """A broker without links sends nothing."""


def _endless(_peer: BrokerId, _size: int) -> int:
    """What is sent nowhere needs no room."""
    return sys.maxsize


def _never(peer: BrokerId, message: Message, send: Send) -> None:
    """A broker without links sends nothing."""


class CloudAndPeers:
    """Messages to the cloud go to its link, all others to the peers' links."""

    def __init__(self, cloud: Cloud, peers: Links | None) -> None:
        self._cloud = cloud
        self._peers = peers

    def send(self, peer: BrokerId, message: Message) -> None:
        if peer == self._cloud.name:
            self._cloud.send(message)
        elif self._peers is not None:
            self._peers.send(peer, message)

    def send_batch(self, peer: BrokerId, batch: EventBatch, edition: Edition | None) -> None:
        if self._peers is not None:
            self._peers.send_batch(peer, batch, edition)

    def room(self, peer: BrokerId, size: int) -> int:
        return _endless(peer, size) if self._peers is None else self._peers.room(peer, size)

    def once_flushed(self, peer: BrokerId, message: Message, send: Send) -> None:
        if self._peers is not None:
            self._peers.once_flushed(peer, message, send)
