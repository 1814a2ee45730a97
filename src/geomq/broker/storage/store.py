"""What survives a restart: sessions, messages on their way, retained messages.

Calls collect writes; `write` hands them to the operating system in one atomic batch and `sync` makes all
written batches safe from power loss. A message is kept once however many sessions wait for it, and goes with
the last of them. The store decides nothing about delivery and never waits: `committer` does the waiting.
"""

import os
from collections.abc import Iterable
from typing import Protocol

import msgspec

from geomq.broker.storage.errors import StoreFull
from geomq.broker.storage.load import read_state
from geomq.broker.storage.records import (
    DELIVERY,
    FENCE,
    MESSAGE,
    MISSED,
    NOTE,
    PER_CLIENT,
    RECEIPT,
    RETAINED,
    SESSION,
    SUBSCRIPTION,
    DeliveryRecord,
    RetainedEntry,
    RetainedRecord,
    SessionRecord,
    StoredState,
    SubscriptionRecord,
    named,
    number_bytes,
    packet_id_bytes,
)
from geomq.broker.storage.writes import Writes
from geomq.mqtt.session.changes import (
    Change,
    DeliveryAdded,
    DeliveryReleased,
    DeliveryRemoved,
    DeliverySent,
    EventsMissed,
    ReceiptAdded,
)
from geomq.mqtt.session.message import ApplicationMessage

EPOCH_SHIFT = 40

_encode = msgspec.msgpack.Encoder().encode


class Disk(Protocol):
    """Where batches go and come from; it has room while `free_bytes_min` are left."""

    free_bytes_min: int

    def items(self) -> Iterable[tuple[bytes, bytes]]: ...

    def write(self, writes: Writes) -> None: ...

    def sync(self) -> None: ...

    def has_room(self) -> bool: ...

    def close(self) -> None: ...


class _Slot:
    """A message in use, its number and how many records point to it."""

    __slots__ = ("message", "number", "references")

    def __init__(self, message: ApplicationMessage, number: int) -> None:
        self.message = message
        self.number = number
        self.references = 0


