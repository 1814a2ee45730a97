"""A session on its way to another broker: everything it holds, as bytes in parts that fit into frames.

Packs and unpacks; who sends it where is decided elsewhere. What arrives is as hostile as anything from a peer.
"""

from collections.abc import Iterable

import msgspec

from geomq.broker.clients import Client
from geomq.broker.geotopics import read_filter
from geomq.broker.store_records import SessionRecord, StoredSession, SubscriptionRecord
from geomq.errors import GeomqError, ProtocolError
from geomq.geo import Fence, fence_text
from geomq.mqtt.message import Message
from geomq.mqtt.outbound import Delivery, Phase
from geomq.routing.model import ClientId, EventId

PART_BYTES = 1 << 20
PARTS_MAX = 256


class PackedDelivery(msgspec.Struct, frozen=True, array_like=True):
    """A message on its way to the client; `packet_id` is 0 while it waits in the queue."""

    message: Message
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    packet_id: int
    released: bool


class Luggage(msgspec.Struct, frozen=True, array_like=True):
    """A whole session. `had` are the latest events the client has had, by which repeats are known."""

    record: SessionRecord
    subscriptions: tuple[SubscriptionRecord, ...]
    fences: dict[str, str]
    deliveries: tuple[PackedDelivery, ...]
    receipts: tuple[int, ...]
    had: tuple[EventId, ...]


class Ghost(msgspec.Struct, frozen=True, array_like=True):
    """What the giver keeps on disk of a client that left, until all brokers know where it is."""

    to: str
    location: tuple[float, float] | None
    subscriptions: tuple[tuple[str, str, str | None, str | None], ...]
    """Voice, filter, fence and share name of each."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Luggage).decode
read_ghost = msgspec.msgpack.Decoder(Ghost).decode


def pack(client: Client, subscribed: Iterable[tuple[str, Fence | None]], had: tuple[EventId, ...]) -> list[bytes]:
    """The session in parts; `subscribed` names the fence of each subscription."""
    session = client.session
    deliveries, receipts = session.unfinished()
    fences = dict(subscribed)
    luggage = Luggage(
        SessionRecord(
            user=client.user,
            version=session.version,
            expiry_s=session.expiry_s,
            expires_at=session.expires_at,
            location=client.location,
            asks=client.asks,
        ),
        tuple(
            SubscriptionRecord(subscription, None if (fence := fences.get(whole)) is None else fence_text(fence))
            for whole, subscription in session.subscriptions.items()
        ),
        {name: fence_text(fence) for name, fence in client.fences.items()},
        tuple(
            PackedDelivery(d.message, d.qos, d.retain, d.identifiers, d.packet_id, d.phase is Phase.RELEASED)
            for d in deliveries
        ),
        tuple(receipts),
        had,
    )
    data = _encode(luggage)
    return [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]


def unpack(parts: Iterable[bytes]) -> tuple[StoredSession, tuple[EventId, ...]]:
    """The session as a store would have remembered it, and what its client has had; ProtocolError if it is none."""
    try:
        luggage = _decode(b"".join(parts))
        for subscribed in luggage.subscriptions:
            read_filter(subscribed.subscription.topic_filter)
    except (msgspec.MsgspecError, GeomqError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a session that cannot be read: {error}") from None
    stored = StoredSession(
        luggage.record,
        {subscribed.subscription.topic_filter: subscribed for subscribed in luggage.subscriptions},
        luggage.fences,
        [_delivery(number, packed) for number, packed in enumerate(luggage.deliveries, start=1)],
        list(luggage.receipts),
    )
    return stored, luggage.had


def _delivery(number: int, packed: PackedDelivery) -> Delivery:
    made = Delivery(number, packed.message, packed.qos, retain=packed.retain, identifiers=packed.identifiers)
    made.packet_id = packed.packet_id
    if packed.packet_id:
        made.phase = Phase.RELEASED if packed.released else Phase.SENT
    return made


def voices_of(client_id: str, stored: StoredSession) -> dict[ClientId, None]:
    """The ids under which routing will know the session's subscriptions."""
    prefixes = dict.fromkeys(("", *(read_filter(whole).prefix for whole in stored.subscriptions)))
    return {ClientId(f"{client_id}\0{prefix}" if prefix else client_id): None for prefix in prefixes}


def ghost_of(client: Client, subscribed: Iterable[tuple[str, Fence | None]], to: str) -> bytes:
    """What is left of a client that goes to another broker, encoded."""
    found = []
    for whole, fence in subscribed:
        reading = read_filter(whole)
        if not reading.private:
            text = None if fence is None else fence_text(fence)
            found.append((client.voice(reading.prefix), reading.plain, text, reading.group))
    return _encode(Ghost(to, client.location, tuple(found)))
