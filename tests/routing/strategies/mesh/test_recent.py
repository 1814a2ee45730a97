"""Late events are offered to whoever joins the mesh, for a while and in bounded number."""

from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.strategies.mesh.recent import RecentEvents

A, B, C = BrokerId("a"), BrokerId("b"), BrokerId("c")


def event(number: int) -> Event:
    return Event(EventId(A, 0, number), "t", ClientId("p"), None, None, b"", 1)


def test_neighbours_that_have_an_event_are_known_until_they_restart() -> None:
    recent = RecentEvents(1000.0)
    recent.note(event(1), 2, B, [C], now=0.0)
    (passed,) = recent.current(now=10.0)
    assert (passed.hops, passed.source, passed.holders) == (2, B, {B, C})
    recent.restarted(C)
    (passed,) = recent.current(now=10.0)
    assert passed.holders == {B}


def test_events_are_forgotten_in_time_and_in_number() -> None:
    recent = RecentEvents(1000.0, events_max=3)
    for number in range(5):
        recent.note(event(number), 0, None, [], now=100.0 * number)
    assert [passed.event.id.sequence for passed in recent.current(now=400.0)] == [2, 3, 4]
    assert [passed.event.id.sequence for passed in recent.current(now=1350.0)] == [4]
    assert len(recent) == 1