class Store:
    """Make it with `open_store` or as a `MemoryStore`; call `load` first and once."""

    durable = True

    def __init__(self, disk: Disk) -> None:
        self.full = False
        self._disk = disk
        self._writes = Writes()
        self._slots: dict[int, _Slot] = {}
        self._by_number: dict[int, _Slot] = {}
        self._deliveries: dict[str, tuple[bytes, dict[int, DeliveryRecord]]] = {}
        self._retained: dict[str, int] = {}
        self._next_number = 1

    # Reading

    def load(self) -> StoredState:
        """Everything stored, after writing down that a new epoch has begun."""
        loaded = read_state(self._disk.items(), self._writes)
        self._next_number = loaded.state.epoch << EPOCH_SHIFT
        for number, message in loaded.messages.items():
            slot = _Slot(message, number)
            self._slots[id(message)] = self._by_number[number] = slot
        for client_id, records in loaded.deliveries.items():
            self._deliveries[client_id] = (named(DELIVERY, client_id), records)
            self._count(record.message for record in records.values())
        for topic, number in loaded.retained.items():
            self._retained[topic] = number
        self._count(loaded.retained.values())
        self.write()
        self.sync()
        return loaded.state

    def _count(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._by_number[number].references += 1

    # Sessions

    def put_session(self, client_id: str, record: SessionRecord) -> None:
        self._writes.put(named(SESSION, client_id), _encode(record))

    def delete_session(self, client_id: str) -> None:
        """Forget the session with its subscriptions, fences, messages and receipts."""
        _, records = self._deliveries.pop(client_id, (b"", {}))
        for prefix in [named(kind, client_id) for kind in PER_CLIENT]:
            self._writes.delete_prefix(prefix)
        for record in records.values():
            self._release(record.message)

    def put_subscription(self, client_id: str, record: SubscriptionRecord) -> None:
        key = _text_key(SUBSCRIPTION, client_id, record.subscription.topic_filter)
        self._writes.put(key, _encode(record))

    def delete_subscription(self, client_id: str, topic_filter: str) -> None:
        self._writes.delete(_text_key(SUBSCRIPTION, client_id, topic_filter))

    def put_fence(self, client_id: str, name: str, text: str) -> None:
        self._writes.put(_text_key(FENCE, client_id, name), text.encode("utf-8", "surrogatepass"))

    def delete_fence(self, client_id: str, name: str) -> None:
        self._writes.delete(_text_key(FENCE, client_id, name))

    def record(self, changes: Iterable[Change]) -> None:
        """Write down what sessions put in their journals."""
        for change in changes:
            kind = type(change)
            if kind is DeliveryAdded:
                self._add_delivery(change)  # type: ignore[arg-type]
            elif kind is DeliveryRemoved:
                self._remove_delivery(change.client_id, change.number)  # type: ignore[union-attr]
            elif isinstance(change, DeliverySent | DeliveryReleased):
                self._change_delivery(change)
            elif isinstance(change, EventsMissed):
                self._note_missed(change)
            elif isinstance(change, ReceiptAdded):
                self._writes.put(_receipt_key(change.client_id, change.packet_id), b"")
            else:
                self._writes.delete(_receipt_key(change.client_id, change.packet_id))  # type: ignore[union-attr]

    def _add_delivery(self, change: DeliveryAdded) -> None:
        found = self._deliveries.get(change.client_id)
        if found is None:
            found = self._deliveries[change.client_id] = (named(DELIVERY, change.client_id), {})
        prefix, records = found
        record = DeliveryRecord(
            self._refer(change.message),
            change.qos,
            change.retain,
            change.identifiers,
            change.packet_id,
            False,
        )
        records[change.number] = record
        self._writes.put_new(prefix + number_bytes(change.number), _encode(record))

    def _change_delivery(self, change: DeliverySent | DeliveryReleased) -> None:
        prefix, records = self._deliveries[change.client_id]
        record = msgspec.structs.replace(
            records[change.number],
            packet_id=change.packet_id,
            released=isinstance(change, DeliveryReleased),
        )
        records[change.number] = record
        self._writes.put(prefix + number_bytes(change.number), _encode(record))

    def _note_missed(self, change: EventsMissed) -> None:
        key = named(MISSED, change.client_id)
        if change.total:
            self._writes.put(key, number_bytes(change.total))
        else:
            self._writes.delete(key)

    def _remove_delivery(self, client_id: str, number: int) -> None:
        found = self._deliveries.get(client_id)
        if found is None:
            return
        prefix, records = found
        record = records.pop(number, None)
        if record is not None:
            self._writes.delete(prefix + number_bytes(number))
            self._release(record.message)
            if not records:
                del self._deliveries[client_id]

    # Retained messages, notes

    def put_retained(self, message: ApplicationMessage, about: RetainedRecord | None = None) -> None:
        topic = message.topic
        number = self._refer(message)
        old = self._retained.get(topic)
        self._retained[topic] = number
        self._writes.put(_topic_key(topic), _encode(RetainedEntry(number, about or RetainedRecord())))
        if old is not None:
            self._release(old)

    def delete_retained(self, topic: str) -> None:
        number = self._retained.pop(topic, None)
        if number is not None:
            self._writes.delete(_topic_key(topic))
            self._release(number)

    def put_note(self, kind: str, key: bytes, value: bytes) -> None:
        """Anything else that must survive, under a kind of its owner's choice."""
        self._writes.put(named(NOTE, kind) + key, value)

    def delete_note(self, kind: str, key: bytes) -> None:
        self._writes.delete(named(NOTE, kind) + key)

    # Messages by reference

    def _refer(self, message: ApplicationMessage) -> int:
        slot = self._slots.get(id(message))
        if slot is None:
            slot = _Slot(message, self._next_number)
            self._next_number += 1
            self._slots[id(message)] = self._by_number[slot.number] = slot
            self._writes.put_new(MESSAGE + number_bytes(slot.number), _encode(message))
        slot.references += 1
        return slot.number

    def _release(self, number: int) -> None:
        slot = self._by_number[number]
        slot.references -= 1
        if not slot.references:
            del self._by_number[number], self._slots[id(slot.message)]
            self._writes.delete(MESSAGE + number_bytes(number))

    @property
    def messages(self) -> int:
        """Messages kept because something points to them."""
        return len(self._by_number)

    # Writing

    @property
    def dirty(self) -> bool:
        """Whether `write` has something to do."""
        return bool(self._writes.keys or self._writes.sealed)

    def keep_free(self, free_bytes_min: int) -> None:
        """Leave so much room on the disk from now on."""
        self._disk.free_bytes_min = free_bytes_min

    def has_room(self) -> bool:
        """Whether new messages may be accepted; looks at the disk, so ask once a tick at most."""
        return not self.full and self._disk.has_room()

    def write(self) -> None:
        """Hand over all collected writes in one atomic batch; on failure they stay collected."""
        if not self.dirty:
            return
        try:
            self._disk.write(self._writes)
        except StoreFull:
            self.full = True
            raise
        self.full = False
        self._writes = Writes()

    def sync(self) -> None:
        """Make everything written safe; may block for as long as the disk takes. Thread-safe."""
        self._disk.sync()

    def commit(self) -> None:
        """Write and sync."""
        self.write()
        self.sync()

    def close(self) -> None:
        """Write what is collected, sync and let go of the files."""
        try:
            self.commit()
        finally:
            self._disk.close()


def open_store(path: str | os.PathLike[str], *, sync: bool = True, free_bytes_min: int = 0) -> Store:
    """The store in the folder `path`, made if missing; raises StoreError in one line."""
    from geomq.broker.storage.disk import RocksDisk

    return Store(RocksDisk(os.fspath(path), sync=sync, free_bytes_min=free_bytes_min))


def _text_key(kind: bytes, client_id: str, text: str) -> bytes:
    return named(kind, client_id) + text.encode("utf-8", "surrogatepass")


def _topic_key(topic: str) -> bytes:
    return RETAINED + topic.encode("utf-8", "surrogatepass")


def _receipt_key(client_id: str, packet_id: int) -> bytes:
    return named(RECEIPT, client_id) + packet_id_bytes(packet_id)
