"""The world a workload happens in: brokers, their areas, the latency between them, and the cloud's place.

Owns everything an evaluation needs to know about brokers. Immutable. Refuses to know clients one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from geomq.errors import GeometryError, GeomqError, UsageError
from geomq.geo import Areas, Circle, GridAreas, Location, PolygonAreas, degrees_to_m, distances_m
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.workload.cities import PUBLISHED, Place, choose_cities

MS_PER_KM = 0.021048134571484346
CLIENT_MS = 5
CLOUD = Location(39.022878, -77.464276)
GROUP_MS = 100

# Square sizes that divide 90 degrees, from the published 6 downwards.
FIELDS_DEG = (6, 5, 3, 2, 1)


@dataclass(frozen=True)
class World:
    """Brokers in their order, each with the grid squares nearest to it or, if radii are given, a circle."""

    places: tuple[Place, ...]
    field_deg: int
    circles_deg: tuple[float, ...] = ()

    @classmethod
    def published(cls) -> "World":
        """The 25 brokers of the published simulation."""
        return cls(PUBLISHED, 6)

    @classmethod
    def of_cities(cls, brokers: int, *, seed: int, field_deg: int | None = None) -> "World":
        """Brokers in large cities; without a field size the largest one that has room for them all."""
        if field_deg is not None:
            return cls.of_places(choose_cities(brokers, field_deg=field_deg, seed=seed), field_deg)
        for field in FIELDS_DEG[:-1]:
            try:
                return cls.of_places(choose_cities(brokers, field_deg=field, seed=seed), field)
            except GeomqError:
                continue
        return cls.of_places(choose_cities(brokers, field_deg=FIELDS_DEG[-1], seed=seed), FIELDS_DEG[-1])

    @classmethod
    def of_places(cls, places: Sequence[Place], field_deg: int | None = None) -> "World":
        """Brokers at given places; without a field size the largest one that gives each an area."""
        for field in FIELDS_DEG[:-1] if field_deg is None else ():
            world = cls(tuple(places), field)
            try:
                _ = world.areas
            except GeometryError:
                continue
            return world
        world = cls(tuple(places), FIELDS_DEG[-1] if field_deg is None else field_deg)
        try:
            _ = world.areas
        except GeometryError as error:
            raise UsageError(str(error)) from None
        return world

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def areas(self) -> Areas:
        centres = [Location(place.lat, place.lon) for place in self.places]
        if self.circles_deg:
            radii = [degrees_to_m(radius) for radius in self.circles_deg]
            return PolygonAreas([Circle(*circle) for circle in zip(centres, radii, strict=True)])
        return GridAreas(centres, self.field_deg)

    @property
    def squares(self) -> GridAreas:
        """The areas of a world of grid squares."""
        if not isinstance(self.areas, GridAreas):
            raise UsageError("this workload needs areas that are grid squares")
        return self.areas

    @cached_property
    def federation(self) -> Federation:
        """The brokers as routing knows them."""
        brokers = [BrokerSite(BrokerId(place.name), Location(place.lat, place.lon)) for place in self.places]
        return Federation(brokers, self.areas)

    @cached_property
    def populations(self) -> NDArray[np.int64]:
        return np.array([place.population for place in self.places], np.int64)

    @cached_property
    def latency_ms(self) -> NDArray[np.int32]:
        """Broker to broker, whole milliseconds; the last row and column are the cloud's."""
        lats = np.array([place.lat for place in self.places] + [CLOUD.lat])
        lons = np.array([place.lon for place in self.places] + [CLOUD.lon])
        km = distances_m(lats[:, None], lons[:, None], lats[None, :], lons[None, :]) / 1000
        # Two brokers in one place are still two brokers: a message between them takes a tick.
        ticks = np.maximum(np.ceil(km * MS_PER_KM), 1).astype(np.int32)
        np.fill_diagonal(ticks, 0)
        return ticks

    @property
    def cloud(self) -> int:
        """The cloud broker's row in `latency_ms`; it owns no area and has no clients."""
        return len(self.places)

    def clients_per_broker(self, clients: int) -> NDArray[np.int64]:
        """Clients in proportion to population, rounded down."""
        total = int(self.populations.sum())
        return np.array([int(people) * clients // total for people in self.populations], np.int64)
