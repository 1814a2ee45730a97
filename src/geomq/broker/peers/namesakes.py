"""Two brokers of one name, and how they are told from one broker that was restarted.

Whoever greets says which start of the broker it is: its epoch. A newcomer under the name of a peer that is linked, but
of another start, has to wait. A broker that was restarted may be back before its old connection is known to be dead;
that one soon falls silent or closes, and the newcomer takes its place. If the linked one goes on answering, there
are two, and the newcomer is refused for as long as that is so. Both sides say it aloud.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from geomq.broker.peers.channel import PeerChannel
from geomq.broker.peers.refusals import PeerRefusals
from geomq.routing.core.model import BrokerId
from geomq.routing.wire.frames import Aside, AskToJoin, NameTaken
from geomq.routing.wire.link import Frame

SETTLE_S = 1.0
"""What is heard within this time may have been under way when the newcomer came."""
ANSWER_S = 3.0
"""Then a broker that is there answers within this time."""
RETRY_S = 30.0
"""How long a broker that was refused for its name waits before it asks again."""


class Linked(Protocol):
    """A peer that is linked, or was."""

    name: BrokerId
    channel: PeerChannel | None
    heard_s: float


P = TypeVar("P", bound=Linked)


class _Newcomer:
    """A connection that waits, and what it asked for meanwhile."""

    def __init__(self, channel: PeerChannel, timer: asyncio.TimerHandle) -> None:
        self.channel = channel
        self.timer = timer
        self.asked: AskToJoin | None = None


class Namesakes(Generic[P]):
    """The newcomers that wait, one for each peer. `take_over` makes one the connection of its peer."""

    def __init__(
        self,
        me: BrokerId,
        refusals: PeerRefusals,
        take_over: Callable[[P, PeerChannel, AskToJoin | None], None],
    ) -> None:
        self._me = me
        self._refusals = refusals
        self._take_over = take_over
        self._waiting: dict[BrokerId, _Newcomer] = {}

    def __contains__(self, channel: PeerChannel) -> bool:
        newcomer = self._waiting.get(BrokerId(channel.peer or ""))
        return newcomer is not None and newcomer.channel is channel

    def challenge(self, peer: P, channel: PeerChannel) -> None:
        """A newcomer has proved the name of a peer that is linked."""
        self.forget(peer.name, "replaced by a new connection")
        loop = asyncio.get_running_loop()
        settled_s = loop.time() + SETTLE_S
        timer = loop.call_at(settled_s + ANSWER_S, self._decide, peer, settled_s)
        self._waiting[peer.name] = _Newcomer(channel, timer)

    def met(self, channel: PeerChannel) -> None:
        """The other side has this broker's name."""
        self._refuse(self._me, channel, channel.own_address)

    def received(self, channel: PeerChannel, frame: Frame | Aside) -> None:
        """A newcomer that wants to join gets its answer later; the rest it will repeat."""
        if isinstance(frame, AskToJoin):
            self._waiting[BrokerId(channel.peer or "")].asked = frame

    def closed(self, channel: PeerChannel) -> bool:
        """A connection ended; whether it was a newcomer's."""
        if channel not in self:
            return False
        self._waiting.pop(BrokerId(channel.peer or "")).timer.cancel()
        return True

    def peer_closed(self, peer: P) -> None:
        """The connection of a peer ended: who waits under its name is the peer."""
        newcomer = self._waiting.pop(peer.name, None)
        if newcomer is not None:
            newcomer.timer.cancel()
            self._take_over(peer, newcomer.channel, newcomer.asked)

    def forget(self, name: BrokerId, reason: str) -> None:
        newcomer = self._waiting.pop(name, None)
        if newcomer is not None:
            newcomer.timer.cancel()
            newcomer.channel.close(reason)

    def close(self) -> None:
        for name in tuple(self._waiting):
            self.forget(name, "this broker is shutting down")

    def _decide(self, peer: P, settled_s: float) -> None:
        newcomer = self._waiting.pop(peer.name)
        if peer.channel is None or peer.heard_s <= settled_s:
            self._take_over(peer, newcomer.channel, newcomer.asked)
            return
        self._refuse(peer.name, newcomer.channel, peer.channel.address)

    def _refuse(self, name: BrokerId, channel: PeerChannel, linked: str) -> None:
        self._refusals.namesake(name, refused=channel.address, linked=linked)
        channel.dismiss(NameTaken(channel.address, linked), "another broker has this name")
