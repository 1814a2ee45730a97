"""The registry of messages: every kind that may travel between brokers, with its wire form.

Strategies and the parts that all strategies share declare their messages here as they are loaded (`registry.py` sees to
it). What nobody declared, no link carries; what a peer sends and nobody declared here is refused.
"""

from collections.abc import Iterable

from geomq.errors import ConfigError
from geomq.routing.core.keeping import check_rules
from geomq.routing.core.keeps import Put
from geomq.routing.core.messages import KINDS, Message
from geomq.routing.core.wire_forms import Form, NamedForm

WIRE_ID_MAX = 1000
"""Numbers of GeoMQ's messages are below; this one and those above are wrappers."""
NAME_CHARS_MAX = 250
_RESERVED = frozenset(Message.__annotations__)

FORMS: dict[type[Message], Form] = {}
"""Of everything declared."""
_BY_ID: dict[int | str, type[Message]] = {}
_PARTS: dict[type[Message], str] = {}


def declare(messages: Iterable[type[Message]], *, by: str, part: str | None = None, own: bool = False) -> None:
    """Let these messages travel; ConfigError if they cannot. Those of a `part` belong to no strategy's routing; only
    GeoMQ's `own` have numbers."""
    for message in messages:
        if message in FORMS:
            continue
        try:
            wire_id = _checked_id(message, own=own)
            FORMS[message] = _form_of(message, wire_id)
        except ConfigError as error:
            raise ConfigError(f"{by}: message {getattr(message, '__name__', message)}: {error}") from None
        _BY_ID[wire_id] = message
        if part is not None:
            _PARTS[message] = part


def declared() -> dict[int | str, type[Message]]:
    """All kinds of messages that may travel, by number or name."""
    return dict(_BY_ID)


def known(wire_id: int | str) -> type[Message] | None:
    """What goes by a number or name on a link."""
    return _BY_ID.get(wire_id)


def part_of(message: type[Message]) -> str | None:
    """The part that declared a kind of message; None if a strategy did."""
    return _PARTS.get(message)


def parts() -> tuple[str, ...]:
    """All parts that declared messages."""
    return tuple(dict.fromkeys(_PARTS.values()))


def wire_id_of(message: type[Message]) -> int | str:
    """How a kind of message is named on a link."""
    wire_id: int | str = vars(message).get("wire_id", "")
    return f"{message.__module__}:{message.__qualname__}" if wire_id == "" else wire_id


def _checked_id(message: type[Message], *, own: bool) -> int | str:
    if not (isinstance(message, type) and issubclass(message, Message)):
        raise ConfigError("not a subclass of geomq.routing.core.messages.Message")
    taken = _RESERVED.intersection(message.__struct_fields__)
    if taken:
        raise ConfigError(f"a field must not be named {', '.join(sorted(taken))}")
    if message.kind not in KINDS:
        raise ConfigError(f"its kind is {message.kind!r}; known are {', '.join(KINDS)}")
    problem = check_rules(message) or _table_problem(message)
    if problem is not None:
        raise ConfigError(problem)
    wire_id = wire_id_of(message)
    if not (isinstance(wire_id, int) and 0 <= wire_id < WIRE_ID_MAX if own else _is_name(wire_id)):
        raise ConfigError(f"its wire_id is {wire_id!r}; numbers are GeoMQ's own, other names are short texts")
    before = _BY_ID.get(wire_id)
    if before is not None and (before.__module__, before.__qualname__) != (message.__module__, message.__qualname__):
        raise ConfigError(f"its wire_id {wire_id!r} is taken by {before.__module__}.{before.__qualname__}")
    if before is not None:
        del FORMS[before]  # its module was loaded anew
    return wire_id


def _is_name(wire_id: object) -> bool:
    return isinstance(wire_id, str) and 0 < len(wire_id) <= NAME_CHARS_MAX


def _form_of(message: type[Message], wire_id: int | str) -> Form:
    try:
        return Form(message, tag=wire_id) if isinstance(wire_id, int) else NamedForm(message, wire_id)
    except Exception as error:  # a user may annotate a field with anything
        raise ConfigError(f"has a field that cannot be encoded: {' '.join(str(error).split())}") from error


def _table_problem(message: type[Message]) -> str | None:
    """Tables must tell their keys apart."""
    mine = {rule.table for rule in message.keeps if isinstance(rule, Put)}
    known = {rule.table for each in FORMS for rule in each.keeps if isinstance(rule, Put)}
    for table in mine:
        if not table:
            return "its table has no code"
        for other in known - {table}:
            if table.startswith(other) or other.startswith(table):
                return f"its table {table!r} cannot be told from table {other!r}; use another code"
    return None
