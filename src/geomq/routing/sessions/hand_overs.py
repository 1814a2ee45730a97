"""Sessions on their way here: only those this broker asked for, each once, put together from their parts.

A broker that wants a session asks with a token; the one that has the session answers with the same. A token names its
client in a way that only this broker can, so nothing has to be remembered of those that are asked for, and a session
that was on its way when the broker stopped is still taken in. What one broker gives for a token it gives once; another
may give the session for the same token again, as it went from here to that one before the question arrived there.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from geomq.routing.core.actions import Action, ForgetNote, KeepNote, RefuseHandOver
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.sessions.messages import HandOver

PART, TAKEN, SECRET = "session-part", "taken", "roaming-secret"
"""What is on disk: parts of sessions that are not whole, tokens of those that were taken, and what tokens rest on."""
PARTS_MAX = 256
TAKEN_MAX = 16_384
UNDER_WAY_MAX = 10_000
SECRET_BYTES: Final = 32
_NUMBER_BYTES: Final = 3
_NUMBER_BITS: Final = 8 * _NUMBER_BYTES
_PROOF_BITS: Final = 39
"""Together they fit into a token: which one it is, and what nobody else can calculate from that and the client."""

Notes = Mapping[str, Mapping[bytes, bytes]]


class HandOvers:
    """The tokens of one broker, and what came for them."""

    def __init__(self, act: Callable[[Action], None]) -> None:
        self._act = act
        self._secret = b""
        self._number = 0
        self._under_way: dict[tuple[int, BrokerId], dict[int, bytes]] = {}
        self._taken: OrderedDict[int, dict[BrokerId, None]] = OrderedDict()

    def load(self, notes: Notes, random_bytes: Callable[[int], bytes]) -> KeepNote | None:
        """Begin with what was kept; what is to be on disk before any token is used."""
        self._number = int.from_bytes(random_bytes(_NUMBER_BYTES))
        kept = notes.get(SECRET, {}).get(b"", b"")
        self._secret = kept if len(kept) == SECRET_BYTES else random_bytes(SECRET_BYTES)
        for key, value in notes.get(PART, {}).items():
            token, part, giver = int.from_bytes(key[:8]), int.from_bytes(key[8:12]), BrokerId(key[12:].decode())
            self._under_way.setdefault((token, giver), {})[part] = value
        for key in notes.get(TAKEN, {}):
            self._taken.setdefault(int.from_bytes(key[:8]), {})[BrokerId(key[8:].decode())] = None
        return None if self._secret == kept else KeepNote(SECRET, b"", self._secret)

    # Asking.

    def make_token(self, client: ClientId) -> int:
        """A token to ask for the session of a client with."""
        while True:
            self._number = (self._number + 1) % (1 << _NUMBER_BITS)
            token = self._number << _PROOF_BITS | self._proof(self._number, client)
            if token not in self._taken:
                return token

    def _proof(self, number: int, client: ClientId) -> int:
        text = f"{number}/{client}".encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, key=self._secret, digest_size=8).digest()
        return int.from_bytes(digest, "big") & ((1 << _PROOF_BITS) - 1)

    def _is_asked_for(self, token: int, client: ClientId) -> bool:
        number = token >> _PROOF_BITS
        expected = number << _PROOF_BITS | self._proof(number, client)
        return hmac.compare_digest(token.to_bytes(8, "big"), expected.to_bytes(8, "big"))

    # Taking.

    def take(self, peer: BrokerId, message: HandOver) -> bytes | None:
        """A part of a session came: the session, if it is whole now.

        A part that comes again is recognised by its token.
        """
        token, parts = message.token, message.parts
        if peer in self._taken.get(token, ()) or not 0 <= message.part < parts <= PARTS_MAX:
            return None
        if not self._is_asked_for(token, message.client):
            self._act(RefuseHandOver(peer, message.client, "nobody asked for this session"))
            return None
        gathered = self._under_way.get((token, peer))
        if gathered is None:
            if len(self._under_way) >= UNDER_WAY_MAX:
                self._act(RefuseHandOver(peer, message.client, "session lost: too many are under way"))
                return None
            gathered = self._under_way[token, peer] = {}
        gathered[message.part] = message.data
        if any(number not in gathered for number in range(parts)):
            self._act(KeepNote(PART, _part_key(token, message.part, peer), message.data))
            return None
        self._finish(token, peer)
        return b"".join(gathered[number] for number in range(parts))

    def _finish(self, token: int, giver: BrokerId) -> None:
        for number in self._under_way.pop((token, giver)):
            self._act(ForgetNote(PART, _part_key(token, number, giver)))
        self._taken.setdefault(token, {})[giver] = None
        self._act(KeepNote(TAKEN, _taken_key(token, giver), b""))
        if len(self._taken) > TAKEN_MAX:
            oldest, givers = self._taken.popitem(last=False)
            for each in givers:
                self._act(ForgetNote(TAKEN, _taken_key(oldest, each)))


def _taken_key(token: int, giver: BrokerId) -> bytes:
    return token.to_bytes(8, "big") + giver.encode()


def _part_key(token: int, part: int, giver: BrokerId) -> bytes:
    return token.to_bytes(8, "big") + part.to_bytes(4, "big") + giver.encode()
