"""Brokers that proved their name but are none of the peers: each may say what it wants, and soon."""

import asyncio
from typing import Protocol

from geomq.broker.peers.channel import PeerChannel
from geomq.routing.core.model import BrokerId
from geomq.routing.wire.frames import Aside, AskToJoin
from geomq.routing.wire.link import Frame, Hello

VISITORS_MAX = 64
VISIT_S_MAX = 10.0


class Strangers(Protocol):
    """Who deals with them."""

    def asked_to_join(self, name: BrokerId, entry: bytes) -> Aside:
        """The answer to one that wants to join."""

    def unknown(self, name: BrokerId) -> Aside | None:
        """What to tell one that believes it is a peer; None refuses it."""

    def described(self, peer: BrokerId, description: bytes) -> None:
        """A peer says what the federation is now."""


class Visitors:
    """Those that are here now."""

    def __init__(self, strangers: Strangers | None) -> None:
        self._strangers = strangers
        self._leave: dict[PeerChannel, asyncio.TimerHandle] = {}

    def __contains__(self, channel: PeerChannel) -> bool:
        return channel in self._leave

    def receive(self, channel: PeerChannel) -> bool:
        """Somebody proved a name that is no peer's; whether it may stay."""
        if self._strangers is None or len(self._leave) >= VISITORS_MAX:
            return False
        loop = asyncio.get_running_loop()
        self._leave[channel] = loop.call_later(
            VISIT_S_MAX, channel.close, "an unknown broker stayed connected too long"
        )
        return True

    def hear(self, channel: PeerChannel, frame: Frame | Aside) -> None:
        name = BrokerId(channel.peer or "")
        assert self._strangers is not None
        if isinstance(frame, AskToJoin):
            channel.send(self._strangers.asked_to_join(name, frame.entry))
        elif isinstance(frame, Hello) and (answer := self._strangers.unknown(name)) is not None:
            channel.send(answer)
        else:
            channel.close(f"broker {name[:80]!r} is not expected here")

    def left(self, channel: PeerChannel) -> bool:
        """A connection ended; whether it was a visitor's."""
        timer = self._leave.pop(channel, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def close(self) -> None:
        for channel in tuple(self._leave):
            self.left(channel)
            channel.close("this broker is shutting down")
