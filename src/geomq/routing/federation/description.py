"""The federation description: who the brokers are, whose area is where, and which strategy all of them use.

One document, the same at every broker, in editions. An edition has a number and the broker that made it; the larger
number wins, of equal ones the name that sorts last, so brokers that have received the same editions agree whatever
order they came in. A description is valid or it is refused; nothing here repairs one.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from geomq.errors import ConfigError, GeometryError, GeomqError
from geomq.geo import (
    Areas,
    GridAreas,
    Location,
    NearestAreas,
    PolygonAreas,
    SoleArea,
    make_location,
    parse_fence,
)
from geomq.routing.core.model import CONFIGURED, BrokerId, Edition
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.routing.strategies.registry import strategy_class

BROKERS_MAX = 4_096
HISTORY_MAX = 64
TEXT_MAX = 65_536
DEPTH_MAX = 8
DESCRIPTION_BYTES_MAX = 1 << 23
NUMBER_MAX = 2**53

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Address = Annotated[str, Meta(pattern=r"^[^\s]{1,255}:\d{1,5}$")]
Text = Annotated[str, Meta(max_length=TEXT_MAX)]


class BrokerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One broker. `address` is where other brokers dial it, `area` the text of a fence."""

    name: Name
    location: tuple[float, float] | None = None
    address: Address | None = None
    area: Text | None = None


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole federation. `routing` is the edition in which its strategy began anew; `history` the editions before."""

    brokers: Annotated[tuple[BrokerEntry, ...], Meta(min_length=1, max_length=BROKERS_MAX)]
    strategy: Annotated[str, Meta(min_length=1, max_length=200)] = "single"
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    grid_deg: int | None = None
    edition: Edition = CONFIGURED
    routing: Edition = CONFIGURED
    history: Annotated[tuple[Edition, ...], Meta(max_length=HISTORY_MAX)] = ()

    @property
    def names(self) -> tuple[BrokerId, ...]:
        return tuple(BrokerId(entry.name) for entry in self.brokers)

    def entry(self, name: str) -> BrokerEntry | None:
        return next((entry for entry in self.brokers if entry.name == name), None)

    @property
    def areas_kind(self) -> str:
        if any(entry.area is not None for entry in self.brokers):
            return "given"
        return "nearest" if self.grid_deg is None else "grid"


def in_order(entries: Collection[BrokerEntry]) -> tuple[BrokerEntry, ...]:
    """Every broker must come to the same order: that of the names."""
    return tuple(sorted(entries, key=lambda entry: entry.name))


def federation_of(description: Description) -> Federation:
    """The brokers and areas described; ConfigError in one line if they cannot be."""
    return _built(description.brokers, description.grid_deg)


@lru_cache(maxsize=8)
def _built(entries: tuple[BrokerEntry, ...], grid_deg: int | None) -> Federation:
    """Remembered, since a grid takes a while, and a change is looked at several times."""
    names = [entry.name for entry in entries]
    for before, name in pairwise(names):
        if name == before:
            raise ConfigError(f"two brokers of the federation are named {name}")
        if name < before:
            raise ConfigError(f"the brokers of the federation must be sorted by name: {before}, {name}")
    places: list[BrokerSite] = []
    for entry in entries:
        if entry.location is None:
            if len(names) == 1:
                return Federation.alone(BrokerId(entry.name))
            raise ConfigError(f"broker {entry.name} of the federation needs a location")
        try:
            places.append(BrokerSite(BrokerId(entry.name), make_location(*entry.location)))
        except GeometryError as error:
            raise ConfigError(f"broker {entry.name}: {error}") from None
    return Federation(places, _areas(entries, grid_deg, [place.location for place in places]))


def describe(federation: Federation, strategy: str, options: Mapping[str, Any]) -> Description:
    """The description of a federation as it stands, for brokers that follow no other. Of its areas it says nothing."""
    entries = tuple(BrokerEntry(broker.id, (broker.location.lat, broker.location.lon)) for broker in federation.brokers)
    return Description(entries, strategy=strategy, options=dict(options))


def _areas(entries: tuple[BrokerEntry, ...], grid_deg: int | None, places: list[Location]) -> Areas:
    given = [entry for entry in entries if entry.area is not None]
    if given and grid_deg is not None:
        raise ConfigError("areas of the federation: either a grid or given areas, not both")
    try:
        if not given:
            if grid_deg is not None:
                return GridAreas(places, grid_deg)
            return NearestAreas(places) if len(places) > 1 else SoleArea()
        missing = [entry.name for entry in entries if entry.area is None]
        if missing:
            raise ConfigError(f"areas are given for some brokers but not for {', '.join(missing)}")
        return PolygonAreas([parse_fence(entry.area or "") for entry in entries])
    except GeometryError as error:
        raise ConfigError(f"areas of the federation: {_named(str(error), entries)}") from None


def _named(reason: str, entries: tuple[BrokerEntry, ...]) -> str:
    """Geometry counts brokers; people know their names."""
    for position, entry in reversed(tuple(enumerate(entries))):
        for word in ("brokers", "and", "broker"):
            reason = reason.replace(f"{word} {position} ", f"{word} {entry.name} ")
    return reason


def check_description(description: Description, *, own_strategy: str = "") -> Federation:
    """Whether a broker could follow the description; ConfigError in one line if not.

    A strategy of the user's own is only taken if this broker's config names it: nobody else may have code loaded.
    """
    if not 0 <= description.edition.number <= NUMBER_MAX:
        raise ConfigError("the edition of the federation description is out of range")
    if not is_plain(description.options, DEPTH_MAX):  # first, because the rest cannot be written
        raise ConfigError(
            "strategy options: only strings, numbers of at most 64 bits, true/false, lists and tables, not nested too"
            " deeply"
        )
    try:
        size = len(msgspec.msgpack.encode(description))
    except OverflowError:
        raise ConfigError("a number in the federation description has more than 64 bits") from None
    if size > DESCRIPTION_BYTES_MAX:
        raise ConfigError(f"the federation description is longer than {DESCRIPTION_BYTES_MAX} bytes")
    if ":" in description.strategy and description.strategy != own_strategy:
        raise ConfigError(f"strategy {description.strategy!r} is not that of this broker's config")
    federation = federation_of(description)
    for entry in description.brokers[1:]:
        if entry.address is None:
            raise ConfigError(
                f"broker {entry.name} of the federation needs an address, so that others can connect to it"
            )
    for entry in description.brokers:
        if entry.address is not None and not 1 <= int(entry.address.rpartition(":")[2]) <= 65_535:
            raise ConfigError(f"broker {entry.name}: invalid port in {entry.address!r}")
    chosen = strategy_class(description.strategy)
    chosen.check(federation)
    options = chosen.parse_options(description.options)
    me = federation.ids[0]
    chosen(me=me, federation=federation, clients={}, options=options, rng=_Still())
    return federation


class _Still:
    """Dice for a strategy that is only made to see whether it can be."""

    def random(self) -> float:
        return 0.5

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def is_plain(value: object, depth: int) -> bool:
    """Whether a value is made of texts, finite numbers that fit a message, truth values, lists and tables alone."""
    if depth < 0:
        return False
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(entry, depth - 1) for key, entry in value.items())
    if isinstance(value, list | tuple):
        return all(is_plain(entry, depth - 1) for entry in value)
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 64
    return isinstance(value, str) or (isinstance(value, float) and value - value == 0.0)


_decoder = msgspec.msgpack.Decoder(Description)


def encode_description(description: Description) -> bytes:
    return msgspec.msgpack.encode(description)


def decode_description(data: bytes) -> Description:
    """Decode a description; ConfigError if it is invalid."""
    if len(data) > DESCRIPTION_BYTES_MAX:
        raise ConfigError(f"a federation description is at most {DESCRIPTION_BYTES_MAX} bytes long")
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, GeomqError, ValueError, RecursionError, OverflowError) as error:
        raise ConfigError(f"invalid federation description: {error}") from None
