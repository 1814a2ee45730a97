"""An event that comes twice is delivered once, and the memory of that is bounded."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from geomq.routing.core.model import BrokerId, ClientId, EventId, Match
from geomq.routing.core.seen import ORIGINS_MAX, RUNS_MAX, SeenEvents


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


ORIGIN = (BrokerId("b"), 0)


def test_events_of_a_run_are_known_one_by_one() -> None:
    seen, had = SeenEvents(), frozenset({ClientId("a")})
    assert seen.history(ORIGIN).run(5, 3, had)
    assert seen.history(ORIGIN).run(8, 2, had)
    assert [identity(n) in seen for n in (4, 5, 7, 9, 10)] == [False, True, True, True, False]
    assert not seen.first(identity(6))
    assert seen.unseen(identity(7), matches("a", "b")) == matches("b")
    assert seen.unseen(identity(7), matches("a", "b")) == ()
    assert seen.unseen(identity(4), matches("a")) == matches("a")
    assert set(seen.had_by(had)) == {identity(n) for n in range(4, 10)}
    assert seen.had_by(frozenset({ClientId("x")})) == []


def test_a_run_that_may_overlap_what_was_seen_is_not_taken() -> None:
    seen, nobody = SeenEvents(), frozenset[ClientId]()
    assert seen.history(ORIGIN).highest < 0
    seen.first(identity(5))
    assert seen.history(ORIGIN).highest == 5
    assert not seen.history(ORIGIN).run(5, 2, nobody)
    assert not seen.history(ORIGIN).run(3, 9, nobody)
    assert seen.history(ORIGIN).run(6, 2, nobody)
    assert not seen.history(ORIGIN).run(7, 1, nobody)
    assert seen.history((BrokerId("b"), 1)).run(1, 1, nobody)
    assert seen.history((BrokerId("c"), 0)).run(1, 1, nobody)


def test_the_memory_of_runs_is_bounded() -> None:
    seen = SeenEvents(events_max=10)
    for number in range(2 * RUNS_MAX):
        assert seen.history(ORIGIN).run(2 * number, 1, frozenset({ClientId(str(number % 7))}))
    assert identity(0) not in seen
    assert identity(4 * RUNS_MAX - 2) in seen
    for number in range(2 * ORIGINS_MAX):
        seen.history((BrokerId(str(number)), 0)).run(1, 1, frozenset())
    assert EventId(BrokerId("0"), 0, 1) not in seen
    assert len(seen.had_by(frozenset({ClientId("1")}))) <= 10


def test_events_that_reach_the_same_clients_share_the_memory_of_them() -> None:
    seen, clients = SeenEvents(), [ClientId(f"c{number}") for number in range(500)]
    tracemalloc.start()
    try:
        for number in range(500):
            seen.unseen(identity(number), tuple(Match(client, "t") for client in clients))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 1_000_000
    assert seen.unseen(identity(3), matches(clients[7], "new")) == matches("new")


def test_events_that_reach_many_others_each_are_forgotten_early() -> None:
    seen = SeenEvents(clients_max=100)
    crowds = [tuple(Match(ClientId(f"c{crowd}-{number}"), "t") for number in range(30)) for crowd in range(10)]
    for number, crowd in enumerate(crowds):
        assert seen.unseen(identity(number), crowd) == crowd
    assert [number for number in range(10) if identity(number) in seen] == [7, 8, 9]
    assert seen.unseen(identity(9), crowds[9]) == ()
    for number in (7, 8, 9):
        for match in crowds[number]:
            seen.forget(identity(number), match.client)
    assert seen.unseen(identity(8), crowds[8]) == crowds[8]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["unseen", "first", "forget"]), st.integers(0, 6), st.sets(st.integers(0, 4))),
        max_size=40,
    )
)
def test_it_remembers_what_a_plain_table_would(steps: list[tuple[str, int, set[int]]]) -> None:
    seen, table = SeenEvents(), dict[int, set[int]]()
    for step, number, clients in steps:
        if step == "unseen":
            fresh = seen.unseen(identity(number), tuple(Match(ClientId(str(client)), "t") for client in clients))
            assert {int(match.client) for match in fresh} == clients - table.get(number, set())
            table.setdefault(number, set()).update(clients)
        elif step == "first":
            assert seen.first(identity(number)) == (number not in table)
            table.setdefault(number, set())
        else:
            for client in clients:
                seen.forget(identity(number), ClientId(str(client)))
                table.get(number, set()).discard(client)
    for client in range(5):
        had = {event_id.sequence for event_id in seen.had_by(frozenset({ClientId(str(client))}))}
        assert had == {number for number, clients in table.items() if client in clients}


def test_what_a_client_had_in_long_runs_is_found_without_counting_all_of_it() -> None:
    seen, crowds = SeenEvents(events_max=1_000), [frozenset({ClientId("a"), ClientId(str(each))}) for each in range(2)]
    for number in range(RUNS_MAX):
        seen.history((BrokerId("b"), 0)).run(number * 10**9, 10**9, crowds[number % 2])
    seen.unseen(identity(RUNS_MAX * 10**9), matches("a"))
    had = seen.had_by(frozenset({ClientId("a")}))
    assert had == [identity(RUNS_MAX * 10**9 - 999 + number) for number in range(1_000)]
