"""Open searches: what is wanted for a client, who has not answered, and what absent peers will be asked later."""

import msgspec

from geomq.routing.core.events import SessionSought
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.sessions.messages import SessionWanted

UNASKED_MAX = 10_000


class Search:
    """What is wanted for a client, who has not answered, and the tokens of all that was asked.

    Every question has a token of its own: what is given for one is given once.
    """

    def __init__(self, wanted: SessionWanted, waiting: dict[BrokerId, None], tokens: set[int] | None = None) -> None:
        self.wanted = wanted
        self.waiting = waiting
        self.again: dict[BrokerId, None] = {}
        """Who was asked once more since the client is in: that says nothing of when it came."""
        self.tokens = set[int]() if tokens is None else tokens

    def ask(self, peer: BrokerId, token: int, *, live: bool) -> None:
        (self.waiting if live else self.again)[peer] = None
        self.tokens.add(token)

    def answered(self, peer: BrokerId, token: int) -> bool:
        """Whether the peer was asked with this token; from here on its answer is no longer waited for."""
        asked = token in self.tokens and (peer in self.waiting or peer in self.again)
        if asked:
            self.waiting.pop(peer, None)
            self.again.pop(peer, None)
        return asked

    @property
    def over(self) -> bool:
        return not self.waiting and not self.again

    def is_before(self, peer: BrokerId, wanted: SessionWanted, me: BrokerId) -> bool:
        """Whether the client came here before it came to a peer that seeks its session, too.

        If the peer has answered, it did, whatever the clocks say. Else the two ask each other at the same time, and
        both decide by the clocks, or by their names.
        """
        return peer not in self.waiting or (self.wanted.since_ms, me) < (wanted.since_ms, peer)


class PendingConnect(Search):
    """A client that waits to be let in until its session is found."""

    def __init__(self, wanted: SessionWanted, sought: SessionSought) -> None:
        super().__init__(wanted, {})
        self.attempt = sought.attempt
        self.refuses = sought.refuses
        self.is_unsure = False
        """Whether the session may be at a broker that has been away for long."""
        self.successor: tuple[BrokerId, SessionWanted] | None = None
        """A broker the client came to later, which gets what is found."""

    def doubt(self) -> None:
        self.is_unsure = True

    def give_way(self, peer: BrokerId, wanted: SessionWanted) -> None:
        self.successor = (peer, wanted)


class Unasked:
    """What peers that did not answer will be asked when they are back."""

    def __init__(self) -> None:
        self._wanted: dict[BrokerId, dict[ClientId, SessionWanted]] = {}

    def add(self, peer: BrokerId, wanted: SessionWanted) -> None:
        theirs = self._wanted.setdefault(peer, {})
        if len(theirs) < UNASKED_MAX:
            theirs[wanted.client] = msgspec.structs.replace(wanted, live=False)

    def pop(self, peer: BrokerId) -> dict[ClientId, SessionWanted]:
        """By client, what to ask the peer now."""
        return self._wanted.pop(peer, {})

    def peers(self) -> tuple[BrokerId, ...]:
        return tuple(self._wanted)
