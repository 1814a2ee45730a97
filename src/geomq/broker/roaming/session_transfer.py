"""A session on its way to another broker: everything it holds, as bytes in parts that fit into frames.

Packs and unpacks; who sends it where is decided elsewhere. What arrives is as hostile as anything from a peer.
"""

from collections.abc import Iterable
from math import isfinite
from typing import Annotated

import msgspec
from msgspec import Meta

from geomq.broker.clients.geotopics import read_filter
from geomq.broker.state.client import Client
from geomq.broker.storage.records import SessionRecord, StoredSession, SubscriptionRecord
from geomq.errors import GeomqError, ProtocolError
from geomq.geo import Fence, fence_text, make_location
from geomq.mqtt.codec.properties import NO_PROPERTIES, encode_properties
from geomq.mqtt.codec.topics import check_filter, check_topic
from geomq.mqtt.codec.types import NEVER_EXPIRES, V5, V311, VARINT_MAX, PacketType
from geomq.mqtt.session.message import ApplicationMessage
from geomq.mqtt.session.outbound import PACKET_ID_MAX, InFlight, Phase
from geomq.mqtt.session.subscriptions import Subscription
from geomq.routing.core.model import ClientId, Count, EventId
from geomq.routing.core.wire_checks import check_properties

PART_BYTES = 1 << 20


class PackedDelivery(msgspec.Struct, frozen=True, array_like=True):
    """A message on its way to the client; `packet_id` is 0 while it waits in the queue."""

    message: ApplicationMessage
    qos: Annotated[int, Meta(ge=1, le=2)]
    retain: bool
    identifiers: tuple[Annotated[int, Meta(ge=1, le=VARINT_MAX)], ...]
    packet_id: Annotated[int, Meta(ge=0, le=PACKET_ID_MAX)]
    released: bool


class SessionTransfer(msgspec.Struct, frozen=True, array_like=True):
    """A whole session. `had` are the latest events the client has had, by which repeats are known."""

    record: SessionRecord
    subscriptions: tuple[SubscriptionRecord, ...]
    fences: dict[str, str]
    deliveries: tuple[PackedDelivery, ...]
    receipts: tuple[Annotated[int, Meta(ge=1, le=PACKET_ID_MAX)], ...]
    had: tuple[EventId, ...]
    missed: Count = 0


