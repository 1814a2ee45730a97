"""Frames between brokers as bytes: msgpack arrays, each message with a number of its own.

For every message a wire form is derived from its annotations: the same fields, circles as numbers, other fences as
text. Decoding checks types, ranges, geometry, topics and properties; what fails any check is a ProtocolError, never
another exception. How long a frame may be is the driver's affair. Unknown message numbers are refused: peers agree on
`PROTOCOL_VERSION` first.
"""

from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import astuple

from geomq.errors import GeomqError, ProtocolError
from geomq.geo import (
    WRITTEN_LIMITS,
    Circle,
    Fence,
    Location,
    MultiPolygon,
    Polygon,
    fence_text,
    make_location,
    parse_fence,
)
from geomq.routing import (
    adaptive,
    coverage,
    edition_messages,
    georendezvous,
    groups_messages,
    mesh_messages,
    messages,
    plan,
    retained,
    shared,
    travellers,
)
from geomq.routing.edition_messages import OfEdition, unwrapped
from geomq.routing.link import Ack, Data, Frame, Hello, Run
from geomq.routing.messages import Message
from geomq.routing.model import Count, Edition, Event, Number
from geomq.routing.wire_checks import check_of

PROTOCOL_VERSION = 6

MESSAGES: tuple[type[Message], ...] = (
    messages.ForwardEvent,
    messages.DeliverEvent,
    messages.PutSubscription,
    messages.DropSubscription,
    messages.DropClient,
    messages.PutLocation,
    messages.SyncBegin,
    messages.SyncEnd,
    messages.CoverageChanged,
    messages.CoverageConfirmed,
    coverage.PutGuest,
    coverage.DropGuest,
    georendezvous.PrunePath,
    georendezvous.PruneRendezvous,
    georendezvous.GraftRendezvous,
    georendezvous.Refresh,
    adaptive.UseMode,
    adaptive.PreferMatchedHere,
    mesh_messages.CoreAnnouncements,
    mesh_messages.MembershipAnnouncements,
    mesh_messages.RoutesLost,
    mesh_messages.TopicMap,
    mesh_messages.TopicMapWanted,
    groups_messages.RelayEvent,
    groups_messages.PutInterest,
    groups_messages.DropInterest,
    groups_messages.MergeRequest,
    groups_messages.MergeReply,
    groups_messages.MergeNotice,
    groups_messages.Join,
    groups_messages.GroupView,
    groups_messages.Leave,
    groups_messages.Dismissed,
    groups_messages.LeaderBeat,
    groups_messages.MemberBeat,
    retained.PutRetained,
    retained.RetainedDigest,
    retained.RetainedWanted,
    shared.PutMember,
    shared.DropMember,
    shared.ChangeMember,
    shared.MembersBegin,
    shared.MembersEnd,
    shared.MembersWanted,
    shared.ServeShared,
    travellers.ClientAddress,
    travellers.SessionWanted,
    travellers.NoSession,
    travellers.HandOver,
    travellers.DeliverMoved,
    travellers.AskSettled,
    travellers.Settled,
    edition_messages.OfferDescription,
    edition_messages.WantDescription,
    edition_messages.PutDescription,
    edition_messages.EditionReached,
    plan.EventBatch,
)
"""A message's number on the wire is its place here; new ones go to the end."""

_DATA, _LOOSE, _OF_EDITION = 1, 9, 1000
_FENCE = {Circle, Polygon, MultiPolygon}
Convert = Callable[[Any], Any]


class _Form:
    """The wire form of one class: a struct with wire types, and the fields that have to be converted, by number."""

    def __init__(self, plain: type, *, tag: int | None) -> None:
        self._plain = plain
        hints = {
            name: hint
            for name, hint in get_type_hints(plain, include_extras=True).items()
            if get_origin(hint) is not ClassVar
        }
        packers = [(number, _packer(hint)) for number, hint in enumerate(hints.values())]
        self._pack = [(number, pack) for number, pack in packers if pack is not None]
        unpackers = [
            (number, check_of(name) or _unpacker(plain, hint)) for number, (name, hint) in enumerate(hints.items())
        ]
        self._unpack = [(number, unpack) for number, unpack in unpackers if unpack is not None]
        fields = [(name, _wire_type(hint)) for name, hint in hints.items()]
        self.wire = msgspec.defstruct(
            f"Wire{plain.__name__}", fields, array_like=True, frozen=True, forbid_unknown_fields=True, tag=tag
        )

    def to_wire(self, thing: Any) -> Any:
        return self.wire(*_converted(thing, self._pack))

    def from_wire(self, thing: Any) -> Any:
        return self._plain(*_converted(thing, self._unpack))


