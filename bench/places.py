"""A world for the geo loads: subscribers that move, events with fences, and who has to receive each.

Made before anything is measured, from a fixed seed. With every event one subscriber moves a step; it is never one that
the event concerns, so the outcome does not hang on which of the two the broker sees first.
"""

import math
import random
from dataclasses import dataclass

from geomq.geo import Circle, Location, make_location

SIDE_DEG = 1.0
SOUTH, WEST = 48.0, 11.0
STEP_DEG = 0.001
"""About 100 m: what a car in a city covers between two location updates."""

RECEIVERS = 10
_BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Step:
    """One subscriber moved, one event was published."""

    mover: int
    before: Location
    place: Location
    fence: Circle
    receivers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class World:
    """Where everybody starts, and what happens."""

    places: tuple[Location, ...]
    steps: tuple[Step, ...]
    radius_m: int


def make_world(subscribers: int, steps: int) -> World:
    """A square of one degree, uniformly filled; fences sized for about ten receivers."""
    dice = random.Random(subscribers)
    start = [_random_place(dice) for _ in range(subscribers)]
    square_m2 = (SIDE_DEG * 111_195.0) ** 2 * math.cos(math.radians(SOUTH + SIDE_DEG / 2))
    radius_m = round(math.sqrt(RECEIVERS * square_m2 / (math.pi * subscribers)))
    places, made = list(start), []
    for _ in range(steps):
        center = places[dice.randrange(subscribers)]
        fence = Circle(center, radius_m)
        inside = tuple(i for i in _near(places, center, radius_m) if fence.contains(places[i]))
        while True:
            mover = dice.randrange(subscribers)
            place = _moved(dice, places[mover])
            if mover not in inside and not fence.contains(place):
                break
        made.append(Step(mover, places[mover], place, fence, inside))
        places[mover] = place
    return World(tuple(start), tuple(made), radius_m)


def _near(places: list[Location], center: Location, radius_m: float) -> list[int]:
    reach = radius_m / 111_000.0
    return [i for i, place in enumerate(places) if abs(place.lat - center.lat) <= reach]


def _random_place(dice: random.Random) -> Location:
    return _place(SOUTH + dice.random() * SIDE_DEG, WEST + dice.random() * SIDE_DEG)


def _moved(dice: random.Random, place: Location) -> Location:
    heading = dice.random() * math.tau
    return _place(place.lat + STEP_DEG * math.cos(heading), place.lon + STEP_DEG * math.sin(heading))


def _place(lat: float, lon: float) -> Location:
    """Five decimals inside the square, so that every location text is equally long and exact."""
    south, west = max(SOUTH, min(SOUTH + SIDE_DEG - 1e-5, lat)), max(WEST, min(WEST + SIDE_DEG - 1e-5, lon))
    return make_location(round(south, 5), round(west, 5))


def location_text(place: Location) -> str:
    return f"{place.lat:.5f},{place.lon:.5f}"


def fence_text(fence: Circle) -> str:
    return f"geo:{location_text(fence.center)};u={fence.radius_m:.0f}"


# Geohash cells, as an application would use them on a broker without geography.


def cell_size_deg(precision: int) -> tuple[float, float]:
    """Height and width of a cell."""
    bits = 5 * precision
    return 180.0 / (1 << bits // 2), 360.0 / (1 << (bits + 1) // 2)


def cell_of(place: Location, precision: int) -> str:
    """The geohash of the cell a place lies in."""
    height, width = cell_size_deg(precision)
    return _name(int((place.lat + 90.0) / height), int((place.lon + 180.0) / width), precision)


def _name(row: int, column: int, precision: int) -> str:
    bits = 5 * precision
    number = 0
    for place in range(bits):
        axis, index = (column, (bits + 1) // 2) if place % 2 == 0 else (row, bits // 2)
        number = number << 1 | axis >> (index - 1 - place // 2) & 1
    return "".join(_BASE32[number >> 5 * (precision - 1 - i) & 31] for i in range(precision))


def cells_over(fence: Circle, precision: int) -> tuple[str, ...]:
    """The cells of the box around a circle that come within its radius."""
    height, width = cell_size_deg(precision)
    center, radius_m = fence.center, fence.radius_m
    up = radius_m / 111_195.0
    aside = up / math.cos(math.radians(abs(center.lat) + up))
    rows = range(int((center.lat - up + 90.0) / height), int((center.lat + up + 90.0) / height) + 1)
    columns = range(int((center.lon - aside + 180.0) / width), int((center.lon + aside + 180.0) / width) + 1)
    found = []
    for row in rows:
        for column in columns:
            south, west = row * height - 90.0, column * width - 180.0
            nearest = make_location(
                max(south, min(south + height, center.lat)), max(west, min(west + width, center.lon))
            )
            if fence.contains(nearest):
                found.append(_name(row, column, precision))
    return tuple(found)


def best_precision(world: World) -> int:
    """The cell size that gives the broker the least to do: publishes, deliveries and changed subscriptions."""

    def work(precision: int) -> float:
        cells = {i: cell_of(place, precision) for i, place in enumerate(world.places)}
        members: dict[str, int] = {}
        for cell in cells.values():
            members[cell] = members.get(cell, 0) + 1
        total = 0.0
        for step in world.steps[:50]:
            over = cells_over(step.fence, precision)
            total += len(over) + sum(members.get(cell, 0) for cell in over)
            total += 2 * (cell_of(step.before, precision) != cell_of(step.place, precision))
        return total

    return min((4, 5, 6), key=work)