class DepartedSession(msgspec.Struct, frozen=True, array_like=True):
    """What the giver keeps on disk of a client that left, until all brokers know where it is."""

    to: str
    location: tuple[float, float] | None
    subscriptions: tuple[tuple[str, str, str | None, str | None], ...]
    """Voice, filter, fence and share name of each."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SessionTransfer).decode
read_departed = msgspec.msgpack.Decoder(DepartedSession).decode


def pack(
    client: Client,
    subscribed: Iterable[tuple[str, Fence | None]],
    had: tuple[EventId, ...],
    deliveries: Iterable[InFlight],
    *,
    now: float,
) -> list[bytes]:
    """The session with these deliveries in parts, whatever their number; `subscribed` names the fence of each
    subscription. What expires goes with the time that is left to it."""
    session = client.session
    _, receipts = session.unfinished()
    fences = dict(subscribed)
    transfer = SessionTransfer(
        SessionRecord(
            user=client.user,
            version=session.version,
            expiry_s=session.expiry_s,
            expires_at=_later(session.expires_at, -now),
            location=client.location,
            asks=client.asks,
            queue_full=client.queue_full,
            mount=session.mount,
            proved=client.proved,
        ),
        tuple(
            SubscriptionRecord(subscription, None if (fence := fences.get(whole)) is None else fence_text(fence))
            for whole, subscription in session.subscriptions.items()
        ),
        {name: fence_text(fence) for name, fence in client.fences.items()},
        tuple(
            PackedDelivery(
                _moved(d.message, -now), d.qos, d.retain, d.identifiers, d.packet_id, d.phase is Phase.RELEASED
            )
            for d in deliveries
        ),
        tuple(receipts),
        had,
        session.missed,
    )
    data = _encode(transfer)
    return [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]


def _later(moment: float | None, by_s: float) -> float | None:
    return None if moment is None else moment + by_s


def _moved(message: ApplicationMessage, by_s: float) -> ApplicationMessage:
    if message.expires_at is None:
        return message
    return msgspec.structs.replace(message, expires_at=message.expires_at + by_s)


def unpack(data: bytes, *, now: float) -> tuple[StoredSession, tuple[EventId, ...]]:
    """The session as a store would have remembered it, and what its client has had; ProtocolError if it is invalid."""
    try:
        transfer = _decode(data)
        _check_record(transfer.record)
        for subscribed in transfer.subscriptions:
            _check_subscription(subscribed.subscription)
        for packed in transfer.deliveries:
            _check_message(packed.message)
    except (msgspec.MsgspecError, GeomqError, ValueError, RecursionError, OverflowError) as error:
        raise ProtocolError(f"unreadable session: {error}") from None
    stored = StoredSession(
        msgspec.structs.replace(transfer.record, expires_at=_later(transfer.record.expires_at, now)),
        {subscribed.subscription.topic_filter: subscribed for subscribed in transfer.subscriptions},
        transfer.fences,
        [_delivery(number, packed, now) for number, packed in enumerate(transfer.deliveries, start=1)],
        list(transfer.receipts),
        transfer.missed,
    )
    return stored, transfer.had


def _check_record(record: SessionRecord) -> None:
    if record.version not in (V311, V5) or not 0 <= record.expiry_s <= NEVER_EXPIRES or record.will is not None:
        raise ProtocolError("invalid session record")
    if record.location is not None:
        make_location(*record.location)
    _check_time(record.expires_at)


def _check_subscription(wanted: Subscription) -> None:
    check_filter(read_filter(wanted.topic_filter).plain)
    if not (0 <= wanted.qos <= 2 and 0 <= wanted.retain_handling <= 2 and 0 <= wanted.identifier <= VARINT_MAX):
        raise ProtocolError("invalid subscription")


def _check_message(message: ApplicationMessage) -> None:
    check_topic(message.topic)
    if not 0 <= message.qos <= 2:
        raise ProtocolError(f"a message has QoS {message.qos}")
    if message.properties != NO_PROPERTIES:
        check_properties(encode_properties(message.properties, PacketType.PUBLISH))
    _check_time(message.expires_at)
    if message.shared is not None:
        check_filter(read_filter(message.shared.topic_filter).plain)
        if message.shared.place is not None:
            make_location(*message.shared.place)


def _check_time(moment: float | None) -> None:
    if moment is not None and not isfinite(moment):
        raise ProtocolError("an expiry time is not finite")


def _delivery(number: int, packed: PackedDelivery, now: float) -> InFlight:
    message = _moved(packed.message, now)
    made = InFlight(number, message, packed.qos, packed.retain, packed.identifiers, message.wire_size)
    made.packet_id = packed.packet_id
    if packed.packet_id:
        made.phase = Phase.RELEASED if packed.released else Phase.SENT
    return made


def subscription_keys_of(client_id: str, stored: StoredSession) -> dict[ClientId, None]:
    """The ids under which routing will know the session's subscriptions."""
    prefixes = dict.fromkeys(("", *(read_filter(whole).prefix for whole in stored.subscriptions)))
    return {ClientId(f"{client_id}\0{prefix}" if prefix else client_id): None for prefix in prefixes}


def departed_session(client: Client, subscribed: Iterable[tuple[str, Fence | None]], to: str) -> bytes:
    """What is left of a client that goes to another broker, encoded."""
    found = []
    for whole, fence in subscribed:
        reading = read_filter(whole)
        if not reading.private:
            text = None if fence is None else fence_text(fence)
            found.append((client.subscription_key(reading.prefix), reading.plain, text, reading.group))
    return _encode(DepartedSession(to, client.location, tuple(found)))