def _converted(thing: Any, converts: list[tuple[int, Convert]]) -> Sequence[Any]:
    fields = astuple(thing)
    if not converts:
        return fields
    changed = list(fields)
    for number, convert in converts:
        value = changed[number]
        if value is not None:
            changed[number] = convert(value)
    return changed


def _alternatives(hint: Any) -> set[Any]:
    return set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}


def _is_fence(hint: Any) -> bool:
    return _alternatives(hint) >= _FENCE


def _is_location(hint: Any) -> bool:
    return Location in _alternatives(hint)


def _wire_type(hint: Any) -> Any:
    if _is_fence(hint):
        return str | tuple[float, float, float] | None
    if hint is Event:
        return _EVENT.wire
    if hint == plan.Pieces:
        return memoryview
    return Number if hint is int else hint


def _packer(hint: Any) -> Convert | None:
    if _is_fence(hint):
        return _fence_to_wire
    if hint is Event:
        return _EVENT.to_wire
    if hint == plan.Pieces:
        return b"".join
    return None


def _unpacker(plain: type, hint: Any) -> Convert | None:
    if _is_fence(hint):
        return _fence_from_wire
    if _is_location(hint):
        return lambda place: make_location(*place)
    if hint is Event:
        return _retained_from_wire if plain is retained.PutRetained else _EVENT.from_wire
    if hint == plan.Pieces:
        return lambda data: (data,)
    return None


def _fence_to_wire(fence: Fence) -> str | tuple[float, float, float]:
    """A circle as three numbers, which are quicker to read than text."""
    if isinstance(fence, Circle):
        return (*fence.center, fence.radius_m)
    return fence_text(fence)


def _fence_from_wire(said: str | tuple[float, float, float]) -> Fence:
    if isinstance(said, tuple):
        return Circle(Location(*said[:2]), said[2])
    return parse_fence(said, WRITTEN_LIMITS)


def _retained_from_wire(said: Any) -> Event:
    event: Event = _EVENT.from_wire(said)
    if event.id.sequence > retained.TIME_MAX:
        raise ProtocolError("a retained event is of a time that never comes")
    return event


_EVENT = _Form(Event, tag=None)
_FORMS = {plain: _Form(plain, tag=number) for number, plain in enumerate(MESSAGES)}
_PLAIN = {form.wire: form for form in _FORMS.values()}
_AnyMessage: Any = Union[tuple(form.wire for form in _FORMS.values())]  # noqa: UP007


class WireOfEdition(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=_OF_EDITION):
    """A message of the routing of one edition."""

    edition: Edition
    message: _AnyMessage


class WireHello(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=0):
    epoch: Number
    starts_at: Number
    heard_epoch: Number | None
    heard_next: Number
    reply: bool


class WireData(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=_DATA):
    epoch: Number
    number: Number
    message: _AnyMessage | WireOfEdition


class WireRun(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=8):
    epoch: Number
    number: Number
    messages: tuple[_AnyMessage | WireOfEdition, ...]


class WireAck(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=2):
    epoch: Number
    next_number: Number


class Ping(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=3):
    """A probe of the link; it bypasses the link protocol and comes back as a pong."""

    token: Number


class Pong(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=4):
    token: Number


class AskToJoin(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=5):
    """The sender wants to be a broker of the federation; its entry of the description, encoded."""

    entry: bytes


class Described(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=6):
    """The federation as the sender knows it: the answer to one who joins, or who does not know that it left."""

    description: bytes


class NotJoined(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=7):
    reason: str


