"""Open searches: what is wanted for a client, who has not answered, and what absent peers will be asked later."""

from collections.abc import Callable

import msgspec

from geomq.routing.core.actions import Action, ForgetNote, KeepNote
from geomq.routing.core.events import SessionSought
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.sessions.hand_overs import Notes
from geomq.routing.sessions.messages import NoSession, SessionWanted

UNASKED = "session-unasked"
"""What is on disk: who is to be asked for another session of a client that is in, and since when it is."""
UNASKED_MAX = 10_000
"""Questions kept for one peer."""

_decode = msgspec.msgpack.Decoder(tuple[str | None, bool, int]).decode
_encode = msgspec.msgpack.Encoder().encode


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
    def unanswered(self) -> tuple[BrokerId, ...]:
        return (*self.waiting, *self.again)

    @property
    def over(self) -> bool:
        return not self.unanswered

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
        self.absent: dict[BrokerId, None] = {}
        """Brokers that may have the session, but have been away for too long to be waited for."""
        self.is_elsewhere = False
        """Whether a peer says that the client came there later, and has its session."""
        self.successor: tuple[BrokerId, SessionWanted] | None = None
        """A broker the client came to later, which gets what is found."""

    def miss(self, peer: BrokerId) -> None:
        self.absent[peer] = None

    def ask(self, peer: BrokerId, token: int, *, live: bool) -> None:
        super().ask(peer, token, live=live)
        self.absent.pop(peer, None)

    def waits_for(self, peer: BrokerId) -> bool:
        """Whether the peer is to be asked as soon as it is there."""
        return peer in self.waiting or peer in self.absent

    def heard(self, said: NoSession) -> None:
        """A peer has no session to give. Who wants none of before does not mind where the client came later."""
        self.is_elsewhere = self.is_elsewhere or (said.later and not self.wanted.clean)

    def give_way(self, peer: BrokerId, wanted: SessionWanted) -> None:
        self.successor = (peer, wanted)


class Unasked:
    """What peers that have not answered are asked when they are back, also after a restart of this broker."""

    def __init__(self, act: Callable[[Action], None]) -> None:
        self._act = act
        self._wanted: dict[BrokerId, dict[ClientId, SessionWanted]] = {}

    def load(self, notes: Notes) -> None:
        """Begin with what was kept."""
        for key, value in notes.get(UNASKED, {}).items():
            peer, _, client = key.decode("utf-8", "surrogatepass").partition("\0")
            user, clean, since_ms = _decode(value)
            wanted = SessionWanted(ClientId(client), 0, user, clean, False, since_ms)
            self._wanted.setdefault(BrokerId(peer), {})[wanted.client] = wanted

    def add(self, peer: BrokerId, wanted: SessionWanted) -> None:
        theirs = self._wanted.setdefault(peer, {})
        if len(theirs) < UNASKED_MAX or wanted.client in theirs:
            theirs[wanted.client] = msgspec.structs.replace(wanted, token=0, live=False)
            value = _encode((wanted.user, wanted.clean, wanted.since_ms))
            self._act(KeepNote(UNASKED, _key(peer, wanted.client), value))

    def pop(self, peer: BrokerId, client: ClientId) -> SessionWanted | None:
        """The peer has answered, or nothing is wanted of it any more: what it was to be asked."""
        wanted = self._wanted.get(peer, {}).pop(client, None)
        if wanted is not None:
            self._act(ForgetNote(UNASKED, _key(peer, client)))
        return wanted

    def of(self, peer: BrokerId) -> dict[ClientId, SessionWanted]:
        """By client, what to ask the peer."""
        return dict(self._wanted.get(peer, {}))

    def forget(self, peer: BrokerId) -> None:
        for client in self.of(peer):
            self.pop(peer, client)
        self._wanted.pop(peer, None)

    def peers(self) -> tuple[BrokerId, ...]:
        return tuple(self._wanted)


def _key(peer: BrokerId, client: ClientId) -> bytes:
    return f"{peer}\0{client}".encode("utf-8", "surrogatepass")
