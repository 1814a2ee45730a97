"""Sessions that are sought at other brokers: for whom, who has not answered, and who is to be asked later."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from geomq.broker.connections.connection import Connection
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.routing.core.model import BrokerId
from geomq.routing.sessions.moves import SessionWanted

UNASKED_MAX = 10_000


class Trouble(NamedTuple):
    """Why a client may not come in."""

    reason: ReasonCode
    text: str


Then = Callable[[Trouble | None], None]
"""What to do when the search for a session is over."""


class Search:
    """What was asked for a client, and who has not answered."""

    def __init__(self, wanted: SessionWanted, waiting: dict[BrokerId, None]) -> None:
        self.wanted = wanted
        self.waiting = waiting

    def is_before(self, peer: BrokerId, wanted: SessionWanted, me: BrokerId) -> bool:
        """Whether the client came here before it came to a peer that seeks its session, too.

        If the peer has answered, it did, whatever the clocks say. Else the two ask each other at the same time, and
        both decide by the clocks, or by their names.
        """
        return peer not in self.waiting or (self.wanted.since_ms, me) < (wanted.since_ms, peer)


class Visit(Search):
    """A client that waits to be let in until its session is found."""

    def __init__(self, wanted: SessionWanted, connection: Connection, then: Then) -> None:
        super().__init__(wanted, {})
        self.connection = connection
        self.then = then
        self.is_unsure = False
        """Whether the session may be at a broker that has been away for long."""
        self.timer: asyncio.TimerHandle | None = None
        self.successor: tuple[BrokerId, SessionWanted] | None = None


class Unasked:
    """What peers that did not answer will be asked when they are back."""

    def __init__(self) -> None:
        self._wanted: dict[BrokerId, dict[str, SessionWanted]] = {}

    def add(self, peer: BrokerId, wanted: SessionWanted) -> None:
        theirs = self._wanted.setdefault(peer, {})
        if len(theirs) < UNASKED_MAX:
            theirs[wanted.client] = msgspec.structs.replace(wanted, live=False)

    def pop(self, peer: BrokerId) -> dict[str, SessionWanted]:
        """By client, what to ask the peer now."""
        return self._wanted.pop(peer, {})
