"""The wire form of a message, derived from its annotations: the same fields, circles as numbers, other fences as text.

Reading a form checks types, ranges, geometry, topics and properties. Messages of GeoMQ are arrays that begin with their
number; those of users travel inside `WireNamed`, so that a broker that does not know one can tell where it ends.
"""

from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import astuple

from geomq.errors import ProtocolError
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
from geomq.routing.core.messages import Message, is_promised
from geomq.routing.core.model import TIME_MAX, Event, Number
from geomq.routing.core.plan import Pieces
from geomq.routing.core.wire_checks import check_of

_FENCE = {Circle, Polygon, MultiPolygon}
Convert = Callable[[Any], Any]


class WireNamed(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=1001):
    """A message of a user: its name, whether it must not be lost, its fields."""

    name: str
    promised: bool
    fields: msgspec.Raw


class Form:
    """The wire form of one class: a struct with wire types, and the fields that have to be converted, by number."""

    def __init__(self, plain: type, *, tag: int | None) -> None:
        self._plain = plain
        hints = {
            name: hint
            for name, hint in get_type_hints(plain, include_extras=True).items()
            if get_origin(hint) is not ClassVar and hint is not ClassVar
        }
        packers = [(number, _packer(hint)) for number, hint in enumerate(hints.values())]
        self._pack = [(number, pack) for number, pack in packers if pack is not None]
        unpackers = [
            (number, check_of(name) or _unpacker(plain, hint)) for number, (name, hint) in enumerate(hints.items())
        ]
        self._unpack = [(number, unpack) for number, unpack in unpackers if unpack is not None]
        fields = [(name, self._wire_type(hint)) for name, hint in hints.items()]
        self.wire = msgspec.defstruct(
            f"Wire{plain.__name__}", fields, array_like=True, frozen=True, forbid_unknown_fields=True, tag=tag
        )

    def _wire_type(self, hint: Any) -> Any:
        if _is_fence(hint):
            return str | tuple[float, float, float] | None
        if Event in _alternatives(hint):
            return EVENT.wire if hint is Event else EVENT.wire | None
        if hint == Pieces:
            return memoryview
        return Number if hint is int else hint

    def to_wire(self, thing: Any) -> Any:
        return self.wire(*_converted(thing, self._pack))

    def from_wire(self, thing: Any) -> Any:
        return self._plain(*_converted(thing, self._unpack))


class NamedForm(Form):
    """The wire form of a user's message. A number in it may be negative, as nothing of GeoMQ counts with it."""

    def __init__(self, plain: type[Message], name: str) -> None:
        super().__init__(plain, tag=None)
        self._name = name
        self._decoder = msgspec.msgpack.Decoder(self.wire)

    def _wire_type(self, hint: Any) -> Any:
        return hint if hint is int else super()._wire_type(hint)

    def to_wire(self, thing: Any) -> WireNamed:
        return WireNamed(self._name, is_promised(thing), super().to_wire(thing))

    def from_wire(self, thing: WireNamed) -> Any:
        return super().from_wire(self._decoder.decode(thing.fields))


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


def _packer(hint: Any) -> Convert | None:
    if _is_fence(hint):
        return _fence_to_wire
    if Event in _alternatives(hint):
        return EVENT.to_wire
    if hint == Pieces:
        return b"".join
    return None


def _unpacker(plain: type, hint: Any) -> Convert | None:
    if _is_fence(hint):
        return _fence_from_wire
    if _is_location(hint):
        return lambda place: make_location(*place)
    if Event in _alternatives(hint):
        return _version_from_wire if getattr(plain, "versioned", False) else EVENT.from_wire
    if hint == Pieces:
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


def _version_from_wire(wire: Any) -> Event:
    event: Event = EVENT.from_wire(wire)
    if event.id.sequence > TIME_MAX:
        raise ProtocolError("a version beyond the latest time")
    return event


EVENT = Form(Event, tag=None)
