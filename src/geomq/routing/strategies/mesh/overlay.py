"""The overlay: which brokers of the federation are linked. It only answers who is whose neighbour."""

from collections.abc import Iterable

from geomq.errors import ConfigError
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import Federation

Links = tuple[tuple[BrokerId, BrokerId], ...]


def check_links(links: Links | None, federation: Federation) -> None:
    """Raise ConfigError unless the links connect all brokers of the federation and name no others."""
    for a, b in links or ():
        for end in (a, b):
            if end not in federation.position:
                raise ConfigError(f"mesh link {a}-{b}: the federation has no broker {end}")
        if a == b:
            raise ConfigError(f"mesh link {a}-{b} links a broker with itself")
    start = federation.ids[0]
    reached = _reachable(start, links, federation.ids)
    for broker in federation.ids:
        if broker not in reached:
            raise ConfigError(f"the mesh links leave broker {broker} without a path to broker {start}")


def neighbours_of(me: BrokerId, links: Links | None, brokers: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    """The brokers linked with `me`, in federation order. One that no link names is linked with every other,
    so that a broker that joins later is not left alone."""
    named = {end for link in links or () for end in link}
    linked = {b if a == me else a for a, b in links or () if me in (a, b)}
    everyone = me not in named
    return tuple(b for b in brokers if b != me and (everyone or b in linked or b not in named))


def _reachable(start: BrokerId, links: Links | None, brokers: tuple[BrokerId, ...]) -> set[BrokerId]:
    linked: dict[BrokerId, list[BrokerId]] = {}
    for a, b in links or ():
        linked.setdefault(a, []).append(b)
        linked.setdefault(b, []).append(a)
    if any(broker not in linked for broker in brokers):
        return set(brokers)  # one that no link names is linked with every other
    reached, frontier = {start}, [start]
    while frontier:
        for neighbour in linked[frontier.pop()]:
            if neighbour not in reached:
                reached.add(neighbour)
                frontier.append(neighbour)
    return reached
