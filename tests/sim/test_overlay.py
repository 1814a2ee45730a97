"""Overlays by geography: near neighbours, and one piece."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.geo import Location, NearestAreas
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.sim.overlay import Links, geographic_links

places = st.lists(
    st.builds(Location, st.integers(-80, 80).map(float), st.integers(-179, 179).map(float)),
    min_size=1,
    max_size=14,
    unique=True,
)


def federation_of(places: list[Location]) -> Federation:
    return Federation([BrokerSite(BrokerId(f"b{i}"), place) for i, place in enumerate(places)], NearestAreas(places))


def reached(links: Links, start: BrokerId) -> set[BrokerId]:
    found, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for a, b in links:
            for other in {a, b} - {here} if here in (a, b) else ():
                if other not in found:
                    found.add(other)
                    todo.append(other)
    return found


@given(places, st.integers(1, 4))
def test_every_broker_reaches_every_other_and_has_its_neighbours(places: list[Location], nearest: int) -> None:
    federation = federation_of(places)
    links = geographic_links(federation, nearest=nearest)
    assert reached(links, federation.ids[0]) == set(federation.ids)
    assert len({frozenset(link) for link in links}) == len(links)
    for broker in federation.ids:
        degree = sum(broker in link for link in links)
        assert degree >= min(nearest, len(places) - 1)


@pytest.mark.parametrize("nearest", [1, 3])
def test_two_far_clusters_are_joined_by_their_shortest_link(nearest: int) -> None:
    west = [Location(50.0, float(lon)) for lon in range(4)]
    east = [Location(50.0, float(lon)) for lon in range(100, 104)]
    links = geographic_links(federation_of(west + east), nearest=nearest)
    crossing = [{a, b} for a, b in links if (int(a[1:]) < 4) != (int(b[1:]) < 4)]
    assert {"b3", "b4"} in crossing
    assert len(crossing) == 1


def test_one_broker_needs_no_link() -> None:
    assert geographic_links(federation_of([Location(0, 0)])) == []
