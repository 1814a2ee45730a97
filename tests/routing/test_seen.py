"""An event that comes twice is delivered once, and the memory of that is bounded."""

from geomq.routing.model import BrokerId, ClientId, EventId, Match
from geomq.routing.seen import SeenEvents


def identity(number: int) -> EventId:
    return EventId(BrokerId("b"), 0, number)


def matches(*clients: str) -> tuple[Match, ...]:
    return tuple(Match(ClientId(client), "t") for client in clients)


def test_the_first_time_is_the_only_first_time() -> None:
    seen = SeenEvents()
    assert [seen.first(identity(n)) for n in (1, 2, 1, 2, 3)] == [True, True, False, False, True]


def test_only_clients_that_had_it_are_left_out() -> None:
    seen = SeenEvents()
    assert seen.unseen(identity(1), matches("a", "b")) == matches("a", "b")
    assert seen.unseen(identity(1), matches("b", "c")) == matches("c")
    assert seen.unseen(identity(1), matches("a", "b", "c")) == ()


def test_two_filters_of_one_client_stay_together() -> None:
    both = (Match(ClientId("a"), "t"), Match(ClientId("a"), "#"))
    assert SeenEvents().unseen(identity(1), both) == both


def test_an_event_nobody_wanted_counts_as_seen() -> None:
    seen = SeenEvents()
    assert seen.unseen(identity(1), ()) == ()
    assert identity(1) in seen
    assert not seen.first(identity(1))


def test_the_oldest_is_forgotten_first() -> None:
    seen = SeenEvents(events_max=3)
    for number in range(10):
        seen.first(identity(number))
        assert len(seen) <= 3
    assert [number for number in range(10) if identity(number) in seen] == [7, 8, 9]


def test_epochs_and_origins_tell_events_apart() -> None:
    seen = SeenEvents()
    assert seen.first(EventId(BrokerId("a"), 0, 1))
    assert seen.first(EventId(BrokerId("a"), 1, 1))
    assert seen.first(EventId(BrokerId("b"), 0, 1))
