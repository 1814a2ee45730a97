"""Who the brokers are, where they stand, and whose area a fence meets. Immutable; a change makes a new one."""

from collections.abc import Sequence
from typing import NamedTuple

from geomq.errors import ConfigError
from geomq.geo import Areas, Fence, Location, SoleArea, distance_m
from geomq.routing.core.model import BrokerId

CACHE_MAX = 4096
CACHE_VERTICES_MAX = 1 << 17
"""Fences are remembered until there are so many, or they have so many points: clients decide how large they are."""


class BrokerSite(NamedTuple):
    id: BrokerId
    location: Location


class Federation:
    """The brokers in a fixed order (the order `areas` counts in) and their areas."""

    def __init__(self, brokers: Sequence[BrokerSite], areas: Areas) -> None:
        self.brokers = tuple(brokers)
        self.areas = areas
        self.ids = tuple(broker.id for broker in brokers)
        self.position = {broker_id: position for position, broker_id in enumerate(self.ids)}
        if len(self.position) != len(self.brokers):
            raise ConfigError("two brokers of the federation have the same name")
        if areas.count != len(self.brokers):
            raise ConfigError(f"{len(self.brokers)} brokers but areas for {areas.count}")
        self._touched: dict[Fence, tuple[BrokerId, ...]] = {}
        self._vertices = 0

    @classmethod
    def alone(cls, me: BrokerId, location: Location | None = None) -> "Federation":
        """One broker that owns the earth."""
        return cls([BrokerSite(me, location or Location(0.0, 0.0))], SoleArea())

    def touched(self, fence: Fence | None) -> tuple[BrokerId, ...]:
        """The brokers whose area meets the fence, in federation order; no fence meets every area."""
        if fence is None:
            return self.ids
        found = self._touched.get(fence)
        if found is None:
            if len(self._touched) >= CACHE_MAX or self._vertices >= CACHE_VERTICES_MAX:
                self._touched.clear()
                self._vertices = 0
            self._vertices += fence.vertices
            found = self._touched[fence] = tuple(self.ids[i] for i in self.areas.touched(fence))
        return found

    def owner(self, location: Location) -> BrokerId | None:
        position = self.areas.owner(location)
        return None if position is None else self.ids[position]

    def nearest(self, location: Location) -> BrokerId:
        """The broker that stands nearest, the first of equals."""
        return min(self.brokers, key=lambda broker: distance_m(broker.location, location)).id

    def location(self, broker: BrokerId) -> Location:
        return self.brokers[self.position[broker]].location

    def distance_m(self, a: BrokerId, b: BrokerId) -> float:
        return distance_m(self.location(a), self.location(b))
