"""Who is linked with whom."""

import pytest
from tests.routing.strategies.mesh.mesh_world import federation_of

from geomq.errors import ConfigError
from geomq.routing.core.model import BrokerId
from geomq.routing.strategies.mesh.overlay import Links, check_links, neighbours_of

A, B, C, D = (BrokerId(name) for name in "abcd")


def test_without_links_everyone_is_linked_with_everyone() -> None:
    assert neighbours_of(B, None, [A, B, C]) == (A, C)
    check_links(None, federation_of("abc"))


def test_links_hold_in_both_directions_and_neighbours_come_in_federation_order() -> None:
    links: Links = ((C, B), (B, A), (A, B))
    assert neighbours_of(B, links, [A, B, C]) == (A, C)
    assert neighbours_of(A, links, [A, B, C]) == (B,)
    assert neighbours_of(C, links, [A, B, C]) == (B,)


def test_a_broker_that_no_link_names_is_linked_with_every_other() -> None:
    links: Links = ((A, B), (B, C))
    assert neighbours_of(D, links, [A, B, C, D]) == (A, B, C)
    assert neighbours_of(A, links, [A, B, C, D]) == (B, D)


@pytest.mark.parametrize(
    ("links", "complaint"),
    [
        (((A, A), (A, B), (B, C)), "mesh link a-a links a broker with itself"),
        (((A, B), (B, D)), "mesh link b-d: the federation has no broker d"),
    ],
)
def test_a_link_that_cannot_be_is_refused(links: Links, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_links(links, federation_of("abc"))


def test_links_that_do_not_connect_all_brokers_are_refused() -> None:
    with pytest.raises(ConfigError, match="leave broker c without a path to broker a"):
        check_links(((A, B), (C, D)), federation_of("abcd"))
