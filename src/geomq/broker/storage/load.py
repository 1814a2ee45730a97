"""From the raw keys of a store to what they mean: checks the format, sweeps what nothing points to.

Every batch was written whole, so whatever is here fits together; a record that does not decode is damage and
is reported, not skipped.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from geomq.broker.storage.errors import StoreError
from geomq.broker.storage.records import (
    DELIVERY,
    EPOCH_KEY,
    FENCE,
    FORMAT,
    FORMAT_KEY,
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
    SessionRecord,
    StoredSession,
    StoredState,
    SubscriptionRecord,
    named,
    number_bytes,
    split_named,
)
from geomq.broker.storage.writes import Writes
from geomq.mqtt.session.message import ApplicationMessage
from geomq.mqtt.session.outbound import InFlight, Phase

_session = msgspec.msgpack.Decoder(SessionRecord).decode
_subscription = msgspec.msgpack.Decoder(SubscriptionRecord).decode
_delivery = msgspec.msgpack.Decoder(DeliveryRecord).decode
_message = msgspec.msgpack.Decoder(ApplicationMessage).decode
_retained = msgspec.msgpack.Decoder(RetainedEntry).decode

READERS: dict[bytes, Callable[[bytes], Any]] = {
    SESSION: _session,
    SUBSCRIPTION: _subscription,
    DELIVERY: _delivery,
    MESSAGE: _message,
    RETAINED: _retained,
}
"""What decodes the values of each kind; the other kinds have values without a form."""


@dataclass(slots=True)
class Loaded:
    """The state for the broker, and the numbers the store needs to go on."""

    state: StoredState
    messages: dict[int, ApplicationMessage] = field(default_factory=dict)
    deliveries: dict[str, dict[int, DeliveryRecord]] = field(default_factory=dict)
    retained: dict[str, int] = field(default_factory=dict)


def read_state(items: Iterable[tuple[bytes, bytes]], writes: Writes) -> Loaded:
    """Read all items; `writes` receives the new epoch and the sweeping."""
    reader = _Reader()
    try:
        for key, value in items:
            reader.take(key, value)
        return reader.finish(writes)
    except (ValueError, KeyError, IndexError, msgspec.MsgspecError) as error:
        raise StoreError(f"the store is damaged: {type(error).__name__}: {str(error)[:200]}") from None


class _Reader:
    def __init__(self) -> None:
        self.count = 0
        self.marker: bytes | None = None
        self.epoch = 0
        self.messages: dict[int, ApplicationMessage] = {}
        self.sessions: dict[str, StoredSession] = {}
        self.orphans: dict[str, None] = {}
        self.deliveries: dict[str, dict[int, DeliveryRecord]] = {}
        self.missed: dict[str, int] = {}
        self.retained: dict[str, RetainedEntry] = {}
        self.notes: dict[str, dict[bytes, bytes]] = {}

    def take(self, key: bytes, value: bytes) -> None:
        """Take in one item. Keys come sorted, so a session comes before what belongs to it."""
        self.count += 1
        kind = key[:1]
        if kind == MESSAGE:
            self.messages[int.from_bytes(key[1:])] = _message(value)
        elif kind == DELIVERY:
            client_id, rest = split_named(key)
            if self.session(client_id) is not None:
                self.deliveries.setdefault(client_id, {})[int.from_bytes(rest)] = _delivery(value)
        elif kind == RETAINED:
            self.retained[key[1:].decode("utf-8", "surrogatepass")] = _retained(value)
        elif kind == NOTE:
            name, rest = split_named(key)
            self.notes.setdefault(name, {})[rest] = value
        elif kind in PER_CLIENT:
            self.take_session(kind, key, value)
        elif key == FORMAT_KEY:
            self.marker = value
        elif key == EPOCH_KEY:
            self.epoch = int.from_bytes(value)
        else:
            raise ValueError(f"unknown key {key[:20]!r}")

    def take_session(self, kind: bytes, key: bytes, value: bytes) -> None:
        client_id, rest = split_named(key)
        if kind == SESSION:
            self.sessions[client_id] = StoredSession(_session(value))
            return
        session = self.session(client_id)
        if session is None:
            return
        if kind == SUBSCRIPTION:
            session.subscriptions[rest.decode("utf-8", "surrogatepass")] = _subscription(value)
        elif kind == FENCE:
            session.fences[rest.decode("utf-8", "surrogatepass")] = value.decode("utf-8", "surrogatepass")
        elif kind == RECEIPT:
            session.receipts.append(int.from_bytes(rest))
        elif kind == MISSED:
            self.missed[client_id] = int.from_bytes(value)

    def session(self, client_id: str) -> StoredSession | None:
        """The session a record belongs to, or None after noting that it has lost it."""
        found = self.sessions.get(client_id)
        if found is None:
            self.orphans[client_id] = None
        return found

    def finish(self, writes: Writes) -> Loaded:
        self.check_format(writes)
        self.epoch += 1
        writes.put(EPOCH_KEY, number_bytes(self.epoch))
        loaded = Loaded(StoredState(self.epoch, self.sessions, notes=self.notes), deliveries=self.deliveries)
        for client_id, missed in self.missed.items():
            self.sessions[client_id].missed = missed
        for client_id, records in self.deliveries.items():
            self.sessions[client_id].deliveries = [self.delivery(number, record) for number, record in records.items()]
        for topic, retained in self.retained.items():
            loaded.state.retained[topic] = (self.messages[retained.message], retained.about)
            loaded.retained[topic] = retained.message
        self.sweep(loaded, writes)
        return loaded

    def check_format(self, writes: Writes) -> None:
        if self.marker is None:
            if self.count:
                raise StoreError("the store was not written by GeoMQ")
            writes.put(FORMAT_KEY, b"%d" % FORMAT)
        elif int(self.marker) > FORMAT:
            raise StoreError(
                f"the store was written by a newer GeoMQ (format {int(self.marker)}, this one reads {FORMAT})"
            )

    def delivery(self, number: int, record: DeliveryRecord) -> InFlight:
        message = self.messages[record.message]
        made = InFlight(number, message, record.qos, record.retain, record.identifiers, message.wire_size)
        made.packet_id = record.packet_id
        if record.packet_id:
            made.phase = Phase.RELEASED if record.released else Phase.SENT
        return made

    def sweep(self, loaded: Loaded, writes: Writes) -> None:
        """Keep the messages something points to, delete the others and what lost its session."""
        used = {record.message for records in self.deliveries.values() for record in records.values()}
        used.update(loaded.retained.values())
        for number, message in self.messages.items():
            if number in used:
                loaded.messages[number] = message
            else:
                writes.delete(MESSAGE + number_bytes(number))
        for client_id in self.orphans:
            for kind in PER_CLIENT:
                writes.delete_prefix(named(kind, client_id))
