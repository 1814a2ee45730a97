"""Which neighbours may be in meshes that a broker which has just started does not know."""

from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.mesh.unheard import UnheardNeighbours

A, B = BrokerId("a"), BrokerId("b")


def neighbours() -> UnheardNeighbours:
    return UnheardNeighbours((A, B), announced_ms=15.0, patience_ms=1_000.0)


def test_all_neighbours_are_unheard_at_first() -> None:
    assert neighbours().current(now=7.0) == [A, B]


def test_a_linked_one_is_heard_once_its_announcements_had_time() -> None:
    unheard = neighbours()
    unheard.linked(A, now=100.0)
    assert unheard.current(now=114.0) == [A, B]
    assert unheard.current(now=115.0) == [B]
    unheard.linked(A, now=116.0)
    assert unheard.current(now=116.0) == [B]


def test_linking_again_does_not_make_it_longer() -> None:
    unheard = neighbours()
    unheard.linked(A, now=100.0)
    unheard.linked(A, now=110.0)
    assert unheard.current(now=115.0) == [B]


def test_one_that_never_comes_is_given_up() -> None:
    unheard = neighbours()
    unheard.current(now=50.0)
    assert unheard.current(now=1_049.0) == [A, B]
    assert unheard.current(now=1_050.0) == []


def test_one_that_left_the_federation_is_forgotten() -> None:
    unheard = neighbours()
    unheard.removed(A)
    assert unheard.current(now=0.0) == [B]
