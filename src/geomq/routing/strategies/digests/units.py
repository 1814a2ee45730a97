"""Cells, as digests speak of places in them: nested grids of latitude and longitude, and distances in metres.

Owns plain functions of numbers, so that a kernel can compile the very same ones.
"""

import math

LEVELS = 7
"""From cells of 1/256 degree (430 m) to such of 16 degrees, each four times as wide as the one before."""
ANY = 1 << 40
"""In place of a cell: every place, and who has none."""
NOWHERE = ANY + 1
"""In place of a cell: only who has no place."""


def cell_at(lat: float, lon: float, level: int) -> int:
    """The cell a place is in."""
    row, column = int((lat + 90.0) * 256.0), int((lon + 180.0) * 256.0) % 92160
    return ((row >> (2 * level)) << 17) | (column >> (2 * level))


def cell_lat(cell: int, level: int) -> float:
    """The latitude of the cell's centre."""
    return min(90.0, (float((cell >> 17) << (2 * level)) + 0.5 * float(1 << (2 * level))) / 256.0 - 90.0)


def cell_lon(cell: int, level: int) -> float:
    """The longitude of the cell's centre."""
    column = cell & 131071
    return (float(column << (2 * level)) + 0.5 * float(1 << (2 * level))) / 256.0 - 180.0


def cell_reach_m(level: int) -> float:
    """How far a cell reaches from its centre at most."""
    half = math.sin(math.pi / 360.0 * float(1 << (2 * level)) / 256.0 / 2.0)
    return 12_742_017.5428 * math.asin(min(1.0, math.sqrt(2.0) * half)) + 1.0


def apart_m(lat_a: float, lon_a: float, lat_b: float, lon_b: float) -> float:
    """The distance of two places."""
    north = math.sin((lat_b - lat_a) * (math.pi / 360.0))
    east = math.sin((lon_b - lon_a) * (math.pi / 360.0))
    shrink = math.cos(lat_a * (math.pi / 180.0)) * math.cos(lat_b * (math.pi / 180.0))
    return 12_742_017.5428 * math.asin(min(1.0, math.sqrt(north * north + shrink * east * east)))
