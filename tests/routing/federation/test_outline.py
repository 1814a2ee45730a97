"""A federation in a few lines, and back."""

import pytest

from geomq.errors import ConfigError
from geomq.geo import GridAreas, Location, NearestAreas, PolygonAreas, parse_fence
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.routing.federation.outline import BYTES_MAX, federation_of, outline_bytes, outline_of, read_outline

PLACES = (Location(10.0, 20.0), Location(-10.0, -20.0))
BROKERS = [BrokerSite(BrokerId(name), place) for name, place in zip("ab", PLACES, strict=True)]


@pytest.mark.parametrize(
    "areas",
    [
        NearestAreas(PLACES),
        GridAreas(PLACES, 6),
        PolygonAreas(
            [parse_fence("geo:10,20;u=1000"), parse_fence("POLYGON((-21 -11,-19 -11,-19 -9,-21 -9,-21 -11))")]
        ),
    ],
)
def test_a_federation_comes_back_as_it_was(areas: NearestAreas | GridAreas | PolygonAreas) -> None:
    federation = Federation(BROKERS, areas)
    read = read_outline(outline_bytes(outline_of(federation, "dht")))
    back = federation_of(read)
    assert (read.strategy, back.brokers, type(back.areas)) == ("dht", federation.brokers, type(areas))
    assert outline_of(back, "dht") == read


def test_one_broker_alone_needs_no_place() -> None:
    assert federation_of(read_outline(b'{"brokers": [{"name": "a"}]}')).ids == ("a",)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"brokers": [{"name": "a"}, {"name": "b"}]}',
        b'{"brokers": [{"name": "a", "location": [91, 0]}, {"name": "b", "location": [0, 0]}]}',
        b'{"brokers": [{"name": "a", "location": [1, 0]}, {"name": "a", "location": [0, 0]}]}',
        b'{"brokers": [{"name": "a", "location": [1, 0], "area": "x"}, {"name": "b", "location": [0, 0]}]}',
        b'{"brokers": [{"name": "a", "location": [1, 0]}, {"name": "b", "location": [0, 0]}], "grid_deg": 7}',
        b"{" * (BYTES_MAX + 1),
    ],
)
def test_what_is_no_federation_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        federation_of(read_outline(data))
