"""How long a message takes between brokers. Perfect links: in order, nothing lost."""

import math
from collections.abc import Mapping

from geomq.geo import Location, distance_m
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import Federation

MS_PER_KM = 0.021048134571484346
CLIENT_LATENCY_MS = 5
CLOUD = BrokerId("cloud")
CLOUD_LOCATION = Location(39.022878, -77.464276)
"""Where the published simulation has its cloud broker."""


def distance_latency_ms(a: Location, b: Location) -> int:
    """Whole milliseconds for the distance between two places, at least one."""
    return max(1, math.ceil(distance_m(a, b) / 1000 * MS_PER_KM))


class Latencies:
    """The one-way latency of each pair of brokers (the cloud is one), by distance unless a table says otherwise."""

    def __init__(
        self,
        federation: Federation,
        *,
        cloud: Location = CLOUD_LOCATION,
        given_ms: Mapping[tuple[BrokerId, BrokerId], int] | None = None,
    ) -> None:
        self._places = {broker.id: broker.location for broker in federation.brokers}
        self._places[CLOUD] = cloud
        self._ms: dict[tuple[BrokerId, BrokerId], int] = dict(given_ms or {})

    def __call__(self, source: BrokerId, target: BrokerId) -> int:
        pair = (source, target)
        found = self._ms.get(pair)
        if found is None:
            found = self._ms[pair] = distance_latency_ms(self._places[source], self._places[target])
        return found
