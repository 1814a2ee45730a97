"""Plans: where every plain event of a topic goes, as long as nothing changes. And plain events that go in batches.

An event is plain if it has no fence, no properties, QoS 0 or 1, and is not retained. A driver that knows the plan of a
topic need not ask the strategy about each event; it must note the ids it gave away in `Strategy.seen`. What a plan does
not cover takes the normal path, event by event. To a peer that is not linked events of QoS 1 go one by one: each counts
among those that wait for it.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from geomq.errors import GeometryError, ProtocolError
from geomq.geo import Location, make_location
from geomq.mqtt.codec.cutter import body_bounds
from geomq.mqtt.codec.decode import decode_publish
from geomq.mqtt.codec.faults import MqttError
from geomq.mqtt.codec.properties import NO_PROPERTIES
from geomq.mqtt.codec.topics import TopicNames
from geomq.mqtt.codec.types import V5, V311
from geomq.routing.core.messages import DeliverEvent, ForwardEvent, Message, MessageKind
from geomq.routing.core.model import BrokerId, ClientId, Count, Event, EventId, Match

BATCH_BYTES_MAX = 1 << 20
"""A driver sends a batch of this size at once, however early in a tick."""


class ToPeer(NamedTuple):
    """A peer that receives the events: to match them itself, or, with matches, to deliver them."""

    peer: BrokerId
    matches: tuple[Match, ...] | None


class Plan(NamedTuple):
    """The own subscriptions that plain events of a topic match, and the peers that receive them."""

    own: tuple[Match, ...]
    peers: tuple[ToPeer, ...]


Pieces = tuple[bytes | memoryview, ...]
"""Bytes that belong together; over a link they travel as one. What came over one may be a view that holds only
while the message is handled."""


class Batched(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """`events` plain events of one publisher that follow each other, in `size` bytes of PUBLISH packets of one version.

    Their ids are those of the sender from `sequence` on. With `matches` they are to be delivered, else to be matched.
    """

    publisher: ClientId
    place: tuple[float, float] | None
    sequence: Annotated[int, Meta(ge=0, le=2**62)]
    events: Annotated[int, Meta(ge=0, le=2**31)]
    is_v5: bool
    matches: tuple[Match, ...] | None
    size: Annotated[int, Meta(ge=0, le=2**31)]


class EventBatch(Message, frozen=True):
    """Plain events of QoS 0 of the sender's clients, in the order of their ids; `packets` are those of all entries."""

    wire_id: ClassVar[int] = 56
    kind: ClassVar[MessageKind] = "event"
    epoch: int
    at_ms: Count
    entries: tuple[Batched, ...]
    packets: Pieces

    def once_sent(self) -> Message:
        """Nothing but its number: events of QoS 0 are not sent twice, and their bytes are many."""
        return NOTHING


class DurableBatch(EventBatch, frozen=True):
    """The same of QoS 1. The packet identifiers are those of the publishers, and mean nothing here."""

    wire_id: ClassVar[int] = 64
    durable: ClassVar[bool] = True

    def once_sent(self) -> Message:
        return self


NOTHING = EventBatch(0, 0, (), ())
"""Holds the place of a message that is no longer to be sent."""


def spread(batch: EventBatch, size: int) -> Iterator[tuple[Batched, int, int]]:
    """Each entry, and where its packets begin and end. Raises ProtocolError if they are not `size` bytes in all."""
    start = 0
    for entry in batch.entries:
        end = start + entry.size
        if not start <= end <= size:
            raise ProtocolError("a batch of events is damaged")
        yield entry, start, end
        start = end
    if start != size:
        raise ProtocolError("a batch of events is longer than its header says")


def all_singly(me: BrokerId, batch: EventBatch) -> Iterator[Message]:
    """The events of an own batch as one message each."""
    data = b"".join(batch.packets)
    for entry, start, end in spread(batch, len(data)):
        yield from singly(me, batch, entry, data[start:end])


def singly(peer: BrokerId, batch: EventBatch, entry: Batched, data: bytes, *, skip: int = 0) -> Iterator[Message]:
    """The events of an entry as one message each, but for the first few. Raises ProtocolError if they are malformed."""
    try:
        place = None if entry.place is None else make_location(*entry.place)
        yield from _singly(peer, batch, entry, place, data, skip)
    except (MqttError, GeometryError) as error:
        raise ProtocolError(f"a batch of events is damaged: {error}") from None


def _singly(
    peer: BrokerId, batch: EventBatch, entry: Batched, place: Location | None, data: bytes, skip: int
) -> Iterator[Message]:
    pos, version, names, qos = 0, V5 if entry.is_v5 else V311, TopicNames(), int(batch.durable)
    for number in range(entry.events):
        bounds = body_bounds(data, pos, len(data), strict=True)
        if bounds is None or bounds[1] > len(data) or data[pos] != 0x30 | qos << 1:
            raise ProtocolError("a batch of events is damaged")
        body, pos = bounds
        if number < skip:
            continue
        packet = decode_publish(data, qos << 1, body, pos, version, names)
        if packet.properties is not NO_PROPERTIES or not packet.topic:
            raise ProtocolError("an event of a batch is not plain")
        event_id = EventId(peer, batch.epoch, entry.sequence + number)
        event = Event(event_id, packet.topic, entry.publisher, place, None, packet.payload, qos, at_ms=batch.at_ms)
        yield ForwardEvent(event) if entry.matches is None else DeliverEvent(event, entry.matches)
    if pos != len(data):
        raise ProtocolError("a batch of events is longer than its header says")
