"""Over a link goes the time that is left, whatever the clocks at both ends show."""

from msgspec.structs import replace

from geomq.broker.peers.deadlines import for_wire, from_wire
from geomq.routing.core.messages import DeliverEvent, ForwardEvent, PutLocation
from geomq.routing.core.model import TIME_MAX, BrokerId, ClientId, Edition, Event, EventId, Match
from geomq.routing.federation.edition_messages import wrapped
from geomq.routing.wire.link import Data

EVENT = Event(EventId(BrokerId("b"), 1, 2), "t", ClientId("c"), None, None, qos=1, due_ms=1_000_060_000)
HERE_S, THERE_S = 1_000_000.0, 5.0


def due(event: Event, due_ms: int | None) -> Event:
    return replace(event, due_ms=due_ms)


def test_what_is_left_arrives_also_within_an_edition() -> None:
    matches = (Match(ClientId("d"), "t"),)
    for edition in (None, Edition(1, "b")):
        sent = [wrapped(message, edition) for message in (ForwardEvent(EVENT), DeliverEvent(EVENT, matches))]
        frames = for_wire([Data(0, number, message) for number, message in enumerate(sent)], HERE_S)
        there = [from_wire(frame.message, THERE_S) for frame in frames]
        expected = due(EVENT, 65_000)
        assert there == [wrapped(ForwardEvent(expected), edition), wrapped(DeliverEvent(expected, matches), edition)]


def test_what_lives_forever_goes_as_it_is() -> None:
    frames = [Data(0, 0, ForwardEvent(due(EVENT, None))), Data(0, 1, PutLocation(ClientId("c"), None))]
    assert for_wire(frames, HERE_S) is frames
    assert from_wire(frames[0].message, THERE_S) is frames[0].message


def test_what_is_over_has_no_time_left_and_no_peer_makes_a_number_too_large() -> None:
    (frame,) = for_wire([Data(0, 0, ForwardEvent(EVENT))], HERE_S + 61)
    assert frame.message == ForwardEvent(due(EVENT, 0))
    assert from_wire(ForwardEvent(due(EVENT, TIME_MAX)), HERE_S) == ForwardEvent(due(EVENT, TIME_MAX))
