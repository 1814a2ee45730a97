"""Neighbours of which a broker, since its start, does not know yet in which meshes they are.

A broker that starts again has forgotten its meshes, and may stop again before it is in them. So acknowledged events go
to these neighbours, too, and wait for those that are away: whoever is in the mesh passes them on along it.
"""

from collections.abc import Iterable
from math import inf

from geomq.routing.core.model import BrokerId


class UnheardNeighbours:
    """One counts until it has been linked for as long as its announcements take; or for `patience_ms` at most."""

    def __init__(self, neighbours: Iterable[BrokerId], *, announced_ms: float, patience_ms: float) -> None:
        self._until_ms = dict.fromkeys(neighbours, inf)
        self._announced_ms = announced_ms
        self._patience_ms = patience_ms

    def linked(self, neighbour: BrokerId, *, now: float) -> None:
        """From now on the neighbour can say what it is in."""
        until_ms = self._until_ms.get(neighbour)
        if until_ms is not None:
            self._until_ms[neighbour] = min(until_ms, now + self._announced_ms)

    def removed(self, neighbour: BrokerId) -> None:
        self._until_ms.pop(neighbour, None)

    def current(self, *, now: float) -> list[BrokerId]:
        for neighbour, until_ms in tuple(self._until_ms.items()):
            if until_ms <= now:
                del self._until_ms[neighbour]
            elif until_ms == inf:
                self._until_ms[neighbour] = now + max(self._patience_ms, self._announced_ms)
        return list(self._until_ms)
