"""Which brokers are `georendezvous`'s rendezvous of a topic, and in which order each broker knows them.

Owns that table for one topic, computed by the strategy's own rules. Refuses to route.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.geo import Location, distance_m
from geomq.mqtt.codec.topics import first_level
from geomq.routing.strategies.georendezvous import GeoRendezvousOptions, place_of
from geomq.workload.world import World

OPTIONS = GeoRendezvousOptions()
NOBODY = -1
NEAREST = OPTIONS.nearest


class Rendezvous(NamedTuple):
    """By broker: all rendezvous, nearest place first, and those that hold its subscriptions, itself left out.

    `path_m[publisher, via, home]` follows from `apart_m`; of equal paths the one whose broker has the smaller
    `name_rank` is better.
    """

    known: NDArray[np.int32]
    near: NDArray[np.int32]
    apart_m: NDArray[np.float64]
    name_rank: NDArray[np.int32]


class RendezvousMap:
    """The rendezvous of any topic in a world."""

    def __init__(self, world: World) -> None:
        self._here = [Location(place.lat, place.lon) for place in world.places]
        self._federation = world.federation
        self._apart_m = np.array([[distance_m(a, b) for b in self._here] for a in self._here], np.float64)
        names = [place.name for place in world.places]
        self._name_rank = np.argsort(np.argsort(np.array(names))).astype(np.int32)

    def of_topic(self, topic: str) -> Rendezvous:
        key = first_level(topic) or ""
        places = [place_of(key, number) for number in range(OPTIONS.rendezvous)]
        federation = self._federation
        owners = [federation.position[federation.owner(place) or federation.nearest(place)] for place in places]
        known = np.full((len(self._here), len(places)), NOBODY, np.int32)
        near = np.full((len(self._here), NEAREST), NOBODY, np.int32)
        for broker, here in enumerate(self._here):
            order = sorted(range(len(places)), key=lambda i, here=here: distance_m(here, places[i]))  # type: ignore[misc]
            mine = list(dict.fromkeys(owners[i] for i in order))
            known[broker, : len(mine)] = mine
            for slot, owner in enumerate(mine[:NEAREST]):
                near[broker, slot] = owner if owner != broker else NOBODY
        return Rendezvous(known, near, self._apart_m, self._name_rank)
