"""Sessions on their way here: only those this broker asked for, each once, put together from their parts.

A broker that wants a session asks with a token; the one that has the session answers with the same. A token names its
client in a way that only this broker can, so nothing has to be remembered of those that are asked for, and a session
that was on its way when the broker stopped is still taken in.
"""

import hashlib
import hmac
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from geomq.broker.platform import SYSTEM
from geomq.broker.roaming.session_transfer import PARTS_MAX, unpack
from geomq.broker.storage.outbox import Outbox
from geomq.broker.storage.records import StoredSession
from geomq.broker.storage.store import Store
from geomq.errors import ProtocolError
from geomq.routing.core.model import BrokerId, EventId
from geomq.routing.sessions.moves import HandOver

log = logging.getLogger("geomq.roaming")

PART, TAKEN, SECRET = "luggage-part", "taken", "roaming-secret"
TAKEN_MAX = 16_384
UNDER_WAY_MAX = 10_000
SECRET_BYTES: Final = 32
_NUMBER_BYTES: Final = 3
_NUMBER_BITS: Final = 8 * _NUMBER_BYTES
_PROOF_BITS: Final = 39
"""Together they fit into a token: which one it is, and what nobody else can calculate from that and the client."""

Notes = Mapping[str, Mapping[bytes, bytes]]


class _Gathered:
    """The parts that came from one broker."""

    __slots__ = ("giver", "parts")

    def __init__(self, giver: BrokerId) -> None:
        self.giver = giver
        self.parts: dict[int, bytes] = {}


class HandOvers:
    """The tokens of one broker, and what came for them."""

    def __init__(
        self, store: Store, outbox: Outbox, random_bytes: Callable[[int], bytes] = SYSTEM.random_bytes
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._secret = random_bytes(SECRET_BYTES)
        self._number = int.from_bytes(random_bytes(_NUMBER_BYTES))
        self._under_way: dict[int, _Gathered] = {}
        self._taken: OrderedDict[int, None] = OrderedDict()

    def load(self, notes: Notes) -> None:
        """Take in what the store remembered; from the first time on the secret is on disk before it is used."""
        secret = notes.get(SECRET, {}).get(b"", b"")
        if len(secret) == SECRET_BYTES:
            self._secret = secret
        else:
            self._store.put_note(SECRET, b"", self._secret)
            self._store.commit()
        for key, value in notes.get(PART, {}).items():
            token, part, giver = int.from_bytes(key[:8]), int.from_bytes(key[8:12]), BrokerId(key[12:].decode())
            if giver:
                self._under_way.setdefault(token, _Gathered(giver)).parts[part] = value
            else:
                self._store.delete_note(PART, key)  # of a version that is gone
        for key in notes.get(TAKEN, {}):
            self._taken[int.from_bytes(key)] = None

    # Asking.

    def make_token(self, client_id: str) -> int:
        """A token to ask for the session of a client with."""
        while True:
            self._number = (self._number + 1) % (1 << _NUMBER_BITS)
            token = self._number << _PROOF_BITS | self._proof(self._number, client_id)
            if token not in self._taken and token not in self._under_way:
                return token

    def _proof(self, number: int, client_id: str) -> int:
        text = f"{number}/{client_id}".encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, key=self._secret, digest_size=8).digest()
        return int.from_bytes(digest, "big") & ((1 << _PROOF_BITS) - 1)

    def _is_asked_for(self, token: int, client_id: str) -> bool:
        number = token >> _PROOF_BITS
        expected = number << _PROOF_BITS | self._proof(number, client_id)
        return hmac.compare_digest(token.to_bytes(8, "big"), expected.to_bytes(8, "big"))

    # Taking.

    def take(self, peer: BrokerId, message: HandOver) -> tuple[StoredSession, tuple[EventId, ...]] | None:
        """A part of a session came: the session and what its client has had, if it is whole now.

        A part that comes again is recognised by its token.
        """
        token = message.token
        if token in self._taken or not 0 <= message.part < message.parts <= PARTS_MAX:
            return None
        if not self._is_asked_for(token, message.client):
            log.warning("%s sent a session of %r that this broker did not request", peer, message.client[:80])
            return None
        gathered = self._under_way.get(token) or self._begin(peer, message)
        if gathered is None:
            return None
        if gathered.giver != peer:
            log.warning("%s and %s both sent a session of %r", gathered.giver, peer, message.client[:80])
            return None
        gathered.parts[message.part] = message.data
        if any(number not in gathered.parts for number in range(message.parts)):
            self._store.put_note(PART, _part_key(token, message.part, peer), message.data)
            self._outbox.schedule()
            return None
        self._finish(token, gathered)
        try:
            return unpack(gathered.parts[number] for number in range(message.parts))
        except ProtocolError as error:
            log.error("session of %r lost: %s", message.client[:80], error)
            return None

    def _begin(self, peer: BrokerId, message: HandOver) -> _Gathered | None:
        if len(self._under_way) >= UNDER_WAY_MAX:
            log.error("session of %r lost: too many transfers in progress", message.client[:80])
            return None
        return self._under_way.setdefault(message.token, _Gathered(peer))

    def _finish(self, token: int, gathered: _Gathered) -> None:
        del self._under_way[token]
        for number in gathered.parts:
            self._store.delete_note(PART, _part_key(token, number, gathered.giver))
        self._taken[token] = None
        self._store.put_note(TAKEN, token.to_bytes(8, "big"), b"")
        if len(self._taken) > TAKEN_MAX:
            oldest, _ = self._taken.popitem(last=False)
            self._store.delete_note(TAKEN, oldest.to_bytes(8, "big"))
        self._outbox.schedule()


def _part_key(token: int, part: int, giver: BrokerId) -> bytes:
    return token.to_bytes(8, "big") + part.to_bytes(4, "big") + giver.encode()
