"""What a change of areas moves: how much of the earth goes from which broker to which."""

from typing import NamedTuple

import numpy as np

from geomq.geo import EARTH_RADIUS_M
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import Federation

POINTS = 20_000
"""Places looked at, spread evenly: each stands for 25,000 square kilometres."""
_TURN = np.pi * (3.0 - np.sqrt(5.0))


class Moved(NamedTuple):
    """So much of the earth goes from one broker to another; None is nobody."""

    from_: BrokerId | None
    to: BrokerId | None
    km2: float


def area_moves(before: Federation, after: Federation) -> list[Moved]:
    """The largest first; accurate to about one place in `POINTS`."""
    number = np.arange(POINTS) + 0.5
    lats = np.degrees(np.arcsin(1.0 - 2.0 * number / POINTS))
    lons = np.degrees(number * _TURN) % 360.0 - 180.0
    pairs = np.stack([before.areas.owners(lats, lons), after.areas.owners(lats, lons)], axis=1)
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    km2 = 4.0 * np.pi * (EARTH_RADIUS_M / 1000.0) ** 2 / POINTS
    moves = [
        Moved(_name(before, source), _name(after, target), round(int(count) * km2))
        for (source, target), count in zip(found.tolist(), counts, strict=True)
    ]
    return sorted((move for move in moves if move.from_ != move.to), key=lambda move: -move.km2)


def _name(federation: Federation, position: int) -> BrokerId | None:
    return None if position < 0 else federation.ids[position]
