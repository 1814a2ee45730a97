"""What a broker keeps on disk of its dealings with others, so that a crash loses and doubles nothing.

Three things: messages that must not be lost and that a peer has not acknowledged; which events of others were already
handed to own clients, or dealt with; and what peers have placed here. What a received message changes about that, the
message itself declares (`routing/core/keeping.py`). Messages are kept in their wire form, and restoring is receiving
them once more.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from geomq.broker.storage.committer import Committer
from geomq.broker.storage.store import Store
from geomq.errors import ProtocolError
from geomq.routing.core.events import PeerSaid
from geomq.routing.core.keeping import PlacedMessages, Write
from geomq.routing.core.keeps import Once
from geomq.routing.core.message_registry import known, part_of, parts, wire_id_of
from geomq.routing.core.messages import Message
from geomq.routing.core.model import CONFIGURED, BrokerId, ClientId, Edition, EventId, Match
from geomq.routing.core.seen import SeenEvents
from geomq.routing.federation.editions import Kept
from geomq.routing.node import Node
from geomq.routing.wire.frames import Refused, decode_frame, encode_frame
from geomq.routing.wire.link import Data, Run

log = logging.getLogger("geomq.peers")

SEEN_MAX = 16_384
SEEN_CLIENTS_MAX = 4_000_000
"""Clients named for all these events; beyond that the oldest events are forgotten early."""
OUTBOX, SEEN, DEALT_WITH, REPLICA = "outbox/", "seen", "served", "replica/"
KEY_BYTES, KEY_MAX = 8, 1 << 63
FEDERATION = "federation"
_DEALT_WITH = msgspec.msgpack.Decoder(tuple[int | str, msgspec.Raw])
_KEPT = msgspec.msgpack.Decoder(Kept)
NOT_HAD = "\0"
"""Before a client that did not get an event after all; no client's id begins so."""


class Had(msgspec.Struct, array_like=True, gc=False):
    """Own clients that got an event, or so many that follow each other from that on."""

    first: EventId
    clients: list[ClientId]
    count: int = 1


_DELIVERED = msgspec.msgpack.Decoder(list[Had])

Notes = Mapping[str, Mapping[bytes, bytes]]


def kept_editions(notes: Notes) -> Kept | None:
    """The federation as it was when the broker stopped; None if it was as configured."""
    try:
        return _KEPT.decode(notes[FEDERATION][b""])
    except (KeyError, msgspec.MsgspecError):
        return None


class _Waiting:
    """A note of messages that wait for a peer; `left` of them have not been given up."""

    __slots__ = ("first", "key", "last", "left")

    def __init__(self, key: bytes, number: int, count: int) -> None:
        self.key = key
        self.first = number
        self.last = number + count - 1
        self.left = count


