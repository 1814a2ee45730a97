"""Brokers that are authenticated but not peers: each may make one request, within ten seconds."""

import asyncio
from typing import Protocol

from geomq.broker.peers.channel import PeerChannel
from geomq.routing.core.model import BrokerId
from geomq.routing.wire.frames import Aside, AskToJoin, Described
from geomq.routing.wire.link import Frame, Hello

UNKNOWN_BROKERS_MAX = 64
REQUEST_S_MAX = 10.0
UNPROVEN_MAX = 256
"""Connections that have not proved a name yet; beyond that the oldest of them makes room."""


class UnknownBrokerHandler(Protocol):
    """Answers what unknown brokers ask for."""

    def asked_to_join(self, name: BrokerId, entry: bytes) -> Aside:
        """The answer to one that wants to join."""

    def unknown(self, name: BrokerId) -> Aside | None:
        """The answer to one that believes it is a peer; None refuses it."""

    def described(self, peer: BrokerId, description: bytes) -> None:
        """A peer sent the current federation description."""


class UnknownBrokers:
    """Those that are connected now."""

    def __init__(self, handler: UnknownBrokerHandler | None) -> None:
        self._handler = handler
        self._leave: dict[PeerChannel, asyncio.TimerHandle] = {}

    def __contains__(self, channel: PeerChannel) -> bool:
        return channel in self._leave

    def accept(self, channel: PeerChannel) -> bool:
        """A broker that is not a peer authenticated itself; whether it may stay."""
        if self._handler is None or len(self._leave) >= UNKNOWN_BROKERS_MAX:
            return False
        loop = asyncio.get_running_loop()
        self._leave[channel] = loop.call_later(
            REQUEST_S_MAX, channel.close, "an unknown broker stayed connected too long"
        )
        return True

    def received(self, channel: PeerChannel, frame: Frame | Aside) -> None:
        name = BrokerId(channel.peer or "")
        assert self._handler is not None
        if isinstance(frame, AskToJoin):
            channel.send(self._handler.asked_to_join(name, frame.entry))
        elif isinstance(frame, Hello) and (answer := self._handler.unknown(name)) is not None:
            channel.send(answer)
        else:
            channel.close(f"broker {name[:80]!r} is not expected here")

    def said_by_peer(self, channel: PeerChannel, frame: Frame | Aside) -> None:
        """A peer may say what this broker has missed, and one that has lost its disk asks what it has missed itself."""
        if self._handler is not None and isinstance(frame, Described):
            self._handler.described(BrokerId(channel.peer or ""), frame.description)
        elif self._handler is not None and isinstance(frame, AskToJoin):
            channel.send(self._handler.asked_to_join(BrokerId(channel.peer or ""), frame.entry))

    def closed(self, channel: PeerChannel) -> bool:
        """A connection ended; whether it was an unknown broker's."""
        timer = self._leave.pop(channel, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def close(self) -> None:
        for channel in tuple(self._leave):
            self.closed(channel)
            channel.close("this broker is shutting down")


class Unproven:
    """Connections that have not proved a name yet."""

    def __init__(self) -> None:
        self._channels: dict[PeerChannel, None] = {}

    def add(self, channel: PeerChannel) -> None:
        if len(self._channels) >= UNPROVEN_MAX:
            next(iter(self._channels)).close("too many unknown brokers at once")
        self._channels[channel] = None

    def discard(self, channel: PeerChannel) -> None:
        """It proved a name, or is closed."""
        self._channels.pop(channel, None)
