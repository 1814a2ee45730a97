"""Small worlds for tests: four brokers on a map, and Hypothesis strategies for what clients do there."""

from collections.abc import Callable

from hypothesis import strategies as st

from geomq.geo import Circle, Fence, GridAreas, Location, NearestAreas, Polygon
from geomq.routing.core.events import (
    ClientGone,
    ClientMoved,
    ClientPublished,
    ClientSubscribed,
    ClientUnsubscribed,
    RoutingEvent,
)
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.sim.script import Step

PLACES = {"ams": (52.4, 4.9), "ber": (52.5, 13.4), "nyc": (40.7, -74.0), "syd": (-33.9, 151.2)}


def federation_of(areas: Callable[[list[Location]], NearestAreas | GridAreas] = NearestAreas) -> Federation:
    """Four brokers, two of them close to each other."""
    brokers = [BrokerSite(BrokerId(name), Location(*place)) for name, place in PLACES.items()]
    return Federation(brokers, areas([broker.location for broker in brokers]))


def triangle(at: Location, size: float) -> Polygon:
    south, west = max(-90.0, at.lat - size), max(-180.0, at.lon - size)
    north, east = min(90.0, at.lat + size), min(180.0, at.lon + size)
    return Polygon(((Location(south, west), Location(south, east), Location(north, east), Location(south, west)),))


latitudes = st.floats(-85, 85, allow_nan=False).map(lambda x: round(x, 3))
longitudes = st.floats(-179, 179, allow_nan=False).map(lambda x: round(x, 3))
near_brokers = st.builds(
    lambda place, dlat, dlon: Location(place[0] + dlat, place[1] + dlon),
    st.sampled_from(list(PLACES.values())),
    st.integers(-8, 8),
    st.integers(-8, 8),
)
locations = st.one_of(near_brokers, st.builds(Location, latitudes, longitudes))
fences: st.SearchStrategy[Fence | None] = st.one_of(
    st.none(),
    st.builds(Circle, locations, st.sampled_from([1_000.0, 200_000.0, 1_500_000.0, 8_000_000.0])),
    st.builds(triangle, near_brokers, st.sampled_from([0.5, 4.0])),
)
CLIENTS = [ClientId(f"c{number}") for number in range(8)]
clients = st.sampled_from(CLIENTS)
topics = st.sampled_from(["a", "a/b", "b/c", "b/c/d", "$x/y"])
filters = st.sampled_from(["a", "a/#", "a/+", "b/c", "b/+/d", "#", "+/c", "+", "$x/#"])

subscribes = st.builds(ClientSubscribed, clients, filters, fences)
moves = st.builds(ClientMoved, clients, st.one_of(locations, st.none()))
publishes = st.builds(ClientPublished, clients, topics, fences, st.one_of(st.none(), locations))
actions: st.SearchStrategy[RoutingEvent] = st.one_of(
    subscribes,
    subscribes,
    moves,
    moves,
    publishes,
    publishes,
    publishes,
    st.builds(ClientUnsubscribed, clients, filters),
    st.builds(ClientGone, clients),
)


quiet_actions: st.SearchStrategy[RoutingEvent] = st.one_of(subscribes, moves)
on_one_topic: st.SearchStrategy[RoutingEvent] = st.one_of(
    *[st.builds(ClientPublished, clients, st.just("a/b"), fences)] * 6,
    st.builds(ClientSubscribed, clients, st.sampled_from(["a/b", "a/+", "#"]), fences),
    st.builds(ClientUnsubscribed, clients, st.sampled_from(["a/b", "a/+", "#"])),
    moves,
)


def home_of(client: ClientId, federation: Federation) -> BrokerId:
    return federation.ids[int(client[1:]) % len(federation.ids)]


def script_of(events: list[RoutingEvent], federation: Federation, *, gap_ms: int, start_ms: int = 0) -> list[Step]:
    """The events one after the other, each at the home of its client."""
    return [
        Step(start_ms + number * gap_ms, home_of(event.client, federation), event)  # type: ignore[attr-defined]
        for number, event in enumerate(events)
    ]
