"""Overlay networks for strategies that do not link every broker with every other.

Owns the shapes: ring, grid, random, small world and geographic. Every overlay is connected, names each link once, and
depends on the federation and the seed alone.
"""

import math
import random
from collections.abc import Callable, Iterable

from geomq.errors import UsageError
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import Federation

Links = list[tuple[BrokerId, BrokerId]]

DEGREE = 4
"""How many links a broker of a random or small-world overlay has on average."""
REWIRED = 0.2
"""The share of a small world's links that lead anywhere."""


def geographic_links(federation: Federation, *, nearest: int = 3) -> Links:
    """Each broker linked with its nearest others, and the parts that leaves joined by the shortest links."""
    ids = federation.ids
    by_length = sorted(
        ((federation.distance_m(a, b), a, b) for i, a in enumerate(ids) for b in ids[i + 1 :]),
    )
    degree = dict.fromkeys(ids, 0)
    part = {broker: broker for broker in ids}
    links: Links = []
    for _, a, b in by_length:
        joins = _root(part, a) != _root(part, b)
        if joins or min(degree[a], degree[b]) < nearest:
            links.append((a, b))
            degree[a] += 1
            degree[b] += 1
            part[_root(part, a)] = _root(part, b)
    return links


def ring_links(federation: Federation) -> Links:
    """Each broker linked with the next one eastward, and the last with the first."""
    around = _eastward(federation)
    return _unique((around[i], around[(i + 1) % len(around)]) for i in range(len(around)))


def grid_links(federation: Federation) -> Links:
    """Brokers in columns from west to east, each column from south to north, linked along columns and rows."""
    around = _eastward(federation)
    height = math.isqrt(len(around) - 1) + 1
    south_first = sorted(range(len(around)), key=lambda i: (i // height, federation.location(around[i]).lat, i))
    placed = [around[i] for i in south_first]
    found: Links = []
    for i, broker in enumerate(placed):
        if (i + 1) % height and i + 1 < len(placed):
            found.append((broker, placed[i + 1]))
        if i + height < len(placed):
            found.append((broker, placed[i + height]))
    return _unique(found)


def random_links(federation: Federation, rng: random.Random) -> Links:
    """A random tree, and random links until the average broker has four."""
    ids = list(federation.ids)
    rng.shuffle(ids)
    found = [(ids[rng.randrange(i)], ids[i]) for i in range(1, len(ids))]
    return _filled(found, ids, rng)


def small_world_links(federation: Federation, rng: random.Random) -> Links:
    """The ring with links to the next and the one after, a fifth of the latter rewired to lead anywhere."""
    around = _eastward(federation)
    found = list(ring_links(federation))
    for i, broker in enumerate(around):
        other = rng.choice(around) if rng.random() < REWIRED * 2 else around[(i + 2) % len(around)]
        found.append((broker, other))
    return _unique(found)


def _filled(found: Links, ids: list[BrokerId], rng: random.Random) -> Links:
    wanted = min(len(ids) * DEGREE // 2, len(ids) * (len(ids) - 1) // 2)
    links = dict.fromkeys(_unique(found))
    while len(links) < wanted:
        a, b = rng.sample(ids, 2)
        links[min(a, b), max(a, b)] = None
    return list(links)


TOPOLOGIES: dict[str, Callable[[Federation, random.Random], Links]] = {
    "ring": lambda federation, _: ring_links(federation),
    "grid": lambda federation, _: grid_links(federation),
    "random": random_links,
    "small world": small_world_links,
    "geographic": lambda federation, _: geographic_links(federation),
}


def overlay_links(topology: str, federation: Federation, *, seed: int = 0) -> Links:
    """The links of a named topology."""
    if topology not in TOPOLOGIES:
        raise UsageError(f"no topology {topology!r}; choose one of {', '.join(TOPOLOGIES)}")
    return TOPOLOGIES[topology](federation, random.Random(f"{seed}/{topology}"))


def hops_from(start: BrokerId, neighbours: dict[BrokerId, list[BrokerId]]) -> dict[BrokerId, int]:
    """The number of links from `start` to every broker it reaches."""
    hops, frontier = {start: 0}, [start]
    for here in frontier:
        for there in neighbours[here]:
            if there not in hops:
                hops[there] = hops[here] + 1
                frontier.append(there)
    return hops


def neighbours_in(
    brokers: Iterable[BrokerId], links: Iterable[tuple[BrokerId, BrokerId]]
) -> dict[BrokerId, list[BrokerId]]:
    """Per broker the brokers it is linked with."""
    found: dict[BrokerId, list[BrokerId]] = {broker: [] for broker in brokers}
    for a, b in links:
        if a in found and b in found:
            found[a].append(b)
            found[b].append(a)
    return found


def _eastward(federation: Federation) -> list[BrokerId]:
    return sorted(federation.ids, key=lambda broker: (federation.location(broker).lon, broker))


def _unique(links: Iterable[tuple[BrokerId, BrokerId]]) -> Links:
    return list(dict.fromkeys((min(a, b), max(a, b)) for a, b in links if a != b))


def _root(part: dict[BrokerId, BrokerId], broker: BrokerId) -> BrokerId:
    while part[broker] != broker:
        broker = part[broker]
    return broker