class LooseBatch(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=_LOOSE):
    """An EventBatch without a number: nothing that was sent before it still waits, and it is never sent again."""

    edition: Edition | None
    epoch: Number
    at_ms: Count
    entries: tuple[plan.Batched, ...]
    packets: memoryview


_BATCH = MESSAGES.index(plan.EventBatch)
_encoder = msgspec.msgpack.Encoder()
Aside = LooseBatch | Ping | Pong | AskToJoin | Described | NotJoined
"""What is said beside the link protocol."""
_decoder = msgspec.msgpack.Decoder(WireHello | WireData | WireRun | WireAck | Aside)


def encode_frame(frame: Frame | Aside) -> bytes:
    """The bytes of a frame."""
    if isinstance(frame, Data):
        return _encoder.encode(WireData(frame.epoch, frame.number, _to_wire(frame.message)))
    match frame:
        case Run(epoch=epoch, number=number, messages=messages):
            return _encoder.encode(WireRun(epoch, number, tuple(map(_to_wire, messages))))
        case Ack(epoch=epoch, next_number=next_number):
            return _encoder.encode(WireAck(epoch, next_number))
        case Hello():
            return _encoder.encode(WireHello(*astuple(frame)))
        case Ping() | Pong() | AskToJoin() | Described() | NotJoined():
            return _encoder.encode(frame)
    raise ProtocolError(f"a {type(frame).__name__} has no wire form")


def _to_wire(said: Message) -> Any:
    message, edition = unwrapped(said)
    wire = _FORMS[type(message)].to_wire(message)
    return wire if edition is None else WireOfEdition(edition, wire)


def _from_wire(said: Any) -> Message:
    if isinstance(said, WireOfEdition):
        return OfEdition(said.edition, _PLAIN[type(said.message)].from_wire(said.message))
    message: Message = _PLAIN[type(said)].from_wire(said)
    return message


def batch_parts(frame: Frame | Aside) -> tuple[int, list[bytes | memoryview]] | None:
    """How many bytes a frame has that carries a batch, and these in pieces, so that no packet is copied; None for other
    frames."""
    if not isinstance(frame, Data):
        return None
    batch, edition = unwrapped(frame.message)
    if not isinstance(batch, plan.EventBatch):
        return None
    message: tuple[Any, ...] = (_BATCH, batch.epoch, batch.at_ms, batch.entries, b"")
    if edition is not None:
        message = (_OF_EDITION, edition, message)
    return _in_pieces((_DATA, frame.epoch, frame.number, message), batch.packets)


def loose_parts(batch: plan.EventBatch, edition: Edition | None) -> tuple[int, list[bytes | memoryview]]:
    """The same for a batch that goes without a number."""
    return _in_pieces((_LOOSE, edition, batch.epoch, batch.at_ms, batch.entries, b""), batch.packets)


def _in_pieces(frame: tuple[Any, ...], packets: plan.Pieces) -> tuple[int, list[bytes | memoryview]]:
    """What to write for a frame that ends with empty bytes, if these packets stand there instead."""
    head = _encoder.encode(frame)[:-2]
    size = sum(map(len, packets))
    return len(head) + 5 + size, [b"%b\xc6%b" % (head, size.to_bytes(4, "big")), *packets]


def decode_frame(data: bytes | memoryview) -> Frame | Aside:
    """The frame that the bytes stand for, or ProtocolError."""
    try:
        wire = _decoder.decode(data)
        if isinstance(wire, WireData):
            return Data(wire.epoch, wire.number, _from_wire(wire.message))
        match wire:
            case WireRun(epoch=epoch, number=number, messages=messages):
                return Run(epoch, number, tuple(map(_from_wire, messages)))
            case WireAck(epoch=epoch, next_number=next_number):
                return Ack(epoch, next_number)
            case LooseBatch() | Ping() | Pong() | AskToJoin() | Described() | NotJoined():
                return wire
        return Hello(*astuple(wire))
    except (msgspec.MsgspecError, GeomqError, ValueError, RecursionError, OverflowError) as error:
        raise ProtocolError(f"bad peer frame: {error}") from None
