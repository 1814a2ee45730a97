"""Polygons and multipolygons: rings of locations joined by edges that are straight in longitude and latitude.

Rules: borders belong to the fence; holes are open. Longitudes lie in -180..180 and no edge spans more than
180 degrees, save along a pole where all longitudes are one place; what crosses the antimeridian is split
there into a multipolygon (RFC 7946). The meridians 180 and -180 are one, and a polygon that touches a pole
holds it. Invalid rings are refused, never repaired: every instance that exists is valid.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import shapely
from numpy.typing import ArrayLike, NDArray

from geomq.errors import GeometryError
from geomq.geo.box import Box
from geomq.geo.location import Location, make_location

Ring = tuple[Location, ...]


@dataclass(frozen=True, slots=True)
class PlanarFence:
    """What polygons and multipolygons share: a prepared shape in the longitude/latitude plane."""

    shape: Any = field(init=False, repr=False, compare=False)
    extent: Box = field(init=False, repr=False, compare=False)
    digest: int = field(init=False, repr=False, compare=False)

    @property
    def vertices(self) -> int:
        """How many points it is made of, which is what its memory grows with."""
        return int(shapely.get_num_coordinates(self.shape))

    def contains(self, location: Location) -> bool:
        """True if the location is inside or on the border."""
        lat, lon = location
        south, north, west, east = self.extent
        if lat < south or lat > north:
            return False
        if lat == 90.0 or lat == -90.0:
            return True
        if west <= lon <= east and shapely.intersects_xy(self.shape, lon, lat):
            return True
        opposite = _opposite(lon)
        return opposite is not None and bool(shapely.intersects_xy(self.shape, opposite, lat))

    def contains_many(self, lats: ArrayLike, lons: ArrayLike) -> NDArray[np.bool_]:
        """The vectorised `contains`."""
        lat, lon = np.broadcast_arrays(np.asarray(lats, float), np.asarray(lons, float))
        inside = np.array(shapely.intersects_xy(self.shape, lon, lat), dtype=np.bool_)
        seam = np.abs(lon) == 180.0
        if seam.any():
            inside[seam] |= shapely.intersects_xy(self.shape, -lon[seam], lat[seam])
        inside |= (lat == 90.0) & (self.extent.lat_max == 90.0)
        inside |= (lat == -90.0) & (self.extent.lat_min == -90.0)
        return inside

    def bounds(self) -> tuple[Box, ...]:
        """Boxes that together hold the fence: one per side of the globe, plus the other names of its seam and poles."""
        boxes = [named for box in self.part_boxes() for named in _with_seam(box)]
        south, north, _, _ = self.extent
        if south == -90.0:
            boxes.append(Box(-90.0, -90.0, -180.0, 180.0))
        if north == 90.0:
            boxes.append(Box(90.0, 90.0, -180.0, 180.0))
        return tuple(boxes)

    def part_boxes(self) -> tuple[Box, ...]:
        """Boxes that are not flat and hold the fence, but for the other names of its seam and poles."""
        return (self.extent,)

    def meets_box(self, box: Box) -> bool:
        """True if the closed fence and the closed box share a point."""
        return any(shapely.intersects(self.shape, _box_shape(part)) for part in _with_seam(box)) or (
            (box.lat_max == 90.0 and self.extent.lat_max == 90.0)
            or (box.lat_min == -90.0 and self.extent.lat_min == -90.0)
        )

    def meets_boxes(
        self, lat_min: ArrayLike, lat_max: ArrayLike, lon_min: ArrayLike, lon_max: ArrayLike
    ) -> NDArray[np.bool_]:
        """The vectorised `meets_box`, for boxes that are not flat."""
        edges = np.broadcast_arrays(*(np.asarray(edge, float) for edge in (lat_min, lat_max, lon_min, lon_max)))
        south, north, west, east = edges
        met = np.array(shapely.intersects(self.shape, shapely.box(west, south, east, north)), dtype=np.bool_)
        rim = (south == -90.0) | (north == 90.0) | (west == -180.0) | (east == 180.0)
        for index in np.flatnonzero(rim & ~met):
            met[index] = self.meets_box(Box(*(float(edge[index]) for edge in edges)))
        return met

    def meets_shape(self, other: "PlanarFence") -> bool:
        """True if two closed planar fences share a point."""
        if shapely.intersects(self.shape, other.shape):
            return True
        mine, theirs = self.extent, other.extent
        if (mine.lat_max == theirs.lat_max == 90.0) or (mine.lat_min == theirs.lat_min == -90.0):
            return True
        return (mine.lon_max == 180.0 and theirs.lon_min == -180.0 and self._meets_shifted(other.shape, 360.0)) or (
            mine.lon_min == -180.0 and theirs.lon_max == 180.0 and self._meets_shifted(other.shape, -360.0)
        )

    def _meets_shifted(self, shape: Any, degrees: float) -> bool:
        moved = shapely.transform(shape, lambda points: points + np.array((degrees, 0.0)))
        return bool(shapely.intersects(self.shape, moved))

    def _settle(self, shape: Any, digest: int) -> None:
        """Check `shape` and keep it prepared for many tests."""
        if not shapely.is_valid(shape):
            raise GeometryError(f"not a valid fence: {shapely.is_valid_reason(shape)} (longitude latitude)")
        if not shapely.area(shape) > 0.0:
            raise GeometryError("not a valid fence: its area is zero")
        shapely.prepare(shape)
        west, south, east, north = (float(edge) for edge in shapely.bounds(shape))
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "extent", Box(south, north, west, east))
        object.__setattr__(self, "digest", digest)


@dataclass(frozen=True, slots=True)
class Polygon(PlanarFence):
    """One outer ring and any holes; each ring is closed and given as (lat, lon) pairs."""

    rings: tuple[Ring, ...]

    def __init__(self, rings: Sequence[Sequence[tuple[float, float]]]) -> None:
        checked = tuple(_checked_ring(ring) for ring in rings)
        if not checked:
            raise GeometryError("a polygon needs an outer ring")
        object.__setattr__(self, "rings", checked)
        outer, *holes = ([(lon, lat) for lat, lon in ring] for ring in checked)
        self._settle(shapely.Polygon(outer, holes), hash(checked))

    def __hash__(self) -> int:
        return self.digest

    def __reduce__(self) -> tuple[type["Polygon"], tuple[tuple[Ring, ...]]]:
        return Polygon, (self.rings,)


@dataclass(frozen=True, slots=True)
class MultiPolygon(PlanarFence):
    """Polygons that do not overlap; also how a fence across the antimeridian is written."""

    polygons: tuple[Polygon, ...]

    def __init__(self, polygons: Sequence[Polygon]) -> None:
        parts = tuple(polygons)
        if not parts:
            raise GeometryError("a multipolygon needs at least one polygon")
        object.__setattr__(self, "polygons", parts)
        self._settle(shapely.MultiPolygon([part.shape for part in parts]), hash(parts))

    def __hash__(self) -> int:
        return self.digest

    def __reduce__(self) -> tuple[type["MultiPolygon"], tuple[tuple[Polygon, ...]]]:
        return MultiPolygon, (self.polygons,)

    def part_boxes(self) -> tuple[Box, ...]:
        """One box, or two when the parts lie on both sides of the antimeridian rather than of Greenwich."""
        if self.extent.lon_max - self.extent.lon_min <= 180.0:
            return (self.extent,)
        sides: tuple[list[Box], list[Box]] = ([], [])
        for polygon in self.polygons:
            box = polygon.extent
            sides[box.lon_min + box.lon_max >= 0.0].append(box)
        return tuple(_hull(side) for side in sides if side)


def _checked_ring(points: Sequence[tuple[float, float]]) -> Ring:
    ring = tuple(make_location(lat, lon) for lat, lon in points)
    if len(ring) < 4:
        raise GeometryError(f"a ring needs at least 4 points, the last equal to the first; this one has {len(ring)}")
    if ring[0] != ring[-1]:
        raise GeometryError("a ring must end at the point where it starts")
    lat, lon = ring[0]
    for next_lat, next_lon in ring:
        if abs(next_lon - lon) > 180.0 and not (lat == next_lat and abs(lat) == 90.0):
            raise GeometryError(
                f"the edge from longitude {lon!r} to {next_lon!r} spans more than 180 degrees;"
                " split the fence at the antimeridian into a MULTIPOLYGON or add a point between"
            )
        lat, lon = next_lat, next_lon
    return ring


def _opposite(lon: float) -> float | None:
    """The other name of the antimeridian, if `lon` is one."""
    return -lon if lon == 180.0 or lon == -180.0 else None


def _with_seam(box: Box) -> Iterator[Box]:
    yield box
    if box.lon_min == -180.0:
        yield Box(box.lat_min, box.lat_max, 180.0, 180.0)
    if box.lon_max == 180.0:
        yield Box(box.lat_min, box.lat_max, -180.0, -180.0)


def _box_shape(box: Box) -> Any:
    """The box as a shape; a flat one must not be a polygon, which would be invalid."""
    if box.lat_min < box.lat_max and box.lon_min < box.lon_max:
        return shapely.box(box.lon_min, box.lat_min, box.lon_max, box.lat_max)
    if box.lat_min == box.lat_max and box.lon_min == box.lon_max:
        return shapely.Point(box.lon_min, box.lat_min)
    return shapely.LineString([(box.lon_min, box.lat_min), (box.lon_max, box.lat_max)])


def _hull(boxes: list[Box]) -> Box:
    return Box(
        min(box.lat_min for box in boxes),
        max(box.lat_max for box in boxes),
        min(box.lon_min for box in boxes),
        max(box.lon_max for box in boxes),
    )
