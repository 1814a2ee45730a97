"""Grid areas: the earth cut into squares of whole degrees, each owned by the broker nearest to its centre.

Owns the square arithmetic and a fast exact answer to "which brokers does this circle touch": over each row of
squares a circle spans one run of columns, and the owners of any run are two look-ups in a table of
power-of-two runs. Squares count as closed towards fences, and reach 0.1 mm further, since rounding may give a
place so near a border to either side; as owners they hold their south and west edges.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geomq.errors import GeometryError
from geomq.geo.areas import Masks, broker_bits, check_some, circle_arrays, word_count
from geomq.geo.box import Box
from geomq.geo.circle import PAD_DEG, Circle
from geomq.geo.fence import Fence
from geomq.geo.location import Location, make_location
from geomq.geo.polygon import PlanarFence
from geomq.geo.sphere import EARTH_RADIUS_M, TOLERANCE_M, FloatArray, distances_m

_RADIAN = math.pi / 180.0
_CHUNK = 1 << 14


class GridAreas:
    """Squares of `field_deg` degrees, numbered row by row from the south-west corner."""

    def __init__(self, brokers: Sequence[Location], field_deg: int) -> None:
        check_some(brokers)
        if not isinstance(field_deg, int) or field_deg < 1 or 90 % field_deg != 0:
            raise GeometryError(f"field_deg {field_deg!r} must be a whole number that divides 90")
        self.brokers = tuple(make_location(*broker) for broker in brokers)
        self.count = len(self.brokers)
        self.field_deg = field_deg
        self.rows, self.columns = 180 // field_deg, 360 // field_deg
        self._owners = self._nearest_to_centres()
        self._owner_list: list[int] = self._owners.tolist()
        self._check_everyone_owns()
        self._runs = self._run_table()
        self._level = np.array([0] + [n.bit_length() - 1 for n in range(1, self.columns + 1)])
        edges = (np.arange(self.rows + 1) * field_deg - 90.0) * _RADIAN
        self._edge_sin, self._edge_cos, self._edge_width = np.sin(edges / 2), np.cos(edges / 2), np.cos(edges)

    def owner(self, location: Location) -> int:
        """The broker of the square that holds the location; a pole belongs to its row's first square."""
        lat, lon = location
        row = min(int((lat + 90.0) // self.field_deg), self.rows - 1)
        column = min(int((lon + 180.0) // self.field_deg), self.columns - 1)
        if lon == 180.0 or lat == 90.0 or lat == -90.0:
            column = 0
        return self._owner_list[row * self.columns + column]

    def owners(self, lats: ArrayLike, lons: ArrayLike) -> NDArray[np.int32]:
        """The vectorised `owner`."""
        lat, lon = np.asarray(lats, float), np.asarray(lons, float)
        row = np.minimum((lat + 90.0) // self.field_deg, self.rows - 1).astype(np.int64)
        column = np.minimum((lon + 180.0) // self.field_deg, self.columns - 1).astype(np.int64)
        column = np.where((lon == 180.0) | (np.abs(lat) == 90.0), 0, column)
        owners: NDArray[np.int32] = self._owners[row * self.columns + column]
        return owners

    def squares_of(self, broker: int) -> NDArray[np.int64]:
        """The squares a broker owns, in order."""
        return np.flatnonzero(self._owners == broker)

    def square_box(self, square: int) -> Box:
        """The latitudes and longitudes of one square."""
        row, column = divmod(int(square), self.columns)
        lat, lon = row * self.field_deg - 90.0, column * self.field_deg - 180.0
        return Box(lat, lat + self.field_deg, lon, lon + self.field_deg)

    def touched(self, fence: Fence) -> tuple[int, ...]:
        """The brokers with a square that meets the fence."""
        if isinstance(fence, Circle):
            return self._touched_by_circle(fence)
        return tuple(np.unique(self._owners[self._squares_met(fence)]).tolist())

    def touched_masks(self, lats: ArrayLike, lons: ArrayLike, radius_m: ArrayLike) -> Masks:
        """One row of broker bits per circle."""
        lat, lon, radius = circle_arrays(lats, lons, radius_m)
        masks = np.zeros((lat.size, word_count(self.count)), dtype=np.uint64)
        for start in range(0, lat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            reach = (radius[part] + TOLERANCE_M) / EARTH_RADIUS_M + PAD_DEG * _RADIAN
            self._touch(lat[part], lon[part], np.minimum(reach, math.pi), masks[part])
        return masks

    def _touched_by_circle(self, circle: Circle) -> tuple[int, ...]:
        """What `touched_masks` computes, without arrays: a broker asks for one fence at a time."""
        lat, lon = circle.center
        reach, field = circle.reach(), self.field_deg
        spread = reach / _RADIAN
        found: set[int] = set()
        for row in range(
            max(int((lat - spread + 90.0) // field), 0), min(int((lat + spread + 90.0) // field), self.rows - 1) + 1
        ):
            south = row * field - 90.0
            half = circle.band_half_width(reach, south, south + field) / _RADIAN + PAD_DEG
            west, east = int((lon + 180.0 - half) // field), int((lon + 180.0 + half) // field)
            owners = self._owner_list[row * self.columns : (row + 1) * self.columns]
            if east - west + 1 >= self.columns:
                found.update(owners)
            else:
                found.update(owners[max(west, 0) : east + 1])
                found.update(owners[west:] if west < 0 else owners[: max(east + 1 - self.columns, 0)])
        return tuple(sorted(found))

    def _touch(self, lat: FloatArray, lon: FloatArray, reach: FloatArray, masks: Masks) -> None:
        """OR into `masks` the owners that circles of angle `reach` touch, row after row northwards."""
        spread = reach / _RADIAN
        row = np.clip(np.floor((lat - spread + 90.0) / self.field_deg), 0, self.rows - 1).astype(np.int64)
        last = np.clip(np.floor((lat + spread + 90.0) / self.field_deg), 0, self.rows - 1).astype(np.int64)
        circles = _Band(lat, reach)
        tangent_row = np.floor((circles.tangent_deg + 90.0) / self.field_deg).astype(np.int64)
        at = np.arange(lat.size)
        below = self._half_width(circles, row, at)
        while at.size:
            above = self._half_width(circles, row + 1, at)
            width = np.maximum(below, above)
            np.maximum(width, circles.widest[at], out=width, where=tangent_row[at] == row)
            masks[at] |= self._owners_of_run(row, lon[at], width / _RADIAN + PAD_DEG)
            more = row < last
            at, row, last, below = at[more], row[more] + 1, last[more], above[more]

    def _half_width(self, circles: "_Band", edge: NDArray[np.int64], at: NDArray[np.int64]) -> FloatArray:
        """Half-width in radians of the circles `at` on the parallels `edge`; 0 where they do not reach."""
        near = self._edge_sin[edge] * circles.cos_half[at] - self._edge_cos[edge] * circles.sin_half[at]
        share = (circles.far[at] - near * near) / (self._edge_width[edge] * circles.cos_lat[at])
        width: FloatArray = 2.0 * np.arcsin(np.sqrt(np.clip(share, 0.0, 1.0)))
        return width

    def _owners_of_run(self, row: NDArray[np.int64], lon: FloatArray, half_deg: FloatArray) -> Masks:
        west = np.floor((lon + 180.0 - half_deg) / self.field_deg).astype(np.int64)
        east = np.floor((lon + 180.0 + half_deg) / self.field_deg).astype(np.int64)
        length = np.minimum(east - west + 1, self.columns)
        level = self._level[length]
        base = (level * self.rows + row) * self.columns
        rest = (west + length - (1 << level)) % self.columns
        runs: Masks = self._runs[base + west % self.columns] | self._runs[base + rest]
        return runs

    def _squares_met(self, fence: PlanarFence) -> NDArray[np.int64]:
        rows = np.zeros(self.rows, dtype=np.bool_)
        columns = np.zeros(self.columns, dtype=np.bool_)
        for box in fence.bounds():
            south, north = ((lat + 90.0) // self.field_deg for lat in (box.lat_min, box.lat_max))
            west, east = ((lon + 180.0) // self.field_deg for lon in (box.lon_min, box.lon_max))
            rows[max(int(south) - 1, 0) : int(north) + 1] = True
            columns[np.arange(int(west) - 1, int(east) + 1) % self.columns] = True
        squares = (np.flatnonzero(rows)[:, None] * self.columns + np.flatnonzero(columns)).ravel()
        lat = squares // self.columns * self.field_deg - 90.0
        lon = squares % self.columns * self.field_deg - 180.0
        met = fence.meets_boxes(
            np.maximum(lat - PAD_DEG, -90.0),
            np.minimum(lat + self.field_deg + PAD_DEG, 90.0),
            np.maximum(lon - PAD_DEG, -180.0),
            np.minimum(lon + self.field_deg + PAD_DEG, 180.0),
        )
        return squares[met]

    def _nearest_to_centres(self) -> NDArray[np.int32]:
        half = self.field_deg / 2.0
        lats = np.repeat(np.arange(self.rows) * self.field_deg - 90.0 + half, self.columns)
        lons = np.tile(np.arange(self.columns) * self.field_deg - 180.0 + half, self.rows)
        owners = np.zeros(lats.size, dtype=np.int32)
        nearest = np.full(lats.size, np.inf)
        for index, broker in enumerate(self.brokers):
            distance = distances_m(lats, lons, broker.lat, broker.lon)
            closer = distance < nearest
            owners[closer], nearest[closer] = index, distance[closer]
        return owners

    def _check_everyone_owns(self) -> None:
        idle = np.flatnonzero(np.bincount(self._owners, minlength=self.count) == 0)
        if idle.size:
            lat, lon = self.brokers[idle[0]]
            raise GeometryError(
                f"broker {idle[0]} at {lat},{lon} owns no square of {self.field_deg} degrees;"
                " use a smaller field_deg or move it away from its neighbours"
            )

    def _run_table(self) -> Masks:
        """Owners of every run of 2**level columns that starts at each square, wrapping round the globe."""
        level = broker_bits(self.count)[self._owners].reshape(self.rows, self.columns, -1)
        levels, length = [level], 1
        while length * 2 <= self.columns:
            level = level | np.roll(level, -length, axis=1)
            levels.append(level)
            length *= 2
        return np.concatenate(levels).reshape(-1, word_count(self.count))


class _Band:
    """What the half-width of a circle along a parallel depends on, for many circles."""

    def __init__(self, lat: FloatArray, reach: FloatArray) -> None:
        phi = lat * _RADIAN
        self.sin_half, self.cos_half, self.cos_lat = np.sin(phi / 2), np.cos(phi / 2), np.cos(phi)
        half_chord = np.sin(reach / 2)
        self.far = half_chord * half_chord
        sin_lat, cos_reach = np.sin(phi), np.cos(reach)
        no_pole = cos_reach > np.abs(sin_lat)
        sine = np.divide(sin_lat, cos_reach, out=np.full_like(lat, -1.0), where=no_pole)
        self.tangent_deg = np.where(no_pole, np.arcsin(sine) / _RADIAN, -1000.0)
        self.widest = np.arcsin(np.minimum(1.0, np.sin(reach) / self.cos_lat))
