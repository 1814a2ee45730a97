"""What the receiver of a message keeps on disk of it, and until when: declared by the message, applied here.

A broker keeps tables of messages, for each peer and each routing by themselves. What a message does to them is the
tuple `keeps` of its class, applied in order. After a restart the broker receives once more what it kept: tables in the
order of their codes, within a table by rank, then by key. Where the bytes go is the driver's affair.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from geomq.routing.core.keeps import BeginRepetition, Drop, EndRepetition, Put, Renew, Rule
from geomq.routing.core.messages import Message

PLACED_MAX = 10_000_000
"""Messages kept of one peer for one routing; what would be new beyond that is not kept."""


class Write(NamedTuple):
    """The message to write under a key; None erases what is there."""

    key: bytes
    message: Message | None


class PlacedMessages:
    """Which messages of one peer are kept for one routing, by their keys."""

    def __init__(self) -> None:
        self.keys: dict[bytes, None] = {}
        self._unmentioned: dict[bytes, None] = {}

    def receive(self, message: Message) -> Iterator[Write]:
        """What has to be written because of this message."""
        for rule in message.keeps:
            match rule:
                case Put(while_kept=condition):
                    if condition is None or _key(_put_of(condition), None) in self.keys:
                        yield from self._put(_key(rule, message), message)
                case Drop(table=table, by=by):
                    yield from self.erase(table.encode() + _values(message, by))
                case Renew(kind=kind):
                    yield from self._renew(kind, message)
                case BeginRepetition():
                    self._unmentioned = dict(self.keys)
                case EndRepetition():
                    unmentioned, self._unmentioned = self._unmentioned, {}
                    for key in unmentioned:
                        yield from self._erase(key)

    def erase(self, prefix: bytes) -> Iterator[Write]:
        for key in [key for key in self.keys if key.startswith(prefix)]:
            yield from self._erase(key)

    def _put(self, key: bytes, message: Message) -> Iterator[Write]:
        if key in self.keys or len(self.keys) < PLACED_MAX:
            self.keys[key] = None
            self._unmentioned.pop(key, None)
            yield Write(key, message)

    def _renew(self, kind: type[msgspec.Struct], message: Message) -> Iterator[Write]:
        assert issubclass(kind, Message)
        key = _key(_put_of(kind), message)
        if key in self.keys:
            yield from self._put(key, kind(*(getattr(message, field) for field in kind.__struct_fields__)))

    def _erase(self, key: bytes) -> Iterator[Write]:
        if key in self.keys:
            del self.keys[key]
            yield Write(key, None)


def _put_of(kind: type[msgspec.Struct]) -> Put:
    assert issubclass(kind, Message)
    return next(rule for rule in kind.keeps if isinstance(rule, Put))


def _key(rule: Put, message: Message | None) -> bytes:
    return (rule.table + rule.rank).encode() + (b"" if message is None else _values(message, rule.by))


def _values(message: Message, fields: tuple[str, ...]) -> bytes:
    """The values, each with an end, so that no value is taken for the beginning of another."""
    return b"".join(_value(getattr(message, field)) + b"\0" for field in fields)


_ESCAPES = str.maketrans({"\0": "\1\1", "\1": "\1\2", "\2": "\1\3"})


def _value(value: object) -> bytes:
    if isinstance(value, str):
        return value.translate(_ESCAPES).encode("utf-8", "surrogatepass")
    return b"\2" + msgspec.json.encode(value)


def check_rules(kind: type[Message]) -> str | None:
    """What is wrong with what a kind of message declares; None if it can be applied."""
    for rule in kind.keeps:
        if not isinstance(rule, Rule):
            return f"`keeps` contains {rule!r}, which is not a rule"
        fields: tuple[str, ...] = getattr(rule, "by", ())
        if isinstance(rule, Renew):
            fields = rule.kind.__struct_fields__
        missing = [field for field in fields if field not in kind.__struct_fields__]
        if missing:
            return f"`keeps` names {', '.join(missing)}, which is not one of its fields"
    return None
