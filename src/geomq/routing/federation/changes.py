"""What can be changed about a federation at run time: brokers, areas, strategy. Each change makes a new description."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from geomq.errors import ConfigError
from geomq.routing.core.model import CONFIGURED, Edition
from geomq.routing.federation.description import HISTORY_MAX, BrokerEntry, Description, Text, in_order
from geomq.routing.strategies.registry import strategy_class


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Any change of a federation description."""


class AddBroker(Change, frozen=True):
    """A broker joins; one of that name is replaced only if `replace` says so."""

    entry: BrokerEntry
    strategy: str | None = None
    replace: bool = False


class RemoveBroker(Change, frozen=True):
    name: str


class SetAreas(Change, frozen=True):
    """Areas are redrawn: the nearest broker's, squares of a grid, or a given fence for every broker."""

    kind: Literal["nearest", "grid", "given"]
    grid_deg: int | None = None
    areas: Annotated[dict[str, Text], Meta(max_length=4_096)] = msgspec.field(default_factory=dict)


class SetStrategy(Change, frozen=True):
    strategy: Annotated[str, Meta(min_length=1, max_length=200)]
    options: dict[str, Any] = msgspec.field(default_factory=dict)


def changed(description: Description, change: Change, *, by: str) -> Description:
    """The next edition of a description, made by broker `by`; the same one if the change changes nothing."""
    after = _applied(description, change)
    if after == description:
        return description
    edition = Edition(description.edition.number + 1, by)
    history = (*description.history, description.edition)[-HISTORY_MAX:]
    routing = description.routing if _goes_on(description, after) else edition
    return msgspec.structs.replace(after, edition=edition, routing=routing, history=history)


def _goes_on(before: Description, after: Description) -> bool:
    """Whether the strategy takes the change while it runs, instead of beginning anew."""
    same = (before.strategy, before.options) == (after.strategy, after.options)
    nobody_left = set(before.names) <= set(after.names)
    began_together = before.routing != CONFIGURED
    return same and nobody_left and began_together and strategy_class(after.strategy).takes_changes


def _applied(description: Description, change: Change) -> Description:
    match change:
        case AddBroker(entry=entry):
            return _with_broker(description, change, entry)
        case RemoveBroker(name=name):
            rest = tuple(entry for entry in description.brokers if entry.name != name)
            if len(rest) == len(description.brokers):
                raise ConfigError(f"the federation has no broker {name[:80]!r}")
            if not rest:
                raise ConfigError(f"broker {name} is the last of the federation")
            return msgspec.structs.replace(description, brokers=rest)
        case SetAreas():
            return _with_areas(description, change)
        case SetStrategy(strategy=strategy, options=options):
            return msgspec.structs.replace(description, strategy=strategy, options=options)
    raise ConfigError(f"unknown change: {type(change).__name__}")


def _with_broker(description: Description, change: AddBroker, entry: BrokerEntry) -> Description:
    before = description.entry(entry.name)
    if before is not None and before != entry and not change.replace:
        raise ConfigError(f"two brokers of the federation are named {entry.name}")
    others = [other for other in description.brokers if other.name != entry.name]
    strategy = change.strategy or description.strategy
    options = description.options if strategy == description.strategy else {}
    return msgspec.structs.replace(description, brokers=in_order([*others, entry]), strategy=strategy, options=options)


def _with_areas(description: Description, change: SetAreas) -> Description:
    if (change.kind == "grid") != (change.grid_deg is not None):
        raise ConfigError("grid_deg is required for areas of kind 'grid' and not allowed otherwise")
    if (change.kind == "given") != bool(change.areas):
        raise ConfigError("areas are required for areas of kind 'given' and not allowed otherwise")
    for name in change.areas:
        if description.entry(name) is None:
            raise ConfigError(f"the federation has no broker {name[:80]!r}")
    entries = tuple(msgspec.structs.replace(entry, area=change.areas.get(entry.name)) for entry in description.brokers)
    return msgspec.structs.replace(description, brokers=entries, grid_deg=change.grid_deg)
