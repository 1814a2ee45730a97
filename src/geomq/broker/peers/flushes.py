"""Messages that wait until all that was sent before them, to whomever, has arrived."""

from collections.abc import Mapping
from typing import NamedTuple

from geomq.broker.state.links import Send
from geomq.routing.core.messages import Message
from geomq.routing.core.model import BrokerId
from geomq.routing.wire.link import Link


class _Flush(NamedTuple):
    """A message, and the number of the last one before it on each link."""

    message: Message
    behind: list[tuple[BrokerId, Link, int]]
    send: Send

    def has_arrived(self, links: Mapping[BrokerId, Link]) -> bool:
        return all(link.acknowledged > number or links.get(name) is not link for name, link, number in self.behind)


class Flushes:
    """One at most for each peer: a newer one takes its place."""

    def __init__(self) -> None:
        self._waiting: dict[BrokerId, _Flush] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, peer: BrokerId, message: Message, links: Mapping[BrokerId, Link], send: Send) -> None:
        before = self._waiting.get(peer)
        if before is None or before.message != message:
            behind = [(name, link, link.latest) for name, link in links.items()]
            self._waiting[peer] = _Flush(message, behind, send)

    def send(self, links: Mapping[BrokerId, Link]) -> None:
        """Send those that need not wait any longer; nobody waits for a link that is no more."""
        for peer in [peer for peer, waiting in self._waiting.items() if waiting.has_arrived(links)]:
            waiting = self._waiting.pop(peer)
            waiting.send(peer, waiting.message)
