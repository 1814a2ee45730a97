"""What a message declares about itself in the tuple `keeps`: rules of what its receiver keeps on disk of it.

They are applied by `keeping.py`.
"""

from typing import Any, NamedTuple, NewType

from msgspec import Struct

from geomq.routing.core.model import Event

Table = NewType("Table", str)
"""The code of a table. Keys on disk begin with it, so no code may be the beginning of another. GeoMQ's own are single
small letters from c to t."""


class Put(NamedTuple):
    """Keep the message in the table, in place of one with the same values in the fields `by`.

    A table may hold several kinds of messages, then each has a rank. With `while_kept`, a kind without a key, the
    message is kept only while one of that kind is.
    """

    table: Table
    by: tuple[str, ...] = ()
    rank: str = ""
    while_kept: type[Struct] | None = None


class Drop(NamedTuple):
    """Erase what the table holds under keys that begin with these values."""

    table: Table
    by: tuple[str, ...] = ()


class Renew(NamedTuple):
    """If a message of that kind is kept under the same key, replace it by one made from this message's fields."""

    kind: type[Struct]


class BeginRepetition(NamedTuple):
    """The sender will now repeat all that is kept of it."""


class EndRepetition(NamedTuple):
    """Erase what was not repeated."""


class Once(NamedTuple):
    """Remember for a while that a message with these values, of this shape, was dealt with, and tell the share groups
    (nobody else uses it) after a restart. Of an event the id counts; one of QoS 0 is not remembered."""

    by: tuple[str, ...]
    shape: Any

    def values(self, message: Struct) -> tuple[object, ...] | None:
        """What is to be remembered; None if nothing is."""
        found = [getattr(message, field) for field in self.by]
        if any(isinstance(value, Event) and not value.qos for value in found):
            return None
        return tuple([value.id if isinstance(value, Event) else value for value in found])


Rule = Put | Drop | Renew | BeginRepetition | EndRepetition | Once
Rules = tuple[Rule, ...]
