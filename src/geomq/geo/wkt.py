"""Well-known text of polygons: a bounded reader and a writer.

Reads POLYGON and MULTIPOLYGON with longitude before latitude, with or without Z (altitudes are dropped). The
grammar has a fixed depth, so nesting costs a refusal rather than a stack. Refuses every other geometry.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from geomq.errors import GeometryError
from geomq.geo.location import NUMBER
from geomq.geo.polygon import MultiPolygon, Polygon, Ring

T = TypeVar("T")
Position = tuple[float, float]

_TOKEN = re.compile(rf"\s*(?:({NUMBER})(?=[\s(),]|$)|([A-Za-z]+)|([(),]))")
_END = ""


def parse_wkt(text: str, *, vertices_max: int) -> Polygon | MultiPolygon:
    """Read one POLYGON or MULTIPOLYGON with at most `vertices_max` vertices."""
    reader = _Reader(text, vertices_max)
    kind = reader.take().upper()
    if kind not in ("POLYGON", "MULTIPOLYGON"):
        raise GeometryError(_refusal(kind))
    reader.read_dimensions()
    if kind == "POLYGON":
        rings = reader.items(reader.ring)
        reader.finish()
        return Polygon(rings)
    parts = reader.items(reader.rings)
    reader.finish()
    return MultiPolygon([Polygon(rings) for rings in parts])


def polygon_wkt(fence: Polygon | MultiPolygon) -> str:
    """Write the fence so that `parse_wkt` gives it back exactly."""
    if isinstance(fence, Polygon):
        return f"POLYGON {_rings_text(fence.rings)}"
    return f"MULTIPOLYGON ({', '.join(_rings_text(polygon.rings) for polygon in fence.polygons)})"


def _rings_text(rings: tuple[Ring, ...]) -> str:
    return f"({', '.join(_ring_text(ring) for ring in rings)})"


def _ring_text(ring: Ring) -> str:
    # The shortest text that reads back the same, if need be with an exponent: 1e-300 takes six characters, not 300.
    return f"({', '.join(f'{float(lon)!r} {float(lat)!r}' for lat, lon in ring)})"


def _refusal(kind: str) -> str:
    if kind in ("POINT", "MULTIPOINT"):
        return "a POINT has no area; for a circle write geo:lat,lon;u=metres"
    known = ("LINESTRING", "MULTILINESTRING", "GEOMETRYCOLLECTION", "TRIANGLE", "TIN", "CURVEPOLYGON")
    if kind in known:
        return f"{kind} is not a fence; use POLYGON or MULTIPOLYGON"
    return "fence text is neither WKT (POLYGON, MULTIPOLYGON), nor GeoJSON, nor a geo URI with u="


class _Reader:
    """Takes tokens off the text one at a time and counts the vertices it has read."""

    def __init__(self, text: str, vertices_max: int) -> None:
        self._text = text
        self._at = 0
        self._size = 2
        self._sized = False
        self._vertices = 0
        self._vertices_max = vertices_max

    def take(self) -> str:
        """The next token, or an empty one at the end."""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            rest = self._text[self._at :].strip()
            if rest:
                raise GeometryError(f"WKT: unexpected {rest[:20]!r}")
            return _END
        self._at = match.end()
        return match[match.lastindex or 0]

    def read_dimensions(self) -> None:
        """Read an optional Z; refuse M, which has no meaning here, and EMPTY."""
        before = self._at
        token = self.take().upper()
        if token == "Z":
            self._size, self._sized = 3, True
        elif token == "EMPTY":
            raise GeometryError("an EMPTY geometry is not a fence")
        elif token in ("M", "ZM"):
            raise GeometryError("WKT with measures (M) is not supported")
        else:
            self._at = before

    def items(self, read: Callable[[], T]) -> list[T]:
        """`( item, item, ... )`."""
        self._expect("(")
        found = [read()]
        while (token := self.take()) == ",":
            found.append(read())
        if token != ")":
            raise GeometryError(f"WKT: expected ',' or ')', found {token or 'the end'!r}")
        return found

    def rings(self) -> list[list[Position]]:
        return self.items(self.ring)

    def ring(self) -> list[Position]:
        return self.items(self._position)

    def finish(self) -> None:
        token = self.take()
        if token != _END:
            raise GeometryError(f"WKT has {token!r} after the end")

    def _expect(self, wanted: str) -> None:
        token = self.take()
        if token != wanted:
            raise GeometryError(f"WKT: expected {wanted!r}, found {token[:20] or 'the end'!r}")

    def _position(self) -> Position:
        self._vertices += 1
        if self._vertices > self._vertices_max:
            raise GeometryError(f"the fence has more than {self._vertices_max} vertices")
        lon, lat = self._number(), self._number()
        self._skip_altitude()
        return lat, lon

    def _skip_altitude(self) -> None:
        """Positions may have a third number even without Z, but then all of them must."""
        if not self._sized:
            before = self._at
            self._size, self._sized = (3 if self.take() not in (",", ")", _END) else 2), True
            self._at = before
        if self._size == 3:
            self._number()

    def _number(self) -> float:
        token = self.take()
        try:
            number = float(token)
        except ValueError:
            raise GeometryError(f"WKT: expected a number, found {token[:20] or 'the end'!r}") from None
        if not abs(number) < float("inf"):
            raise GeometryError(f"WKT number {token[:20]!r} is not finite")
        return number