class PeerStore:
    """The part of the store that belongs to the links."""

    def __init__(self, store: Store, committer: Committer, *, strategy: str) -> None:
        self._store = store
        self._committer = committer
        self._strategy = strategy
        self._next_key = 0
        self._outboxes: dict[BrokerId, deque[_Waiting]] = {}
        self._delivered: list[Had] = []
        """What is not on disk yet of this tick's events."""
        self._seen: deque[tuple[bytes, int, int]] = deque()
        """Of each tick whose events are noted: the key, how many they are, and how many clients they name."""
        self._seen_events = self._seen_clients = 0
        self._dealt_with: deque[bytes] = deque()
        self._placed: dict[str, PlacedMessages] = {}
        """By kind of note, which names the routing and the peer."""
        committer.collectors.append(self._write_delivered)

    def when_safe(self, callback: Callable[[], None]) -> None:
        """Call back when everything done so far is on disk."""
        self._committer.when_safe(callback)

    def before_writing(self, collect: Callable[[], None]) -> None:
        """Call `collect` before every write to the disk: what it wants to be called back for belongs to that write."""
        self._committer.collectors.append(collect)

    def keep_editions(self, kept: Kept) -> None:
        """Remember the federation descriptions and how far this broker is."""
        self._write(FEDERATION, b"", msgspec.msgpack.encode(kept))

    def _write(self, kind: str, key: bytes, value: bytes) -> None:
        self._store.put_note(kind, key, value)
        self._committer.wrote()

    def _erase(self, kind: str, key: bytes) -> None:
        self._store.delete_note(kind, key)
        self._committer.wrote()

    # Messages that wait for a peer.

    def load_outbox(self, peer: BrokerId, notes: Notes) -> list[Message]:
        """What a peer had not acknowledged before the restart, in order."""
        messages: list[Message] = []
        waiting = self._outboxes.setdefault(peer, deque())
        for key, value in sorted(notes.get(OUTBOX + peer, {}).items()):
            found = _messages_of(value, of=peer)
            if found and self._was_taken(key):
                waiting.append(_Waiting(key, len(messages), len(found)))
                messages += found
            else:
                self._erase(OUTBOX + peer, key)
        return messages

    def keep(self, peer: BrokerId, frame: Data | Run) -> bytes:
        """What the frame says has to survive until the peer acknowledges the numbers in it; the frame encoded, or
        nothing if it holds a message that cannot be written, which does not: then the others are kept singly."""
        try:
            data = encode_frame(frame)
        except ProtocolError:
            for number, message in enumerate(frame.messages if isinstance(frame, Run) else (), frame.number):
                self.keep(peer, Data(frame.epoch, number, message))
            return b""
        key = self._take_key()
        count = len(frame.messages) if isinstance(frame, Run) else 1
        self._outboxes.setdefault(peer, deque()).append(_Waiting(key, frame.number, count))
        self._write(OUTBOX + peer, key, data)
        return data

    def acknowledged(self, peer: BrokerId, number: int) -> None:
        """The peer has taken in everything before the link's `number`."""
        waiting = self._outboxes.get(peer)
        while waiting and waiting[0].last < number:
            self._erase(OUTBOX + peer, waiting.popleft().key)

    def given_up(self, peer: BrokerId, number: int) -> None:
        """The message of the link's `number` will never be sent."""
        waiting = self._outboxes.get(peer, deque())
        for place, note in enumerate(waiting):
            if note.last >= number:
                if note.first <= number:
                    note.left -= 1
                if not note.left:
                    del waiting[place]
                    self._erase(OUTBOX + peer, note.key)
                return

    # Events that own clients had.

    def note_delivered(self, event: EventId, matches: tuple[Match, ...]) -> None:
        """Remember who got which event that a peer sent, be it an own one that a rendezvous elsewhere matched."""
        self._note_had(Had(event, [match.client for match in matches]))

    def note_run(self, first: EventId, count: int, clients: Iterable[ClientId]) -> None:
        """The same for events that follow each other and went to the same clients."""
        self._note_had(Had(first, list(clients), count))

    def _note_had(self, had: Had) -> None:
        if not self._delivered:
            self._committer.wrote()
        self._delivered.append(had)

    def note_not_had(self, event: EventId, clients: tuple[ClientId, ...]) -> None:
        """Remember that these did not get an event that they were noted for."""
        self._note_had(Had(event, [ClientId(NOT_HAD + client) for client in clients]))

    def _write_delivered(self) -> None:
        """One note for all events of a tick; the oldest notes go."""
        if not self._delivered:
            return
        delivered, self._delivered = self._delivered, []
        key = self._take_key()
        self._store.put_note(SEEN, key, msgspec.msgpack.encode(delivered))
        self._count_seen(key, delivered)
        while len(self._seen) > 1:
            oldest, events, clients = self._seen[0]
            if self._seen_events - events < SEEN_MAX and self._seen_clients <= SEEN_CLIENTS_MAX:
                break
            self._seen.popleft()
            self._seen_events -= events
            self._seen_clients -= clients
            self._store.delete_note(SEEN, oldest)

    def _count_seen(self, key: bytes, delivered: list[Had]) -> None:
        events, clients = sum([had.count for had in delivered]), sum([len(had.clients) for had in delivered])
        self._seen.append((key, events, clients))
        self._seen_events += events
        self._seen_clients += clients

    def _take_key(self) -> bytes:
        """One that is greater than all before."""
        key = self._next_key.to_bytes(KEY_BYTES, "big")
        self._next_key += 1
        return key

    def _was_taken(self, key: bytes) -> bool:
        """Whether this is such a key; the next will be greater."""
        number = int.from_bytes(key, "big")
        if len(key) != KEY_BYTES or number >= KEY_MAX:
            return False
        self._next_key = max(self._next_key, number + 1)
        return True

    def _note_dealt_with(self, message: Message, values: tuple[object, ...]) -> None:
        """Remember that a message of a peer has been dealt with."""
        key = msgspec.msgpack.encode((wire_id_of(type(message)), values))
        self._dealt_with.append(key)
        self._write(DEALT_WITH, key, b"")
        if len(self._dealt_with) > SEEN_MAX:
            self._erase(DEALT_WITH, self._dealt_with.popleft())

    # What peers have placed here.

    def note_received(self, peer: BrokerId, message: Message, edition: Edition | None = None) -> None:
        """Write what a message of a peer declares to be kept."""
        for rule in message.keeps:
            if isinstance(rule, Once) and (values := rule.values(message)) is not None:
                self._note_dealt_with(message, values)
        kind = self._kind(part_of(type(message)) or self._tag(edition or CONFIGURED), peer)
        placed = self._placed.get(kind)
        if placed is None:
            placed = self._placed[kind] = PlacedMessages()
        self._carry_out(kind, placed.receive(message))

    def _carry_out(self, kind: str, writes: Iterable[Write]) -> None:
        for key, message in writes:
            if message is None:
                self._erase(kind, key)
            else:
                self._write(kind, key, encode_frame(Data(0, 0, message)))

    def forget_others(self, editions: Collection[Edition], peers: Collection[BrokerId]) -> None:
        """Only these editions and peers are left."""
        kinds = {self._kind(tag, peer) for tag in (*parts(), *map(self._tag, editions)) for peer in peers}
        for kind in [kind for kind in self._placed if kind not in kinds]:
            self._carry_out(kind, self._placed.pop(kind).erase(b""))

    def forget_outbox(self, peer: BrokerId) -> None:
        """Nothing waits for a peer that left for good."""
        for note in self._outboxes.pop(peer, ()):
            self._erase(OUTBOX + peer, note.key)

    def _tag(self, edition: Edition) -> str:
        return self._strategy if edition == CONFIGURED else str(edition)

    @staticmethod
    def _kind(tag: str, peer: BrokerId) -> str:
        return f"{REPLICA}{tag}/{peer}"

    # After a restart.

    def restore(self, node: Node, notes: Notes, *, now: float) -> None:
        """Feed the node again what it knew; what it asks for is not done, the links will repeat everything."""
        for key, value in sorted(notes.get(SEEN, {}).items()):
            try:
                delivered = _DELIVERED.decode(value)
            except msgspec.MsgspecError:
                delivered = []
            if not delivered or not self._was_taken(key):
                self._erase(SEEN, key)  # of a version that is gone
                continue
            self._count_seen(key, delivered)
            for had in delivered:
                _restore_had(node.strategy.seen, had)
        for key in notes.get(DEALT_WITH, {}):
            self._restore_dealt_with(node, key)
        editions = {self._tag(edition): None if edition == CONFIGURED else edition for edition in node.editions.keys}
        editions |= dict.fromkeys(parts())
        for kind, kept in notes.items():
            tag, _, name = kind.removeprefix(REPLICA).rpartition("/")
            if kind.startswith(REPLICA) and tag in editions:
                self._restore_placed(node, kind, kept, BrokerId(name), editions[tag], now=now)
            elif kind.startswith(REPLICA):
                for key in kept:  # another strategy's, or of an edition that is over
                    self._erase(kind, key)

    def _restore_dealt_with(self, node: Node, key: bytes) -> None:
        try:
            wire_id, values = _DEALT_WITH.decode(key)
            message = known(wire_id) or Message
            for rule in message.keeps:
                if isinstance(rule, Once):
                    node.shared.dealt_with(*msgspec.msgpack.decode(values, type=rule.shape))
                    self._dealt_with.append(key)
                    return
        except msgspec.MsgspecError:
            pass
        self._erase(DEALT_WITH, key)  # of a version that is gone

    def _restore_placed(
        self, node: Node, kind: str, kept: Mapping[bytes, bytes], peer: BrokerId, edition: Edition | None, *, now: float
    ) -> None:
        placed = self._placed[kind] = PlacedMessages()
        for key in sorted(kept):
            placed.keys[key] = None
            for message in _messages_of(kept[key], of=peer):
                try:
                    node.handle(PeerSaid(peer, message, edition), now=now)
                except Exception:  # a strategy of a user may fail in any way; the broker has to start
                    log.exception("failed to restore a message", extra={"peer": peer})


def _restore_had(seen: SeenEvents, had: Had) -> None:
    origin, epoch, first = had.first
    not_had = [client for client in had.clients if client.startswith(NOT_HAD)]
    matches = tuple([Match(client, "") for client in had.clients if client not in not_had])
    for sequence in range(first, first + min(had.count, SEEN_MAX)):
        event_id = EventId(origin, epoch, sequence)
        for client in not_had:
            seen.forget(event_id, ClientId(client.removeprefix(NOT_HAD)))
        seen.unseen(event_id, matches)


def _messages_of(value: bytes, *, of: BrokerId) -> tuple[Message, ...]:
    """The messages in a note, without those that are not known any more; none if a version that is gone wrote it."""
    try:
        frame = decode_frame(value)
    except ProtocolError:
        return ()
    messages = frame.messages if isinstance(frame, Run) else (frame.message,) if isinstance(frame, Data) else ()
    for message in messages:
        if isinstance(message, Refused):
            extra = {"peer": of, "message_type": message.name, "reason": message.reason}
            log.warning("failed to read a message from disk", extra=extra)
    return tuple([message for message in messages if not isinstance(message, Refused)])
