"""Frames between brokers as bytes: msgpack arrays, each message with a number or a name of its own.

A frame that is not well-formed is a ProtocolError, never another exception. A message in it that is unknown here, or
fails a check of its wire form, becomes a `Refused` in its place: what else the frame holds is not touched by that. How
long a frame may be is the driver's affair. Peers agree on `PROTOCOL_VERSION` first.
"""

from typing import Any, Union

import msgspec
from msgspec.structs import astuple

from geomq.errors import GeomqError, ProtocolError
from geomq.routing import parts
from geomq.routing.core import message_registry
from geomq.routing.core.messages import Message
from geomq.routing.core.model import Count, Edition, Event, Number
from geomq.routing.core.plan import Batched, EventBatch, Pieces
from geomq.routing.core.wire_forms import Form, NamedForm, WireNamed
from geomq.routing.federation.edition_messages import OfEdition, unwrapped
from geomq.routing.wire.link import Ack, Data, Frame, Hello, Run

PROTOCOL_VERSION = 9

_DATA, _RUN, _LOOSE, _OF_EDITION, _NAMED = 1, 8, 9, 1000, 1001
_NAME_CHARS_MAX = 80


class Refused(Message, frozen=True):
    """Stands where a peer sent a message that is unknown here, or cannot be read. It never travels itself.

    `promised` says that the message was not to be lost, or may have been such a one.
    """

    name: str
    reason: str
    promised: bool


class _Named:
    """Reads the messages of users."""

    def from_wire(self, wire: WireNamed) -> Any:
        message = message_registry.known(wire.name)
        if message is None:
            raise ProtocolError("not declared here")
        return _FORMS[message].from_wire(wire)


assert parts.PARTS  # which declares all messages of GeoMQ
_FORMS = message_registry.FORMS
_OWN = {form.wire: form for form in _FORMS.values() if not isinstance(form, NamedForm)}
BUILT_IN = frozenset(message for message, form in _FORMS.items() if not isinstance(form, NamedForm))
_READERS: dict[type, Form | _Named] = {**_OWN, WireNamed: _Named()}
_AnyMessage: Any = Union[(*_OWN, WireNamed)]


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


class WireRun(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=_RUN):
    epoch: Number
    number: Number
    messages: tuple[_AnyMessage | WireOfEdition, ...]


class _Shell(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=_DATA):
    """A WireData whose message has not been looked at."""

    epoch: Number
    number: Number
    message: msgspec.Raw


class _RunShell(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=_RUN):
    epoch: Number
    number: Number
    messages: tuple[msgspec.Raw, ...]


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


class NameTaken(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=10):
    """The receiver is not linked, because another broker of its name is there: both their addresses, as the sender sees
    them."""

    refused: str
    linked: str


class LooseBatch(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=_LOOSE):
    """An EventBatch without a number: nothing that was sent before it still waits, and it is never sent again."""

    edition: Edition | None
    epoch: Number
    at_ms: Count
    entries: tuple[Batched, ...]
    packets: memoryview


_encoder = msgspec.msgpack.Encoder()
Aside = LooseBatch | Ping | Pong | AskToJoin | Described | NotJoined | NameTaken
"""What is sent beside the link protocol."""
_decoder = msgspec.msgpack.Decoder(WireHello | WireData | WireRun | WireAck | Aside)
_shell_decoder = msgspec.msgpack.Decoder(_Shell | _RunShell)
_message_decoder = msgspec.msgpack.Decoder(_AnyMessage | WireOfEdition)
_UNREADABLE = (msgspec.MsgspecError, GeomqError, ValueError, RecursionError, OverflowError)
_UNWRITABLE = (*_UNREADABLE, KeyError, TypeError, AttributeError)


def encode_frame(frame: Frame | Aside) -> bytes:
    """The bytes of a frame; ProtocolError if it holds a message that cannot travel."""
    try:
        if isinstance(frame, Data):
            return _encoder.encode(WireData(frame.epoch, frame.number, _to_wire(frame.message)))
        match frame:
            case Run(epoch=epoch, number=number, messages=messages):
                return _encoder.encode(WireRun(epoch, number, tuple(map(_to_wire, messages))))
            case Ack(epoch=epoch, next_number=next_number):
                return _encoder.encode(WireAck(epoch, next_number))
            case Hello():
                return _encoder.encode(WireHello(*astuple(frame)))
            case Ping() | Pong() | AskToJoin() | Described() | NotJoined() | NameTaken():
                return _encoder.encode(frame)
    except _UNWRITABLE as error:
        raise ProtocolError(_problem(frame, error)) from None
    raise ProtocolError(f"a {type(frame).__name__} has no wire form")


