"""Everything that a client can make long counts."""

from msgspec.structs import replace

from geomq.geo import Circle, Location, parse_fence
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.core.sizes import EVENT_BYTES, VERTEX_BYTES, event_bytes

PLAIN = Event(EventId(BrokerId("b"), 0, 0), "", ClientId(""), None, None)


def test_an_event_counts_for_what_its_publisher_made_it() -> None:
    assert event_bytes(PLAIN) == EVENT_BYTES
    long = replace(PLAIN, topic="t" * 10, publisher=ClientId("p" * 20), payload=b"x" * 40, properties=b"y" * 80)
    assert event_bytes(long) == EVENT_BYTES + 150


def test_a_polygon_counts_for_its_vertices() -> None:
    square = parse_fence("POLYGON((0 0, 1 0, 1 1, 0 1, 0 0))")
    assert event_bytes(replace(PLAIN, fence=square)) == EVENT_BYTES + 5 * VERTEX_BYTES
    assert event_bytes(replace(PLAIN, fence=Circle(Location(1, 2), 3.0))) == EVENT_BYTES
