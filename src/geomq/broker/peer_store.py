"""What a broker keeps on disk of its dealings with others, so that a crash loses and doubles nothing.

Three things: events and deliveries of QoS 1 and 2 that a peer has not acknowledged; which events of others were
already handed to own clients; and the subscriptions, members, locations, coverage and seats that peers have placed
here. Of the first and last the message itself is kept, in its wire form, and restoring is hearing it again.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from geomq.broker.committer import Committer
from geomq.broker.store import Store
from geomq.errors import ProtocolError
from geomq.routing.actions import Action, DeliverToClients
from geomq.routing.coverage import DropGuest, PutGuest
from geomq.routing.editions import Kept
from geomq.routing.events import PeerSaid
from geomq.routing.groups_messages import DropInterest, Join, Leave, PutInterest
from geomq.routing.link import Data, Run
from geomq.routing.messages import (
    OF_EVENTS,
    CoverageChanged,
    DropClient,
    DropSubscription,
    Message,
    PutLocation,
    PutSubscription,
    SyncBegin,
    SyncEnd,
)
from geomq.routing.model import CONFIGURED, BrokerId, ClientId, Edition, EventId, Match
from geomq.routing.node import Node
from geomq.routing.shared import (
    ChangeMember,
    DropMember,
    Group,
    MembersBegin,
    MembersEnd,
    PutMember,
    ServeShared,
)
from geomq.routing.wire import decode_frame, encode_frame

SEEN_MAX = 16_384
SEEN_CLIENTS_MAX = 4_000_000
"""Clients named for all these events; beyond that the oldest events are forgotten early."""
OUTBOX, SEEN, SERVED, REPLICA = "outbox/", "seen", "served", "replica/"
KEY_BYTES, KEY_MAX = 8, 1 << 63
MEMBERS, FEDERATION = "members", "federation"
OF_MEMBERS = (PutMember, DropMember, ChangeMember, MembersBegin, MembersEnd)
_SERVED_KEY = msgspec.msgpack.Decoder(tuple[str, int, int, str, str, int])
_KEPT = msgspec.msgpack.Decoder(Kept)
Delivered = list[tuple[EventId, list[ClientId]]]
_DELIVERED = msgspec.msgpack.Decoder(Delivered)

SEATED = b"j"
"""Under this, what a member of this broker's group said since it joined, its leaving at the end: one that led when it
crashed has to send on what comes from the cloud for those who sat, or had just sat, in its group."""

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
        self._delivered: Delivered = []
        """What is not on disk yet of this tick's events."""
        self._seen: deque[tuple[bytes, int, int]] = deque()
        """Of each tick whose events are noted: the key, how many they are, and how many clients they name."""
        self._seen_events = self._seen_clients = 0
        self._served: deque[bytes] = deque()
        self._replicas: dict[str, dict[bytes, None]] = {}
        """By kind of note, which names the edition and the peer, the keys under which something is kept."""
        self._unmentioned: dict[str, dict[bytes, None]] = {}
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
            found = _messages_of(value)
            if found and self._was_taken(key):
                waiting.append(_Waiting(key, len(messages), len(found)))
                messages += found
            else:
                self._erase(OUTBOX + peer, key)
        return messages

    def keep(self, peer: BrokerId, frame: Data | Run) -> bytes:
        """What the frame says has to survive until the peer acknowledges the numbers in it; the frame encoded."""
        key, data = self._take_key(), encode_frame(frame)
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

    def note_delivered(self, actions: list[Action]) -> None:
        """Remember who got which event that a peer spoke of, be it an own one that a rendezvous elsewhere matched."""
        for action in actions:
            if isinstance(action, DeliverToClients) and action.event.qos:
                if not self._delivered:
                    self._committer.wrote()
                self._delivered.append((action.event.id, [match.client for match in action.matches]))

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

    def _count_seen(self, key: bytes, delivered: Delivered) -> None:
        clients = sum(len(clients) for _, clients in delivered)
        self._seen.append((key, len(delivered), clients))
        self._seen_events += len(delivered)
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

    def _note_served(self, message: ServeShared) -> None:
        """Remember that an event of another broker has been dealt with for a share group."""
        key = msgspec.msgpack.encode((*message.event.id, message.share, message.topic_filter, len(message.asked)))
        self._served.append(key)
        self._write(SERVED, key, b"")
        if len(self._served) > SEEN_MAX:
            self._erase(SERVED, self._served.popleft())

    # What peers have placed here.

    def note_heard(self, peer: BrokerId, message: Message, edition: Edition | None = None) -> None:
        """Keep what a peer said about its clients as long as it holds."""
        if isinstance(message, OF_EVENTS):
            return
        kind = self._kind(MEMBERS if isinstance(message, OF_MEMBERS) else self._tag(edition or CONFIGURED), peer)
        match message:
            case PutSubscription(client=client, topic_filter=topic_filter, location=location):
                self._put(kind, _key(b"s", client, topic_filter), message)
                self._renew(kind, _key(b"t", client), PutLocation(client, location))
            case PutGuest(client=client, topic_filter=topic_filter):
                self._put(kind, _key(b"g", client, topic_filter), message)
            case PutLocation(client=client):
                self._put(kind, _key(b"t", client), message)
            case CoverageChanged():
                self._put(kind, b"c", message)
            case DropSubscription(client=client, topic_filter=topic_filter):
                self._drop(kind, _key(b"s", client, topic_filter))
            case DropGuest(client=client):
                self._drop_all(kind, _key(b"g", client))
            case DropClient(client=client):
                for letter in (b"s", b"t"):
                    self._drop_all(kind, _key(letter, client))
            case PutMember(client=client, share=share, topic_filter=topic_filter):
                self._put(kind, _key(b"m", client, share, topic_filter), message)
                self._renew(kind, _key(b"n", client), ChangeMember(client, message.location, message.ready))
            case DropMember(client=client, share=share, topic_filter=topic_filter):
                self._drop(kind, _key(b"m", client, share, topic_filter))
            case ChangeMember(client=client):
                self._put(kind, _key(b"n", client), message)
            case ServeShared(event=event) if event.qos:
                self._note_served(message)
            case Join():
                self._drop_all(kind, SEATED)
                self._put(kind, SEATED, message)
            case PutInterest() | DropInterest() if SEATED in self._replicas.get(kind, {}):
                self._put(kind, _key(SEATED + b"i", message.topic_filter), message)
            case Leave() if SEATED in self._replicas.get(kind, {}):
                self._put(kind, SEATED + b"l", message)
            case SyncBegin() | MembersBegin():
                self._unmentioned[kind] = dict(self._replicas.get(kind, {}))
            case SyncEnd() | MembersEnd():
                for key in self._unmentioned.pop(kind, {}):
                    self._drop(kind, key)

    def forget_others(self, editions: Collection[Edition], peers: Collection[BrokerId]) -> None:
        """Only these editions and peers are left."""
        kinds = {self._kind(tag, peer) for tag in (MEMBERS, *map(self._tag, editions)) for peer in peers}
        for kind in [kind for kind in self._replicas if kind not in kinds]:
            self._drop_all(kind, b"")
            del self._replicas[kind]
            self._unmentioned.pop(kind, None)

    def forget_outbox(self, peer: BrokerId) -> None:
        """Nothing waits for a peer that left for good."""
        for note in self._outboxes.pop(peer, ()):
            self._erase(OUTBOX + peer, note.key)

    def _tag(self, edition: Edition) -> str:
        return self._strategy if edition == CONFIGURED else str(edition)

    @staticmethod
    def _kind(tag: str, peer: BrokerId) -> str:
        return f"{REPLICA}{tag}/{peer}"

    def _put(self, kind: str, key: bytes, message: Message) -> None:
        self._replicas.setdefault(kind, {})[key] = None
        self._unmentioned.get(kind, {}).pop(key, None)
        self._write(kind, key, encode_frame(Data(0, 0, message)))

    def _renew(self, kind: str, key: bytes, message: Message) -> None:
        """What was said about a client's place since its subscriptions came is heard after all of them."""
        if key in self._replicas.get(kind, {}):
            self._put(kind, key, message)

    def _drop(self, kind: str, key: bytes) -> None:
        if key in self._replicas.get(kind, {}):
            del self._replicas[kind][key]
            self._erase(kind, key)

    def _drop_all(self, kind: str, prefix: bytes) -> None:
        for key in [key for key in self._replicas.get(kind, {}) if key.startswith(prefix)]:
            self._drop(kind, key)

    # After a restart.

    def restore(self, node: Node, notes: Notes, *, now: float) -> None:
        """Let the node hear again what it knew; what it asks for is not done, the links will repeat everything."""
        for key, value in sorted(notes.get(SEEN, {}).items()):
            try:
                delivered = _DELIVERED.decode(value)
            except msgspec.MsgspecError:
                delivered = []
            if not delivered or not self._was_taken(key):
                self._erase(SEEN, key)  # of a version that is gone
                continue
            self._count_seen(key, delivered)
            for event_id, clients in delivered:
                node.strategy.seen.unseen(event_id, tuple([Match(client, "") for client in clients]))
        for key in notes.get(SERVED, {}):
            try:
                origin, epoch, sequence, share, topic_filter, asked = _SERVED_KEY.decode(key)
            except msgspec.MsgspecError:
                self._erase(SERVED, key)  # of a version that is gone
                continue
            self._served.append(key)
            node.shared.is_first(EventId(BrokerId(origin), epoch, sequence), Group(share, topic_filter), asked)
        editions = {self._tag(edition): edition for edition in node.editions.keys} | {MEMBERS: CONFIGURED}
        for kind, kept in notes.items():
            tag, _, name = kind.removeprefix(REPLICA).rpartition("/")
            if kind.startswith(REPLICA) and tag in editions:
                edition = None if editions[tag] == CONFIGURED else editions[tag]
                for key, message in _in_order(kept):
                    self._replicas.setdefault(kind, {})[key] = None
                    node.handle(PeerSaid(BrokerId(name), message, edition), now=now)
            elif kind.startswith(REPLICA):
                for key in kept:  # another strategy's, or of an edition that is over
                    self._erase(kind, key)


def _key(kind: bytes, *words: str) -> bytes:
    return kind + b"".join(word.encode("utf-8", "surrogatepass") + b"\0" for word in words)


def _in_order(kept: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, Message]]:
    """Coverage, guests, members and their moves, subscriptions, and only then the moves of those who have some."""
    for key in sorted(kept):
        for message in _messages_of(kept[key]):
            yield key, message


def _messages_of(value: bytes) -> tuple[Message, ...]:
    """The messages behind a note; none if a version that is gone wrote it."""
    try:
        frame = decode_frame(value)
    except ProtocolError:
        return ()
    if isinstance(frame, Run):
        return frame.messages
    return (frame.message,) if isinstance(frame, Data) else ()