def _problem(frame: Frame | Aside, error: Exception) -> str:
    messages = (frame.message,) if isinstance(frame, Data) else frame.messages if isinstance(frame, Run) else ()
    for kind in [type(unwrapped(message)[0]) for message in messages]:
        if kind not in _FORMS:
            return f"{kind.__module__}:{kind.__qualname__} is not declared in the `messages` of its strategy"
    return str(error)


def unsendable(message: Message) -> str | None:
    """Why no link can carry a message; None if one can. Messages of GeoMQ are not looked at."""
    if type(unwrapped(message)[0]) in BUILT_IN:
        return None
    try:
        encode_frame(Data(0, 0, message))
    except ProtocolError as error:
        return str(error)
    return None


def _to_wire(sent: Message) -> Any:
    message = sent.message if isinstance(sent, OfEdition) else sent
    wire = _FORMS[type(message)].to_wire(message)
    return WireOfEdition(sent.edition, wire) if isinstance(sent, OfEdition) else wire


def _from_wire(wire: Any) -> Message:
    if isinstance(wire, WireOfEdition):
        return OfEdition(wire.edition, _READERS[type(wire.message)].from_wire(wire.message))
    message: Message = _READERS[type(wire)].from_wire(wire)
    return message


def batch_parts(frame: Frame | Aside) -> tuple[int, list[bytes | memoryview]] | None:
    """How many bytes a frame has that carries a batch, and these in pieces, so that no packet is copied; None for other
    frames."""
    if not isinstance(frame, Data):
        return None
    batch, edition = unwrapped(frame.message)
    if not isinstance(batch, EventBatch):
        return None
    message: tuple[Any, ...] = (batch.wire_id, batch.epoch, batch.at_ms, batch.entries, b"")
    if edition is not None:
        message = (_OF_EDITION, edition, message)
    return _in_pieces((_DATA, frame.epoch, frame.number, message), batch.packets)


def loose_parts(batch: EventBatch, edition: Edition | None) -> tuple[int, list[bytes | memoryview]]:
    """The same for a batch that goes without a number."""
    return _in_pieces((_LOOSE, edition, batch.epoch, batch.at_ms, batch.entries, b""), batch.packets)


def _in_pieces(frame: tuple[Any, ...], packets: Pieces) -> tuple[int, list[bytes | memoryview]]:
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
            case LooseBatch() | Ping() | Pong() | AskToJoin() | Described() | NotJoined() | NameTaken():
                return wire
        return Hello(*astuple(wire))
    except _UNREADABLE as error:
        return _decoded_singly(data, error)


def _decoded_singly(data: bytes | memoryview, problem: Exception) -> Frame:
    """The same if a message of the frame may be what cannot be read: then the others are."""
    try:
        shell = _shell_decoder.decode(data)
    except _UNREADABLE:
        raise ProtocolError(f"bad peer frame: {problem}") from None
    if isinstance(shell, _Shell):
        return Data(shell.epoch, shell.number, _read(shell.message))
    return Run(shell.epoch, shell.number, tuple(map(_read, shell.messages)))


def _read(raw: msgspec.Raw) -> Message:
    try:
        return _from_wire(_message_decoder.decode(raw))
    except _UNREADABLE as error:
        return _refused(raw, str(error))


def _refused(raw: msgspec.Raw, reason: str) -> Refused:
    """What is known of a message that cannot be read."""
    try:
        fields = msgspec.msgpack.decode(raw)
    except _UNREADABLE:
        fields = None
    if isinstance(fields, list) and len(fields) == 3 and fields[0] == _OF_EDITION:
        fields = fields[2]
    if not (isinstance(fields, list) and fields):
        return Refused("nothing", reason, False)
    wire_id, *rest = fields
    if wire_id == _NAMED and len(rest) == 3:
        return Refused(str(rest[0])[:_NAME_CHARS_MAX], reason, rest[1] is not False)
    message = message_registry.known(wire_id) if isinstance(wire_id, int) else None
    if message is None:
        return Refused(str(wire_id)[:_NAME_CHARS_MAX], "not known here", True)
    return Refused(message.__name__, reason, message.durable or _may_be_promised(message, rest))


def _may_be_promised(message: type[Message], fields: list[Any]) -> bool:
    """Whether it holds an event that is not known to be of QoS 0."""
    if "event" not in message.__struct_fields__:
        return False
    place, qos = message.__struct_fields__.index("event"), Event.__struct_fields__.index("qos")
    event = fields[place] if place < len(fields) else None
    return not (isinstance(event, list) and len(event) > qos and event[qos] == 0)
