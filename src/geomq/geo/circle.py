"""Circles: everything within a great-circle radius of a centre, border included.

Owns the exact tests of a circle against points and against latitude/longitude boxes. The box test rests on
one fact: over a band of latitudes a circle spans, around its centre's meridian, the greatest half-width it
has at any latitude of the band, and that is at the band's edges or where a meridian is tangent to the
circle.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geomq.errors import GeometryError
from geomq.geo.box import Box
from geomq.geo.location import Location, make_location
from geomq.geo.sphere import (
    HALF_CIRCUMFERENCE_M,
    TOLERANCE_M,
    chord_limit,
    m_to_degrees,
    unit_vector,
    unit_vectors,
)

PAD_DEG = 1e-9
"""About 0.1 mm added to derived angles, so that their rounding never leaves out a point that is inside."""

_RADIAN = math.pi / 180.0


@dataclass(frozen=True, slots=True)
class Circle:
    """A fence of all places within `radius_m` of `center`."""

    center: Location
    radius_m: float
    x: float = field(init=False, repr=False, compare=False)
    y: float = field(init=False, repr=False, compare=False)
    z: float = field(init=False, repr=False, compare=False)
    limit: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        center = make_location(*self.center)
        try:
            radius_m = float(self.radius_m)
        except (TypeError, ValueError, OverflowError):
            raise GeometryError("a radius must be a number of metres") from None
        if not 0.0 <= radius_m <= HALF_CIRCUMFERENCE_M + TOLERANCE_M:
            raise GeometryError(f"radius {radius_m!r} m is not between 0 and {HALF_CIRCUMFERENCE_M:.0f} m")
        x, y, z = unit_vector(center.lat, center.lon)
        assign = object.__setattr__
        assign(self, "center", center)
        assign(self, "radius_m", radius_m)
        assign(self, "x", x)
        assign(self, "y", y)
        assign(self, "z", z)
        assign(self, "limit", chord_limit(radius_m))

    @property
    def vertices(self) -> int:
        """How many points it is made of."""
        return 1

    def contains(self, location: Location) -> bool:
        """True if the location is inside or on the border."""
        phi, lam = location[0] * _RADIAN, location[1] * _RADIAN
        cos_phi = math.cos(phi)
        dx, dy, dz = (
            cos_phi * math.cos(lam) - self.x,
            cos_phi * math.sin(lam) - self.y,
            math.sin(phi) - self.z,
        )
        return dx * dx + dy * dy + dz * dz <= self.limit

    def contains_many(self, lats: ArrayLike, lons: ArrayLike) -> NDArray[np.bool_]:
        """The vectorised `contains`."""
        x, y, z = unit_vectors(lats, lons)
        dx, dy, dz = x - self.x, y - self.y, z - self.z
        inside: NDArray[np.bool_] = dx * dx + dy * dy + dz * dz <= self.limit
        return inside

    def bounds(self) -> tuple[Box, ...]:
        """One box that holds the circle, or two where it crosses the antimeridian."""
        lat, lon = self.center
        reach = self.reach()
        south, north = lat - reach / _RADIAN, lat + reach / _RADIAN
        if south <= -90.0 or north >= 90.0:
            return (Box(max(south, -90.0), min(north, 90.0), -180.0, 180.0),)
        half = self._widest(reach) / _RADIAN + PAD_DEG
        west, east = lon - half, lon + half
        if west < -180.0:
            return (Box(south, north, -180.0, east), Box(south, north, west + 360.0, 180.0))
        if east > 180.0:
            return (Box(south, north, west, 180.0), Box(south, north, -180.0, east - 360.0))
        return (Box(south, north, west, east),)

    def meets_box(self, box: Box) -> bool:
        """True if the closed circle and the closed box share a point."""
        lat, lon = self.center
        reach = self.reach()
        if box.lat_min > lat + reach / _RADIAN or box.lat_max < lat - reach / _RADIAN:
            return False
        gap = max(0.0, box.lon_min - lon, lon - box.lon_max)
        if gap > 0.0:
            gap = min(gap, 360.0 - max(abs(lon - box.lon_min), abs(lon - box.lon_max)))
        return gap <= self.band_half_width(reach, box.lat_min, box.lat_max) / _RADIAN + PAD_DEG

    def reach(self) -> float:
        """The radius as an angle in radians, border tolerance and padding included."""
        return (m_to_degrees(self.radius_m + TOLERANCE_M) + PAD_DEG) * _RADIAN

    def band_half_width(self, reach: float, lat_min: float, lat_max: float) -> float:
        """Greatest half-width in longitude, in radians, that the circle has between two latitudes."""
        widest = max(self._half_width(reach, lat_min), self._half_width(reach, lat_max))
        sin_phi, cos_reach = self.z, math.cos(reach)
        if cos_reach > abs(sin_phi):
            tangent = math.asin(sin_phi / cos_reach) / _RADIAN
            if lat_min - PAD_DEG <= tangent <= lat_max + PAD_DEG:
                widest = max(widest, self._widest(reach))
        return widest

    def _half_width(self, reach: float, lat: float) -> float:
        """Half-width in longitude, in radians, at one latitude; 0 where the circle does not reach."""
        phi, phi0 = lat * _RADIAN, self.center.lat * _RADIAN
        near, far = math.sin((phi - phi0) / 2.0), math.sin(min(reach, math.pi) / 2.0)
        share = (far * far - near * near) / (math.cos(phi) * math.cos(phi0))
        return 2.0 * math.asin(math.sqrt(min(1.0, max(0.0, share))))

    def _widest(self, reach: float) -> float:
        """Half-width in radians at the latitude where a meridian is tangent; only if no pole is inside."""
        return math.asin(min(1.0, math.sin(reach) / math.cos(self.center.lat * _RADIAN)))
