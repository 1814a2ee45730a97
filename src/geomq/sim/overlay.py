"""Overlay networks for strategies that do not link every broker with every other."""

from geomq.routing.federation import Federation
from geomq.routing.model import BrokerId

Links = list[tuple[BrokerId, BrokerId]]


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


def _root(part: dict[BrokerId, BrokerId], broker: BrokerId) -> BrokerId:
    while part[broker] != broker:
        broker = part[broker]
    return broker
