"""A federation in a few lines of JSON: who the brokers are, where they stand, whose area is where, which strategy.

What a trace keeps of the federation it was written in, so that somebody can draw it later.
"""

import msgspec

from geomq.errors import ConfigError, GeometryError, GeomqError
from geomq.geo import Areas, GridAreas, Location, NearestAreas, PolygonAreas, fence_text, make_location, parse_fence
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import BrokerSite, Federation

BYTES_MAX = 1 << 23
OUTLINE_KEY = b"geomq.federation"
"""The name of the outline among the metadata of a trace file."""


class OutlinedBroker(msgspec.Struct, frozen=True):
    """A broker, its place, and its area as fence text if it was given one."""

    name: str
    location: tuple[float, float] | None = None
    area: str | None = None


class Outline(msgspec.Struct, frozen=True):
    """All brokers in the order of the federation. `grid_deg` is the size of grid squares, if areas are made of them."""

    brokers: tuple[OutlinedBroker, ...]
    strategy: str = ""
    grid_deg: int | None = None


def outline_of(federation: Federation, strategy: str) -> Outline:
    areas = federation.areas
    given = areas.fences if isinstance(areas, PolygonAreas) else [None] * len(federation.ids)
    brokers = tuple(
        OutlinedBroker(
            broker.id, (broker.location.lat, broker.location.lon), None if area is None else fence_text(area)
        )
        for broker, area in zip(federation.brokers, given, strict=True)
    )
    return Outline(brokers, strategy, areas.field_deg if isinstance(areas, GridAreas) else None)


def federation_of(outline: Outline) -> Federation:
    """The federation behind an outline; ConfigError if there can be none."""
    if len(outline.brokers) == 1:
        only = outline.brokers[0]
        return Federation.alone(BrokerId(only.name), None if only.location is None else _place(only))
    brokers = [BrokerSite(BrokerId(broker.name), _place(broker)) for broker in outline.brokers]
    try:
        return Federation(brokers, _areas(outline, [broker.location for broker in brokers]))
    except GeometryError as error:
        raise ConfigError(f"areas of the federation: {error}") from None


def outline_bytes(outline: Outline) -> bytes:
    return msgspec.json.encode(outline)


def read_outline(data: bytes) -> Outline:
    """Decode an outline; ConfigError if it is invalid."""
    if len(data) > BYTES_MAX:
        raise ConfigError(f"a federation's outline has at most {BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(data, type=Outline)
    except (msgspec.MsgspecError, GeomqError, ValueError, RecursionError) as error:
        raise ConfigError(f"invalid federation outline: {error}") from None


def _place(broker: OutlinedBroker) -> Location:
    if broker.location is None:
        raise ConfigError(f"broker {broker.name} of the federation needs a location")
    try:
        return make_location(*broker.location)
    except GeometryError as error:
        raise ConfigError(f"broker {broker.name}: {error}") from None


def _areas(outline: Outline, places: list[Location]) -> Areas:
    if outline.grid_deg is not None:
        return GridAreas(places, outline.grid_deg)
    if any(broker.area is not None for broker in outline.brokers):
        return PolygonAreas([parse_fence(broker.area or "") for broker in outline.brokers])
    return NearestAreas(places)
